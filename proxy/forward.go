package proxy

import (
	"errors"
	"os"
	"time"

	"ramjet/engine"
	"ramjet/route"
	"ramjet/telemetry"
	"ramjet/wire"
)

// verdict says what an attempt came to.
type verdict struct {
	// done: the client has its answer, or is gone. Otherwise the request may
	// move, because no byte of a body has reached the client.
	done bool
	end  telemetry.End
	// outcome and detail are for the engine's health.
	outcome engine.Outcome
	detail  string
	// code is what the client is told if no engine is left.
	code wire.Code
	// retry names the cause for the metric when the request moves; a search
	// for the maker of a stored response is no retry.
	retry  telemetry.Retry
	search bool
}

// forward tries engines until one answers.
func (f *flight) forward() {
	refused := 0
	for {
		e := f.pick()
		if aborted := f.c.gate.aborted(); aborted != telemetry.EndNone {
			f.departed(aborted)
			return
		}
		if e != nil {
			f.exhausted(e, refused)
			return
		}
		if len(f.tried) > 0 && !f.last.search {
			f.s.Metrics.Retry(f.last.retry)
		}
		f.trying = true
		v := f.try(f.decision.Member)
		f.trying = false
		f.s.Outcomes.Outcome(f.decision.Member.Engine, v.outcome, v.detail)
		f.tried = append(f.tried, tried{member: f.decision.Member, end: v.end})
		if v.detail != "" {
			f.fault = v.detail
		}
		if v.done {
			f.end(v.end)
			return
		}
		if v.outcome == engine.OutcomeRefused {
			refused++
		}
		f.now = time.Now()
		f.lease.Release(f.s.at(f.now)) // the wait for another engine must not weigh on this one
		f.markTried(&f.query)
		if !f.mayTryAnother() {
			f.giveUp(v, refused)
			return
		}
	}
}

// mayTryAnother reports whether another engine is worth a try.
func (f *flight) mayTryAnother() bool {
	if f.c.gate.aborted() == telemetry.EndEngineStalled {
		f.c.gate.retry()
		_ = f.c.nc.SetDeadline(time.Time{})
	}
	if f.upload && f.bodyRead {
		return false // part of the body went to the first engine
	}
	if f.ep.kind == kindStored && f.query.Stored == "" {
		return len(f.tried) < len(f.s.Router.Members().Members)
	}
	return len(f.tried) < maxAttempts
}

// othersLeft reports whether the request could move to another engine, were
// the present one given up.
func (f *flight) othersLeft() bool {
	if f.upload && f.bodyRead || len(f.tried)+1 >= maxAttempts {
		return false
	}
	q := f.query
	f.markTried(&q)
	return f.s.Router.CanPick(&q)
}

// markTried keeps the present engine out of q's further picks.
func (f *flight) markTried(q *route.Request) { q.Tried |= 1 << f.decision.Slot }

// exhausted ends a request for which no (further) engine can be picked.
func (f *flight) exhausted(e *wire.Error, refused int) {
	if e.Code == wire.CodeEngineTimeout && f.sent.head {
		f.endStream(e.Code, telemetry.EndTimedOut)
		return
	}
	if e.Code == wire.CodeEngineTimeout {
		f.fail(e, telemetry.EndTimedOut)
		return
	}
	if len(f.tried) == 0 {
		end := telemetry.EndEngineUnreachable
		switch e.Code { //nolint:exhaustive // the rest mean that no engine can be had
		case wire.CodeQueueFull:
			end = telemetry.EndShed
		case wire.CodeModelNotFound:
			end = telemetry.EndRejected
		}
		f.fail(e, end)
		return
	}
	f.giveUp(f.last, refused)
}

// giveUp tells the client what the last attempt came to.
func (f *flight) giveUp(v verdict, refused int) {
	f.c.gate.shut()
	switch {
	case f.saved != nil && !f.sent.head:
		f.sendSaved(v.end)
	case f.sent.head && v.end == telemetry.EndEngineStalled:
		f.endStream(wire.CodeEngineStalled, v.end)
	case f.sent.head:
		f.endStream(wire.CodeEngineDied, v.end)
	case refused == len(f.tried):
		f.fail(&wire.Error{Code: wire.CodeNoEngine, RetryAfter: 5, Message: "no engine accepts connections"}, telemetry.EndEngineUnreachable)
	default:
		f.fail(&wire.Error{Code: v.code}, v.end)
	}
}

// departed ends a request that was aborted from outside while it waited.
func (f *flight) departed(cause telemetry.End) {
	switch cause {
	case telemetry.EndDrained:
		_ = f.c.nc.SetDeadline(time.Now().Add(time.Second))
		f.close = true
		if f.sent.head {
			f.endStream(wire.CodeDraining, telemetry.EndDrained)
			return
		}
		f.fail(&wire.Error{Code: wire.CodeDraining}, telemetry.EndDrained)
	default:
		f.clientGone()
	}
}

