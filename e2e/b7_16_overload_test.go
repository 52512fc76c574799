package e2e

import (
	"strconv"
	"sync"
	"testing"
	"time"
)

// TestB7Row16ConnectionFlood: more connections than descriptors. The admin port
// and the probes go on, and when the flood ends the next request is served.
func TestB7Row16ConnectionFlood(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := startWith(t, setup{engines: []*engine{a, b}, files: 256, flags: []string{"--health.interval=200ms"}})
	var flood []*client
	for range 400 {
		if c, err := dialAddr(t, r.public); err == nil {
			flood = append(flood, c)
		}
	}
	time.Sleep(1200 * time.Millisecond) // several probes
	for range 10 {
		if status, body := r.adminGet("/livez"); status != 200 {
			t.Errorf("/livez under a flood: %d %.200q", status, body)
		}
	}
	for _, e := range []*engine{a, b} {
		if s := r.engineState(e.name); s != "ready" {
			t.Errorf("engine %s is %q under a flood of clients", e.name, s)
		}
	}
	for _, c := range flood {
		c.close()
	}
	r.served(r.id("after"), false)
}

// TestB7Row16ConnectionLimit: beyond limits.connections a connection is closed
// at once.
func TestB7Row16ConnectionLimit(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--limits.connections=8")
	var held []*client
	for range 8 {
		c := r.dial(t)
		c.send(request("POST", chatPath, r.id("held"), chatBody(false)))
		if resp := c.response(patience); resp.status != 200 {
			t.Fatalf("within the limit: %d", resp.status)
		}
		held = append(held, c)
	}
	for range 4 {
		began := time.Now()
		c := r.dial(t)
		if !c.gone(patience) || time.Since(began) > time.Second {
			t.Errorf("a connection over the limit lives %v", time.Since(began))
		}
	}
	for _, c := range held {
		c.send(request("POST", chatPath, r.id("again"), chatBody(false)))
		if resp := c.response(patience); resp.status != 200 {
			t.Errorf("a held connection is answered %d", resp.status)
		}
		c.close()
	}
	eventually(t, patience, "a place becomes free", func() string {
		c := r.dial(t)
		defer c.close()
		c.send(request("GET", "/health", "", "", "Connection: close"))
		c.method = "GET"
		if resp, _ := c.until(patience, func(resp *response) bool { return resp != nil }); resp == nil {
			return "closed at once"
		}
		return ""
	})
}

// TestB7Row17Overload: one engine that takes two at once, two more may wait, the
// rest is told so at once; one that waits and leaves frees its place.
func TestB7Row17Overload(t *testing.T) {
	t.Parallel()
	a := newEngine(t, "a")
	r := startWith(t, setup{urls: []string{"a=" + a.url() + ",in_flight=2"}, notReady: true, flags: []string{"--limits.queue=2", "--limits.queue-wait=20s"}})
	r.setup.engines = []*engine{a}
	r.setup.urls = nil
	r.awaitReady()
	r.warmUp()
	r.setup.notReady = false
	release := make(chan struct{})
	var once sync.Once
	t.Cleanup(func() { once.Do(func() { close(release) }) })
	a.on(func(x *exchange) {
		if x.hold(release) {
			x.plain()
		}
	})
	send := func() (*client, string) {
		c, id := r.dial(t), r.id("load")
		c.send(request("POST", chatPath, id, chatBody(false)))
		return c, id
	}
	first, firstID := send()
	second, secondID := send()
	waitFor(t, firstID, a)
	waitFor(t, secondID, a)
	third, _ := send()
	time.Sleep(100 * time.Millisecond)
	fourth, fourthID := send()
	time.Sleep(200 * time.Millisecond)
	shed(t, r, send)
	fourth.close() // frees its place in the queue
	r.ended(t, fourthID, "client-gone-waiting")
	fifth, _ := send()
	time.Sleep(200 * time.Millisecond)
	shed(t, r, send)
	if n := len(a.byIDPrefix("load")); n != 2 {
		t.Errorf("%d requests at an engine that takes 2", n)
	}
	once.Do(func() { close(release) })
	for i, c := range []*client{first, second, third, fifth} {
		if resp := c.response(2 * patience); resp.status != 200 {
			t.Errorf("request %d: %d %.200q", i, resp.status, resp.body)
		}
		c.close()
	}
	r.counted(t, 6, "429", "shed")
}

// shed sends three requests that have no place.
func shed(t *testing.T, r *ramjet, send func() (*client, string)) {
	t.Helper()
	for range 3 {
		began := time.Now()
		c, id := send()
		resp := c.response(patience)
		if resp.status != 429 || resp.code() != "queue_full" {
			t.Errorf("a full queue answers %d %.200q, want 429 queue_full", resp.status, resp.body)
		}
		if s, err := strconv.Atoi(resp.fields.get("Retry-After")); err != nil || s < 1 {
			t.Errorf("Retry-After: %q, want whole seconds", resp.fields.get("Retry-After"))
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("told after %v", took)
		}
		r.ended(t, id, "shed")
		c.close()
	}
}
