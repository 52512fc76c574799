package proxy

import (
	"fmt"
	"runtime/debug"
	"time"

	"ramjet/engine"
	"ramjet/lease"
	"ramjet/route"
	"ramjet/telemetry"
	"ramjet/tokens"
	"ramjet/wire"
)

// flight is one request from its head to its end. A connection has one, which
// it uses again and again; only the goroutine that serves the connection
// touches it.
type flight struct {
	c    *conn
	s    *Server
	live *live // the settings that it began with

	// now is the last reading of the clock. A request is a few bursts of work
	// between waits, each far shorter than what its times tell apart, so that one
	// reading does for a burst: whoever waited reads anew.
	now time.Time

	// What the client asked.
	began    time.Time
	id       []byte // X-Request-Id
	ep       *endpoint
	dialect  wire.Dialect
	path     []byte // as it is logged
	query    route.Request
	peek     wire.Peeked
	body     body
	chunks   wire.ChunkScanner // of the request's body
	alias    string            // the engines' name when an alias was asked for
	inject   bool              // usage was asked for on the client's behalf
	upload   bool              // the body is streamed through, not held
	bodyRead bool              // the request was consumed to its end
	close    bool              // the connection ends after this answer
	parted   bool              // and only because the client left
	lingered bool              // and waited for its client to read it

	// Where it stands.
	lease    lease.Lease
	decision route.Decision
	tried    []tried
	sent     sentState
	up       *engine.Conn
	resp     wire.ResponseHead
	prompt   *prompt // until the first token, and until the request can no longer move
	saved    *savedAnswer
	last     verdict
	learnt   bool // the present attempt's engine computed the prompt
	handed   bool // the present attempt carries the prompt's ids
	trying   bool // an attempt is under way
	uploaded bool // a streamed body went out whole
	wait1    waiting

	out        *buffer   // holds the request that the engine gets, while it is written
	sentall    func()    // sentAll, bound once
	dispatched time.Time // when the present attempt was sent
	headOut    []byte    // the head that the client gets
	headLen    int       // of the response head, which ends where the body begins
	headAt     time.Time // when its response head was there
	ttfb       float64   // seconds in between
	limited    bool      // a read deadline is set on the engine's connection
	settled    bool      // the request's bytes are given back

	// Of the prompt, to be compared with what the engine counts.
	class       tokens.Class
	predicted   int
	promptBytes int
	dispatch    Mark // what was heard of the engine's cache when it was sent
	first       Mark // and at the first token
	claim       Claim
	matches     []int32
	told        Audit // what the last answer showed

	relay    relay
	explain  route.Explanation
	rec      telemetry.AccessRecord
	model    string   // the served model's name, for labels
	fault    string   // what went wrong, for the log
	text     []byte   // what is kept of texts whose buffers are gone
	names    []string // the engines tried
	session0 []byte   // the session as it is shown
}

// tried is one engine that the request was sent to.
type tried struct {
	member *route.Member
	end    telemetry.End
}

// sentState says what of the answer has reached the client.
type sentState struct {
	head    bool // a response head
	torn    bool // only a part of that head
	body    bool // at least one byte of its body
	chunked bool // the head promised chunks
	sse     bool // the head promised an event stream
	plain   bool // the body has no framing and ends with the connection
	bytes   int64
	status  int
	engine  string // whose head it was
}

func (f *flight) init(c *conn) {
	f.c, f.s, f.live = c, c.srv, c.srv.settings()
	f.id = make([]byte, 0, 36)
	f.sentall = f.sentAll
	f.relay.bind(f)
}

// run serves the request whose head was just read. It reports whether the
// connection can serve another.
func (f *flight) run() (again bool) {
	f.begin()
	defer func() {
		f.finish()
		again = !f.close
	}()
	defer func() {
		if p := recover(); p != nil {
			f.panicked(p, debug.Stack())
		}
	}()
	f.c.gate.open()
	f.handle()
	return
}

func (f *flight) begin() {
	f.s.requests.Add(1)
	f.live = f.s.settings()
	f.now = time.Now()
	f.began = f.now
	if f.s.Tick != nil {
		f.s.Tick(f.began)
	}
	f.rec = telemetry.AccessRecord{
		Time: f.began, Method: f.c.head.Method, Path: f.c.head.Target,
		PromptTokens: telemetry.Unknown, MatchTokens: telemetry.Unknown,
		CachedTokens: telemetry.Unknown, OutputTokens: telemetry.Unknown,
		Route: telemetry.Unknown, Queue: telemetry.Unknown, TTFT: telemetry.Unknown, Duration: telemetry.Unknown,
	}
	f.ep, f.dialect, f.alias, f.fault = nil, wire.DialectOpenAI, "", ""
	f.inject, f.upload, f.bodyRead, f.close = false, false, false, false
	f.limited, f.settled, f.model, f.ttfb = false, false, "", 0
	f.uploaded, f.lingered, f.parted = false, false, false
	f.query = route.Request{}
	f.peek.Object = false // what the last body said
	f.decision = route.Decision{}
	f.tried = f.tried[:0]
	f.handed, f.class, f.predicted, f.promptBytes = false, 0, 0, 0
	f.learnt, f.relay.seen = false, seen{}
	f.explain.Reset()
	f.sent = sentState{}
	f.saved = nil
}

// panicked ends the one request whose code went wrong; everybody else's goes
// on.
func (f *flight) panicked(p any, stack []byte) {
	f.s.Log.Error("a request panicked", "panic", fmt.Sprint(p), "id", string(f.id), "stack", string(stack))
	f.close = true
	f.dropEngine()
	f.fault = "panic"
	if f.trying {
		f.trying = false
		f.tried = append(f.tried, tried{member: f.decision.Member, end: telemetry.EndInternal})
	}
	if !f.sent.head {
		f.fail(&wire.Error{Code: wire.CodeInternalError}, telemetry.EndInternal)
		return
	}
	f.endStream(wire.CodeInternalError, telemetry.EndInternal)
}

// dropEngine closes the present connection to an engine, if there is one.
func (f *flight) dropEngine() {
	if f.up == nil {
		return
	}
	f.c.gate.detach()
	_ = f.up.Close()
	f.up = nil
}
