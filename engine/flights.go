package engine

import (
	"sync"

	"ramjet/telemetry"
)

// Flight is one attempt under way on an engine, as far as the engine needs to
// know it: something that can be told to stop.
type Flight interface {
	// EngineGone ends the attempt because its engine gives no more life. It
	// must not block and may be called more than once.
	EngineGone(cause telemetry.End)
	// Streaming reports whether the attempt is past its first generated token.
	Streaming() bool
	// Blocked reports whether the attempt stands still because its client takes
	// nothing, which says nothing of the engine.
	Blocked() bool
	// Progress returns a number that grows with every generated event.
	Progress() uint64
}

// flightSet holds the attempts under way.
type flightSet struct {
	mu  sync.Mutex // guards set
	set map[Flight]struct{}
}

// Enter registers an attempt. Leave must follow on every way out.
func (e *Engine) Enter(f Flight) {
	e.flights.mu.Lock()
	defer e.flights.mu.Unlock()
	if e.flights.set == nil {
		e.flights.set = make(map[Flight]struct{})
	}
	e.flights.set[f] = struct{}{}
}

// Leave ends what Enter began.
func (e *Engine) Leave(f Flight) {
	e.flights.mu.Lock()
	defer e.flights.mu.Unlock()
	delete(e.flights.set, f)
}

// Flights returns how many attempts are under way.
func (e *Engine) Flights() int {
	e.flights.mu.Lock()
	defer e.flights.mu.Unlock()
	return len(e.flights.set)
}

// Streams returns how many attempts are past their first token, how many of
// those their clients hold up, and the sum of the progress of all of them, so
// that a caller can see whether any moved. One leaves that sum only when it ends.
func (e *Engine) Streams() (n, blocked int, progress uint64) {
	e.flights.mu.Lock()
	defer e.flights.mu.Unlock()
	for f := range e.flights.set {
		if f.Streaming() {
			n++
			if f.Blocked() {
				blocked++
			}
			progress += f.Progress()
		}
	}
	return n, blocked, progress
}

// AbortAll tells every attempt under way that the engine gives no more life.
func (e *Engine) AbortAll(cause telemetry.End) {
	e.flights.mu.Lock()
	defer e.flights.mu.Unlock()
	for f := range e.flights.set {
		f.EngineGone(cause)
	}
}
