package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ramjet/config"
	"ramjet/engine"
	"ramjet/gpu"
	"ramjet/proxy"
	"ramjet/route"
	"ramjet/web"
)

// reloads is what it takes to load the configuration again.
type reloads struct {
	load    func() (*config.Config, error) // nil: there is nothing to load again
	tls     atomic.Pointer[tls.Config]     // of the public port
	watched *fileWatch                     // nil: no file is looked at

	reloading sync.Mutex             // one at a time; guards what follows
	life      context.Context        // of what runs; nil before and after
	lastSlot  int                    // that was given to an engine
	seen      prints                 // of the files when they were last read
	same      map[string]os.FileInfo // of those files, to know one again that is written in place
	taken     prints                 // of the files that are in force

	files atomic.Pointer[[]string] // the names in seen
}

// plan is a reload that cannot fail any more.
type plan struct {
	cfg              *config.Config // as it will be in force
	changed, restart []string       // keys
	seats            []seat
	read
}

// seat is an engine of the new configuration.
type seat struct {
	cfg      *config.Engine
	settings engine.Settings
	was      *member // nil: it is new
	slot     int
}

// refed reports whether its events come from elsewhere than before.
func (s *seat) refed() bool {
	return s.was.cfg.Events != s.cfg.Events || s.was.cfg.Replay != s.cfg.Replay || s.was.cfg.Topic != s.cfg.Topic
}

// reload loads the configuration again and takes over what a running process
// can. It takes all of that or nothing: what is wrong anywhere leaves
// everything as it was. how says who wanted it.
func (a *app) reload(how string) web.Reloaded {
	if a.load == nil {
		return web.Reloaded{Err: errors.ErrUnsupported}
	}
	a.reloading.Lock()
	defer a.reloading.Unlock()
	if a.life == nil || a.life.Err() != nil {
		return web.Reloaded{Err: errors.New("ramjet does not run")}
	}
	var p *plan
	err := a.halfWritten(how)
	if err == nil {
		p, err = a.loadAgain()
	}
	if a.watched != nil {
		a.watched.rescan()
	}
	if err != nil {
		return a.refuse(how, err)
	}
	a.commit(p)
	a.metrics.SetReload(true, time.Now())
	r := web.Reloaded{Digest: p.cfg.Digest(), Changed: p.changed, NeedsRestart: p.restart}
	for _, w := range p.cfg.Warnings {
		a.log.Warn(w.String())
		r.Warnings = append(r.Warnings, w.String())
	}
	a.log.Info("configuration reloaded", "by", how, "changed", fmt.Sprint(p.changed), "digest", r.Digest)
	if len(p.restart) > 0 {
		a.log.Warn("settings that need a restart stay as they were", "settings", fmt.Sprint(p.restart))
	}
	return r
}

// followFiles reloads at a signal and when a file changed.
func (a *app) followFiles(hangUps <-chan os.Signal) {
	ctx := a.life
	a.reloading.Lock()
	a.watched = newFileWatch(a.log, func() []string { return *a.files.Load() }, a.filesChanged)
	a.reloading.Unlock()
	if a.watched != nil {
		a.wg.Go(func() { a.watched.run(ctx) })
	}
	a.filesChanged() // what changed while nobody watched
	a.wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangUps:
				a.reload("SIGHUP")
			}
		}
	})
}

// filesChanged reloads if a file has another content than when it was read.
func (a *app) filesChanged() {
	a.reloading.Lock()
	same := maps.Equal(printsOf(*a.files.Load()), a.seen)
	a.reloading.Unlock()
	if !same {
		a.reload(byFile)
	}
}

// byFile is who wanted a reload that nobody asked for.
const byFile = "a file's change"

// halfWritten tells why a file that changed by itself is not read yet: it is
// the file that it was, not another one in its place, and it is empty or ends
// inside a line. The first half of a configuration can be one too, without the
// keys that guard the port.
func (a *app) halfWritten(how string) error {
	if how != byFile {
		return nil
	}
	was := a.same
	a.saw(printsOf(*a.files.Load())) // so that its end is a change
	cfg := a.current.Load()
	var problems config.Problems
	for _, name := range []string{cfg.File(), cfg.Auth.KeysFile} {
		// One that stands as it was taken is whole enough, whatever the other one is.
		if now := a.same[name]; now != nil && a.seen[name] != a.taken[name] && os.SameFile(was[name], now) && !endsLine(name) {
			problems = append(problems, config.Problem{
				File: name, Message: "it is empty, or ends inside a line, as while it is written",
				Hint: "end it with a newline, or send SIGHUP to take it as it is",
			})
		}
	}
	if len(problems) > 0 {
		return problems
	}
	return nil
}

