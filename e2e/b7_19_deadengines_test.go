package e2e

import (
	"strings"
	"testing"
	"time"
)

// occupy holds one long prefill, so that the next request goes to the other
// engine by load. It returns who has it and who has not; the request ends with
// the returned function or the test.
func occupy(t *testing.T, r *ramjet, a, b *engine) (holder, other *engine, free func()) {
	t.Helper()
	hold := func(x *exchange) {
		x.streamHead()
		x.gone(0)
	}
	a.on(hold)
	b.on(hold)
	c, id := r.dial(t), r.id("occupy")
	c.send(request("POST", chatPath, id, longChatBody(true, 200_000)))
	x := waitFor(t, id, a, b)
	a.on(nil)
	b.on(nil)
	if x.e == a {
		return a, b, c.close
	}
	return b, a, c.close
}

// TestB7Row19Refused: one engine's port is closed, the client does not notice;
// both closed, 503 with Retry-After.
func TestB7Row19Refused(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--health.interval=1h") // the request finds out, not the probe
	holder, other, free := occupy(t, r, a, b)
	other.down()
	for i := range 5 {
		id := r.id("one-dead")
		resp := r.do(t, request("POST", chatPath, id, chatBody(i%2 == 0)))
		if resp.status != 200 || !resp.whole() {
			t.Fatalf("with one engine dead: %d %.200q", resp.status, resp.body)
		}
		if got := resp.fields.get("X-Ramjet-Engine"); got != holder.name {
			t.Errorf("X-Ramjet-Engine %q, want %s", got, holder.name)
		}
		if i == 0 && resp.fields.get("X-Ramjet-Attempts") != "2" {
			t.Errorf("X-Ramjet-Attempts %q, want 2", resp.fields.get("X-Ramjet-Attempts"))
		}
	}
	if s := r.engineState(other.name); s != "down" {
		t.Errorf("the refused engine is %q, want down", s)
	}
	free()
	holder.down()
	for range 3 {
		id := r.id("all-dead")
		resp := r.do(t, request("POST", chatPath, id, chatBody(false)))
		if resp.status != 503 || resp.code() != "no_engine" || resp.fields.get("Retry-After") != "5" {
			t.Errorf("all dead: %d %q Retry-After %q, want 503 no_engine 5: %.200q", resp.status, resp.code(), resp.fields.get("Retry-After"), resp.body)
		}
	}
	if status, _ := r.adminGet("/readyz"); status != 503 {
		t.Errorf("/readyz is %d with every engine dead", status)
	}
	if resp := r.do(t, request("GET", "/health", r.id("health"), "", "Connection: close")); !strings.Contains(string(resp.body), "unhealthy") {
		t.Errorf("/health says %.200q", resp.body)
	}
	a.up(t)
	b.up(t) // failing open: their ports accept again
}

// TestB7Row20BlackHole: SYNs vanish; the dial limit ends it and the next
// candidate serves.
func TestB7Row20BlackHole(t *testing.T) {
	t.Parallel()
	a, b := newEngineAt(t, "a", "127.0.0.1:0", 1), newEngineAt(t, "b", "127.0.0.1:0", 1)
	r := start(t, a, b, "--timeouts.dial=300ms", "--health.interval=1h")
	holder, other, free := occupy(t, r, a, b)
	defer free()
	other.dropAll() // nothing pooled is left to use
	other.silence(t)
	began := time.Now()
	resp := r.post(t, chatPath, chatBody(true))
	if resp.status != 200 || resp.fields.get("X-Ramjet-Engine") != holder.name || resp.fields.get("X-Ramjet-Attempts") != "2" {
		t.Errorf("answered %d by %q in %q attempts, want 200 by %s in 2", resp.status, resp.fields.get("X-Ramjet-Engine"), resp.fields.get("X-Ramjet-Attempts"), holder.name)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %v with a dial limit of 300 ms", took)
	}
}

// TestB7Row21FrozenBeforeHead: an engine that accepts and never answers. The
// head limit ends it; either another engine serves, or 504.
func TestB7Row21FrozenBeforeHead(t *testing.T) {
	t.Parallel()
	p, q := startEngineProcess(t, "plain", "127.0.0.1:0"), startEngineProcess(t, "plain", "127.0.0.1:0")
	r := startWith(t, setup{urls: []string{"a=" + p.url(), "b=" + q.url()}, flags: []string{"--timeouts.head=500ms", "--health.interval=1h"}})
	p.freeze()
	q.freeze()
	for _, stream := range []bool{true, false} {
		id := r.id("frozen")
		began := time.Now()
		resp := r.do(t, request("POST", chatPath, id, chatBody(stream)))
		if resp.status != 504 || resp.code() != "engine_timeout" {
			t.Errorf("answered %d %.200q, want 504 engine_timeout", resp.status, resp.body)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("took %v with a head limit of 500 ms", took)
		}
		r.ended(t, id, "timed-out")
	}
	r.counted(t, 2, "504", "timed-out")
	q.thaw()
	for range 4 {
		resp := r.post(t, chatPath, chatBody(true))
		if resp.status != 200 && resp.code() != "engine_timeout" {
			t.Errorf("with one engine frozen: %d %.200q", resp.status, resp.body)
		}
	}
	p.thaw()
}

// TestB7Row22FrozenMidStream: a stopped process keeps its connections; nothing
// answers /health and nothing moves, so the stream ends with an error event and
// the engine is down.
func TestB7Row22FrozenMidStream(t *testing.T) {
	t.Parallel()
	p := startEngineProcess(t, "many", "127.0.0.1:0")
	r := startWith(t, setup{urls: []string{"a=" + p.url()},
		flags: []string{"--health.interval=200ms", "--health.timeout=200ms", "--health.stall=1s"}})
	id := r.id("frozen")
	c := r.dial(t)
	c.send(request("POST", chatPath, id, chatBody(true)))
	c.eventCount(patience, 5)
	p.freeze()
	resp := c.response(20 * time.Second)
	p.thaw()
	if codes := resp.errorEvents(); len(codes) != 1 || codes[0] != "engine_stalled" || !resp.complete {
		t.Errorf("error events %v (whole %v), want engine_stalled and the proper end", codes, resp.complete)
	}
	if strings.Contains(string(resp.body), "[DONE]") {
		t.Error("a sentinel that no engine sent")
	}
	r.ended(t, id, "engine-stalled")
	r.counted(t, 1, "200", "engine-stalled")
}

// TestB7Row22EventGap: the operator's own limit between events.
func TestB7Row22EventGap(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--timeouts.event-gap=500ms")
	play := func(x *exchange) {
		x.streamHead()
		x.events(chatEvents(2)[:2]...)
		for x.pause(100 * time.Millisecond) { // comments are no sign of life
			x.events(": keep-alive\n\n")
		}
	}
	a.on(play)
	b.on(play)
	id := r.id("gap")
	resp := r.do(t, request("POST", chatPath, id, chatBody(true)))
	if codes := resp.errorEvents(); resp.status != 200 || len(codes) != 1 || codes[0] != "engine_timeout" || !resp.complete {
		t.Errorf("%d, error events %v (whole %v), want engine_timeout and the proper end", resp.status, codes, resp.complete)
	}
	r.ended(t, id, "timed-out")
	x := waitFor(t, id, a, b)
	if !x.gone(leaveLimit) {
		t.Error("the engine's connection stays open")
	}
}
