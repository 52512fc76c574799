package proxy

import (
	"errors"
	"io"
	"os"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
	"ramjet/wire"
)

// Bounds on what an engine may send before a response head.
const (
	maxResponseHead = 64 << 10
	maxInterim      = 16 // 1xx heads
)

var errResponseHead = &wire.HeadError{Message: "the engine's response head is too large"}

// receive reads the engine's answer and brings it to the client. stale means
// that a reused connection ended without a byte.
func (f *flight) receive(e *engine.Engine, sent sendResult) (v verdict, stale bool) {
	if sent.clientLeft != nil {
		f.dropEngine()
		f.close = true
		f.failBody(sent.clientLeft)
		return verdict{done: true, end: f.rec.End, outcome: engine.OutcomeNeutral}, false
	}
	if f.upload && !sent.whole {
		// The engine takes no more; it may have answered early. What is left
		// of the body must not be read as the next request.
		f.close = true
	}
	if f.upload {
		f.uploaded = sent.whole
		f.dispatched = time.Now() // the client's pace is not the engine's
		f.limitEngine()
	}
	n, err := f.readResponseHead(sent.answer)
	if err != nil {
		var bad *wire.HeadError
		switch {
		case errors.As(err, &bad):
			return f.badResponse(e, bad.Message), false
		case f.up.Reused && f.relay.hi == 0 && f.c.gate.aborted() == telemetry.EndNone && !errors.Is(err, os.ErrDeadlineExceeded):
			return f.lost(e, err, "the idle connection had ended"), true
		}
		return f.lost(e, err, "waiting for the response head"), false
	}
	f.now = time.Now()
	f.relay.lo += n
	f.relay.mid = f.relay.lo
	f.headLen = n
	return f.judge(e, sent), false
}

// readResponseHead returns the length of the final response head, which
// stands at the front of what the relay holds. waited is how the wait for the
// first bytes ended.
func (f *flight) readResponseHead(waited error) (int, error) {
	r := &f.relay
	interim := 0
	f.resp.Reset()
	for {
		if r.hi > r.lo {
			n, err := f.resp.Parse(r.in.b[r.lo:r.hi])
			if err != nil {
				return 0, err
			}
			if n > maxResponseHead {
				return 0, errResponseHead
			}
			if n > 0 && f.resp.Status >= 200 {
				return n, nil
			}
			if n > 0 {
				if interim++; interim > maxInterim || f.resp.Status == 101 {
					return 0, &wire.HeadError{Message: "the engine sent interim responses without end or need"}
				}
				r.lo += n
				f.resp.Reset()
				continue
			}
			if r.hi-r.lo > maxResponseHead {
				return 0, errResponseHead
			}
		}
		if waited != nil {
			return 0, waited
		}
		n, err := f.up.Socket.Await(r.takes, r.gives)
		r.hi += n
		if n > 0 {
			f.member().AddBytesIn(n)
			continue // an end that came with bytes is told by the next read
		}
		if err != nil {
			return 0, err
		}
	}
}

func (f *flight) badResponse(e *engine.Engine, message string) verdict {
	return verdict{
		end: telemetry.EndEngineBadResponse, outcome: engine.OutcomeBadResponse, code: wire.CodeEngineBadResponse,
		detail: e.Name + ": " + message, retry: telemetry.RetryReset,
	}
}

// judge decides what to do with an answer by its head.
func (f *flight) judge(e *engine.Engine, sent sendResult) verdict {
	h := &f.resp
	if f.sent.head && !(f.sent.sse && (f.sent.chunked || f.sent.plain) && h.Status == 200 && h.EventStream && h.ContentLength < 0) {
		// The client holds the head of an event stream; this answer cannot
		// be its continuation. It is not read, so that it is no good answer either.
		outcome := outcomeOf(h.Status)
		if outcome == engine.OutcomeOK {
			outcome = engine.OutcomeNeutral
		}
		return verdict{end: telemetry.EndEngineDied, outcome: outcome, code: wire.CodeEngineUnreachable,
			detail: e.Name + ": answered no event stream in place of one that died", retry: telemetry.RetryDied}
	}
	f.setFraming(h)
	f.ttfb = f.now.Sub(f.dispatched).Seconds()
	f.composeHead()
	if v, again := f.tryOthersFirst(e, h); again {
		return v
	}
	if f.live.StreamRelay && f.relay.sse {
		return f.deliverTwin(e, sent)
	}
	if f.relay.sse || !f.relay.keep {
		return f.deliverStream(e, sent)
	}
	return f.deliverPlain(e, sent)
}

