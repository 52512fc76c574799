package e2e

import (
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestResidencyLateStart starts Ramjet in front of engines that have served for a
// while, one of them with a history of evictions: the replay makes it exact before
// its first request.
func TestResidencyLateStart(t *testing.T) {
	t.Parallel()
	sims := rig.Pair(t)
	load := rig.NewTalkLoad(5, 60)
	for i, s := range sims {
		a := rig.NewAsker(t, s.URL())
		for range 80 - 60*i {
			body, tell := load.Next()
			p := a.Chat("direct", body)
			if !p.Ok() {
				t.Fatalf("direct request: %v", &p)
			}
			tell(p.Text)
		}
		a.Close()
	}
	r := rig.InFrontOf(t, sims, "exact")
	r.InStep(t, sims...)
	for _, s := range sims {
		e := r.EngineView(s.Name)
		if e.TrustReason != "every batch since the engine started" || e.Blocks() == 0 || e.Blocks() > s.Cache(t).Blocks {
			t.Errorf("engine %s: %s (%s), %d blocks of %d", s.Name, e.Trust, e.TrustReason, e.Blocks(), s.Cache(t).Blocks)
		}
	}
	if cached := rig.EqualRun(t, r, sims, load, 40); cached == 0 {
		t.Error("no request found its prefix")
	}
}

// TestResidencyRamjetRestarted restarts Ramjet while requests of others run on
// the engines all the time.
func TestResidencyRamjetRestarted(t *testing.T) {
	t.Parallel()
	sims := rig.Pair(t)
	load := rig.NewTalkLoad(6, 60)
	first := rig.InFrontOf(t, sims, "exact")
	rig.EqualRun(t, first, sims, load, 20)
	var stops []func() (int, []rig.Reply)
	for i, s := range sims {
		stops = append(stops, rig.Background(t, rig.NewAsker(t, s.URL()), func(p string) string { return p }, rig.NewTalkLoad(uint64(60+i), 40), 2))
	}
	first.Closing() // all of the first is back before it goes
	first.Stop()
	r := rig.InFrontOf(t, sims, "exact")
	a := r.Asker(t)
	var equal, more, less int
	for i := range 60 { // beside the others' requests
		body, tell := load.Next()
		p := a.Chat(r.ID("talk"), body)
		switch tell(p.Text); {
		case !p.Ok():
			t.Fatalf("request %d: %v", i, &p)
		case p.Cached == p.Match:
			equal++
		case p.Cached > p.Match:
			more++
		default:
			less++ // evicted meanwhile
		}
	}
	a.Close()
	for _, stop := range stops {
		if n, failed := stop(); n == 0 || len(failed) > 0 {
			t.Errorf("beside it: %d requests, %d failed", n, len(failed))
		}
	}
	t.Logf("under load: match = reported %d, more %d, less %d", equal, more, less)
	if equal < 45 {
		t.Errorf("only %d of 60 matches are what was reported", equal)
	}
	if last := rig.Trusted(r); last != "" {
		t.Error(last)
	}
	if cached := rig.EqualRun(t, r, sims, load, 20); cached == 0 {
		t.Error("no request found its prefix")
	}
}

// TestResidencyPublisherStalls stops one engine's publisher: it is believed no
// more from the first contradiction on, no request fails, and when it goes on
// the engine is exact by itself.
func TestResidencyPublisherStalls(t *testing.T) {
	t.Parallel()
	sims := rig.Pair(t)
	r := rig.InFrontOf(t, sims, "exact")
	load := rig.NewTalkLoad(10, 60)
	rig.EqualRun(t, r, sims, load, 20)
	a := r.Asker(t)
	defer a.Close()
	for _, s := range sims {
		fault(t, s, "event-stop", 0)
	}
	doubted := map[string]int{}
	for i := 0; i < 12 && len(doubted) < 2; i++ {
		body := load.Body([]rig.TalkMessage{{Role: "user", Content: load.Text(300)}})
		p := a.Chat(r.ID("stalled"), body)
		if !p.Ok() {
			t.Fatalf("request %d failed: %v", i, &p)
		}
		name := p.Engine
		if doubted[name] > 0 {
			continue
		}
		// The first answer that filled blocks without an event is a contradiction.
		rig.Eventually(t, rig.Patience, "trust in "+name, func() string {
			if e := r.EngineView(name); e.Trust == "exact" {
				return "is exact still"
			}
			return ""
		})
		doubted[name] = i + 1
	}
	if len(doubted) < 2 {
		t.Errorf("doubted %v", doubted)
	}
	for i := range 6 {
		p := a.Chat(r.ID("stalled"), load.Body([]rig.TalkMessage{{Role: "user", Content: load.Text(300)}}))
		if d := r.Explain(t, p.ID); !p.Ok() || d.Keys == "exact" {
			t.Errorf("request %d while stalled: %v, keys %s", i, &p, d.Keys)
		}
	}
	for _, s := range sims {
		if reason := r.TrustIs(t, rig.Patience, s.Name, "blind"); !strings.HasPrefix(reason, "nothing received") {
			t.Errorf("engine %s: %s", s.Name, reason)
		}
		s.Control(t, "/sim/clear", "")
	}
	for i := 0; i < 20; i++ { // what was stalled goes out with the next batch
		if rig.Trusted(r) == "" {
			break
		}
		p := a.Chat(r.ID("again"), load.Body([]rig.TalkMessage{{Role: "user", Content: load.Text(60)}}))
		if !p.Ok() {
			t.Errorf("request failed: %v", &p)
		}
		r.InStep(t, sims...)
	}
	for _, s := range sims {
		r.TrustIs(t, 2*rig.Patience, s.Name, "exact")
	}
	rig.EqualRun(t, r, sims, load, 20)
}

// TestResidencyGapHealed loses batches between the engine and us: the replay has
// them.
func TestResidencyGapHealed(t *testing.T) {
	t.Parallel()
	sims := rig.Pair(t)
	r := rig.InFrontOf(t, sims, "exact")
	load := rig.NewTalkLoad(11, 60)
	rig.EqualRun(t, r, sims, load, 10)
	for _, s := range sims {
		fault(t, s, "event-gap", 3)
	}
	a := r.Asker(t)
	defer a.Close()
	for i := 0; i < 40 && r.Metrics().Sum("ramjet_kv_gaps_total") < 2; i++ {
		p := a.Chat(r.ID("gap"), load.Body([]rig.TalkMessage{{Role: "user", Content: load.Text(200)}}))
		if !p.Ok() {
			t.Fatalf("request %d: %v", i, &p)
		}
	}
	for _, s := range sims {
		if n := r.Metrics().Sum("ramjet_kv_gaps_total", "engine", s.Name); n != 1 {
			t.Errorf("engine %s: %v gaps counted, want 1", s.Name, n)
		}
		if reason := r.TrustIs(t, 2*rig.Patience, s.Name, "exact"); reason != "every batch since the engine started" {
			t.Errorf("engine %s: %s", s.Name, reason)
		}
	}
	rig.EqualRun(t, r, sims, load, 30)
}

// TestResidencyTruncatedRing starts Ramjet when the engines' rings have lost the
// beginning: they are not believed until their caches were cleared, or turned
// over (CONTRACT section 10, 10).
func TestResidencyTruncatedRing(t *testing.T) {
	t.Parallel()
	sims := rig.Pair(t, "--event-buffer=5", "--dev-mode")
	load := rig.NewTalkLoad(12, 60)
	for _, s := range sims {
		a := rig.NewAsker(t, s.URL())
		for range 12 {
			body, tell := load.Next()
			tell(a.Chat("direct", body).Text)
		}
		a.Close()
	}
	r := rig.InFrontOf(t, sims, "blind")
	a := r.Asker(t)
	defer a.Close()
	for i := range 10 {
		body, tell := load.Next()
		p := a.Chat(r.ID("blind"), body)
		if d := r.Explain(t, p.ID); !p.Ok() || d.Keys == "exact" || p.Reason == "exact" {
			t.Errorf("request %d: %v, keys %s", i, &p, d.Keys)
		}
		tell(p.Text)
	}
	for _, s := range sims {
		if e := r.EngineView(s.Name); e.Trust != "blind" || !strings.Contains(e.TrustReason, "not known") && !strings.Contains(e.TrustReason, "lost") {
			t.Errorf("engine %s: %s (%s)", s.Name, e.Trust, e.TrustReason)
		}
	}
	// a: cleared. vLLM announces it with the next step.
	if answer := sims[0].Control(t, "/reset_prefix_cache", ""); !strings.Contains(answer, "true") {
		t.Fatalf("reset: %s", answer)
	}
	direct := rig.NewAsker(t, sims[0].URL())
	direct.Chat("direct", load.Body([]rig.TalkMessage{{Role: "user", Content: load.Text(100)}}))
	direct.Close()
	if reason := r.TrustIs(t, 2*rig.Patience, "a", "exact"); reason != "every batch since the cache was cleared" {
		t.Errorf("a: %s", reason)
	}
	if n := r.Metrics().Sum("ramjet_kv_events_total", "engine", "a", "kind", "cleared"); n != 1 {
		t.Errorf("%v clears counted", n)
	}
	// b: turned over by prompts that fill it.
	direct = rig.NewAsker(t, sims[1].URL())
	for range 40 {
		direct.Chat("direct", load.Body([]rig.TalkMessage{{Role: "user", Content: load.Text(300)}}))
	}
	direct.Close()
	if reason := r.TrustIs(t, 2*rig.Patience, "b", "exact"); !strings.HasPrefix(reason, "the cache turned over") {
		t.Errorf("b: %s", reason)
	}
	rig.EqualRun(t, r, sims, load, 30)
}

// TestResidencyLie lets an engine lose what it cached without a word: within 20
// requests it is not believed, and after its faults are gone it is again.
func TestResidencyLie(t *testing.T) {
	t.Parallel()
	sims := rig.Pair(t)
	r := rig.InFrontOf(t, sims, "exact")
	lies(t, r, sims, rig.NewTalkLoad(13, 60))
}

func lies(t *testing.T, r *rig.Ramjet, sims []*rig.SimEngine, load *rig.TalkLoad) {
	t.Helper()
	rig.EqualRun(t, r, sims, load, 10)
	liar := sims[0]
	fault(t, liar, "event-lie", 0)
	a := r.Asker(t)
	defer a.Close()
	history := []rig.TalkMessage{{Role: "user", Content: load.Text(100)}}
	there, doubted := 0, 0
	for i := 0; i < 60 && doubted == 0; i++ {
		p := a.Chat(r.ID("lie"), load.Body(history))
		if !p.Ok() {
			t.Fatalf("request %d failed: %v", i, &p)
		}
		if p.Engine == liar.Name {
			there++
		} else { // to where the liar is
			history = []rig.TalkMessage{{Role: "user", Content: load.Text(100)}}
			continue
		}
		history = append(history, rig.TalkMessage{Role: "assistant", Content: p.Text}, rig.TalkMessage{Role: "user", Content: load.Text(30)})
		r.InStep(t, sims[1])
		if r.EngineView(liar.Name).Trust != "exact" {
			doubted = there
		}
	}
	e := r.EngineView(liar.Name)
	t.Logf("after %d requests there: %s (%s)", doubted, e.Trust, e.TrustReason)
	if doubted == 0 || doubted > 20 || !strings.Contains(e.TrustReason, "predictions are off") {
		t.Errorf("doubted after %d of %d requests: %s (%s)", doubted, there, e.Trust, e.TrustReason)
	}
	if m := r.Metrics(); m.Sum("ramjet_residency_trust", "engine", liar.Name, "trust", "exact") != 0 {
		t.Error("the metrics call it exact")
	}
	if p := a.Chat(r.ID("lie"), load.Body(history)); !p.Ok() || p.Reason == "exact" || r.Explain(t, p.ID).Keys == "exact" {
		t.Errorf("believed still: %v", &p)
	}
	liar.Control(t, "/sim/clear", "")
	began := time.Now()
	n := 0
	for ; n < 200 && r.EngineView(liar.Name).Trust != "exact"; n++ {
		body, tell := load.Next()
		p := a.Chat(r.ID("true"), body)
		if !p.Ok() {
			t.Fatalf("request failed: %v", &p)
		}
		tell(p.Text)
		r.InStep(t, sims[1])
	}
	t.Logf("believed again after %d requests, %v", n, time.Since(began).Round(time.Millisecond))
	r.TrustIs(t, rig.Patience, liar.Name, "exact")
}