// loadAgain reads the configuration and what it names. Fingerprints are taken
// before anything is read, so that what changes meanwhile is read once more.
func (a *app) loadAgain() (*plan, error) {
	file := a.current.Load().File()
	if file != "" {
		a.seen[file] = printOf(file)
	}
	next, err := a.load()
	if err != nil {
		return nil, err
	}
	seen := printsOf(readFiles(next))
	if file != "" {
		seen[file] = a.seen[file]
	}
	a.saw(seen)
	p, err := a.prepare(next)
	if err == nil {
		a.taken = maps.Clone(seen)
	}
	return p, err
}

// saw notes what the files hold.
func (a *app) saw(seen prints) {
	a.seen, a.same = seen, map[string]os.FileInfo{}
	names := slices.Sorted(maps.Keys(seen))
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			a.same[name] = info
		}
	}
	a.files.Store(&names)
}

// maxProblems bounds the lines that one refused reload logs.
const maxProblems = 20

// refuse tells everyone that the old configuration stays.
func (a *app) refuse(how string, err error) web.Reloaded {
	a.metrics.SetReload(false, time.Now())
	r := web.Reloaded{Err: err, Digest: a.current.Load().Digest()}
	var problems config.Problems
	if !errors.As(err, &problems) {
		problems = config.Problems{{Message: err.Error()}}
	}
	for i, p := range problems {
		if i < maxProblems {
			a.log.Error("the configuration cannot be used", "problem", p.String())
		}
		message := p.Message
		if p.Hint != "" {
			message += "; " + p.Hint
		}
		r.Problems = append(r.Problems, web.ReloadProblem{File: p.File, Line: p.Line, Column: p.Col, Key: p.Key, Message: message})
	}
	a.log.Error("the old configuration stays in use", "by", how, "problems", len(problems), "digest", r.Digest)
	return r
}

// prepare reads what the new configuration names and places its engines. It
// changes nothing.
func (a *app) prepare(next *config.Config) (*plan, error) {
	p := &plan{}
	running := a.current.Load()
	changed, restart := config.Diff(running, next)
	p.cfg, p.restart = config.Keep(running, next), restart
	for _, key := range changed {
		if !slices.Contains(restart, key) {
			p.changed = append(p.changed, key)
		}
	}
	var problems config.Problems
	if p.read, problems = readNamed(p.cfg); len(problems) > 0 {
		return nil, problems
	}
	var err error
	p.seats, err = a.place(p.cfg, p.keys)
	return p, err
}

// read is what a configuration's files hold, ready to be used.
type read struct {
	proxy proxy.Settings
	route route.Settings
	tls   *tls.Config // nil without
	gpus  gpu.Options
	token string
	keys  []string // of the engines
}

// readNamed reads what a configuration names, each with the reader of those who
// will use it.
func readNamed(cfg *config.Config) (r read, problems config.Problems) {
	check := func(key string, err error) {
		if err != nil {
			problems = append(problems, cfg.Problem(key, err))
		}
	}
	var err error
	r.proxy, err = proxySettings(cfg)
	check("auth.keys_file", err)
	r.route, err = routeSettings(cfg)
	check("route.cohort_key_file", err)
	r.gpus, err = gpuOptions(cfg)
	check("gpu.dcgm", err)
	r.token, err = secret(cfg.Admin.TokenFile)
	check("admin.token_file", err)
	r.tls, err = tlsConfig(cfg)
	check("tls.cert", err)
	for i := range cfg.Engines {
		c := &cfg.Engines[i]
		key, err := secret(c.APIKeyFile)
		check("engines."+c.Name+".api_key_file", err)
		r.keys = append(r.keys, key)
	}
	return r, problems
}

// usable tells what keeps serve from using a configuration's files.
func usable(cfg *config.Config) config.Problems {
	_, problems := readNamed(cfg)
	return problems
}

// place gives every engine of a configuration its seat: one whose address is
// the same keeps its own.
func (a *app) place(cfg *config.Config, keys []string) ([]seat, error) {
	r := a.roster.Load()
	var seats []seat
	var fresh []*member
	last := a.lastSlot
	for i := range cfg.Engines {
		c := &cfg.Engines[i]
		s := seat{cfg: c, settings: engineSettings(cfg, c, keys[i])}
		if was := r.named(c.Name); was != nil && was.cfg.URL == c.URL {
			s.was, s.slot = was, was.slot
		} else if s.slot = r.freeSlot(last, fresh); s.slot < 0 {
			return nil, fmt.Errorf("cannot take over the engines: there is room for %d at once, with those that still finish requests", route.MaxEngines)
		} else {
			last = s.slot
			fresh = append(fresh, &member{slot: s.slot})
		}
		seats = append(seats, s)
	}
	return seats, nil
}

