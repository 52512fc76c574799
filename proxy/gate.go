package proxy

import (
	"context"
	"sync"
	"sync/atomic"

	"ramjet/engine"
	"ramjet/telemetry"
)

// gate is the one part of a request that other goroutines may touch: the
// departure watch, the health probe and the drain end a request through it.
// The first cause wins. Closing the engine's connection is the whole abort: it
// needs no deadline that could outlive the request, and vLLM stops on close.
type gate struct {
	mu     sync.Mutex // guards what follows
	active bool       // a request is under way
	hungUp bool       // the client's side of the connection ended
	cause  telemetry.End
	up     *engine.Conn
	cancel context.CancelFunc // ends a dial
	stop   func()             // wakes a wait for the client

	wake chan struct{} // wakes a wait in the queue; made once

	streaming atomic.Bool   // past the first generated token
	blocked   atomic.Bool   // the client takes nothing, so that the engine is not read
	progress  atomic.Uint64 // generated events so far
}

// open begins a request. A client that hung up before is gone already: a
// half-close counts as leaving, as uvicorn treats it.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.active = true
	g.cause = telemetry.EndNone
	g.streaming.Store(false)
	g.blocked.Store(false)
	g.progress.Store(0)
	if g.hungUp {
		g.cause = telemetry.EndClientGoneWaiting
	}
}

// shut ends a request: nothing can abort it any more. It returns what did.
func (g *gate) shut() telemetry.End {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.active = false
	g.up, g.cancel = nil, nil
	return g.cause
}

// attach makes c the connection that an abort closes. It reports false, and
// the caller must close c, when the request was aborted before.
func (g *gate) attach(c *engine.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cancel = nil
	if g.cause != telemetry.EndNone {
		return false
	}
	g.up = c
	return true
}

// detach takes the connection back, so that it may be pooled: after it no
// abort can reach the connection. It reports false when an abort came first.
func (g *gate) detach() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.up = nil
	return g.cause == telemetry.EndNone
}

// dialing returns the context of a dial that an abort cancels.
func (g *gate) dialing() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cancel = cancel
	if g.cause != telemetry.EndNone {
		cancel()
	}
	return ctx
}

// aborted returns why the request was ended from outside, EndNone if it was
// not.
func (g *gate) aborted() telemetry.End {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause
}

// retry clears a cause that was the engine's, so that the request can go on
// elsewhere.
func (g *gate) retry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause == telemetry.EndEngineStalled {
		g.cause = telemetry.EndNone
		if g.hungUp {
			g.cause = telemetry.EndClientGoneWaiting
		}
	}
}

// waker returns the channel that an abort sends on, empty. One that came before
// is told by aborted alone, so a waiter looks there first.
func (g *gate) waker() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wake == nil {
		g.wake = make(chan struct{}, 1)
	}
	select {
	case <-g.wake: // a wake-up of an earlier wait
	default:
	}
	return g.wake
}

// hangup notes that the client's side ended, and ends the request under way.
func (g *gate) hangup() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hungUp = true
	if g.active {
		g.abortLocked(telemetry.EndClientGoneWaiting)
	}
}

// abort ends the request under way, if there is one.
func (g *gate) abort(cause telemetry.End) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.active {
		g.abortLocked(cause)
	}
}

func (g *gate) abortLocked(cause telemetry.End) {
	if g.cause != telemetry.EndNone {
		return
	}
	g.cause = cause
	if g.up != nil {
		_ = g.up.Close()
	}
	if g.cancel != nil {
		g.cancel()
	}
	if g.stop != nil {
		g.stop()
	}
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// EngineGone implements engine.Flight.
func (g *gate) EngineGone(cause telemetry.End) { g.abort(cause) }

// Streaming implements engine.Flight.
func (g *gate) Streaming() bool { return g.streaming.Load() }

// Blocked implements engine.Flight.
func (g *gate) Blocked() bool { return g.blocked.Load() }

// Progress implements engine.Flight.
func (g *gate) Progress() uint64 { return g.progress.Load() }
