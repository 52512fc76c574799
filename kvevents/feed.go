package kvevents

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"ramjet/radix"
	"ramjet/telemetry"
)

// Metrics counts what a feed sees; main fills it from telemetry. Its methods are called by the feed's goroutine.
type Metrics interface {
	// Events counts events of one kind: ramjet_kv_events_total.
	Events(kind EventKind, n int)
	// Gap counts a hole in the sequence, whatever became of it: ramjet_kv_gaps_total.
	Gap()
	// Lag is the seconds between the engine's own time stamp of the newest live batch and its being applied:
	// ramjet_kv_lag_seconds.
	Lag(seconds float64)
}

// Options describes one feed. Fields without a comment about zero are required.
type Options struct {
	Name   string   // the engine's, for logs
	Slot   int      // the engine's in the index
	Events Endpoint // of the publisher
	Replay Endpoint // of its replay socket; zero if there is none
	Topic  string   // subscription prefix; "" takes all
	// Ranks is the number of data-parallel ranks that the engine publishes for; more than one is never exact, since
	// nobody knows which one will serve a request. 0 means one.
	Ranks     int
	Residency Residency
	// Root is the key in front of a prompt's first block; nil takes radix.Root with no model name.
	Root   func(lora, salt string) uint64
	Audit  *Audit  // nil: the feed makes its own
	Wiring *Wiring // nil: endpoints that two engines share are not looked for

	Metrics Metrics        // nil counts nothing
	Log     *telemetry.Log // nil writes nothing
	// Restarted is told when the sequence or the replay shows that the engine's process is another one: package probe
	// wants to know (CONTRACT section 2). Called by the feed's goroutine; nil is fine.
	Restarted func()
	// Trusted is told of every change of trust or reason, by the feed's goroutine; nil is fine.
	Trusted func(t telemetry.Trust, reason string)

	Timing     Timing
	MaxMessage int              // bytes; 0: DefaultMaxMessage
	Now        func() time.Time // the wall clock that time stamps of events are compared with; nil: time.Now
	Dial       DialFunc         // nil: TCP with keep-alive probes, and unix
	Listen     ListenFunc       // nil: net.ListenConfig
	Limits     Limits
}

// Limits bounds a feed's patience and memory; zero fields take the defaults.
type Limits struct {
	// HeldMessages and HeldBytes bound what is held back, in order, while a replay runs; beyond it the socket is not
	// read. 20,000 messages (twice vLLM's ring) and 32 MiB.
	HeldMessages, HeldBytes int
	// ReplayPatience is the longest silence within a replay; 3 s. An idle vLLM answers within 0.1 s, a busy one between
	// two steps.
	ReplayPatience time.Duration
	// ReplayTries is how many tries without progress are made before what was missed counts as lost; 3.
	ReplayTries int
	// ReplayAgain is the wait before a replay that could not prove the history is asked for again, doubled each time up
	// to 20 times as long; 30 s.
	ReplayAgain time.Duration
	// Late is the lag from which on an engine is degraded; 2 s.
	Late time.Duration
	// Lost is how long a connection may be away before the engine is blind instead of degraded; 10 s.
	Lost time.Duration
}

func (l Limits) withDefaults() Limits {
	number := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	duration := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	number(&l.HeldMessages, 20_000)
	number(&l.HeldBytes, 32<<20)
	number(&l.ReplayTries, 3)
	duration(&l.ReplayPatience, 3*time.Second)
	duration(&l.ReplayAgain, 30*time.Second)
	duration(&l.Late, 2*time.Second)
	duration(&l.Lost, 10*time.Second)
	return l
}

// settle is the wait between subscribing and asking for a replay: a batch published in between is in neither if the
// request overtakes the subscription, since they travel on two connections.
const settle = 50 * time.Millisecond

// Stats is what a feed has seen since it was made.
type Stats struct {
	Connected                                bool
	Batches, Replayed                        uint64 // applied live, and out of replays
	Stored, Removed, Cleared                 uint64 // events
	Odd, Unknown                             uint64 // events
	Tiers                                    uint64 // events about tiers behind the cache, not applied
	UnknownParents, UnknownRemoved, Partials uint64 // blocks
	Gaps, Restarts, Replays, Dials           uint64
	Next                                     uint64 // sequence number expected next
}

