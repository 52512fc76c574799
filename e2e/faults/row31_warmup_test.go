package faults

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// arrivedBefore are an engine's requests with an id prefix that came before a
// time.
func arrivedBefore(e *rig.Engine, prefix string, at time.Time) (n int) {
	for _, x := range e.ByIDPrefix(prefix) {
		if x.At.Before(at) {
			n++
		}
	}
	return n
}

// passedBy wants most of the choices that fell on a while b warmed up to be
// counted as having passed b by.
func passedBy(t *testing.T, r *rig.Ramjet, a *rig.Engine, warming, slow time.Time) {
	t.Helper()
	came := arrivedBefore(a, "steady", slow) - arrivedBefore(a, "steady", warming)
	if n := r.Metrics().Sum("ramjet_warming_refusals_total", "engine", "b"); n == 0 || n < 0.8*float64(came) {
		t.Errorf("%v choices passed it by while it warmed up, the other got %d", n, came)
	}
}

// TestB7Row31LoadingEngine: an engine is killed and comes back at the same
// address, first with its port closed, then loading and answering its checks
// with 503, then for good. No request reaches it before its warm-up is over,
// no client notices, and each choice that passed it by is counted.
func TestB7Row31LoadingEngine(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Settings("--health.stable=1500ms", "--health.slow-start=1s")...)
	stop := rig.Steady(t, r, 15*time.Millisecond)
	rig.Eventually(t, rig.Patience, "load on both", func() string {
		if len(a.ByIDPrefix("steady")) < 5 || len(b.ByIDPrefix("steady")) < 5 {
			return "too little"
		}
		return ""
	})
	b.Get("/health", rig.Ailing)
	b.Down()
	r.Is(t, rig.Patience, "b", "down")
	b.Forget() // from here on nothing may come
	time.Sleep(500 * time.Millisecond)
	b.Up(t)
	time.Sleep(700 * time.Millisecond) // its port accepts, it loads
	rig.Eventually(t, rig.Patience, "while it loads it is down", func() string {
		if e := r.Status(t, "b"); e.State != "down" || !strings.Contains(e.Reason, "503") {
			return e.State + " (" + e.Reason + ")"
		}
		return ""
	})
	b.Well("/health")
	list := r.Went(t, 2*rig.Patience, "b", "ready", "down", "warming", "slow-start", "ready")
	warming, slow := list[2].Time, list[3].Time
	if warm := slow.Sub(warming); warm < 1500*time.Millisecond {
		t.Errorf("it warmed up for %v, want 1.5 s at least", warm)
	}
	if n := arrivedBefore(b, "steady", slow.Add(-time.Millisecond)); n != 0 {
		t.Errorf("%d requests reached it before its slow start", n)
	}
	passedBy(t, r, a, warming, slow)
	rig.Eventually(t, rig.Patience, "requests on b again", func() string {
		if len(b.ByIDPrefix("steady")) < 3 {
			return "none"
		}
		return ""
	})
	sent, bad := stop()
	if len(bad) > 0 {
		t.Errorf("%d of %d clients noticed: %s", len(bad), sent, bad[0])
	}
	if n := r.Metrics().Sum("ramjet_warming_refusals_total", "engine", "a"); n != 0 {
		t.Errorf("%v choices passed the other by", n)
	}
}

// TestB7Row31KilledSim: an engine with a cache is killed with -9 and started
// anew at its address, slow to load: its part of the index is empty, its new
// process computes nothing while it warms up, and the first prompt after that
// finds what it really holds.
func TestB7Row31KilledSim(t *testing.T) {
	t.Parallel()
	sims := rig.Pair(t)
	r := rig.InFrontOf(t, sims, "exact", "--health.interval=100ms", "--health.successes=3", "--health.stable=6s", "--health.slow-start=300ms")
	load := rig.NewTalkLoad(31, 60)
	rig.EqualRun(t, r, sims, load, 24)
	if n := r.EngineView("b").Blocks(); n < 20 {
		t.Fatalf("only %d blocks of b are known before it is killed", n)
	}
	b := sims[1]
	killAndRestart(t, b, "--start-delay=4s", "--kv-blocks=600", "--speed=50", "--seed=7")
	r.Is(t, 2*rig.Patience, "b", "down")
	stop := rig.Background(t, r.Asker(t), r.ID, rig.NewTalkLoad(32, 60), 2)
	r.Is(t, 2*rig.Patience, "b", "warming")
	var known rig.EngineView
	var last rig.CacheState
	looks := 0
	rig.Eventually(t, 2*rig.Patience, "the end of b's warm-up", func() string {
		e, st := r.EngineView("b"), b.Cache(t)
		if r.Status(t, "b").State != "warming" {
			return ""
		}
		// Both are of a time when b was still warming, as it is after them.
		if last = st; looks == 0 {
			known = e
		}
		looks++
		return "it is warming"
	})
	switch {
	case looks == 0:
		t.Error("nobody looked while it was warming up for 6 s")
	case known.Blocks() != 0:
		t.Errorf("while it warms up %d blocks are known of it (%s: %s)", known.Blocks(), known.Trust, known.TrustReason)
	case last.Requests != 0 || last.Blocks != 0:
		t.Errorf("it got %d requests and computed %d blocks while it was warming", last.Requests, last.Blocks)
	}
	rig.Eventually(t, 2*rig.Patience, "requests on b", func() string {
		if b.Cache(t).Requests == 0 {
			return "none"
		}
		return ""
	})
	if n, failed := stop(); n == 0 || len(failed) > 0 {
		t.Errorf("beside it %d requests were answered and %d failed", n, len(failed))
	}
	r.Is(t, rig.Patience, "b", "ready")
	r.TrustIs(t, rig.Patience, "b", "exact")
	if cached := rig.EqualRun(t, r, sims, load, 24); cached == 0 {
		t.Error("no request found its prefix")
	}
}

