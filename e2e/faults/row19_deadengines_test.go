package faults

import (
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// occupy holds one long prefill, so that the next request goes to the other
// engine by load. It returns who has it and who has not; the request ends with
// the returned function or the test.
func occupy(t *testing.T, r *rig.Ramjet, a, b *rig.Engine) (holder, other *rig.Engine, free func()) {
	t.Helper()
	hold := func(x *rig.Exchange) {
		x.StreamHead()
		x.Gone(0)
	}
	a.On(hold)
	b.On(hold)
	c, id := r.Dial(t), r.ID("occupy")
	c.Send(rig.Request("POST", rig.ChatPath, id, rig.LongChatBody(true, 200_000)))
	x := rig.WaitFor(t, id, a, b)
	a.On(nil)
	b.On(nil)
	if x.E == a {
		return a, b, c.Close
	}
	return b, a, c.Close
}

// TestB7Row19Refused: one engine's port is closed, the client does not notice;
// both closed, 503 with Retry-After.
func TestB7Row19Refused(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--health.interval=1h") // the request finds out, not the probe
	holder, other, free := occupy(t, r, a, b)
	other.Down()
	for i := range 5 {
		id := r.ID("one-dead")
		resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(i%2 == 0)))
		if resp.Status != 200 || !resp.Whole() {
			t.Fatalf("with one engine dead: %d %.200q", resp.Status, resp.Body)
		}
		if got := resp.Fields.Get("X-Ramjet-Engine"); got != holder.Name {
			t.Errorf("X-Ramjet-Engine %q, want %s", got, holder.Name)
		}
		if i == 0 && resp.Fields.Get("X-Ramjet-Attempts") != "2" {
			t.Errorf("X-Ramjet-Attempts %q, want 2", resp.Fields.Get("X-Ramjet-Attempts"))
		}
	}
	if s := r.EngineState(other.Name); s != "down" {
		t.Errorf("the refused engine is %q, want down", s)
	}
	free()
	holder.Down()
	for range 3 {
		id := r.ID("all-dead")
		resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(false)))
		if resp.Status != 503 || resp.Code() != "no_engine" || resp.Fields.Get("Retry-After") != "5" {
			t.Errorf("all dead: %d %q Retry-After %q, want 503 no_engine 5: %.200q", resp.Status, resp.Code(), resp.Fields.Get("Retry-After"), resp.Body)
		}
	}
	if status, _ := r.AdminGet("/readyz"); status != 503 {
		t.Errorf("/readyz is %d with every engine dead", status)
	}
	if resp := r.Do(t, rig.Request("GET", "/health", r.ID("health"), "", "Connection: close")); !strings.Contains(string(resp.Body), "unhealthy") {
		t.Errorf("/health says %.200q", resp.Body)
	}
	a.Up(t)
	b.Up(t) // failing open: their ports accept again
}

// TestB7Row20BlackHole: SYNs vanish; the dial limit ends it and the next
// candidate serves.
func TestB7Row20BlackHole(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngineAt(t, "a", "127.0.0.1:0", 1), rig.NewEngineAt(t, "b", "127.0.0.1:0", 1)
	r := rig.Start(t, a, b, "--timeouts.dial=3s", "--health.interval=1h")
	holder, other, free := occupy(t, r, a, b)
	defer free()
	other.DropAll() // nothing pooled is left to use
	other.Silence(t)
	began := time.Now()
	resp := r.Post(t, rig.ChatPath, rig.ChatBody(true))
	if resp.Status != 200 || resp.Fields.Get("X-Ramjet-Engine") != holder.Name || resp.Fields.Get("X-Ramjet-Attempts") != "2" {
		t.Errorf("answered %d by %q in %q attempts, want 200 by %s in 2", resp.Status, resp.Fields.Get("X-Ramjet-Engine"), resp.Fields.Get("X-Ramjet-Attempts"), holder.Name)
	}
	if took := time.Since(began); took > 9*time.Second {
		t.Errorf("took %v with a dial limit of 3 s", took)
	}
}

