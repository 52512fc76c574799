package proxy

import (
	"time"

	"ramjet/telemetry"
)

// What an attempt waits for from its engine.
type waiting uint8

const (
	waitHead waiting = iota
	waitFirst
)

// engineDeadline is when the present wait for the engine has lasted too long,
// the zero time if no limit is set. Comments do not move it: they are no sign
// of a token.
func (f *flight) engineDeadline() time.Time {
	t := &f.live.Timeouts
	var deadline time.Time
	switch {
	case f.wait1 == waitHead && t.Head > 0 && (!f.upload || f.uploaded):
		deadline = f.dispatched.Add(t.Head)
	case f.wait1 == waitFirst && f.relay.sse && !f.relay.seen.first && t.FirstEvent > 0:
		deadline = f.headAt.Add(t.FirstEvent)
	case f.wait1 == waitFirst && f.relay.seen.first && t.EventGap > 0:
		deadline = f.relay.lastTime.Add(t.EventGap)
	}
	if t.Total > 0 {
		if total := f.began.Add(t.Total); deadline.IsZero() || total.Before(deadline) {
			deadline = total
		}
	}
	return deadline
}

// limitEngine arms the engine's connection. A relay looks at the time only
// when the deadline passes, so a limit on gaps costs nothing per event.
func (f *flight) limitEngine() {
	deadline := f.engineDeadline()
	if gap := f.live.Timeouts.EventGap; gap > 0 && f.wait1 != waitHead {
		if soon := time.Now().Add(gap); deadline.IsZero() || soon.Before(deadline) {
			deadline = soon
		}
	}
	if deadline.IsZero() {
		if f.limited {
			_ = f.up.SetDeadline(time.Time{})
			f.limited = false
		}
		return
	}
	_ = f.up.SetDeadline(deadline)
	f.limited = true
}

// overdue reports whether the present wait has really lasted too long.
func (f *flight) overdue() bool {
	deadline := f.engineDeadline()
	return !deadline.IsZero() && !time.Now().Before(deadline)
}

// end notes how the request ended. The first word stands.
func (f *flight) end(e telemetry.End) {
	if f.rec.End == telemetry.EndNone {
		f.rec.End = e
	}
}

// settle is called when the first byte of a body goes out: the request can no
// longer move, so what was kept of it can go.
func (f *flight) settle() {
	if f.settled {
		return
	}
	f.settled = true
	if f.learnt {
		f.givePrompt()
	}
	f.text = f.text[:0]
	f.rec.Method = f.hold(f.rec.Method)
	f.rec.Path = f.hold(f.rec.Path)
	if f.model == "" {
		f.rec.Model = f.hold(f.rec.Model)
	}
	f.rec.BytesIn += int64(f.body.n)
	f.query.Model = nil
	f.peek.Forget()
	f.body.release(f.s)
	f.c.releaseHead()
}

// holdText bounds what is kept of one text.
const holdText = 256

// hold copies a text that lies in a buffer about to be given back.
func (f *flight) hold(b []byte) []byte {
	from := len(f.text)
	f.text = append(f.text, b[:min(len(b), holdText)]...)
	return f.text[from:len(f.text):len(f.text)]
}

// releaseHead gives the buffers back that the head lies in, keeping what was
// read beyond the request.
func (c *conn) releaseHead() {
	for _, b := range c.spare {
		putBuffer(b)
	}
	clear(c.spare)
	c.spare = c.spare[:0]
	if c.in == nil {
		return
	}
	if c.r < c.w {
		// Pipelined bytes: they move to a buffer of their own.
		rest := getBuffer(max(c.w-c.r, sizeHead))
		n := copy(rest.b, c.in.b[c.r:c.w])
		putBuffer(c.in)
		c.in, c.r, c.w = rest, 0, n
		return
	}
	putBuffer(c.in)
	c.in = nil
	c.r, c.w = 0, 0
}

