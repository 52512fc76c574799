// Package engine is one upstream: its identity, its state word, what it
// serves, its pool of connections, and the way to abort work on it. State is
// written by package probe only; everything here is safe for concurrent use
// unless a comment says otherwise. It decides nothing: route picks, probe
// judges, proxy sends.
package engine

import (
	"net/netip"
	"net/url"
	"sync/atomic"
	"time"

	"ramjet/telemetry"
)

// Options describes one engine as it begins. Zero values are usable where a
// comment says so. What Settings holds too can be changed later.
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
	// SlowStart is how long the state of that name lasts; 0 = it has no ramp.
	SlowStart time.Duration
	// Watch tells connections that their engine closed them; nil = none does,
	// and they are found out when used.
	Watch *Watch
	// Metrics are the engine's handles; nil counts nothing.
	Metrics *telemetry.EngineMetrics
}

// Settings are what can be changed of an engine while it serves. A value that
// Engine.Settings returned never changes.
type Settings struct {
	Profile   string        // mtp, standard or none
	APIKey    string        // sent instead of the client's key; "" sends the client's
	InFlight  int           // most requests at once; 0 = no limit
	Dial      time.Duration // limit for name resolution and connecting; below 0 = none
	GPUs      []int         // device indexes, for the GPU view
	SlowStart time.Duration // how long the state of that name lasts; 0 = it has no ramp
}

// Engine is one upstream. Its exported fields never change.
type Engine struct {
	Name    string
	URL     *url.URL
	Metrics *telemetry.EngineMetrics // nil counts nothing

	forbidden func(netip.Addr) string
	watch     *Watch

	settings atomic.Pointer[Settings]

	state  stateWord
	trust  atomic.Pointer[TrustStatus]
	models atomic.Pointer[Models]
	accept atomic.Bool // its port took the last check's connection

	bytesIn    atomic.Uint64 // bytes received on request connections
	lastFinish atomic.Int64  // when the last request ended well, in nanoseconds since born
	born       time.Time     // with a monotonic reading: a jump of the wall clock must eject nobody

	pool    *Pool
	checks  *Pool // of Get and Post
	flights flightSet
}

// New returns an engine in state down, which is what it is until its first
// check.
func New(o Options) *Engine {
	e := &Engine{Name: o.Name, URL: o.URL, Metrics: o.Metrics, forbidden: o.Forbidden, watch: o.Watch, born: time.Now()}
	e.SetSettings(Settings{Profile: o.Profile, APIKey: o.APIKey, InFlight: o.InFlight, Dial: o.Dial, GPUs: o.GPUs, SlowStart: o.SlowStart})
	e.state.set(Status{State: telemetry.StateDown, Reason: "not checked yet", Since: time.Now()})
	e.SetTrust(telemetry.TrustBlind, "no events")
	e.pool = newPool(e, true)
	// Checks come for ever: a timer of their pool would wake an idle Ramjet for nothing.
	e.checks = newPool(e, false)
	return e
}

// Settings returns those in force. They must not be written to.
func (e *Engine) Settings() *Settings { return e.settings.Load() }

// SetSettings replaces them, from the next use on. A Dial of 0 is 1 s.
func (e *Engine) SetSettings(s Settings) {
	if s.Dial == 0 {
		s.Dial = time.Second
	}
	e.settings.Store(&s)
}

// Close drops every idle connection to the engine.
func (e *Engine) Close() {
	e.pool.Close()
	e.checks.Close()
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

// Accepts reports whether the engine's port took the last check's connection.
func (e *Engine) Accepts() bool { return e.accept.Load() }

// SetAccepts notes whether the port took a connection. Only package probe may
// call it.
func (e *Engine) SetAccepts(ok bool) { e.accept.Store(ok) }

// AddBytesIn counts bytes received on a request connection: the sign of life
// that tells a busy engine from a frozen one.
func (e *Engine) AddBytesIn(n int) { e.bytesIn.Add(uint64(n)) }

// BytesIn returns the bytes received since start.
func (e *Engine) BytesIn() uint64 { return e.bytesIn.Load() }

// Finished notes that a request ended well there at t.
func (e *Engine) Finished(t time.Time) { e.lastFinish.Store(max(int64(t.Sub(e.born)), 1)) }

// LastFinish returns when a request last ended well there, the zero time if
// none did.
func (e *Engine) LastFinish() time.Time {
	n := e.lastFinish.Load()
	if n == 0 {
		return time.Time{}
	}
	return e.born.Add(time.Duration(n))
}

// Pool returns the engine's connection pool.
func (e *Engine) Pool() *Pool { return e.pool }
