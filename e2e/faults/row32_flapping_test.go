package faults

import (
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestB7Row32GrowingEjection: an engine that answers its checks and fails every
// request is ejected for base x n up to max, and for base again once it behaved
// for as long as the longest ejection. (CONTRACT section 2 has no jitter.)
func TestB7Row32GrowingEjection(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Settings("--route.policy=round-robin", "--eject.base=2s", "--eject.max=5s")...)
	b.On(rig.Failing(500))
	ejections := func() (list []rig.Transition) {
		for _, c := range r.Changes(t, "b") {
			if c.To == "ejected" {
				list = append(list, c)
			}
		}
		return list
	}
	until := func(n int) {
		t.Helper()
		rig.Eventually(t, 4*rig.Patience, "ejections", func() string {
			for range 3 { // beside a request for each look
				r.Post(t, rig.ChatPath, rig.ChatBody(false))
			}
			if got := len(ejections()); got < n {
				return rig.Path(r.Changes(t, "b"))
			}
			return ""
		})
	}
	until(3)
	b.On(nil)
	r.Is(t, rig.Patience, "b", "ready")
	quiet := time.Now().Add(5100 * time.Millisecond)
	for time.Now().Before(quiet) {
		r.Post(t, rig.ChatPath, rig.ChatBody(false))
		time.Sleep(20 * time.Millisecond)
	}
	b.On(rig.Failing(500))
	until(4)
	b.On(nil)
	r.Is(t, rig.Patience, "b", "ready")
	list := r.Changes(t, "b")
	var lasted []time.Duration
	for i, c := range list {
		if c.To == "ejected" && i+1 < len(list) {
			lasted = append(lasted, list[i+1].Time.Sub(c.Time))
		}
	}
	want := []time.Duration{2000, 4000, 5000, 2000}
	if len(lasted) != len(want) {
		t.Fatalf("ejected %d times, want %d: %+v", len(lasted), len(want), list)
	}
	for i, d := range lasted {
		if w := want[i] * time.Millisecond; d < w-time.Millisecond || d > w+1500*time.Millisecond {
			t.Errorf("ejection %d lasted %v, want %v", i+1, d, w)
		}
	}
	if n := r.Metrics().Sum("ramjet_ejections_total", "engine", "b", "reason", "server-error"); n != 4 {
		t.Errorf("%v ejections counted, want 4", n)
	}
	if got := rig.Path(r.Changes(t, "a")); got != "ready" {
		t.Errorf("the other went %s", got)
	}
}

// TestB7Row32NeverTheLast: two engines that fail every request are never both
// ejected, and no request is refused for want of an engine.
func TestB7Row32NeverTheLast(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Settings("--route.policy=round-robin", "--eject.base=100ms", "--eject.max=200ms", "--health.slow-start=50ms")...)
	a.On(rig.Failing(500))
	b.On(rig.Failing(500))
	ejections := func() int { return int(r.Metrics().Sum("ramjet_ejections_total")) }
	for began := time.Now(); time.Since(began) < 3*time.Second || ejections() < 3 && time.Since(began) < 30*time.Second; {
		if resp := r.Post(t, rig.ChatPath, rig.ChatBody(false)); resp.Status != 500 || resp.Code() != "<nil>" {
			t.Fatalf("answered %d %.200q, want the engine's own 500", resp.Status, resp.Body)
		}
	}
	_, all := r.Engines(t)
	state, ejected := map[string]string{}, 0
	for _, c := range all {
		if state[c.Engine] = c.To; c.To == "ejected" {
			ejected++
		}
		if state["a"] == "ejected" && state["b"] == "ejected" {
			t.Fatalf("both were ejected: %+v", all)
		}
	}
	if ejected < 3 {
		t.Errorf("only %d ejections: it proves little", ejected)
	}
}

// TestB7Row32FlappingPort: an engine whose port comes and goes faster than a
// warm-up lasts gets no request until it stays, and no client notices.
func TestB7Row32FlappingPort(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Settings("--health.stable=4s")...)
	stop := rig.Steady(t, r, 10*time.Millisecond)
	rig.Eventually(t, rig.Patience, "load on both", func() string {
		if len(a.ByIDPrefix("steady")) < 5 || len(b.ByIDPrefix("steady")) < 5 {
			return "too little"
		}
		return ""
	})
	b.Down()
	r.Is(t, rig.Patience, "b", "down")
	b.Forget()
	for range 5 {
		b.Up(t)
		rig.Eventually(t, rig.Patience, "b warming", func() string { return isNot(r.Status(t, "b").State, "warming") })
		b.Down()
		rig.Eventually(t, rig.Patience, "b down", func() string { return isNot(r.Status(t, "b").State, "down") })
	}
	if xs := b.ByIDPrefix("steady"); len(xs) != 0 {
		t.Errorf("%d requests reached a flapping engine", len(xs))
	}
	list := r.Changes(t, "b")
	if got := rig.Path(list); strings.Contains(got, "slow-start") || strings.Count(got, "warming") < 5 {
		t.Errorf("while it flapped it went %s", got)
	}
	b.Up(t)
	r.Is(t, 2*rig.Patience, "b", "ready")
	rig.Eventually(t, rig.Patience, "requests on b", func() string {
		if len(b.ByIDPrefix("steady")) == 0 {
			return "none"
		}
		return ""
	})
	if sent, bad := stop(); len(bad) > 0 {
		t.Errorf("%d of %d clients noticed: %s", len(bad), sent, bad[0])
	}
}