// TestB7Row21FrozenBeforeHead: an engine that accepts and never answers. The
// head limit ends it; either another engine serves, or 504.
func TestB7Row21FrozenBeforeHead(t *testing.T) {
	t.Parallel()
	p, q := rig.StartEngineProcess(t, "plain", "127.0.0.1:0"), rig.StartEngineProcess(t, "plain", "127.0.0.1:0")
	r := rig.StartWith(t, rig.Setup{URLs: []string{"a=" + p.URL(), "b=" + q.URL()}, Flags: []string{"--timeouts.head=3s", "--health.interval=1h"}})
	p.Freeze()
	q.Freeze()
	for _, stream := range []bool{true, false} {
		id := r.ID("frozen")
		began := time.Now()
		resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(stream)))
		if resp.Status != 504 || resp.Code() != "engine_timeout" {
			t.Errorf("answered %d %.200q, want 504 engine_timeout", resp.Status, resp.Body)
		}
		if took := time.Since(began); took > 9*time.Second {
			t.Errorf("took %v with a head limit of 3 s", took)
		}
		r.Ended(t, id, "timed-out")
	}
	r.Counted(t, 2, "504", "timed-out")
	q.Thaw()
	for range 4 {
		resp := r.Post(t, rig.ChatPath, rig.ChatBody(true))
		if resp.Status != 200 && resp.Code() != "engine_timeout" {
			t.Errorf("with one engine frozen: %d %.200q", resp.Status, resp.Body)
		}
	}
	p.Thaw()
}

// TestB7Row22FrozenMidStream: a stopped process keeps its connections; nothing
// answers /health and nothing moves, so the stream ends with an error event and
// the engine is down.
func TestB7Row22FrozenMidStream(t *testing.T) {
	t.Parallel()
	p := rig.StartEngineProcess(t, "many", "127.0.0.1:0")
	r := rig.StartWith(t, rig.Setup{URLs: []string{"a=" + p.URL()},
		Flags: []string{"--health.interval=200ms", "--health.timeout=200ms", "--health.stall=1s"}})
	id := r.ID("frozen")
	c := r.Dial(t)
	c.Send(rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true)))
	c.EventCount(rig.Patience, 5)
	p.Freeze()
	resp := c.Response(20 * time.Second)
	p.Thaw()
	if codes := resp.ErrorEvents(); len(codes) != 1 || codes[0] != "engine_stalled" || !resp.Complete {
		t.Errorf("error events %v (whole %v), want engine_stalled and the proper end", codes, resp.Complete)
	}
	if strings.Contains(string(resp.Body), "[DONE]") {
		t.Error("a sentinel that no engine sent")
	}
	r.Ended(t, id, "engine-stalled")
	r.Counted(t, 1, "200", "engine-stalled")
}

// TestB7Row22EventGap: the operator's own limit between events.
func TestB7Row22EventGap(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--timeouts.event-gap=3s")
	play := func(x *rig.Exchange) {
		x.StreamHead()
		x.Events(rig.ChatEvents(2)[:2]...)
		for x.Pause(100 * time.Millisecond) { // comments are no sign of life
			x.Events(": keep-alive\n\n")
		}
	}
	a.On(play)
	b.On(play)
	id := r.ID("gap")
	resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true)))
	if codes := resp.ErrorEvents(); resp.Status != 200 || len(codes) != 1 || codes[0] != "engine_timeout" || !resp.Complete {
		t.Errorf("%d, error events %v (whole %v), want engine_timeout and the proper end", resp.Status, codes, resp.Complete)
	}
	r.Ended(t, id, "timed-out")
	x := rig.WaitFor(t, id, a, b)
	if !x.Gone(rig.LeaveLimit) {
		t.Error("the engine's connection stays open")
	}
}
