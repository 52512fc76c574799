package route

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"ramjet/engine"
	"ramjet/lease"
	"ramjet/radix"
	"ramjet/telemetry"
)

// fixture builds engines a, b, c ... in the given states.
func fixture(t *testing.T, policy Policy, states ...telemetry.State) (*Router, *lease.Book) {
	t.Helper()
	book := lease.NewBook(nil)
	set := &Set{}
	for i, s := range states {
		u, err := url.Parse(fmt.Sprintf("http://127.0.0.1:%d", 8001+i))
		if err != nil {
			t.Fatal(err)
		}
		e := engine.New(engine.Options{Name: string(rune('a' + i)), URL: u})
		e.SetState(s, "test")
		e.SetTrust(telemetry.TrustExact, "test")
		set.Members = append(set.Members, Member{Engine: e, Account: lease.NewAccount(""), Slot: i})
	}
	s := Settings{Policy: policy, Profile: ProfileRule, Threshold: 256, Exact: ExactPercent, Percent: 100, Tie: 0.02}
	return New(book, radix.NewIndex(), radix.NewMemory(), s, set), book
}

func picks(t *testing.T, r *Router, q Request, n int) string {
	t.Helper()
	out := ""
	for range n {
		var l lease.Lease
		d, err := r.Pick(&q, &l, &Explanation{})
		if err != nil {
			t.Fatal(err)
		}
		out += d.Member.Engine.Name
		l.Release(0)
	}
	return out
}

const (
	ready    = telemetry.StateReady
	slow     = telemetry.StateSlowStart
	suspect  = telemetry.StateSuspect
	down     = telemetry.StateDown
	warming  = telemetry.StateWarming
	ejected  = telemetry.StateEjected
	draining = telemetry.StateDraining
)

func TestWhoMayBePicked(t *testing.T) {
	for _, c := range []struct {
		states []telemetry.State
		picked string // over four requests
		reason telemetry.Reason
		err    error
	}{
		{states: []telemetry.State{ready, ready}, picked: "abab", reason: telemetry.ReasonRotation},
		{states: []telemetry.State{ready, slow}, picked: "abab", reason: telemetry.ReasonRotation},
		{states: []telemetry.State{suspect, ready}, picked: "bbbb", reason: telemetry.ReasonOnlyOne},
		{states: []telemetry.State{suspect, suspect}, picked: "abab", reason: telemetry.ReasonRotation},
		{states: []telemetry.State{down, suspect}, picked: "bbbb", reason: telemetry.ReasonOnlyOne},
		{states: []telemetry.State{warming, ready}, picked: "bbbb", reason: telemetry.ReasonOnlyOne},
		{states: []telemetry.State{down, ejected}, picked: "abab", reason: telemetry.ReasonFailOpen},
		{states: []telemetry.State{warming, draining}, picked: "aaaa", reason: telemetry.ReasonFailOpen},
		{states: []telemetry.State{draining, draining}, err: ErrNoEngine},
		{states: nil, err: ErrModel},
	} {
		t.Run(fmt.Sprint(c.states), func(t *testing.T) {
			r, _ := fixture(t, PolicyLatency, c.states...)
			var l lease.Lease
			d, err := r.Pick(&Request{}, &l, &Explanation{})
			l.Release(0)
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if err != nil {
				return
			}
			if d.Reason != c.reason {
				t.Errorf("reason %v, want %v", d.Reason, c.reason)
			}
			if got := d.Member.Engine.Name + picks(t, r, Request{}, 3); got != c.picked {
				t.Errorf("picked %s, want %s", got, c.picked)
			}
		})
	}
}

func TestLeastTokens(t *testing.T) {
	r, _ := fixture(t, PolicyLeastTokens, ready, ready, ready)
	var heavy, light, third lease.Lease
	first, _ := r.Pick(&Request{Prompt: Prompt{Tokens: 1000}}, &heavy, &Explanation{})
	second, _ := r.Pick(&Request{Prompt: Prompt{Tokens: 10}}, &light, &Explanation{})
	if first.Member == second.Member {
		t.Fatal("two requests on one engine while others are idle")
	}
	d, _ := r.Pick(&Request{}, &third, &Explanation{})
	if d.Member == first.Member || d.Member == second.Member {
		t.Fatal("the idle engine was passed over")
	}
	third.Release(0)
	light.Release(0)
	heavy.Decoding(0, true)
	d, _ = r.Pick(&Request{Tried: 1 << r.Members().Index(d.Member.Engine)}, &third, &Explanation{})
	if d.Member != second.Member || d.Reason != telemetry.ReasonLoad || d.RunnerUp != first.Member.Engine.Name {
		t.Fatalf("picked %s (%v, runner-up %s)", d.Member.Engine.Name, d.Reason, d.RunnerUp)
	}
}

