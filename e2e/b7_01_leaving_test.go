package e2e

import (
	"testing"
	"time"
)

// leaveWays are the ways in which a client's connection ends.
var leaveWays = map[string]func(*client){"fin": (*client).close, "rst": (*client).abort, "half-close": (*client).closeWrite}

// leaveLimit is ten times the 100 ms of the fault table.
const leaveLimit = time.Second

// leaves sends a request, waits until seen, leaves, and checks that the engine's
// connection is closed at once.
func leaves(t *testing.T, r *ramjet, body string, seen func(*client), leave func(*client), engines ...*engine) (id string, x *exchange) {
	t.Helper()
	id = r.id("leaver")
	c := r.dial(t)
	c.send(request("POST", chatPath, id, body))
	x = waitFor(t, id, engines...)
	seen(c)
	left := time.Now()
	leave(c)
	if !x.gone(leaveLimit) {
		t.Errorf("the engine's connection is still open %v after the client left", leaveLimit)
	} else {
		t.Logf("engine's connection closed after %v", x.goneAt().Sub(left))
	}
	return id, x
}

// TestB7Row01ClientLeavesInPrefill: the engine is silent, with its head out (as
// vLLM sends it before queueing) and without; upstream closed, 499 in the log.
func TestB7Row01ClientLeavesInPrefill(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	n := 0
	for _, headOut := range []bool{true, false} {
		play := func(x *exchange) {
			if headOut {
				x.streamHead()
			}
			x.gone(0)
		}
		a.on(play)
		b.on(play)
		for _, way := range []string{"fin", "rst"} {
			seen := func(c *client) {
				if headOut {
					c.head(patience)
				}
			}
			id, _ := leaves(t, r, chatBody(true), seen, leaveWays[way], a, b)
			n++
			if line := r.ended(t, id, "client-gone-waiting"); line.num("status") != 499 {
				t.Errorf("%s, head out %v: status %v in the log, want 499", way, headOut, line["status"])
			}
			r.counted(t, n, "499", "client-gone-waiting")
		}
	}
	neverMoved(t, r, a, b)
}

// neverMoved checks that no engine was blamed: all are ready and no retry or
// ejection was counted.
func neverMoved(t *testing.T, r *ramjet, engines ...*engine) {
	t.Helper()
	m := r.metrics()
	for _, e := range engines {
		if s := r.engineState(e.name); s != "ready" {
			t.Errorf("engine %s is %q, want ready", e.name, s)
		}
	}
	if n := m.sum("ramjet_retries_total") + m.sum("ramjet_ejections_total"); n != 0 {
		t.Errorf("%v retries and ejections counted, want 0", n)
	}
}

// TestB7Row02ClientLeavesMidStream: within one event the engine sees the abort,
// and the connection is not used again.
func TestB7Row02ClientLeavesMidStream(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	play := func(x *exchange) {
		x.streamHead()
		x.events(chatEvents(3)[:3]...)
		x.gone(0)
	}
	a.on(play)
	b.on(play)
	for i, way := range []string{"fin", "rst"} {
		id, x := leaves(t, r, chatBody(true), func(c *client) { c.eventCount(patience, 3) }, leaveWays[way], a, b)
		if line := r.ended(t, id, "client-gone-streaming"); line.num("status") != 499 {
			t.Errorf("%s: status %v in the log, want 499", way, line["status"])
		}
		r.counted(t, i+1, "499", "client-gone-streaming")
		a.on(nil)
		b.on(nil)
		r.served(r.id("after"), false)
		for _, e := range []*engine{a, b} {
			for _, other := range e.byIDPrefix("after") {
				if other.conn == x.conn {
					t.Error("the aborted connection was used again")
				}
			}
			e.on(play)
		}
	}
	neverMoved(t, r, a, b)
}

// TestB7Row03ClientHalfCloses: shutting the writing side counts as leaving, as
// uvicorn and nginx take it.
func TestB7Row03ClientHalfCloses(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	play := func(x *exchange) {
		x.streamHead()
		x.gone(0)
	}
	a.on(play)
	b.on(play)
	id, _ := leaves(t, r, chatBody(true), func(c *client) { c.head(patience) }, leaveWays["half-close"], a, b)
	r.ended(t, id, "client-gone-waiting")
	r.counted(t, 1, "499", "client-gone-waiting")
	neverMoved(t, r, a, b)
}

// TestB7Row02LeavesAfterTheEnd: a client that closes as soon as it has the last
// byte did not leave: its request is done.
func TestB7Row02LeavesAfterTheEnd(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	get := responsesPath + "/resp-1"
	a.get(get, jsonResponse(200, `{"id":"resp-1"}`))
	b.get(get, jsonResponse(200, `{"id":"resp-1"}`))
	var ids []string
	for i := range 600 {
		id := r.id("quick")
		ids = append(ids, id)
		raw := request("POST", chatPath, id, chatBody(i%3 == 0))
		if i%3 == 2 {
			raw = request("GET", get, id, "")
		}
		c := r.dial(t)
		c.send(raw)
		resp := c.response(patience)
		if i%2 == 0 {
			c.abort()
		} else {
			c.close()
		}
		if resp.status != 200 || !resp.whole() {
			t.Fatalf("answered %d %.200q", resp.status, resp.body)
		}
	}
	for _, id := range ids {
		if line := r.ended(t, id, "done"); line.num("status") != 200 {
			t.Errorf("%s: status %v", id, line["status"])
		}
	}
}
