// Package engine is one upstream: its identity, its state word, what it
// serves, its pool of connections, and the way to abort work on it. State is
// written by package probe only; everything here is safe for concurrent use
// unless a comment says otherwise. It decides nothing: route picks, probe
// judges, proxy sends.
package engine

import (
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"
	"time"

	"ramjet/telemetry"
)

// Options describes one engine. Zero values are usable where a comment says
// so.
type Options struct {
	Name     string
	URL      *url.URL      // http or https, no path
	Profile  string        // mtp, standard or none
	APIKey   string        // sent instead of the client's key; "" sends the client's
	InFlight int           // most requests at once; 0 = no limit
	Dial     time.Duration // limit for name resolution and connecting; 0 = 1 s, below 0 = none
	// Forbidden says why an address must not be dialled, "" if it may; nil
	// allows all. It sees addresses after resolution, so a name cannot lead
	// to where an address could not.
	Forbidden func(netip.Addr) string
	GPUs      []int // device indexes, for the GPU view
	// Watch tells connections that their engine closed them; nil = none does,
	// and they are found out when used.
	Watch *Watch
	// Metrics are the engine's handles; nil counts nothing.
	Metrics *telemetry.EngineMetrics
}

// Engine is one upstream.
type Engine struct {
	Options

	state  stateWord
	models atomic.Pointer[Models]

	bytesIn    atomic.Uint64 // bytes received on request connections
	lastFinish atomic.Int64  // Unix nanoseconds of the last request that ended well

	pool    *Pool
	asker   *http.Transport // of Get
	flights flightSet
}

// New returns an engine in state down, which is what it is until its first
// check.
func New(o Options) *Engine {
	if o.Dial == 0 {
		o.Dial = time.Second
	}
	e := &Engine{Options: o}
	e.state.set(Status{State: telemetry.StateDown, Reason: "not checked yet", Since: time.Now()})
	e.pool = newPool(e)
	e.asker = e.newAsker()
	return e
}

// Close drops every idle connection to the engine.
func (e *Engine) Close() {
	e.pool.Close()
	e.asker.CloseIdleConnections()
}

// Status returns the engine's present state with its reason and age.
func (e *Engine) Status() Status { return e.state.load() }

// State returns the engine's present state.
func (e *Engine) State() telemetry.State { return e.state.load().State }

// SetState enters a state. Only package probe may call it. It returns the
// state that was left and whether that differs.
func (e *Engine) SetState(s telemetry.State, reason string) (from telemetry.State, changed bool) {
	return e.state.set(Status{State: s, Reason: reason, Since: time.Now()})
}

// Models returns what the engine's own /v1/models listed, nil until it was
// read once.
func (e *Engine) Models() *Models { return e.models.Load() }

// SetModels replaces the list. Only package probe may call it.
func (e *Engine) SetModels(m *Models) { e.models.Store(m) }

// AddBytesIn counts bytes received on a request connection: the sign of life
// that tells a busy engine from a frozen one.
func (e *Engine) AddBytesIn(n int) { e.bytesIn.Add(uint64(n)) }

// BytesIn returns the bytes received since start.
func (e *Engine) BytesIn() uint64 { return e.bytesIn.Load() }

// Finished notes that a request ended well there at t.
func (e *Engine) Finished(t time.Time) { e.lastFinish.Store(t.UnixNano()) }

// LastFinish returns when a request last ended well there, the zero time if
// none did.
func (e *Engine) LastFinish() time.Time {
	n := e.lastFinish.Load()
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

// Pool returns the engine's connection pool.
func (e *Engine) Pool() *Pool { return e.pool }
