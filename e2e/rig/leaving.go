package rig

import (
	"testing"
	"time"
)

// LeaveWays are the ways in which a client's connection ends.
var LeaveWays = map[string]func(*Client){"fin": (*Client).Close, "rst": (*Client).Abort, "half-close": (*Client).CloseWrite}

// LeaveLimit is how long an engine's connection may outlive its client where
// nothing but the client's leaving can end it. The fault table's 100 ms are for
// a machine that does nothing else.
const LeaveLimit = 10 * time.Second

// Leaves sends a request, waits until seen, leaves, and checks that the engine's
// connection is closed at once.
func Leaves(t testing.TB, r *Ramjet, body string, seen func(*Client), leave func(*Client), engines ...*Engine) (id string, x *Exchange) {
	t.Helper()
	id = r.ID("leaver")
	c := r.Dial(t)
	c.Send(Request("POST", ChatPath, id, body))
	x = WaitFor(t, id, engines...)
	seen(c)
	left := time.Now()
	leave(c)
	if !x.Gone(LeaveLimit) {
		t.Errorf("the engine's connection is still open %v after the client left", LeaveLimit)
	} else {
		t.Logf("engine's connection closed after %v", x.GoneAt().Sub(left))
	}
	return id, x
}

// NeverMoved checks that no engine was blamed: all are ready and no retry or
// ejection was counted.
func NeverMoved(t testing.TB, r *Ramjet, engines ...*Engine) {
	t.Helper()
	NeverBlamed(t, r, engines...)
	if n := r.Metrics().Sum("ramjet_retries_total"); n != 0 {
		t.Errorf("%v retries counted, want 0", n)
	}
}

// NeverBlamed is NeverMoved where engines close connections that idle: a request
// that uses one at that moment is sent once more, to the same engine, and that
// is counted under a reason of its own.
func NeverBlamed(t testing.TB, r *Ramjet, engines ...*Engine) {
	t.Helper()
	m := r.Metrics()
	for _, e := range engines {
		if s := r.EngineState(e.Name); s != "ready" {
			t.Errorf("engine %s is %q, want ready", e.Name, s)
		}
	}
	moved := m.Sum("ramjet_retries_total") - m.Sum("ramjet_retries_total", "reason", "stale-connection")
	if n := moved + m.Sum("ramjet_ejections_total"); n != 0 {
		t.Errorf("%v retries and ejections counted against engines, want 0", n)
	}
}
