package proxy

import (
	"crypto/tls"
	"time"

	"ramjet/engine"
	"ramjet/route"
	"ramjet/telemetry"
)

// Outcomes is told what each attempt says about its engine's health.
type Outcomes interface {
	Outcome(e *engine.Engine, o engine.Outcome, reason string)
}

// Timeouts are the waits of CONTRACT section 1; 0 means none.
type Timeouts struct {
	Head           time.Duration // from the sent request to the response head
	FirstEvent     time.Duration // from the head to the first generated event
	EventGap       time.Duration // between generated events
	Total          time.Duration // from the request's head to its end
	ClientHeader   time.Duration // for a request head, from its first byte
	ClientBodyRate int64         // bytes per second on average, judged from 2 s on
	ClientWrite    time.Duration // without progress towards the client
}

// Limits are the bounds of CONTRACT section 1.
type Limits struct {
	Body        int64         // bytes of one request body
	BodyMemory  int64         // bytes of request bodies held at once
	Header      int           // bytes of one request head
	Connections int           // client connections, 0 = no limit
	Queue       int           // requests that may wait for room on an engine
	QueueWait   time.Duration // how long each of them may
}

// Options is all that a Server needs. Router, Outcomes, Metrics and Health
// must be set.
type Options struct {
	Router   *route.Router
	Outcomes Outcomes
	Metrics  *telemetry.Metrics
	Access   *telemetry.AccessLog
	Log      *telemetry.Log
	// Health appends the body of GET /health and says whether any engine can
	// be used.
	Health  func(dst []byte) (body []byte, usable bool)
	Version string
	// Tick, if set, is called when a request begins and ends, and now and
	// then while it streams.
	Tick func(now time.Time)

	Timeouts Timeouts
	Limits   Limits
	// Aliases maps a public model name to the one that the engines know.
	Aliases map[string]string
	// InjectUsage asks engines for usage where the client did not.
	InjectUsage bool
	// StreamRelay relays through fasthttp's body stream instead of verbatim.
	StreamRelay bool
	// XRamjet and ServerTiming add those response headers.
	XRamjet      bool
	ServerTiming bool
	// Allow lists further engine paths that may be reached.
	Allow []string
	// Keys admits clients; nil admits all.
	Keys *Keys
	// TLS serves https when set.
	TLS *tls.Config
}

// maxAttempts is how many engines one request may try (CONTRACT section 3).
const maxAttempts = 3
