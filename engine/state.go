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
