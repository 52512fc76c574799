package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"ramjet/config"
	"ramjet/engine"
	"ramjet/kvevents"
	"ramjet/proxy"
	"ramjet/radix"
	"ramjet/telemetry"
)

// feeds follow every engine's events into the index, and judge from answers how
// far the index can be believed.
type feeds struct {
	log     *telemetry.Log
	metrics *telemetry.Metrics
	index   *radix.Index
	memory  *radix.Memory
	wiring  *kvevents.Wiring
	lost    func(e *engine.Engine, how string) // tells the judge of a restart
	slots   [radix.MaxEngines]atomic.Pointer[feedOf]
	marked  [radix.MaxEngines]uint64 // the highest mark that a former feed in the slot gave; of the goroutine that follows

	mu    sync.Mutex      // guards begin, and every feed's stop and done
	begin func(f *feedOf) // follows an engine; nil while run does not run
}

// feedOf is one engine's feed. Where its events are is looked up when it is
// found and again after each restart.
type feedOf struct {
	all     *feeds
	slot    int
	e       *engine.Engine
	cfg     *config.Engine
	held    *radix.Residency
	metrics *telemetry.EngineMetrics
	now     atomic.Pointer[following] // nil while there is none
	lag     atomic.Int64              // nanoseconds; negative: no event came
	telling atomic.Bool               // the feed itself tells of a restart, and needs not hear of it
	again   chan struct{}

	sizing   sync.Mutex   // guards that each feed hears of each capacity
	capacity atomic.Int64 // blocks; written under sizing

	stop context.CancelFunc // nil before it begins
	done chan struct{}      // closed when it ended
}

// following is a feed that runs. Marks count on from those of the feeds before
// it, so that one which was taken under them is known by its number.
type following struct {
	*kvevents.Feed
	since uint64 // marks of received batches begin here; 0 is one that was taken without a feed
}

func newFeeds(log *telemetry.Log, metrics *telemetry.Metrics, index *radix.Index, memory *radix.Memory, lost func(*engine.Engine, string)) *feeds {
	return &feeds{log: log, metrics: metrics, index: index, memory: memory, wiring: kvevents.NewWiring(nil), lost: lost}
}

// add begins to follow an engine whose slot is free.
func (a *feeds) add(m *member) {
	f := &feedOf{
		all: a, slot: m.slot, e: m.engine, cfg: m.cfg, held: a.index.Engine(m.slot), metrics: a.metrics.Engine(m.engine.Name),
		again: make(chan struct{}, 1),
	}
	f.lag.Store(-1)
	a.wiring.SetName(m.slot, m.engine.Name)
	a.mu.Lock() // so that run and we do not both begin it
	defer a.mu.Unlock()
	if a.slots[m.slot].Swap(f) != nil {
		panic("BUG: two feeds have one slot")
	}
	if a.begin != nil {
		a.begin(f)
	}
}

// remove ends the feed in a slot and forgets what it knew. It returns when its
// sockets are closed, so that another feed can bind the same address.
func (a *feeds) remove(slot int) {
	f := a.slots[slot].Swap(nil)
	if f == nil {
		return
	}
	a.mu.Lock()
	stop, done := f.stop, f.done
	a.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
	f.held.Drop()
	f.held.SetCapacity(0)
	f.held.SetDrop(0)
	a.wiring.SetName(slot, "")
}

// of returns the feed in a slot, nil if there is none.
func (a *feeds) of(slot int) *feedOf { return a.slots[slot].Load() }

// run follows all engines until ctx ends.
func (a *feeds) run(ctx context.Context) {
	var wg sync.WaitGroup
	a.mu.Lock()
	a.begin = func(f *feedOf) {
		fctx, cancel := context.WithCancel(ctx)
		f.stop, f.done = cancel, make(chan struct{})
		wg.Go(func() {
			defer close(f.done)
			defer cancel()
			f.run(fctx)
		})
	}
	for i := range a.slots {
		if f := a.slots[i].Load(); f != nil {
			a.begin(f)
		}
	}
	a.mu.Unlock()
	<-ctx.Done()
	a.mu.Lock()
	a.begin = nil
	a.mu.Unlock()
	wg.Wait()
}

// Waits of a feed without a source.
const (
	askAgain   = 60 * time.Second // an engine that publishes nothing may be another one by then
	askSoon    = 2 * time.Second  // one that did not answer
	askTimeout = 5 * time.Second
	maxSources = 1 << 20
)

// run looks for the engine's events and follows them, again after each restart.
func (f *feedOf) run(ctx context.Context) {
	for ctx.Err() == nil {
		o, why, wait := f.source(ctx)
		if why != "" {
			f.e.SetTrust(telemetry.TrustBlind, why)
			select {
			case <-ctx.Done():
			case <-f.again:
			case <-time.After(wait):
			}
			continue
		}
		f.follow(ctx, o, wait)
	}
}