// TestB7Row31RealWarmUp is the warm-up with the settings that Ramjet comes
// with: three good checks and 30 s, then a tenth of the others' load.
func TestB7Row31RealWarmUp(t *testing.T) {
	t.Parallel()
	rig.Slow(t, "a restarted engine waits 30 s")
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	stop := rig.Steady(t, r, 50*time.Millisecond)
	b.Down()
	r.Is(t, rig.Patience, "b", "down")
	b.Forget()
	b.Up(t)
	r.Is(t, 2*rig.Patience, "b", "warming")
	warming := r.Changes(t, "b")[2]
	list := r.Went(t, 120*time.Second, "b", "ready", "down", "warming", "slow-start")
	warm := list[3].Time.Sub(warming.Time)
	// Checks are 2 s apart, give or take 20 %, so that the first one past 30 s
	// comes 2.4 s late at most, and a loaded machine adds its own. There a check
	// may also come too late, which begins the warm-up anew: what counts is the
	// time since the last that did.
	var good int
	var in string
	_, err := fmt.Sscanf(list[3].Reason, "%d good checks in %s", &good, &in)
	stable, odd := time.ParseDuration(in)
	if err != nil || odd != nil || good < 3 || stable > 45*time.Second || warm < 30*time.Second {
		t.Errorf("b warmed up for %v (%s), want 30 s and a check", warm, list[3].Reason)
	}
	if n := arrivedBefore(b, "steady", list[3].Time.Add(-time.Millisecond)); n != 0 {
		t.Errorf("%d requests reached it before its slow start", n)
	}
	sent, bad := stop()
	if len(bad) > 0 || sent < 100 {
		t.Errorf("%d of %d clients noticed: %v", len(bad), sent, bad)
	}
	passedBy(t, r, a, warming.Time, list[3].Time)
	firstShare(t, r, a, b)
}

// firstShare: right after its warm-up an engine holds one request and a tenth
// and a little of what the other holds.
func firstShare(t *testing.T, r *rig.Ramjet, a, b *rig.Engine) {
	t.Helper()
	hold := func(x *rig.Exchange) { x.StreamHead(); x.Gone(0) }
	a.On(hold)
	b.On(hold)
	for i := range 12 {
		c, id := r.Dial(t), r.ID("held")
		c.Send(rig.Request("POST", rig.ChatPath, id, rig.DistinctBody("held", i)))
		rig.WaitFor(t, id, a, b)
	}
	onA, onB := len(a.ByIDPrefix("held")), len(b.ByIDPrefix("held"))
	if onB < 1 || onB > 3 || onA+onB != 12 {
		t.Errorf("of 12 requests at once a holds %d and b, in its slow start, %d", onA, onB)
	}
}

// TestB7Row31Timeline: the time line tells each change once, with its reason,
// and the access log the refused engine's requests under the other's name.
func TestB7Row31Timeline(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Swift...)
	for range 2 {
		b.Down()
		rig.Eventually(t, rig.Patience, "b down", func() string { return isNot(r.Status(t, "b").State, "down") })
		b.Up(t)
		rig.Eventually(t, 2*rig.Patience, "b ready", func() string { return isNot(r.Status(t, "b").State, "ready") })
	}
	list := r.Went(t, rig.Patience, "b", "ready", "down", "warming", "slow-start", "ready", "down", "warming", "slow-start", "ready")
	type told struct{ Message, Engine, From, To, Reason string }
	var said []told
	rig.Eventually(t, rig.Patience, "as many changes in the log as in the time line", func() string {
		said = nil
		for line := range strings.Lines(r.Out.String()) {
			var l told
			if json.Unmarshal([]byte(line), &l) == nil && l.Message == "engine state" && l.Engine == "b" {
				said = append(said, l)
			}
		}
		if len(said) != len(list) {
			return fmt.Sprintf("%d, want %d", len(said), len(list))
		}
		return ""
	})
	for i, l := range said {
		if i >= len(list) || l.From != list[i].From || l.To != list[i].To || l.Reason != list[i].Reason {
			t.Errorf("line %d of the log tells %+v", i, l)
		}
	}
}

func isNot(got, want string) string {
	if got != want {
		return fmt.Sprintf("it is %s", got)
	}
	return ""
}

// killAndRestart ends the sim's process with SIGKILL and starts another one at
// the same addresses.
func killAndRestart(t testing.TB, s *rig.SimEngine, flags ...string) {
	t.Helper()
	var sources map[string]struct {
		Live string `json:"endpoint"`
		Past string `json:"replay_endpoint"`
	}
	if status, body := rig.HTTPGet(s.URL() + "/kv_event_sources"); status != 200 || json.Unmarshal([]byte(body), &sources) != nil || sources["0"].Live == "" || sources["0"].Past == "" {
		t.Fatalf("/kv_event_sources: %d %s", status, body)
	}
	_ = s.Cmd.Process.Kill()
	<-s.Done
	_ = s.Cmd.Wait()
	flags = append([]string{"--listen=" + s.Addr, "--events", boundAt(sources["0"].Live), "--replay", boundAt(sources["0"].Past)}, flags...)
	next := rig.StartSim(t, s.Name, flags...)
	if next.Addr != s.Addr {
		t.Fatalf("the new process is at %s, want %s", next.Addr, s.Addr)
	}
	*s = *next
}

// boundAt is the endpoint that lets a sim bind the port of another endpoint.
func boundAt(endpoint string) string {
	return "tcp://*:" + endpoint[strings.LastIndexByte(endpoint, ':')+1:]
}