// Feed follows one engine's events.
type Feed struct {
	o      Options
	limits Limits
	audit  *Audit

	live     *queue // from the subscriber
	replayed *queue // from the present replay attempt
	wake     chan struct{}

	received atomic.Uint64 // live messages taken from the queue, and replayed batches applied
	removed  atomic.Uint64 // blocks that the engine removed
	capacity atomic.Int64  // blocks
	// When the newest answer began, in nanoseconds since born, and received then.
	born          time.Time
	beganAt       atomic.Int64
	beganReceived atomic.Uint64
	gone          atomic.Pointer[error]
	actions       atomic.Uint32
	verdict       atomic.Pointer[verdict]

	mu    sync.Mutex // guards stats
	stats Stats

	// All below belongs to the feed's goroutine.
	history history
	repair  repair
	trust   trustState
	apply   applier
}

// New returns a feed that does nothing until Run.
func New(o Options) *Feed {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Root == nil {
		o.Root = func(lora, salt string) uint64 { return radix.Root("", lora, salt) }
	}
	if o.Audit == nil {
		o.Audit = NewAudit()
	}
	if o.Dial == nil {
		// Keep-alive probes find a dead path to a peer that is too old for PING.
		d := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}}
		o.Dial = d.DialContext
	}
	if o.Listen == nil {
		o.Listen = new(net.ListenConfig).Listen
	}
	o.Timing = o.Timing.withDefaults()
	f := &Feed{o: o, limits: o.Limits.withDefaults(), audit: o.Audit, wake: make(chan struct{}, 1), born: time.Now()}
	f.live = newQueue(4096, 16<<20)
	f.replayed = newQueue(1024, 16<<20)
	f.apply.init(f)
	f.trust.began, f.trust.anchor = time.Now(), o.Now()
	f.history.forgotten = o.Residency.Forgotten()
	f.verdict.Store(&verdict{trust: telemetry.TrustBlind, reason: "not connected yet", since: o.Now()})
	f.evaluate()
	return f
}

// Run follows the events until ctx ends. It may be called once.
func (f *Feed) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &subscriber{
		endpoint: f.o.Events, topic: f.o.Topic, timing: f.o.Timing, maxMessage: f.o.MaxMessage, dial: f.o.Dial, listen: f.o.Listen,
		q: f.live, state: f.state, refused: f.refused, dials: func() { f.count(func(s *Stats) { s.Dials++ }) },
	}
	wg.Go(func() { s.run(ctx) })
	f.repair.start(ctx, &wg)
	defer f.repair.stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		// Backlogs are worked off in portions, so that a loss of the connection or the end is seen between them.
		for range 64 {
			if !f.step() {
				break
			}
		}
		f.evaluate()
		if f.workable() {
			select {
			case <-ctx.Done():
				return
			default:
				continue
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-f.live.ready:
		case <-f.replayed.ready:
		case <-f.repair.timer.C:
			f.repair.due = true
		case <-f.wake:
		case <-tick.C:
		}
	}
}

// step handles one thing that waits and reports whether there was one.
func (f *Feed) step() bool {
	if f.act() {
		return true
	}
	if f.repair.due {
		f.repair.due = false
		f.repairDue()
		return true
	}
	if f.repair.running {
		if it, ok := f.replayed.pop(); ok {
			f.onReplayed(it)
			return true
		}
	}
	if !f.mayTakeLive() {
		return false
	}
	it, ok := f.live.pop()
	if ok {
		f.onLive(it)
	}
	return ok
}

// workable reports whether step would find something without waiting.
func (f *Feed) workable() bool {
	return f.repair.running && f.replayed.len() > 0 || f.mayTakeLive() && f.live.len() > 0
}

// mayTakeLive is false while as much is held as may be: then the socket is not read.
func (f *Feed) mayTakeLive() bool {
	return len(f.history.held) < f.limits.HeldMessages && f.history.heldBytes < f.limits.HeldBytes
}

// state is called by the subscriber's goroutine.
func (f *Feed) state(up bool, err error) {
	if up {
		f.gone.Store(nil)
	} else {
		f.gone.Store(&err)
		f.o.Log.Debug("events: connection lost", "engine", f.o.Name, "error", err)
	}
	f.count(func(s *Stats) { s.Connected = up })
	signal(f.wake)
}