func TestInFlightLimit(t *testing.T) {
	r, _ := fixture(t, PolicyRoundRobin, ready, ready)
	for i := range r.Members().Members {
		r.Members().Members[i].Engine.SetSettings(engine.Settings{InFlight: 1})
	}
	var x, y, z lease.Lease
	if _, err := r.Pick(&Request{}, &x, &Explanation{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Pick(&Request{}, &y, &Explanation{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Pick(&Request{}, &z, &Explanation{}); !errors.Is(err, ErrFull) {
		t.Fatalf("third request over two limits of one: %v", err)
	}
	x.Release(0)
	if _, err := r.Pick(&Request{}, &z, &Explanation{}); err != nil {
		t.Fatal(err)
	}
}

func TestModelsAndStoredResponses(t *testing.T) {
	r, _ := fixture(t, PolicyLatency, ready, ready)
	for i, ids := range [][]string{{"m", "lora-a"}, {"m"}} {
		objects := make([][]byte, len(ids))
		r.Members().Members[i].Engine.SetModels(engine.NewModels(ids, objects, nil))
	}
	if got := picks(t, r, Request{Model: []byte("lora-a")}, 3); got != "aaa" {
		t.Errorf("a LoRA that only a serves went to %s", got)
	}
	if got := picks(t, r, Request{Stored: "b"}, 3); got != "bbb" {
		t.Errorf("a stored response of b went to %s", got)
	}
	if got := picks(t, r, Request{Stored: "gone"}, 2); got != "ab" && got != "ba" {
		t.Errorf("a stored response of nobody went to %s", got)
	}
	var l lease.Lease
	if _, err := r.Pick(&Request{Model: []byte("none")}, &l, &Explanation{}); !errors.Is(err, ErrModel) {
		t.Errorf("an unknown model gave %v", err)
	}
}

func TestSessionPolicy(t *testing.T) {
	r, _ := fixture(t, PolicySession, ready, ready, ready)
	seen := map[string]int{}
	moved := 0
	for s := range uint64(3000) {
		s++ // 0 is no session at all
		home := picks(t, r, Request{Session: mix(s)}, 1)
		seen[home]++
		if again := picks(t, r, Request{Session: mix(s)}, 1); again != home {
			t.Fatalf("session %d moved from %s to %s", s, home, again)
		}
		// Without c, only c's sessions may move.
		if other := picks(t, r, Request{Session: mix(s), Tried: 1 << 2}, 1); other != home {
			moved++
			if home != "c" {
				t.Fatalf("session %d of %s moved though %s is still there", s, home, home)
			}
		}
	}
	for name, n := range seen {
		if n < 850 || n > 1150 {
			t.Errorf("engine %s has %d of 3000 sessions", name, n)
		}
	}
	if moved != seen["c"] {
		t.Errorf("%d sessions moved, c had %d", moved, seen["c"])
	}
}

// TestMovesDoNotFailOpen: a request that has tried the only working engine must
// not walk through another's warm-up, ejection or outage.
func TestMovesDoNotFailOpen(t *testing.T) {
	for _, other := range []telemetry.State{warming, ejected, down} {
		for _, working := range []telemetry.State{ready, slow, suspect} {
			r, _ := fixture(t, PolicyLatency, working, other)
			var l lease.Lease
			if d, err := r.Pick(&Request{Tried: 1}, &l, &Explanation{}); !errors.Is(err, ErrNoEngine) {
				t.Errorf("%v tried, %v beside it: %+v, %v", working, other, d, err)
			}
			l.Release(0)
		}
	}
}

// TestFailsOpenToPortsThatAccept: three dead engines must not use up the
// attempts of a request that the fourth, whose port accepts, would serve.
func TestFailsOpenToPortsThatAccept(t *testing.T) {
	for _, c := range []struct {
		name    string
		states  []telemetry.State
		accepts string
		want    string // over eight requests
	}{
		{"one warms up", []telemetry.State{down, down, down, warming}, "d", "dddddddd"},
		{"two do", []telemetry.State{down, ejected, down, warming}, "bd", "bdbdbdbd"},
		{"draining is no last resort", []telemetry.State{draining, down, draining, warming}, "ac", "bdbdbdbd"},
		{"none is known to accept", []telemetry.State{down, down, ejected, warming}, "", "abcdabcd"},
		{"a working one needs no proof", []telemetry.State{suspect, down, down, warming}, "d", "aaaaaaaa"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := fixture(t, PolicyRoundRobin, c.states...)
			for _, m := range r.Members().Members {
				m.Engine.SetAccepts(strings.Contains(c.accepts, m.Engine.Name))
			}
			if got := picks(t, r, Request{}, len(c.want)); got != c.want {
				t.Errorf("picked %s, want %s", got, c.want)
			}
		})
	}
	// The next one is still found by a request that has tried the one that accepts.
	r, _ := fixture(t, PolicyRoundRobin, down, warming)
	r.Members().Members[1].Engine.SetAccepts(true)
	if got := picks(t, r, Request{Tried: 2}, 1); got != "a" {
		t.Errorf("with b tried: %s", got)
	}
}

// TestLightRequestsBookNothing: no limit holds them, and they weigh nothing.
func TestLightRequestsBookNothing(t *testing.T) {
	r, book := fixture(t, PolicyLatency, ready)
	m := &r.Members().Members[0]
	m.Engine.SetSettings(engine.Settings{InFlight: 1})
	var held, light lease.Lease
	if _, err := r.Pick(&Request{}, &held, &Explanation{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Pick(&Request{Light: true}, &light, &Explanation{}); err != nil {
		t.Errorf("a light request at a full engine: %v", err)
	}
	if n := book.Load(m.Account).Requests(); n != 1 || light.Phase() != lease.PhaseNone {
		t.Errorf("%d requests booked, the light one in phase %d", n, light.Phase())
	}
	held.Release(0)
}
