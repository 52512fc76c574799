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
	const total = 2 * time.Second // the second request has to be served within it
	f := start(t, []script{func(x *exchange) { x.write(plainAnswer) }}, func(s *setup) {
		s.Limits.Queue, s.Limits.QueueWait, s.Timeouts.Total = 3, far, total
		s.engine = func(_ int, o *engine.Options) { o.InFlight = 1 }
	})
	var l lease.Lease // stands for a request that no limit ends
	f.book.Lock()
	f.book.AcquireLocked(&l, f.srv.Router.Members().Members[0].Account, lease.Claim{}, 0)
	f.book.Unlock()
	before := time.Now()
	f.ask(post(chatPath, chatBody)).wantError(t, 504, "engine_timeout")
	if waited := time.Since(before); waited < total {
		t.Errorf("it waited %v of %v", waited, total)
	}
	l.Release(0)
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