// clientGone closes the books on a client that left.
func (f *flight) clientGone() {
	f.part()
	end := telemetry.EndClientGoneWaiting
	if f.sent.body {
		end = telemetry.EndClientGoneStreaming
	}
	f.rec.Status = 499
	f.end(end)
}

// try runs the request on one engine. Whatever happens, the connection to the
// engine is pooled or closed when it returns.
func (f *flight) try(m *route.Member) (v verdict) {
	e := m.Engine
	e.Enter(&f.c.gate)
	defer e.Leave(&f.c.gate)
	defer func() { f.last = v }()
	defer f.dropEngine()

	f.renew()
	fresh := f.upload // a stale connection could not be told before the body is spent
	for {
		if v, ok := f.connect(e, fresh); !ok {
			return v
		}
		f.dispatched, f.wait1 = f.now, waitHead
		f.limitEngine()
		if f.s.Residency != nil {
			f.dispatch = f.s.Residency.Mark(f.decision.Slot)
		}
		sent := f.send(e)
		v, stale := f.receive(e, sent)
		if stale && !fresh && (!f.upload || !f.bodyRead) {
			// The engine closed an idle connection just as we used it. This
			// says nothing about the engine, and nothing was processed.
			f.dropEngine()
			f.s.Metrics.Retry(telemetry.RetryStale)
			fresh, f.now = true, time.Now()
			continue
		}
		return v
	}
}

// renew forgets what a former attempt said of its answer.
func (f *flight) renew() {
	f.c.gate.streaming.Store(false)
	f.rec.TTFT = telemetry.Unknown
	f.learnt, f.relay.seen = false, seen{}
}

// connect makes f.up a connection to e, from the pool unless fresh.
func (f *flight) connect(e *engine.Engine, fresh bool) (verdict, bool) {
	var c *engine.Conn
	if !fresh {
		c = e.Pool().Reuse(f.now)
	}
	if c == nil {
		var err error
		if c, err = e.Pool().Dial(f.c.gate.dialing()); err != nil {
			return f.undialled(e, err), false
		}
		f.now = time.Now()
	}
	f.up = c
	if !f.c.gate.attach(c) {
		return f.interrupted(), false
	}
	return verdict{}, true
}

func (f *flight) undialled(e *engine.Engine, err error) verdict {
	if f.c.gate.aborted() != telemetry.EndNone {
		return f.interrupted()
	}
	outcome := engine.OutcomeReset
	switch {
	case engine.Refused(err):
		outcome = engine.OutcomeRefused
	case engine.DialLate(err), engine.Starved(err):
		outcome = engine.OutcomeNeutral // our own limit or want; the checks find out what is there
	}
	return verdict{
		end: telemetry.EndEngineUnreachable, outcome: outcome, code: wire.CodeEngineUnreachable,
		detail: e.Name + ": " + err.Error(), retry: telemetry.RetryRefused,
	}
}

// interrupted is the verdict on an attempt that the gate ended.
func (f *flight) interrupted() verdict {
	switch cause := f.c.gate.aborted(); cause {
	case telemetry.EndEngineStalled:
		v := verdict{end: cause, outcome: engine.OutcomeNeutral, code: wire.CodeEngineTimeout,
			detail: "the engine gave no sign of life", retry: telemetry.RetryDied}
		if f.sent.body || f.sent.torn {
			_ = f.c.nc.SetDeadline(time.Now().Add(time.Second))
			f.endStream(wire.CodeEngineStalled, cause)
			_ = f.c.nc.SetDeadline(time.Time{})
			v.done = true
		}
		return v
	case telemetry.EndDrained:
		f.departed(cause)
		return verdict{done: true, end: cause, outcome: engine.OutcomeNeutral}
	default:
		f.clientGone()
		return verdict{done: true, end: f.rec.End, outcome: engine.OutcomeNeutral}
	}
}

// lost says how far an answer came before its connection failed.
func (f *flight) lost(e *engine.Engine, err error, what string) verdict {
	if f.c.gate.aborted() != telemetry.EndNone {
		return f.interrupted()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return f.late(what)
	}
	return verdict{
		end: telemetry.EndEngineDied, outcome: engine.OutcomeReset, code: wire.CodeEngineUnreachable,
		detail: e.Name + ": " + what + ": " + err.Error(), retry: telemetry.RetryReset,
	}
}

// late is the verdict on a wait that one of our own limits ended. A second
// engine would have to do the whole prefill again, so the request does not
// move.
func (f *flight) late(what string) verdict {
	v := verdict{done: true, end: telemetry.EndTimedOut, outcome: engine.OutcomeNeutral, detail: what + " took too long"}
	if f.sent.head {
		f.endStream(wire.CodeEngineTimeout, telemetry.EndTimedOut)
		return v
	}
	f.fail(&wire.Error{Code: wire.CodeEngineTimeout}, telemetry.EndTimedOut)
	return v
}
