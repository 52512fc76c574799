package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"ramjet/e2e/rig"
)

// TestResidencyMatchEqualsReported sends 300 requests of conversations that fork
// and are evicted, one after another, with two restarts among them: what Ramjet
// says is cached is what the engine then reports, for each.
func TestResidencyMatchEqualsReported(t *testing.T) {
	t.Parallel()
	for _, c := range rig.ResidencyCases {
		if testing.Short() && c.Name != "dense16" && !c.Learns {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			sims := c.Start(t)
			r := c.Ramjet(t, sims, "auto")
			if c.Words > 100 {
				prime(t, r)
			}
			run := runTalks(t, r, sims, rig.NewTalkLoad(1, c.Words).Next, 300)
			run.judge(t, r, &c)
			run.truthful(t, r)
		})
	}
}

// talkRun is what became of a run.
type talkRun struct {
	bodies  []string
	replies []rig.Reply
	cached  int // tokens, in all
	prompt  int
}

// prime sends some long prompts at once, so that Ramjet learns how fast each
// engine computes: one whose speed is not known is thought to be slow beside
// these.
func prime(t *testing.T, r *rig.Ramjet) {
	t.Helper()
	a := r.Asker(t)
	defer a.Close()
	load := rig.NewTalkLoad(99, 3000)
	var wg sync.WaitGroup
	for range 4 {
		body := load.Body([]rig.TalkMessage{{Role: "user", Content: load.Text(3000)}})
		wg.Go(func() {
			if p := a.Chat(r.ID("prime"), body); !p.Ok() {
				t.Errorf("a request failed: %v", &p)
			}
		})
	}
	wg.Wait()
}

// restartsAt is after how many requests of a run an engine is restarted.
var restartsAt = map[int]int{120: 0, 210: 1}

// runTalks sends n requests one after another. Each is decided when the index
// is in step with the caches.
func runTalks(t *testing.T, r *rig.Ramjet, sims []*rig.SimEngine, next func() (string, func(string)), n int) (run talkRun) {
	t.Helper()
	a := r.Asker(t)
	defer a.Close()
	for i := range n {
		if at, ok := restartsAt[i]; ok {
			restart(t, r, sims[at])
		}
		body, tell := next()
		p := a.Chat(r.ID("talk"), body)
		if !p.Ok() {
			t.Fatalf("request %d failed: %v", i, &p)
		}
		tell(p.Text)
		run.bodies = append(run.bodies, body)
		run.replies = append(run.replies, p)
		run.cached, run.prompt = run.cached+p.Cached, run.prompt+p.Prompt
		r.InStep(t, sims...)
	}
	return run
}

// restart restarts an engine and waits until Ramjet takes it for ready again, and
// what it says of its cache for as good as before.
func restart(t *testing.T, r *rig.Ramjet, s *rig.SimEngine) {
	t.Helper()
	before, trust := len(r.Changes(t, s.Name)), r.EngineView(s.Name).Trust
	s.Control(t, "/sim/restart", `{"seconds":0.3}`)
	rig.Eventually(t, 4*rig.Patience, "engine "+s.Name+" seen restarting", func() string {
		if len(r.Changes(t, s.Name)) == before {
			return "no change"
		}
		return ""
	})
	rig.Eventually(t, 4*rig.Patience, "engine "+s.Name+" ready again", func() string {
		if e := r.EngineView(s.Name); e.State != "ready" {
			return "it is " + e.State
		}
		return ""
	})
	r.TrustIs(t, 4*rig.Patience, s.Name, trust, "exact") // its events may come back later than it does
}

// learnAnswers is how many answers it may take to learn that an engine loses a
// block of each hit.
const learnAnswers = 5

// judge compares what was said with what was reported.
func (run *talkRun) judge(t *testing.T, r *rig.Ramjet, c *rig.ResidencyCase) {
	t.Helper()
	r.Explain(t, run.replies[len(run.replies)-1].ID) // the last one's record is kept, and so are the others'
	x := decisions(r)
	var equal, off, learning, warm, match int
	reasons, engines := map[string]int{}, map[string]int{}
	for i := range run.replies {
		p := &run.replies[i]
		d, ok := x[p.ID]
		if !ok {
			t.Fatalf("no explanation of request %d", i)
		}
		reasons[p.Reason]++
		engines[p.Engine]++
		match += p.Match
		if p.Cached > 0 {
			warm++
		}
		switch {
		case d.Keys != "exact" || d.winner().Exact != p.Match || d.winner().Match != p.Match || d.Engine != p.Engine || d.Reason != p.Reason ||
			*d.Result.Cached != p.Cached || *d.Result.Prompt != p.Prompt || *d.Result.Output != p.Output:
			t.Errorf("request %d is explained otherwise: %v, explanation %+v", i, p, d)
		case p.Match == p.Cached:
			equal++
		case c.Learns && learning < learnAnswers && p.Match > p.Cached && (p.Match-p.Cached)%c.Block == 0:
			learning++
		default:
			off++
			t.Errorf("request %d: %v; %+v", i, p, d.Candidates)
		}
	}
	t.Logf("%d requests %v, %d warm: match = reported for %d, %d while the drop was learnt; cached %d of %d tokens, match %d, reasons %v",
		len(run.replies), engines, warm, equal, learning, run.cached, run.prompt, match, reasons)
	if warm < len(run.replies)/2 || engines["a"] == 0 || engines["b"] == 0 {
		t.Errorf("the load proves little: %d warm, %v", warm, engines)
	}
}

