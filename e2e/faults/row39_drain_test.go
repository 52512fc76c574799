package faults

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestB7Row39Drain: SIGTERM with 50 streams. /readyz 503 at once, the streams
// finish, exit code 0.
func TestB7Row39Drain(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Flags: []string{"--timeouts.drain=30s"}, Loose: true})
	a.On(rig.TokensFor(15 * time.Second))
	b.On(rig.TokensFor(15 * time.Second))
	cs := rig.Streams(t, r, 50)
	r.Signal(syscall.SIGTERM)
	r.Draining(t, rig.Patience)
	for i, c := range cs {
		if resp := c.Response(3 * rig.Patience); !resp.Complete || !strings.HasSuffix(string(resp.Body), rig.DoneEvent) || len(resp.ErrorEvents()) > 0 {
			t.Errorf("stream %d: properly ended %v, ..%.200q", i, resp.Complete, resp.Body[max(0, len(resp.Body)-200):])
		}
	}
	if code := r.AwaitExit(5 * rig.Patience); code != 0 {
		t.Errorf("exit code %d, want 0 soon after the last stream", code)
	}
	rig.DrainedLedger(t, r)
}

// TestB7Row39DrainLimit: at the limit what still streams ends with an error
// event and the process exits 0.
func TestB7Row39DrainLimit(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Flags: []string{"--timeouts.drain=1s"}, Loose: true})
	a.On(rig.TokensFor(time.Minute))
	b.On(rig.TokensFor(time.Minute))
	cs := rig.Streams(t, r, 10)
	silent := r.Dial(t) // one that waits for its first token
	hold := func(x *rig.Exchange) { x.StreamHead(); x.Gone(0) }
	a.On(hold)
	b.On(hold)
	silent.Send(rig.Request("POST", rig.ChatPath, r.ID("silent"), rig.ChatBody(true)))
	silent.Head(rig.Patience)
	began := time.Now()
	r.Signal(syscall.SIGTERM)
	for i, c := range append(cs, silent) {
		resp := c.Response(3 * rig.Patience)
		if codes := resp.ErrorEvents(); !resp.Complete || len(codes) != 1 || codes[0] != "draining" || strings.Contains(string(resp.Body), "[DONE]") {
			t.Errorf("stream %d: error events %v, properly ended %v", i, codes, resp.Complete)
		}
	}
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("the streams ended after %v, before the limit of 1 s", took)
	}
	if code := r.AwaitExit(5 * rig.Patience); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	ends := map[string]int{}
	for _, line := range r.AccessLines() {
		ends[line.Str("end")]++
	}
	if ends["drained"] != 11 {
		t.Errorf("ends %v, want 11 drained", ends)
	}
	rig.DrainedLedger(t, r)
}

// TestB7Row39SecondSignal: a second signal ends at once.
func TestB7Row39SecondSignal(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Flags: []string{"--timeouts.drain=60s"}, Loose: true})
	a.On(rig.TokensFor(time.Minute))
	b.On(rig.TokensFor(time.Minute))
	cs := rig.Streams(t, r, 5)
	r.Signal(syscall.SIGTERM)
	r.Draining(t, rig.Patience)
	time.Sleep(300 * time.Millisecond)
	if r.HasExited() {
		t.Fatal("the first signal did not wait for the streams")
	}
	r.Signal(syscall.SIGTERM)
	if code := r.AwaitExit(rig.Patience); code == -1 {
		t.Error("the second signal does not end it")
	}
	for _, c := range cs {
		if resp := c.Response(rig.Patience); resp.Complete && len(resp.ErrorEvents()) == 0 {
			t.Error("a stream that was cut looks whole")
		}
	}
}

// TestB7Row39StillAccepts: within the grace a new connection is served once, so
// that a load balancer that has not yet seen /readyz loses nothing.
func TestB7Row39StillAccepts(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Flags: []string{"--timeouts.drain=30s"}, Loose: true})
	a.On(rig.TokensFor(15 * time.Second))
	b.On(rig.TokensFor(15 * time.Second))
	cs := rig.Streams(t, r, 2)
	a.On(nil)
	b.On(nil)
	r.Signal(syscall.SIGTERM)
	r.Draining(t, rig.Patience)
	c := r.Dial(t)
	c.Send(rig.Request("POST", rig.ChatPath, r.ID("new"), rig.ChatBody(true)))
	resp := c.Response(rig.Patience)
	if resp.Status != 200 || !resp.Complete || !strings.EqualFold(resp.Fields.Get("Connection"), "close") || !c.Gone(rig.Patience) {
		t.Errorf("a new connection while draining: %d, Connection %q, closed %v", resp.Status, resp.Fields.Get("Connection"), c.Closed)
	}
	for _, c := range cs {
		if resp := c.Response(3 * rig.Patience); !resp.Complete || len(resp.ErrorEvents()) > 0 {
			t.Error("a stream was cut by the drain")
		}
		c.Close()
	}
	if code := r.AwaitExit(5 * rig.Patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	rig.DrainedLedger(t, r)
}