func (f *Feed) refused(err error) {
	// Whoever reaches the port can be refused without end.
	f.o.Log.Throttled("refused "+f.o.Name, telemetry.LevelWarn, "events: a peer was refused", "engine", f.o.Name, "error", err)
}

func (f *Feed) count(add func(*Stats)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	add(&f.stats)
}

// Stats returns what the feed has seen.
func (f *Feed) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

// Received returns how many batches have come so far. Keep it when a request is sent, for Answer.Received.
func (f *Feed) Received() uint64 { return f.received.Load() }

// Mark returns Received and how many blocks the engine has removed so far, for Answer.Received and Answer.Removed.
func (f *Feed) Mark() (received, removed uint64) { return f.received.Load(), f.removed.Load() }

// Began tells that the engine gave the first token of an answer. What the answer stored is announced about then.
func (f *Feed) Began() {
	f.beganReceived.Store(f.received.Load())
	f.beganAt.Store(int64(time.Since(f.born)))
}

// Pending reports whether an answer began so short a while ago that its event may still be on its way. A request that is
// sent now can hit blocks that nobody knows of: keep it for Answer.InFlight.
func (f *Feed) Pending() bool {
	return f.received.Load() == f.beganReceived.Load() && time.Since(f.born)-time.Duration(f.beganAt.Load()) < silenceGrace && f.beganAt.Load() > 0
}

// SetCapacity tells how many blocks the engine's cache has (num_gpu_blocks), 0 if that is not known. After a late join
// without the beginning, the history counts as proven once so many blocks were stored that every older one must have
// been evicted.
func (f *Feed) SetCapacity(blocks int) { f.capacity.Store(int64(blocks)) }

// Trust returns how far the engine's residency may be believed, why, and since when. It never blocks.
func (f *Feed) Trust() (t telemetry.Trust, reason string, since time.Time) {
	v := f.verdict.Load()
	return v.trust, v.reason, v.since
}

// freshTime is how long after a feed found a new process by itself another word of a restart means the same one.
const freshTime = time.Minute

// Restarted tells that the engine's process is another one, as refused connections or another
// process_start_time_seconds show. A record that began less than a minute ago stays: the feed
// saw the same restart by itself.
func (f *Feed) Restarted() { f.do(actRestarted) }

// Answered compares an answer of the engine with what was predicted for it, and acts on what that shows. It may be
// called from any goroutine and does not wait.
func (f *Feed) Answered(a Answer) {
	a.receivedNow = f.received.Load()
	if a.BlockTokens == 0 {
		a.BlockTokens = f.o.Residency.BlockTokens()
	}
	if f.verdict.Load().trust == telemetry.TrustBlind {
		a.Predicted = -1 // a record that nobody is to believe cannot be wrong
	}
	act := f.audit.Answer(a)
	if f.o.Wiring != nil {
		f.o.Wiring.Answer(f.o.Slot, a)
	}
	f.do(act)
}

// Totals compares in aggregate, where answers carry no usage: the engine's vllm:prefix_cache_hits_total and
// vllm:prefix_cache_queries_total as read from /metrics. Call it each time they are read.
func (f *Feed) Totals(hits, queries float64) { f.do(f.audit.Totals(hits, queries)) }

func (f *Feed) do(a Action) {
	if a != 0 {
		f.actions.Or(uint32(a))
	}
	signal(f.wake)
}

// act carries out what others asked for; the residency is written by this goroutine alone.
func (f *Feed) act() bool {
	a := Action(f.actions.Swap(0))
	if a == 0 {
		return false
	}
	if a&actRestarted != 0 {
		f.toldOfRestart()
	}
	if a&ActDropDoubtful != 0 {
		if n := f.o.Residency.DropDoubtful(); n > 0 {
			f.o.Log.Debug("events: doubtful blocks dropped", "engine", f.o.Name, "blocks", n)
		}
	}
	if a&ActSetDrop != 0 {
		n := f.audit.Drop()
		f.o.Residency.SetDrop(n)
		f.o.Log.Info("events: blocks that a hit loses, learnt from answers", "engine", f.o.Name, "blocks", n)
	}
	if a&ActResync != 0 && f.o.Replay.Network != "" && !f.repair.active() {
		f.o.Log.Warn("events: predictions are off, the record is asked for anew", "engine", f.o.Name)
		f.begin(causeResync)
	}
	return true
}
