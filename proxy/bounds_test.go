package proxy

import (
	"strings"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/lease"
	"ramjet/telemetry"
)

// TestTotalBoundsTheQueue: timeouts.total is for the whole request, the wait
// for an engine included.
func TestTotalBoundsTheQueue(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) { x.write(plainAnswer) }}, func(s *setup) {
		s.Limits.Queue, s.Limits.QueueWait, s.Timeouts.Total = 3, far, soon
		s.engine = func(_ int, o *engine.Options) { o.InFlight = 1 }
	})
	var l lease.Lease // stands for a request that no limit ends
	f.book.Lock()
	f.book.AcquireLocked(&l, f.srv.Router.Members().Members[0].Account, lease.Weight{})
	f.book.Unlock()
	before := time.Now()
	f.ask(post(chatPath, chatBody)).wantError(t, 504, "engine_timeout")
	if waited := time.Since(before); waited < soon {
		t.Errorf("it waited %v of %v", waited, soon)
	}
	l.Release()
	f.ask(post(chatPath, chatBody)).want(t, 200, answerBody)
	f.endsInAnyOrder(telemetry.EndTimedOut, telemetry.EndDone)
}

// TestResponseHeadIsBounded: also when the whole of it comes at once.
func TestResponseHeadIsBounded(t *testing.T) {
	t.Parallel()
	huge := func(x *exchange) {
		x.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Huge: " + strings.Repeat("x", maxResponseHead) + "\r\n\r\nok")
	}
	f := start(t, []script{huge, huge})
	f.ask(post(chatPath, chatBody)).wantError(t, 502, "engine_bad_response")
	f.ends(telemetry.EndEngineBadResponse)
}
