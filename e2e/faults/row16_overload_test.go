package faults

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestB7Row16ConnectionFlood: more connections than descriptors. The admin port
// and the probes go on, and when the flood ends the next request is served.
func TestB7Row16ConnectionFlood(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Files: 256, Flags: []string{"--health.interval=200ms"}})
	var flood []*rig.Client
	for range 400 {
		if c, err := rig.DialAddr(t, r.Public); err == nil {
			flood = append(flood, c)
		}
	}
	time.Sleep(1200 * time.Millisecond) // several probes
	for range 10 {
		if status, body := r.AdminGet("/livez"); status != 200 {
			t.Errorf("/livez under a flood: %d %.200q", status, body)
		}
	}
	for _, e := range []*rig.Engine{a, b} {
		if s := r.EngineState(e.Name); s != "ready" {
			t.Errorf("engine %s is %q under a flood of clients", e.Name, s)
		}
	}
	for _, c := range flood {
		c.Close()
	}
	placeFree(t, r)
	r.Served(r.ID("after"), false)
}

// placeFree waits until a new connection is answered.
func placeFree(t *testing.T, r *rig.Ramjet) {
	t.Helper()
	rig.Eventually(t, rig.Patience, "a place becomes free", func() string {
		c := r.Dial(t)
		defer c.Close()
		c.Send(rig.Request("GET", "/health", "", "", "Connection: close"))
		c.Method = "GET"
		if resp, _ := c.Until(rig.Patience, func(resp *rig.Response) bool { return resp != nil }); resp == nil {
			return "closed at once"
		}
		return ""
	})
}

// TestB7Row16ConnectionLimit: beyond limits.connections a connection is closed
// at once.
func TestB7Row16ConnectionLimit(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--limits.connections=8")
	var held []*rig.Client
	for range 8 {
		c := r.Dial(t)
		c.Send(rig.Request("POST", rig.ChatPath, r.ID("held"), rig.ChatBody(false)))
		if resp := c.Response(rig.Patience); resp.Status != 200 {
			t.Fatalf("within the limit: %d", resp.Status)
		}
		held = append(held, c)
	}
	for range 4 {
		if c := r.Dial(t); !c.Gone(rig.Patience) {
			t.Error("a connection over the limit lives")
		}
	}
	for _, c := range held {
		c.Send(rig.Request("POST", rig.ChatPath, r.ID("again"), rig.ChatBody(false)))
		if resp := c.Response(rig.Patience); resp.Status != 200 {
			t.Errorf("a held connection is answered %d", resp.Status)
		}
		c.Close()
	}
	placeFree(t, r)
}

// queueing is how long a request may take from its client into the queue, which
// nobody outside can see.
const queueing = 4 * time.Second

// TestB7Row17Overload: one engine that takes two at once, two more may wait, the
// rest is told so at once; one that waits and leaves frees its place.
func TestB7Row17Overload(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	r := rig.StartWith(t, rig.Setup{URLs: []string{"a=" + a.URL() + ",in_flight=2"}, NotReady: true, Flags: []string{"--limits.queue=2", "--limits.queue-wait=60s"}})
	r.Setup.Engines = []*rig.Engine{a}
	r.Setup.URLs = nil
	r.AwaitReady()
	r.WarmUp()
	r.Setup.NotReady = false
	release := make(chan struct{})
	var once sync.Once
	t.Cleanup(func() { once.Do(func() { close(release) }) })
	a.On(func(x *rig.Exchange) {
		if x.Hold(release) {
			x.Plain()
		}
	})
	send := func() (*rig.Client, string) {
		c, id := r.Dial(t), r.ID("load")
		c.Send(rig.Request("POST", rig.ChatPath, id, rig.ChatBody(false)))
		return c, id
	}
	first, firstID := send()
	second, secondID := send()
	rig.WaitFor(t, firstID, a)
	rig.WaitFor(t, secondID, a)
	third, _ := send()
	time.Sleep(queueing)
	fourth, fourthID := send()
	time.Sleep(queueing)
	shed(t, r, send)
	fourth.Close() // frees its place in the queue
	r.Ended(t, fourthID, "client-gone-waiting")
	fifth, _ := send()
	time.Sleep(queueing)
	shed(t, r, send)
	if n := len(a.ByIDPrefix("load")); n != 2 {
		t.Errorf("%d requests at an engine that takes 2", n)
	}
	once.Do(func() { close(release) })
	for i, c := range []*rig.Client{first, second, third, fifth} {
		if resp := c.Response(2 * rig.Patience); resp.Status != 200 {
			t.Errorf("request %d: %d %.200q", i, resp.Status, resp.Body)
		}
		c.Close()
	}
	r.Counted(t, 6, "429", "shed")
}

// shed sends three requests that have no place.
func shed(t *testing.T, r *rig.Ramjet, send func() (*rig.Client, string)) {
	t.Helper()
	for range 3 {
		began := time.Now()
		c, id := send()
		resp := c.Response(rig.Patience)
		if resp.Status != 429 || resp.Code() != "queue_full" {
			t.Errorf("a full queue answers %d %.200q, want 429 queue_full", resp.Status, resp.Body)
		}
		if s, err := strconv.Atoi(resp.Fields.Get("Retry-After")); err != nil || s < 1 {
			t.Errorf("Retry-After: %q, want whole seconds", resp.Fields.Get("Retry-After"))
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("told after %v", took)
		}
		r.Ended(t, id, "shed")
		c.Close()
	}
}