// commit swaps everything. From the router's new set on a removed engine is
// given no request; those that it has, it finishes.
func (a *app) commit(p *plan) {
	was, life := a.roster.Load(), a.life
	now := &roster{leaving: slices.Clone(was.leaving)}
	stays := map[*member]bool{}
	var gone, fresh, refed []*member
	for _, s := range p.seats {
		if s.was == nil {
			m := newMember(s.cfg, s.settings, s.slot, a.metrics, a.watch)
			a.lastSlot = s.slot
			fresh, now.present = append(fresh, m), append(now.present, m)
			a.log.Info("engine added", "engine", m.engine.Name, "url", m.engine.URL.String(), "profile", s.settings.Profile)
			continue
		}
		m := &member{cfg: s.cfg, engine: s.was.engine, account: s.was.account, slot: s.slot}
		if m.engine.Settings().Profile != s.settings.Profile {
			a.book.SetProfile(m.account, s.settings.Profile)
		}
		m.engine.SetSettings(s.settings)
		stays[s.was] = true
		if now.present = append(now.present, m); s.refed() {
			refed = append(refed, m)
		}
	}
	for _, m := range was.present {
		if !stays[m] {
			gone, now.leaving = append(gone, m), append(now.leaving, m)
		}
	}
	handoff := a.current.Load().Handoff != p.cfg.Handoff
	a.current.Store(p.cfg)
	a.roster.Store(now)
	a.setHorizons(now)
	a.router.SetSettings(p.route)
	a.router.SetMembers(now.set())
	a.monitor.Tune(probeTuning(p.cfg))
	a.monitor.SetEngines(now.engines())
	a.prompts.setEngines(now.present)
	if handoff {
		a.prompts.setHandoff(p.cfg.Handoff)
	}
	p.proxy.Handoff = a.prompts.handoff.Load()
	a.proxy.SetSettings(p.proxy)
	a.gpus.Apply(p.gpus)
	a.web.SetToken(p.token)
	a.tls.Store(p.tls)
	a.feed(gone, fresh, refed)
	for _, m := range gone {
		a.proxy.Forget(m.engine.Name)
		a.log.Info("engine removed; it finishes its requests", "engine", m.engine.Name, "requests", a.book.Load(m.account).Requests())
		a.wg.Go(func() { a.retire(life, m) })
	}
	a.proxy.Released() // who waits for room may find some on a new engine
}

// feed follows the engines of the moment. All that ends does so before
// anything begins: a new feed may bind an address that an old one had.
func (a *app) feed(gone, fresh, refed []*member) {
	capacity := map[int]int{}
	for _, m := range refed {
		capacity[m.slot] = int(a.feeds.of(m.slot).capacity.Load())
		a.feeds.remove(m.slot)
	}
	for _, m := range gone {
		a.feeds.remove(m.slot)
	}
	for _, m := range append(fresh, refed...) {
		a.feeds.add(m)
		if n := capacity[m.slot]; n > 0 {
			a.feeds.setCapacity(m.slot, n)
		}
	}
}

// everyMember lists those present and those that leave.
func (a *app) everyMember() []*member {
	r := a.roster.Load()
	return append(slices.Clone(r.present), r.leaving...)
}

// Of an engine that left.
const (
	// leastLeave covers the choice of a request that was under way when the
	// engine was taken out of the set, and holds nothing yet.
	leastLeave = time.Second
	leaveLook  = 50 * time.Millisecond
)

// retire waits for the last request of an engine that left, however long it
// takes, and then drops all that was kept for it.
func (a *app) retire(ctx context.Context, m *member) {
	began, tick := time.Now(), time.NewTicker(leaveLook)
	defer tick.Stop()
	for time.Since(began) < leastLeave || a.book.Load(m.account).Requests() > 0 || m.engine.Flights() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	a.monitor.Forget(m.engine)
	m.engine.Close()
	a.router.Forget(&route.Member{Engine: m.engine, Account: m.account, Slot: m.slot})
	a.memory.SetCapacity(m.slot, 0)
	a.prompts.forget(m.slot)

	a.reloading.Lock()
	defer a.reloading.Unlock()
	was := a.roster.Load()
	now := &roster{present: was.present, leaving: slices.DeleteFunc(slices.Clone(was.leaving), func(o *member) bool { return o == m })}
	a.roster.Store(now)
	if !now.knows(m.engine.Name) {
		a.metrics.DropEngine(m.engine.Name)
	}
	a.log.Info("engine is gone", "engine", m.engine.Name, "after", time.Since(began).Round(time.Millisecond).String())
}