// follow runs one feed until its source is another one; wait is when to ask
// whether it is, 0 for not before a restart.
func (f *feedOf) follow(ctx context.Context, o kvevents.Options, wait time.Duration) {
	fctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The feed before may have been believed; this one tells only what changes.
	f.e.SetTrust(telemetry.TrustBlind, "not connected yet")
	f.held.SetDrop(0) // as the new audit takes it to be
	feed := &following{Feed: kvevents.New(o), since: f.all.marked[f.slot] + 1}
	f.sizing.Lock()
	feed.SetCapacity(int(f.capacity.Load()))
	f.now.Store(feed)
	f.sizing.Unlock()
	f.all.log.Info("following the engine's events", "engine", f.e.Name, "events", o.Events.String(), "replay", o.Replay.String(), "topic", o.Topic)
	done := make(chan struct{})
	go func() {
		feed.Run(fctx)
		close(done)
	}()
	f.untilMoved(ctx, &o, wait)
	f.now.Store(nil)
	cancel()
	<-done
	f.all.marked[f.slot] = feed.since + feed.Received()
	f.held.Drop()
}

// untilMoved returns when ctx ends, or a restarted engine tells another source
// than o. One that restarts cannot be asked at first.
func (f *feedOf) untilMoved(ctx context.Context, o *kvevents.Options, wait time.Duration) {
	var later <-chan time.Time
	for {
		if wait > 0 {
			later = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-f.again:
		case <-later:
		}
		later = nil
		var next kvevents.Options
		var why string
		next, why, wait = f.source(ctx)
		switch {
		case why != "" || wait > 0: // what it does not tell now may be as before
		case next.Events != o.Events || next.Replay != o.Replay || next.Topic != o.Topic || next.Ranks != o.Ranks:
			f.all.wiring.Forget(f.slot)
			return
		}
	}
}

// source finds out where the engine's events are; why says that there are none
// to follow, and wait when to look again. A wait without a why is due to a
// replay socket that the engine could not be asked for: its events can be
// followed until then.
func (f *feedOf) source(ctx context.Context) (o kvevents.Options, why string, wait time.Duration) {
	o = kvevents.Options{
		Name: f.e.Name, Slot: f.slot, Topic: f.cfg.Topic, Residency: f.held, Wiring: f.all.wiring, Metrics: f, Log: f.all.log,
		Restarted: f.tell, Trusted: f.e.SetTrust,
	}
	if f.cfg.Events == "off" {
		return o, "events are off in the configuration", askAgain
	}
	if f.cfg.Events != "auto" {
		wait, err := f.configured(ctx, &o)
		if err != nil {
			return o, err.Error(), askAgain
		}
		return o, "", wait
	}
	if f.e.Models() == nil {
		return o, "not asked for its events yet", askSoon
	}
	sources, why, wait := f.ask(ctx)
	if why != "" {
		return o, why, wait
	}
	if len(sources) == 0 {
		return o, "it publishes no events: start it with --kv-events-config", askAgain
	}
	s := sources[0]
	o.Events, o.Replay, o.Ranks = s.Events, s.Replay, len(sources)
	if o.Topic == "" {
		o.Topic = s.Topic
	}
	if f.cfg.Replay != "auto" {
		var err error
		if o.Replay, err = endpoint(f.cfg.Replay); err != nil {
			return o, err.Error(), askAgain
		}
	}
	return o, "", 0
}

// ask asks the engine where its events are; why says that it does not tell.
func (f *feedOf) ask(ctx context.Context) (sources []kvevents.Source, why string, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	status, body, err := f.e.Get(ctx, "/kv_event_sources", maxSources)
	switch {
	case err != nil:
		return nil, "its event sources cannot be asked for", askSoon
	case status >= http.StatusInternalServerError: // one that starts or is overloaded says nothing of what it has
		return nil, fmt.Sprintf("its event sources cannot be asked for now (it answers %d)", status), askSoon
	case status != http.StatusOK:
		return nil, fmt.Sprintf("it does not tell its event sources (GET /kv_event_sources answers %d): set engines.events", status), askAgain
	}
	if sources, err = kvevents.ParseSources(body, f.e.URL.Hostname()); err != nil {
		return nil, err.Error(), askAgain
	}
	return sources, "", 0
}