// truthful compares the sums that Ramjet tells with those of the answers.
func (run *talkRun) truthful(t *testing.T, r *rig.Ramjet) {
	t.Helper()
	match, cached, prompt := map[string]int{}, map[string]int{}, map[string]int{}
	for i := range run.replies {
		p := &run.replies[i]
		match[p.Engine] += p.Match
		cached[p.Engine] += p.Cached
		prompt[p.Engine] += p.Prompt
	}
	m := r.Metrics()
	for _, name := range r.EngineNames() {
		e := r.EngineView(name)
		// The harness sends short prompts of its own, which hit nothing but count.
		if got := m.Sum("ramjet_match_tokens_total", "engine", name); int(got) != match[name] || e.MatchTotal == nil || *e.MatchTotal != got {
			t.Errorf("engine %s: match in all %v, topology %v, want %d", name, got, e.MatchTotal, match[name])
		}
		if got := m.Sum("ramjet_cached_tokens_total", "engine", name); int(got) != cached[name] || e.CachedTotal == nil || *e.CachedTotal != got {
			t.Errorf("engine %s: cached in all %v, topology %v, want %d", name, got, e.CachedTotal, cached[name])
		}
		if got := m.Sum("ramjet_prompt_tokens_total", "engine", name); int(got) < prompt[name] || int(got) > prompt[name]+100_000 {
			t.Errorf("engine %s: prompts in all %v, want %d", name, got, prompt[name])
		}
		if got := m.Sum("ramjet_index_blocks", "engine", name); int(got) != e.Blocks() || e.Blocks() == 0 {
			t.Errorf("engine %s: %v blocks in the metrics, %d in the topology", name, got, e.Blocks())
		}
		for _, kind := range []string{"stored", "removed"} {
			if m.Sum("ramjet_kv_events_total", "engine", name, "kind", kind) == 0 {
				t.Errorf("engine %s: no event counted as %s", name, kind)
			}
		}
		for _, kind := range []string{"odd", "unknown"} {
			if n := m.Sum("ramjet_kv_events_total", "engine", name, "kind", kind); n != 0 || m.Count("ramjet_kv_events_total", "engine", name, "kind", kind) != 1 {
				t.Errorf("engine %s: %v events counted as %s", name, n, kind)
			}
		}
		if m.Sum("ramjet_residency_trust", "engine", name, "trust", "exact") != 1 || m.Sum("ramjet_residency_trust", "engine", name) != 1 {
			t.Errorf("engine %s: trust in the metrics is not exact alone", name)
		}
		if e.Trust != "exact" || !strings.HasPrefix(e.TrustReason, "every batch since") {
			t.Errorf("engine %s: trust %s (%s)", name, e.Trust, e.TrustReason)
		}
		if lag := m.Sum("ramjet_kv_lag_seconds", "engine", name); !(lag >= 0 && lag < 5) {
			t.Errorf("engine %s: lag %v s", name, lag)
		}
		if m.Sum("ramjet_kv_gaps_total", "engine", name) != 0 {
			t.Errorf("engine %s: gaps counted", name)
		}
	}
	if m.Sum("ramjet_index_bytes") <= 0 {
		t.Error("the index takes no memory")
	}
}

// TestResidencyByMemory sends the same requests with events and without: the
// approximate memory reaches nearly as many cached tokens as the events, even if
// it is much too small or too large.
func TestResidencyByMemory(t *testing.T) {
	t.Parallel()
	c := rig.ResidencyCases[0]
	c.Blocks = 250 // 4,000 tokens, eight prompts of the mean length
	sims := c.Start(t)
	exact := func() talkRun {
		r := c.Ramjet(t, sims, "auto")
		return runTalks(t, r, sims, rig.NewTalkLoad(3, c.Words).Next, 300)
	}()
	tokens := c.Blocks * c.Block
	for _, v := range []struct {
		name   string
		memory string
		least  float64
	}{{"auto", "auto", 0.92}, {"half", fmt.Sprint(tokens / 2), 0.85}, {"16 times", fmt.Sprint(tokens * 16), 0.85}} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			sims := c.Start(t)
			r := c.Ramjet(t, sims, "off", "--route.memory-tokens="+v.memory)
			i := 0
			run := runTalks(t, r, sims, func() (string, func(string)) { i++; return exact.bodies[i-1], func(string) {} }, 300)
			share := float64(run.cached) / float64(exact.cached)
			t.Logf("memory %s: %d cached tokens of %d, %.3f x the %d with events", v.name, run.cached, run.prompt, share, exact.cached)
			if share < v.least {
				t.Errorf("%.3f x the cached tokens, want %.2f", share, v.least)
			}
			for id, d := range decisions(r) {
				if strings.HasPrefix(id, "talk") && d.Keys == "exact" {
					t.Errorf("request %s went by exact keys without events", id)
				}
			}
			if e := r.EngineView("a"); e.Trust != "blind" || !strings.Contains(e.TrustReason, "off") {
				t.Errorf("trust %s (%s)", e.Trust, e.TrustReason)
			}
		})
	}
}