// setFraming reads from the head how the body ends and how the client gets it.
func (f *flight) setFraming(h *wire.ResponseHead) {
	r := &f.relay
	r.sse = h.EventStream
	// Only JSON is held until it is whole: other bodies may be streams of
	// their own (NDJSON, audio), and half of them is of use.
	kind := h.Get("content-type")
	r.keep = !r.sse && f.ep.kind != kindUpload && kind != nil && jsonType(kind)
	switch {
	case h.BodyLess(f.c.head.Method):
		r.framing, r.left, r.done = framedByLength, 0, true
		r.sse = false
	case h.Chunked:
		r.framing = framedByChunks
	case h.ContentLength >= 0:
		r.framing, r.left = framedByLength, h.ContentLength
		r.done = r.left == 0
	default:
		r.framing, r.reframe = framedByClose, true
	}
	r.dropUsage = f.inject && r.sse
	r.reframe = r.reframe || r.dropUsage || r.sse && f.live.StreamRelay
	if f.c.head.Minor == 0 && (r.reframe || h.Chunked) {
		// A client that cannot read chunks gets the bare body, which ends
		// with the connection.
		r.reframe, r.plain = true, true
		f.close = true
	}
}

// tryOthersFirst reports whether this answer should wait until no other engine
// has a better one: a 503, or a 404 for a stored response whose maker nobody
// remembers.
func (f *flight) tryOthersFirst(e *engine.Engine, h *wire.ResponseHead) (verdict, bool) {
	unknown := h.Status == 404 && f.ep.kind == kindStored && f.query.Stored == ""
	if f.sent.head || h.Status != 503 && !unknown || f.upload {
		return verdict{}, false
	}
	if !f.save() {
		return verdict{}, false
	}
	v := verdict{end: telemetry.EndEngineError, outcome: engine.OutcomeServerError, code: wire.CodeOverloaded,
		detail: e.Name + ": answered 503", retry: telemetry.RetryStatus503}
	if unknown {
		v.end, v.outcome, v.detail, v.search = telemetry.EndDone, engine.OutcomeNeutral, "", true
	}
	return v, true
}

// outcomeOf says what a whole answer with that status tells of its engine.
func outcomeOf(status int) engine.Outcome {
	switch {
	case status >= 500:
		return engine.OutcomeServerError
	case status >= 400:
		return engine.OutcomeNeutral
	}
	return engine.OutcomeOK
}

// deliverStream passes head and body on as they come.
func (f *flight) deliverStream(e *engine.Engine, sent sendResult) verdict {
	r := &f.relay
	f.wait1 = waitFirst
	f.headAt = f.now
	r.lastTime = f.headAt
	f.prime()
	if r.vain() {
		return f.vain(e)
	}
	r.tellFirst()
	if !f.sent.head {
		if !f.sendHead() {
			return f.unsendable()
		}
	}
	f.runRelay()
	return f.conclude(e, sent)
}

// runRelay relays until the answer or one of its sides has ended.
func (f *flight) runRelay() {
	r := &f.relay
	if r.over() && len(r.pending()) == 0 {
		return // all went out with the head; the client may have left by now
	}
	raw := f.up.Socket.Raw() != nil && f.c.sock.Raw() != nil
	for {
		f.limitEngine()
		panicPoint(f, "relay")
		if raw {
			r.runRaw()
		} else {
			r.runPlain()
		}
		if f.c.gate.aborted() != telemetry.EndNone || !f.goesOn(raw) {
			break
		}
		r.releaseClientLimit()
	}
	r.releaseClientLimit()
	f.now = time.Now()
}

// goesOn looks at a limit that ended the relay, and reports whether the wait
// that it bounds has meanwhile moved on.
func (f *flight) goesOn(raw bool) bool {
	r := &f.relay
	switch {
	case errors.Is(r.readErr, os.ErrDeadlineExceeded) && !f.overdue():
		r.readErr = nil
	case raw && errors.Is(r.sendErr, os.ErrDeadlineExceeded) && r.clientMoves():
		r.sendErr = nil
	default:
		return false
	}
	return true
}

