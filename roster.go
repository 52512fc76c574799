package main

import (
	"slices"

	"ramjet/config"
	"ramjet/engine"
	"ramjet/lease"
	"ramjet/radix"
	"ramjet/route"
	"ramjet/telemetry"
)

// member is one engine with what is kept for it. It never changes: a reload
// replaces it.
type member struct {
	cfg     *config.Engine
	engine  *engine.Engine
	account *lease.Account
	slot    int // its number in index, memory and bits, for as long as it is known
}

// roster is the engines of the moment, as configured, and those that left but
// still finish requests. It never changes: a reload replaces it.
type roster struct {
	present []*member
	leaving []*member
}

// set is what the router may choose from.
func (r *roster) set() *route.Set {
	s := &route.Set{}
	for _, m := range r.present {
		s.Members = append(s.Members, route.Member{Engine: m.engine, Account: m.account, Slot: m.slot})
	}
	return s
}

// engines lists those that are configured.
func (r *roster) engines() []*engine.Engine {
	list := make([]*engine.Engine, len(r.present))
	for i, m := range r.present {
		list[i] = m.engine
	}
	return list
}

// named returns the configured engine of that name, nil if there is none.
func (r *roster) named(name string) *member {
	i := slices.IndexFunc(r.present, func(m *member) bool { return m.engine.Name == name })
	if i < 0 {
		return nil
	}
	return r.present[i]
}

// of returns what is kept for a configured engine, nil if it is none.
func (r *roster) of(e *engine.Engine) *member {
	if m := r.named(e.Name); m != nil && m.engine == e {
		return m
	}
	return nil
}

// knows reports whether an engine of that name is there, or still finishes
// requests.
func (r *roster) knows(name string) bool {
	return r.named(name) != nil || slices.ContainsFunc(r.leaving, func(m *member) bool { return m.engine.Name == name })
}

// freeSlot returns a slot that nobody has, -1 if all are taken. It looks behind
// the one given last, so that what is late for an engine that is gone meets
// nobody.
func (r *roster) freeSlot(last int, more []*member) int {
	var taken uint64
	for _, list := range [][]*member{r.present, r.leaving, more} {
		for _, m := range list {
			taken |= 1 << m.slot
		}
	}
	for i := 1; i <= radix.MaxEngines; i++ {
		if slot := (last + i) % radix.MaxEngines; taken&(1<<slot) == 0 {
			return slot
		}
	}
	return -1
}

// open counts the connections to engines, those of engines that left included.
func (r *roster) open() (n int) {
	for _, list := range [][]*member{r.present, r.leaving} {
		for _, m := range list {
			n += m.engine.Pool().Open()
		}
	}
	return n
}

// engineSettings is what of the configuration can change while an engine
// serves.
func engineSettings(cfg *config.Config, c *config.Engine, key string) engine.Settings {
	dial := cfg.Timeouts.Dial
	if dial == 0 {
		dial = -1
	}
	return engine.Settings{Profile: c.Profile, APIKey: key, InFlight: c.InFlight, Dial: dial, GPUs: c.GPUs, SlowStart: cfg.Health.SlowStart}
}

// newMember makes an engine that is in nobody's list yet.
func newMember(c *config.Engine, s engine.Settings, slot int, metrics *telemetry.Metrics, watch *engine.Watch) *member {
	e := engine.New(engine.Options{Name: c.Name, URL: c.Target, Watch: watch, Metrics: metrics.Engine(c.Name), Forbidden: config.ForbiddenAddr})
	e.SetSettings(s)
	return &member{cfg: c, engine: e, account: lease.NewAccount(s.Profile), slot: slot}
}

// leases reads an engine's load at scrape time, of requests on one that left
// too.
func (a *app) leases(name string) (prefill, decode int, tokens int64) {
	r := a.roster.Load()
	for _, list := range [][]*member{r.present, r.leaving} {
		for _, m := range list {
			if m.engine.Name != name {
				continue
			}
			load := a.book.Load(m.account)
			prefill, decode, tokens = prefill+load.Prefill, decode+load.Decode, tokens+load.Tokens
		}
	}
	return prefill, decode, tokens
}
