package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// Getter asks an engine for a path and returns at most limit bytes of the
// body, in the room of into, as engine.Engine.GetInto does.
type Getter func(ctx context.Context, e *engine.Engine, path string, into []byte, limit int64) (status int, body []byte, err error)

// Tuning is what can be changed while a Monitor runs.
type Tuning struct {
	Rules
	Interval time.Duration // between checks of one engine, give or take 20 %
	Timeout  time.Duration // limit of one check
}

// Options configures a Monitor. Start from Defaults.
type Options struct {
	Tuning
	ModelsEvery time.Duration // between readings of /v1/models

	Log     *telemetry.Log     // nil = silent
	Metrics *telemetry.Metrics // nil = a set that nobody reads
	Get     Getter             // nil = engine.Engine.GetInto

	// Lost is told when an engine's process is a new one or gone: whatever
	// it held in its cache is lost. It is called outside every lock. nil =
	// nobody is told.
	Lost func(e *engine.Engine, why string)

	// Read is given each reading of an engine's own figures. nil = nobody.
	Read func(e *engine.Engine, r *Reported)

	// Trial sends one small request of Ramjet's own and reports whether it
	// finished. nil = one completion of one token. A suspect engine gets no
	// client's request while another is usable, so without it the finished
	// request that clears the suspicion would never come. ErrTrialRefused says
	// that the engine answered it, and that only a client's would finish.
	Trial func(ctx context.Context, e *engine.Engine) error
}

// Defaults are the values of CONTRACT section 1.
func Defaults() Options {
	return Options{
		Tuning: Tuning{
			Rules: Rules{Successes: 3, Stable: 30 * time.Second, SlowStart: 30 * time.Second, Failures: 3,
				Stall: 60 * time.Second, EjectAfter: 5, EjectBase: 10 * time.Second, EjectMax: 300 * time.Second},
			Interval: 2 * time.Second, Timeout: time.Second,
		},
		ModelsEvery: 60 * time.Second,
	}
}

// Monitor watches engines, which may come and go.
type Monitor struct {
	o      Options
	tuning atomic.Pointer[Tuning]
	table  atomic.Pointer[table] // replaced whole, under mu
	slots  chan struct{}         // bounds concurrent checks
	born   time.Time
	next   atomic.Int64 // no check is due before it, in nanoseconds from born; 0 is none

	// mu guards every watch's health and orders state changes over all
	// engines: two engines must not both be ejected because each saw the
	// other usable.
	mu      sync.Mutex
	ring    []Transition   // oldest first, guarded by mu
	moments []*moment      // at which checks are due, guarded by mu
	begin   func(w *watch) // starts a loop; nil while Run does not run; guarded by mu
}

// maxChecks bounds the checks under way at once, and those that are due at
// once, so that 200 engines do not start 200 connections in one instant.
const maxChecks = 16

// New returns a monitor of engines, whose names are unique. Nothing happens
// until Run.
func New(o Options, engines []*engine.Engine) *Monitor {
	d := Defaults()
	if o.ModelsEvery <= 0 {
		o.ModelsEvery = d.ModelsEvery
	}
	if o.Metrics == nil {
		o.Metrics = telemetry.NewMetrics("", "")
	}
	if o.Get == nil {
		o.Get = func(ctx context.Context, e *engine.Engine, path string, into []byte, limit int64) (int, []byte, error) {
			return e.GetInto(ctx, path, into, limit)
		}
	}
	if o.Trial == nil {
		o.Trial = tryCompletion
	}
	m := &Monitor{o: o, slots: make(chan struct{}, maxChecks), born: time.Now()}
	m.Tune(o.Tuning)
	m.table.Store(newTable(engines, func(e *engine.Engine) *watch { return newWatch(e, o.Metrics.Engine(e.Name)) }))
	return m
}

// Tune replaces the limits, from the next check on.
func (m *Monitor) Tune(t Tuning) {
	d := Defaults()
	if t.Interval <= 0 {
		t.Interval = d.Interval
	}
	if t.Timeout <= 0 {
		t.Timeout = d.Timeout
	}
	t.Successes, t.Failures = max(t.Successes, 1), max(t.Failures, 1)
	m.tuning.Store(&t)
}

// Run checks the engines until ctx ends and returns when the last check has
// returned. Call it once.
func (m *Monitor) Run(ctx context.Context) {
	var wg sync.WaitGroup
	m.mu.Lock()
	m.begin = func(w *watch) {
		wctx, cancel := context.WithCancel(ctx)
		w.stop, w.done = cancel, make(chan struct{})
		wg.Go(func() {
			defer close(w.done)
			defer cancel()
			m.loop(wctx, w)
		})
	}
	for _, w := range m.table.Load().byPtr {
		m.begin(w)
	}
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	m.begin = nil
	m.mu.Unlock()
	wg.Wait()
}

// Outcome counts what one attempt said about its engine; reason is for people.
// The common case, a good answer of an engine without a blemish, takes no
// lock. Engines of another monitor are ignored.
func (m *Monitor) Outcome(e *engine.Engine, o engine.Outcome, reason string) {
	w := m.table.Load().byPtr[e]
	if w == nil || o == engine.OutcomeNeutral {
		return
	}
	if o == engine.OutcomeOK {
		e.Finished(time.Now())
		if !w.blemished.Load() {
			return
		}
	}
	if m.apply(w, outcomeEvent(o, reason)) {
		w.kick()
	}
}