// configured takes the endpoints from the configuration, and where that leaves
// the replay socket to the engine, asks for it, which also tells how many ranks
// there are. An engine that does not tell has none; wait says when to ask one
// that gave no answer, or none but that it cannot answer now.
func (f *feedOf) configured(ctx context.Context, o *kvevents.Options) (wait time.Duration, err error) {
	if o.Events, err = endpoint(f.cfg.Events); err != nil {
		return 0, err
	}
	if f.cfg.Replay != "auto" {
		o.Replay, err = endpoint(f.cfg.Replay)
		return 0, err
	}
	sources, _, wait := f.ask(ctx)
	if len(sources) > 0 {
		o.Replay = sources[rankAt(sources, o.Events)].Replay
	}
	if len(sources) > 1 {
		o.Ranks = len(sources)
	}
	if wait != askSoon {
		wait = 0 // it answered
	}
	return wait, nil
}

// rankAt returns the place of the source that publishes at an endpoint, the
// first if none does. Ranks differ by their ports; the host may have many names.
func rankAt(sources []kvevents.Source, events kvevents.Endpoint) int {
	for i, s := range sources {
		if s.Events.Network == events.Network && place(s.Events) == place(events) {
			return i
		}
	}
	return 0
}

func place(e kvevents.Endpoint) string {
	if _, port, err := net.SplitHostPort(e.Address); err == nil && e.Network == "tcp" {
		return port
	}
	return e.Address
}

// endpoint reads a setting; off is the zero Endpoint.
func endpoint(text string) (kvevents.Endpoint, error) {
	if text == "off" {
		return kvevents.Endpoint{}, nil
	}
	return kvevents.ParseEndpoint(text)
}

// Events implements kvevents.Metrics.
func (f *feedOf) Events(kind kvevents.EventKind, n int) {
	f.metrics.KVEvents(kvKinds[kind], n)
}

var kvKinds = map[kvevents.EventKind]telemetry.KVEvent{
	kvevents.EventStored: telemetry.KVStored, kvevents.EventRemoved: telemetry.KVRemoved, kvevents.EventCleared: telemetry.KVCleared,
	kvevents.EventOdd: telemetry.KVOdd, kvevents.EventUnknown: telemetry.KVUnknown,
}

// Gap implements kvevents.Metrics.
func (f *feedOf) Gap() { f.metrics.Gaps.Inc() }

// tell passes on that the feed saw another process.
func (f *feedOf) tell() {
	f.telling.Store(true)
	defer f.telling.Store(false)
	f.all.lost(f.e, "its events began anew")
}

// Lag implements kvevents.Metrics.
func (f *feedOf) Lag(seconds float64) { f.lag.Store(int64(seconds * float64(time.Second))) }

// restarted tells that an engine's process is another one.
func (a *feeds) restarted(slot int) {
	f := a.of(slot)
	if f == nil {
		return
	}
	if feed := f.now.Load(); feed != nil && !f.telling.Load() {
		feed.Restarted()
	}
	select {
	case f.again <- struct{}{}:
	default:
	}
}

// setCapacity tells how many blocks an engine's cache holds.
func (a *feeds) setCapacity(slot, blocks int) {
	f := a.of(slot)
	if f == nil {
		return
	}
	f.sizing.Lock()
	defer f.sizing.Unlock()
	if f.capacity.Swap(int64(blocks)) == int64(blocks) {
		return
	}
	f.held.SetCapacity(blocks)
	if feed := f.now.Load(); feed != nil {
		feed.SetCapacity(blocks)
	}
}

// feed returns what follows the engine in a slot, nil if nothing does.
func (a *feeds) feed(slot int) *following {
	if f := a.of(slot); f != nil {
		return f.now.Load()
	}
	return nil
}

// Mark implements proxy.Residency.
func (a *feeds) Mark(slot int) proxy.Mark {
	if feed := a.feed(slot); feed != nil {
		received, removed := feed.Mark()
		return proxy.Mark{Received: feed.since + received, Removed: removed, Pending: feed.Pending()}
	}
	return proxy.Mark{}
}

// First implements proxy.Residency.
func (a *feeds) First(slot int) proxy.Mark {
	if feed := a.feed(slot); feed != nil {
		feed.Began()
	}
	return a.Mark(slot)
}

// Answered implements proxy.Residency.
func (a *feeds) Answered(slot int, x *proxy.Audit) {
	if c := &x.Claim; c.KeyTokens > 0 && x.Reported >= 0 {
		a.memory.Told(slot, c.First, c.Last, c.Keys, (x.Reported+c.Slack)/c.KeyTokens)
	}
	feed := a.feed(slot)
	if feed == nil || x.Sent.Received < feed.since || x.First.Received < feed.since {
		return // there is none, or another one began meanwhile
	}
	feed.Answered(kvevents.Answer{
		Prompt: x.Prompt, Output: x.Output, Reported: x.Reported, Predicted: x.Predicted, Other: x.Other, InFlight: x.InFlight,
		Removed: int(x.First.Removed - x.Sent.Removed), Received: x.Sent.Received - feed.since, Matches: x.Matches,
	})
}