// countUsage takes the engine's own count of tokens.
func (f *flight) countUsage() {
	s := &f.relay.seen
	if s.hasUsage {
		f.rec.PromptTokens = int(s.usage.Prompt)
		f.rec.CachedTokens = int(s.usage.Cached)
		f.rec.OutputTokens = int(s.usage.Completion)
	}
	m := f.member().Metrics
	if m == nil {
		return
	}
	if n := f.rec.PromptTokens; n > 0 {
		m.PromptTokens.Add(n)
	}
	if n := f.rec.CachedTokens; n > 0 {
		m.CachedTokens.Add(n)
	}
	output := f.rec.OutputTokens
	if output > 0 {
		m.OutputTokens.Add(output)
	}
	// Several answers are generated at once.
	if output /= max(int(f.query.Sequences), 1); output > 1 && s.first {
		m.TPOT.Update((since(f.began) - f.rec.TTFT) / float64(output-1))
	}
}

// finish closes the books, whatever way the request ended. It is the only
// place where a request's lease, memory and count are given back.
func (f *flight) finish() {
	switch f.c.gate.shut() {
	case telemetry.EndNone:
	case telemetry.EndEngineStalled:
		// What told us left a deadline, be it after the answer was whole.
		_ = f.c.nc.SetDeadline(time.Time{})
	case telemetry.EndClientGoneWaiting:
		f.part()
		f.readOn()
	default:
		f.close = true
	}
	f.dropEngine()
	f.now = time.Now()
	f.audit()
	f.lease.Release(f.s.at(f.now))
	f.givePrompt()
	f.report()
	f.relay.giveAll()
	f.settle()
	f.settled = false
	f.body.release(f.s)
	f.model = ""
	if cap(f.headOut) > sizeHead {
		f.headOut = nil
	}
	if len(f.tried) > 0 {
		// A load balancer's health checks must not keep a drain awake.
		f.s.lastSeen.Store(int64(f.now.Sub(f.s.began)))
	}
	f.s.requests.Add(-1)
}

// part ends the connection because its client left.
func (f *flight) part() {
	f.parted = f.parted || !f.close
	f.close = true
}

// readOn keeps a connection whose client left for what it sent before: a
// request whose head is there whole has an end and a line like any other, and
// behind the last one stands the client's FIN. It needs the place where the
// next head begins, and a client that was not told that nothing more is read.
// Nothing more is written: behind an answer that was cut, any other would be
// read as its rest.
func (f *flight) readOn() {
	if !f.parted || !f.c.head.KeepAlive || !f.bodyRead || f.upload && !f.uploaded {
		return
	}
	if !f.c.mute {
		half, ok := f.c.socketConn.(interface{ CloseWrite() error })
		if !ok || half.CloseWrite() != nil {
			return
		}
		f.c.mute = true // a second time it fails
	}
	f.close = false
	_ = f.c.nc.SetDeadline(time.Time{}) // the abort left one
}

// report writes the one access line and counts the request.
func (f *flight) report() {
	r := &f.rec
	if r.End == telemetry.EndNone {
		r.End = telemetry.EndInternal
	}
	if f.s.Tick != nil {
		f.s.Tick(f.now)
	}
	r.Duration = f.now.Sub(f.began).Seconds()
	r.BytesOut = f.sent.bytes
	r.BytesIn += int64(f.body.n)
	r.Attempts = len(f.tried)
	r.Engine = f.sent.engine
	r.Reason = f.decision.Reason
	if f.decision.Member != nil {
		r.Keys, r.MatchTokens = f.decision.Keys, int(f.decision.Match)
	}
	if f.query.Prompt.Exact && r.PromptTokens < 0 {
		r.PromptTokens = int(f.query.Prompt.Tokens)
	}
	r.Engines = f.names[:0]
	for i := range f.tried {
		r.Engines = append(r.Engines, f.tried[i].member.Engine.Name)
	}
	f.names = r.Engines
	f.session0 = appendSession(f.session0[:0], f.query.Session)
	r.Session = f.session0
	if r.End != telemetry.EndDone {
		r.Error = f.fault
	}
	f.s.Access.Write(r)
	f.keepExplanation()
	model := f.model
	if model == "" && len(r.Model) == 0 && f.decision.Member != nil {
		// No model was named, so it was the engine's own default.
		if list := f.member().Models(); list != nil && len(list.IDs) > 0 {
			model = list.IDs[0]
		}
	}
	f.s.Metrics.Request(model, r.Status, r.End)
	f.s.Metrics.Duration.Update(r.Duration)
	if r.Route >= 0 {
		f.s.Metrics.RouteDuration.Update(r.Route)
	}
}