// outcomeEvent translates an outcome other than neutral.
func outcomeEvent(o engine.Outcome, reason string) event {
	ev := event{kind: requestFailed, detail: reason}
	switch o {
	case engine.OutcomeOK:
		ev.kind = requestGood
	case engine.OutcomeRefused:
		ev.kind = requestRefused
	case engine.OutcomeAborted:
		ev.kind = requestAborted
	case engine.OutcomeReset:
		ev.cause = telemetry.EjectReset
	case engine.OutcomeDied:
		ev.cause = telemetry.EjectDied
	case engine.OutcomeBadResponse:
		ev.cause = telemetry.EjectBadResponse
	case engine.OutcomeServerError:
		ev.cause = telemetry.EjectServerError
	case engine.OutcomeNeutral:
		panic("BUG: a neutral outcome is no event")
	}
	return ev
}

// Restarted tells the monitor that an engine's process is a new one, seen by
// other means than its start time (its event sequence went back).
func (m *Monitor) Restarted(e *engine.Engine, how string) {
	if w := m.table.Load().byPtr[e]; w != nil && m.apply(w, event{kind: restarted, detail: how}) {
		w.kick()
	}
}

// ErrUnknownEngine is returned for a name that is not configured.
var ErrUnknownEngine = errors.New("no such engine")

// Drain takes an engine out of use by an operator's word until Ready.
func (m *Monitor) Drain(name string) error { return m.order(name, orderDrain) }

// Ready puts an engine into slow start by an operator's word.
func (m *Monitor) Ready(name string) error { return m.order(name, orderReady) }

// Eject takes an engine out of use by an operator's word for the longest
// ejection, after which it starts slowly.
func (m *Monitor) Eject(name string) error { return m.order(name, orderEject) }

func (m *Monitor) order(name string, k kind) error {
	w := m.table.Load().byName[name]
	if w == nil {
		return fmt.Errorf("cannot change engine %q: %w", name, ErrUnknownEngine)
	}
	m.apply(w, event{kind: k})
	w.kick()
	return nil
}

// apply runs the rules for one event and publishes what they changed. It
// reports whether the state is another one.
func (m *Monitor) apply(w *watch, ev event) bool {
	ev.detail = brief(ev.detail)
	m.mu.Lock()
	served := w.h.served
	changed := m.applyLocked(w, ev)
	m.mu.Unlock()
	if m.o.Lost == nil {
		return changed
	}
	switch ev.kind { //nolint:exhaustive // the rest lose nothing
	case checkRefused, requestRefused:
		if served { // in whatever state: one that is down or draining may die too
			m.o.Lost(w.e, reasonRefused)
		}
	case restarted:
		m.o.Lost(w.e, reasonRestarted+ev.detail)
	}
	return changed
}

// longestDetail bounds what a state's reason repeats of an engine's own words.
const longestDetail = 200

func brief(detail string) string {
	if len(detail) <= longestDetail {
		return detail
	}
	return strings.ToValidUTF8(detail[:longestDetail], "") + ".."
}

func (m *Monitor) applyLocked(w *watch, ev event) bool {
	ev.others = m.othersUsableLocked(w)
	old := w.h
	now := time.Now()
	w.h = next(m.tuning.Load().Rules, old, ev, now)
	w.blemished.Store(w.h.own > 0 || !w.h.served || w.h.state == telemetry.StateSuspect)
	if w.h.reason != old.reason || w.h.state != old.state {
		w.e.SetState(w.h.state, w.h.reason)
	}
	if w.h.state != old.state {
		m.changedLocked(w, old, ev, now)
		return true
	}
	if !old.asked && w.h.asked {
		// Down when Ramjet started is no change of state, and yet news.
		m.o.Log.Warn("engine is down", "engine", w.e.Name, "reason", w.h.reason)
	}
	return false
}

func (m *Monitor) othersUsableLocked(w *watch) bool {
	for _, o := range m.table.Load().watches {
		if o != w && usable(o.h.state) {
			return true
		}
	}
	return false
}

// changedLocked tells log, metrics and ring about a change of state.
func (m *Monitor) changedLocked(w *watch, old health, ev event, now time.Time) {
	if now := m.table.Load().byName[w.e.Name]; now == w || now == nil {
		w.metrics.SetState(w.h.state) // else they are another engine's by that name
	}
	if w.h.state == telemetry.StateEjected {
		cause := ev.cause
		if ev.kind == orderEject {
			cause = telemetry.EjectOperator
		}
		w.metrics.Ejected(cause)
	}
	if len(m.ring) == maxTransitions {
		m.ring = append(m.ring[:0], m.ring[1:]...)
	}
	m.ring = append(m.ring, Transition{Time: now, Engine: w.e.Name, From: old.state, To: w.h.state, Reason: w.h.reason})
	say := m.o.Log.Info
	switch w.h.state {
	case telemetry.StateDown, telemetry.StateSuspect, telemetry.StateEjected:
		say = m.o.Log.Warn
	default:
	}
	say("engine state", "engine", w.e.Name, "from", old.state, "to", w.h.state, "reason", w.h.reason)
}
