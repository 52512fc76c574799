package proxy

import (
	"context"
	"crypto/tls"
	"time"

	"ramjet/engine"
	"ramjet/route"
	"ramjet/telemetry"
	"ramjet/tokens"
)

// Outcomes is told what each attempt says about its engine's health.
type Outcomes interface {
	Outcome(e *engine.Engine, o engine.Outcome, reason string)
}

// Residency follows what is known of the engines' caches, by their slots in the
// router's set. Its methods must be safe for concurrent use and not block.
type Residency interface {
	// Mark returns what was heard up to now, and First the same when the engine
	// gave an answer's first token.
	Mark(slot int) Mark
	First(slot int) Mark
	// Answered takes what an answer showed; a is read during the call only.
	Answered(slot int, a *Audit)
}

// Mark is how much was heard of one engine's cache up to a moment.
type Mark struct {
	Received uint64 // messages
	Removed  uint64 // blocks
	Pending  bool   // what an answer stored that has just begun is on its way
}

// Audit is what one answer showed of its engine's cache, in tokens; Unknown
// where it did not tell.
type Audit struct {
	Prompt, Output int
	Reported       int  // cached tokens, by the engine
	Predicted      int  // the exact match when the engine was chosen
	Other          int  // what Predicted would be if the engine's drop of blocks were another
	InFlight       bool // more of the prompt was being computed there then, or was so a moment before
	Sent, First    Mark // when the request was sent, and at the first token
	Matches        []int32
	Claim          Claim
}

// Claim is what the memory believed when the engine was chosen: that it held
// Keys leading keys, the last of them Last, of a chain that begins with First;
// each stands for KeyTokens tokens. KeyTokens is 0 where the prompt has no
// chain, or its engine computes it whole whatever it holds.
type Claim struct {
	First, Last     uint64
	Keys, KeyTokens int
	// Slack is how many tokens a key may stand for less, where KeyTokens is an
	// estimate from the length of its text.
	Slack int
}

// Journal records what was decided, and what became of it. Record must be safe
// for concurrent use, not block, and not keep x.
type Journal interface {
	Record(x *route.Explanation)
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
	// Prompts knows token ids; nil: prompts are weighed by their bytes.
	Prompts *tokens.Model
	// Residency is told what engines report of their caches; nil: nobody is.
	Residency Residency
	// Beside runs a task beside the requests, or drops it when there are too
	// many. nil drops all.
	Beside func(task func(ctx context.Context)) (taken bool)
	// BesideRoom reports whether Beside is likely to take a task, so that none
	// is made in vain. nil: it is.
	BesideRoom func() bool
	// Decisions keeps the explanations of requests; nil: none are kept.
	Decisions *route.Ring
	// Journal records them for good; nil: none are recorded.
	Journal Journal
	Metrics *telemetry.Metrics
	Access  *telemetry.AccessLog
	Log     *telemetry.Log
	// Health appends the body of GET /health and says whether any engine can
	// be used.
	Health  func(dst []byte) (body []byte, usable bool)
	Version string
	// Upstream counts the open connections to engines, those of engines that
	// left the set but still finish requests too. It must not block. nil counts
	// those of the engines in the set.
	Upstream func() int
	// Tick, if set, is called when a request begins and ends, and now and
	// then while it streams.
	Tick func(now time.Time)
	// TLS serves https when set.
	TLS *tls.Config

	Settings
}

// Settings are what a reload may change.
type Settings struct {
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
	// Handoff gives ids to engines that read them; nil: none are given.
	Handoff *tokens.Handoff
}

// maxAttempts is how many engines one request may try (CONTRACT section 3).
const maxAttempts = 3
