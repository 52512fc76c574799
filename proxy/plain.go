package proxy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
	"ramjet/wire"
)

// holdPlain is up to which size an answer that is no stream is held until it
// is whole. An abort without a token is far smaller, and half of a JSON
// document is of no use to anybody.
const holdPlain = 48 << 10

// deliverPlain delivers a JSON answer. A short one goes out in one write once
// it is whole, so that until then the request can still move.
func (f *flight) deliverPlain(e *engine.Engine, sent sendResult) verdict {
	r := &f.relay
	f.wait1 = waitFirst
	f.headAt = f.now
	r.lastTime = f.headAt
	f.prime()
	f.gather()
	f.readAnswer()
	if r.done && r.seen.aborted && !r.seen.delta && f.ep.kind.generates() {
		return f.saveAborted(e)
	}
	if r.broken != nil || r.readErr != nil {
		return f.conclude(e, sent)
	}
	if !f.sendHead() {
		return f.unsendable()
	}
	f.runRelay()
	f.readAnswer()
	return f.conclude(e, sent)
}

// prime scans what of the body came with the head. Later calls do nothing.
func (f *flight) prime() {
	r := &f.relay
	if !r.primed && r.hi > r.lo {
		r.consume(r.lo)
	}
	r.primed = true
}

// gather reads on without sending, until the answer is whole, has failed, or is
// too long to be held.
func (f *flight) gather() {
	r := &f.relay
	for !r.over() && r.hi-r.lo < holdPlain && r.ohi-r.olo < holdPlain {
		f.limitEngine()
		n, err := f.up.Socket.Await(r.takes, r.gives)
		f.now = time.Now()
		if n > 0 {
			r.took(n)
		}
		switch {
		case err == nil || r.over():
		case errors.Is(err, io.EOF):
			r.ended()
		case errors.Is(err, os.ErrDeadlineExceeded) && !f.overdue() && f.c.gate.aborted() == telemetry.EndNone:
			// A limit on gaps between events, of which a plain answer has none.
		default:
			r.readErr = err
		}
	}
}

// readAnswer takes from a JSON answer what routing and the log need.
func (f *flight) readAnswer() {
	r := &f.relay
	if !r.keep || !r.done || r.answered || !f.ep.kind.generates() && f.ep.kind != kindJSON && f.ep.kind != kindStored {
		return
	}
	r.answered = true
	body, _ := r.answer.Bytes()
	if len(body) == 0 || body[0] != '{' {
		return
	}
	var info wire.AnswerInfo
	wire.ClassifyAnswer(f.dialect, body, &info)
	if f.resp.Status == 200 && f.ep.kind.generates() {
		// A stored response may well be one that its client cancelled.
		r.seen.aborted = info.Abort
		r.seen.delta = !info.NoOutput
		if !info.Abort || !info.NoOutput {
			f.lease.Decoding(f.s.at(f.now), false)
			f.learn()
		}
	}
	if info.HasUsage {
		r.seen.hasUsage, r.seen.usage = true, info.Usage
	}
	if f.ep.kind == kindResponses {
		f.s.stored.note(info.ResponseID, f.member().Name)
	}
}

// savedAnswer is an answer that is passed on only if no other engine has a
// better one. Such answers are rare and short, so they may cost a copy.
type savedAnswer struct {
	bytes  []byte // head and body as the client gets them
	status int
	engine string
}

// save reads the present answer to its end and keeps it. It reports false if
// the answer cannot be kept, and then nothing was read.
func (f *flight) save() bool {
	r := &f.relay
	if r.framing == framedByLength && r.left > holdPlain || r.sse || f.sent.head {
		return false
	}
	f.prime()
	f.gather()
	if !r.over() {
		return false // too long to keep: it passes, from what is held on
	}
	if !r.done {
		return true // it died on the way; there is nothing worth keeping
	}
	f.keepSaved()
	f.giveBack(f.member(), sendResult{whole: true})
	return true
}

func (f *flight) keepSaved() {
	r := &f.relay
	f.saved = &savedAnswer{
		bytes:  append(bytes.Clone(f.headOut), r.pending()...),
		status: f.resp.Status,
		engine: f.member().Name,
	}
	r.lo = r.mid
}

// saveAborted keeps an answer that was aborted without a token: the request
// moves, and the answer passes only if every candidate gives such a one.
func (f *flight) saveAborted(e *engine.Engine) verdict {
	f.keepSaved()
	f.giveBack(e, sendResult{whole: true})
	return f.vain(e)
}

// sendSaved passes on the last answer that was kept.
func (f *flight) sendSaved(end telemetry.End) {
	f.rec.Status = f.saved.status
	f.sent.engine = f.saved.engine
	f.sent.head, f.sent.body = true, true
	n, err := f.c.write(f.saved.bytes)
	f.sent.bytes += int64(n)
	if err != nil {
		f.clientGone()
		return
	}
	f.end(end)
}

// member returns the engine of the present attempt.
func (f *flight) member() *engine.Engine { return f.decision.Member.Engine }
