package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"ramjet/telemetry"
)

// Status is one immutable reading of an engine's state.
type Status struct {
	State  telemetry.State
	Reason string    // why, for people
	Since  time.Time // when State was entered
}

// stateWord is read on every pick and written by probe alone.
type stateWord struct {
	current atomic.Pointer[Status]
	mu      sync.Mutex // orders writers, so that "from" is what was replaced
}

func (w *stateWord) load() Status { return *w.current.Load() }

func (w *stateWord) set(s Status) (from telemetry.State, changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.current.Load()
	if old != nil {
		from = old.State
		if from == s.State {
			// The age of a state counts from its entry, but the reason may
			// be told better.
			s.Since = old.Since
		}
	}
	w.current.Store(&s)
	return from, old == nil || from != s.State
}

// TrustStatus is one immutable reading of how far the record of an engine's
// cache may be believed.
type TrustStatus struct {
	Trust  telemetry.Trust
	Reason string // why, for people
	Since  time.Time
}

// Trust returns how far the record of the engine's cache may be believed, and
// why.
func (e *Engine) Trust() (telemetry.Trust, string) {
	t := e.trust.Load()
	return t.Trust, t.Reason
}

// SetTrust replaces the trust. Only what follows the engine's events may call
// it, from one goroutine.
func (e *Engine) SetTrust(t telemetry.Trust, reason string) {
	since := time.Now()
	if old := e.trust.Load(); old != nil && old.Trust == t {
		if old.Reason == reason {
			return
		}
		since = old.Since
	}
	e.trust.Store(&TrustStatus{Trust: t, Reason: reason, Since: since})
	if e.Metrics != nil {
		e.Metrics.SetTrust(t)
	}
}

// rampFloor is the share of the others' load that an engine may hold when its
// slow start begins (CONTRACT section 2).
const rampFloor = 0.1

// Ramp returns the share of the others' load that the engine may hold: 1, but
// for an engine in slow start.
func (e *Engine) Ramp() float64 {
	s := e.state.load()
	lasts := e.Settings().SlowStart
	if s.State != telemetry.StateSlowStart || lasts <= 0 {
		return 1
	}
	return min(1, rampFloor+(1-rampFloor)*float64(time.Since(s.Since))/float64(lasts))
}