// vain is the verdict on an abort without a token.
func (f *flight) vain(e *engine.Engine) verdict {
	return verdict{end: telemetry.EndEngineDied, outcome: engine.OutcomeAborted, code: wire.CodeEngineUnreachable,
		detail: e.Name + ": aborted before the first token", retry: telemetry.RetryAbort}
}

// unsendable is the verdict when the client cannot be written to.
func (f *flight) unsendable() verdict {
	if f.c.gate.aborted() == telemetry.EndNone && errors.Is(f.relay.sendErr, os.ErrDeadlineExceeded) {
		f.close = true
		f.end(telemetry.EndClientStalled)
	} else if cause := f.c.gate.aborted(); cause == telemetry.EndDrained || cause == telemetry.EndEngineStalled {
		f.dropEngine()
		return f.interrupted()
	} else {
		f.clientGone()
	}
	f.dropEngine()
	return verdict{done: true, end: f.rec.End, outcome: engine.OutcomeNeutral}
}

// conclude says what a relay that has ended came to.
func (f *flight) conclude(e *engine.Engine, sent sendResult) verdict {
	r := &f.relay
	switch {
	case r.moving():
		return f.vain(e)
	case r.said && f.clientLeft():
		// SDKs hang up behind [DONE], and the last chunk can be behind that.
		f.part()
		return f.complete(e, sendResult{})
	case r.sendErr != nil:
		return f.unsendable()
	case r.done:
		return f.complete(e, sent)
	case r.broken != nil:
		v := f.badResponse(e, r.broken.Error())
		return f.cut(v, wire.CodeEngineBadResponse)
	}
	if f.c.gate.aborted() != telemetry.EndNone {
		return f.interrupted()
	}
	if errors.Is(r.readErr, os.ErrDeadlineExceeded) {
		f.dropEngine()
		return f.late("waiting for events")
	}
	return f.cut(verdict{end: telemetry.EndEngineDied, outcome: engine.OutcomeDied, code: wire.CodeEngineUnreachable,
		detail: e.Name + ": " + describe(r.readErr) + " inside the answer", retry: telemetry.RetryDied}, wire.CodeEngineDied)
}

// clientLeft reports whether the client ended the relay.
func (f *flight) clientLeft() bool {
	cause := f.c.gate.aborted()
	failed := f.relay.sendErr != nil && !errors.Is(f.relay.sendErr, os.ErrDeadlineExceeded)
	return cause == telemetry.EndClientGoneWaiting || cause == telemetry.EndNone && failed
}

func describe(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the connection ended"
	}
	return err.Error()
}

// cut ends an answer that its engine did not finish: elsewhere if nothing of
// the body is out, else with an error event.
func (f *flight) cut(v verdict, code wire.Code) verdict {
	f.dropEngine()
	if !f.sent.body && (!f.sent.head || f.sent.sse) {
		return v
	}
	v.done = true
	f.endStream(code, v.end)
	return v
}

// complete closes the books on an answer that came whole.
func (f *flight) complete(e *engine.Engine, sent sendResult) verdict {
	f.giveBack(e, sent)
	return f.assess(e)
}

// giveBack returns the engine's connection to its pool if its answer was read
// to the very end and no byte more.
func (f *flight) giveBack(e *engine.Engine, sent sendResult) {
	r := &f.relay
	up := f.up
	if !f.c.gate.detach() || !sent.whole || r.junk || r.framing == framedByClose || !f.resp.KeepAlive || r.hi > r.lo {
		return // dropEngine closes it
	}
	if f.limited {
		_ = up.SetDeadline(time.Time{})
		f.limited = false
	}
	f.up = nil
	e.Pool().Put(up, f.now)
}

// assess says what a whole answer means.
func (f *flight) assess(e *engine.Engine) verdict {
	s := &f.relay.seen
	v := verdict{done: true, end: telemetry.EndDone, outcome: outcomeOf(f.resp.Status)}
	switch {
	case s.aborted:
		v.end, v.outcome, v.detail = telemetry.EndEngineDied, engine.OutcomeAborted, e.Name+": ended the answer with an abort"
	case s.failed:
		v.end, v.outcome, v.detail = telemetry.EndEngineError, engine.OutcomeDied, e.Name+": sent an error event"
	case f.resp.Status >= 500:
		v.end, v.detail = telemetry.EndEngineError, e.Name+": answered with a server error"
	}
	f.countUsage()
	return v
}
