package proxy

import (
	"errors"
	"io"
	"sync"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
	"ramjet/wire"
)

// upgrade joins a client to an engine's WebSocket. After the engine's 101 the
// two sides exchange bytes that are none of our business.
func (f *flight) upgrade() {
	f.bodyRead, f.close = true, true
	if !f.skipBody() {
		f.rejectUnread(errBodyCut)
		return
	}
	f.now = time.Now()
	f.query.Session = f.session(nil)
	e := f.pick()
	if aborted := f.c.gate.aborted(); aborted != telemetry.EndNone {
		f.departed(aborted)
		return
	}
	if e != nil {
		f.exhausted(e, 0)
		return
	}
	m := f.member()
	m.Enter(&f.c.gate)
	defer m.Leave(&f.c.gate)
	v := f.upgraded(m)
	f.s.Outcomes.Outcome(m, v.outcome, v.detail)
	f.tried = append(f.tried, tried{member: f.decision.Member, end: v.end})
	f.fault = v.detail
	f.dropEngine()
	if !v.done {
		f.giveUp(v, 0)
		return
	}
	f.end(v.end)
}

func (f *flight) upgraded(m *engine.Engine) verdict {
	if v, ok := f.connect(m, true); !ok {
		return v
	}
	b := getBuffer(sizeRelay)
	defer putBuffer(b)
	head := f.appendRequestHead(b.b[:0], m, 0)
	head = append(head[:len(head)-2], "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"...)
	if _, err := f.up.Socket.Write(head); err != nil {
		return f.lost(m, err, "sending the upgrade")
	}
	f.relay.begin()
	f.dispatched, f.wait1 = time.Now(), waitHead
	f.limitEngine()
	n, err := f.readUpgradeHead()
	var bad *wire.HeadError
	switch {
	case errors.As(err, &bad):
		return f.badResponse(m, bad.Message)
	case err != nil:
		return f.lost(m, err, "waiting for the upgrade")
	}
	if f.resp.Status != 101 {
		f.now = time.Now()
		f.relay.lo += n
		f.relay.mid = f.relay.lo
		return f.judge(m, sendResult{whole: true})
	}
	return f.tunnel(f.relay.in.b[f.relay.lo:f.relay.hi])
}

// readUpgradeHead reads one head, be it a 101 or a refusal.
func (f *flight) readUpgradeHead() (int, error) {
	r := &f.relay
	f.resp.Reset()
	for r.hi <= maxResponseHead {
		n, err := f.up.Socket.Await(r.takes, r.gives)
		r.hi += n
		f.member().AddBytesIn(n)
		if err != nil && n == 0 {
			return 0, err
		}
		for {
			n, err := f.resp.Parse(r.in.b[r.lo:r.hi])
			if err != nil || n > 0 && (f.resp.Status == 101 || f.resp.Status >= 200) {
				return n, err
			}
			if n == 0 {
				break
			}
			r.lo += n // an interim response
			f.resp.Reset()
		}
	}
	return 0, errResponseHead
}

// tunnel passes front, which begins with the engine's 101, to the client and
// then copies both ways until either side ends.
func (f *flight) tunnel(front []byte) verdict {
	m := f.member()
	f.sent.head, f.sent.status, f.rec.Status, f.sent.engine = true, 101, 101, m.Name
	if _, err := f.c.write(front); err != nil {
		return f.unsendable()
	}
	_ = f.up.SetReadDeadline(time.Time{})
	f.lease.Decoding(f.s.Now(), false)
	if _, err := f.up.Write(f.c.in.b[f.c.r:f.c.w]); err == nil {
		f.c.r = f.c.w
	}
	var wg sync.WaitGroup
	up, down := f.up, f.c.nc
	wg.Go(func() {
		_, _ = io.Copy(struct{ io.Writer }{up}, struct{ io.Reader }{down})
		_ = up.Close()
	})
	n, _ := io.Copy(struct{ io.Writer }{down}, &lively{up, m})
	f.sent.body = true
	f.sent.bytes += n
	_ = down.Close()
	wg.Wait()
	v := verdict{done: true, end: telemetry.EndDone, outcome: engine.OutcomeNeutral}
	switch cause := f.c.gate.aborted(); cause { //nolint:exhaustive // a client that leaves ends its tunnel
	case telemetry.EndDrained:
		v.end = cause
	case telemetry.EndEngineStalled:
		v.end, v.detail = cause, m.Name+": gave no sign of life"
	}
	return v
}

// lively reads from an engine and tells that it lives.
type lively struct {
	io.Reader
	engine *engine.Engine
}

// Read implements io.Reader.
func (l *lively) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	l.engine.AddBytesIn(n)
	return n, err
}
