package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tokensFor streams an event every 20 ms for d, however slow the machine is.
func tokensFor(d time.Duration) script {
	return func(x *exchange) {
		x.streamHead()
		x.events(roleEvent())
		for i, until := 0, time.Now().Add(d); time.Now().Before(until); i++ {
			if !x.pause(20*time.Millisecond) || !x.events(deltaEvent(fmt.Sprintf("tok%d ", i))) {
				return
			}
		}
		x.events(finishEvent("stop"), doneEvent)
		x.write(lastChunk)
	}
}

// streams opens n streams and waits until each has its first token.
func streams(t *testing.T, r *ramjet, n int) []*client {
	t.Helper()
	var cs []*client
	for range n {
		c := r.dial(t)
		c.send(request("POST", chatPath, r.id("stream"), chatBody(true)))
		cs = append(cs, c)
	}
	for _, c := range cs {
		c.eventCount(2*patience, 2)
	}
	return cs
}

// TestB7Row39Drain: SIGTERM with 50 streams. /readyz 503 at once, the streams
// finish, exit code 0.
func TestB7Row39Drain(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := startWith(t, setup{engines: []*engine{a, b}, flags: []string{"--timeouts.drain=30s"}, loose: true})
	a.on(tokensFor(2 * time.Second))
	b.on(tokensFor(2 * time.Second))
	cs := streams(t, r, 50)
	r.signal(syscall.SIGTERM)
	eventually(t, time.Second, "/readyz 503", func() string {
		if status, _ := r.adminGet("/readyz"); status != 503 {
			return fmt.Sprintf("is %d", status)
		}
		return ""
	})
	for i, c := range cs {
		if resp := c.response(3 * patience); !resp.complete || !strings.HasSuffix(string(resp.body), doneEvent) || len(resp.errorEvents()) > 0 {
			t.Errorf("stream %d: properly ended %v, ..%.200q", i, resp.complete, resp.body[max(0, len(resp.body)-200):])
		}
	}
	if code := r.awaitExit(5 * patience); code != 0 {
		t.Errorf("exit code %d, want 0 soon after the last stream", code)
	}
	drainedLedger(t, r)
}

// drainedLedger checks the access lines of a process that has ended: each
// request has one.
func drainedLedger(t *testing.T, r *ramjet) {
	t.Helper()
	got := map[string]int{}
	for _, line := range r.accessLines() {
		got[line.str("id")]++
	}
	for _, id := range r.ids {
		if got[id] != 1 {
			t.Errorf("%d access lines for %s", got[id], id)
		}
	}
}

// TestB7Row39DrainLimit: at the limit what still streams ends with an error
// event and the process exits 0.
func TestB7Row39DrainLimit(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := startWith(t, setup{engines: []*engine{a, b}, flags: []string{"--timeouts.drain=1s"}, loose: true})
	a.on(tokensFor(time.Minute))
	b.on(tokensFor(time.Minute))
	cs := streams(t, r, 10)
	silent := r.dial(t) // one that waits for its first token
	hold := func(x *exchange) { x.streamHead(); x.gone(0) }
	a.on(hold)
	b.on(hold)
	silent.send(request("POST", chatPath, r.id("silent"), chatBody(true)))
	silent.head(patience)
	began := time.Now()
	r.signal(syscall.SIGTERM)
	for i, c := range append(cs, silent) {
		resp := c.response(3 * patience)
		if codes := resp.errorEvents(); !resp.complete || len(codes) != 1 || codes[0] != "draining" || strings.Contains(string(resp.body), "[DONE]") {
			t.Errorf("stream %d: error events %v, properly ended %v", i, codes, resp.complete)
		}
	}
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("the streams ended after %v, before the limit of 1 s", took)
	}
	if code := r.awaitExit(5 * patience); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	ends := map[string]int{}
	for _, line := range r.accessLines() {
		ends[line.str("end")]++
	}
	if ends["drained"] != 11 {
		t.Errorf("ends %v, want 11 drained", ends)
	}
	drainedLedger(t, r)
}

// TestB7Row39SecondSignal: a second signal ends at once.
func TestB7Row39SecondSignal(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := startWith(t, setup{engines: []*engine{a, b}, flags: []string{"--timeouts.drain=60s"}, loose: true})
	a.on(tokensFor(time.Minute))
	b.on(tokensFor(time.Minute))
	cs := streams(t, r, 5)
	r.signal(syscall.SIGTERM)
	time.Sleep(300 * time.Millisecond)
	if r.hasExited() {
		t.Fatal("the first signal did not wait for the streams")
	}
	r.signal(syscall.SIGTERM)
	if code := r.awaitExit(patience); code == -1 {
		t.Error("the second signal does not end it")
	}
	for _, c := range cs {
		if resp := c.response(patience); resp.complete && len(resp.errorEvents()) == 0 {
			t.Error("a stream that was cut looks whole")
		}
	}
}

// TestB7Row39StillAccepts: within the grace a new connection is served once, so
// that a load balancer that has not yet seen /readyz loses nothing.
func TestB7Row39StillAccepts(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := startWith(t, setup{engines: []*engine{a, b}, flags: []string{"--timeouts.drain=30s"}, loose: true})
	a.on(tokensFor(2 * time.Second))
	b.on(tokensFor(2 * time.Second))
	cs := streams(t, r, 2)
	a.on(nil)
	b.on(nil)
	r.signal(syscall.SIGTERM)
	time.Sleep(200 * time.Millisecond)
	c := r.dial(t)
	c.send(request("POST", chatPath, r.id("new"), chatBody(true)))
	resp := c.response(patience)
	if resp.status != 200 || !resp.complete || !strings.EqualFold(resp.fields.get("Connection"), "close") || !c.gone(patience) {
		t.Errorf("a new connection while draining: %d, Connection %q, closed %v", resp.status, resp.fields.get("Connection"), c.closed)
	}
	for _, c := range cs {
		if resp := c.response(3 * patience); !resp.complete || len(resp.errorEvents()) > 0 {
			t.Error("a stream was cut by the drain")
		}
		c.close()
	}
	if code := r.awaitExit(5 * patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	drainedLedger(t, r)
}
