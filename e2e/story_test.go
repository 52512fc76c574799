package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// storyAsk is one chat of the story: a prompt of some words, and how long its
// answer may be; 0 leaves that open.
func storyAsk(prompt string, limit int, session string) string {
	body := map[string]any{
		"model": "m", "stream": true, "stream_options": map[string]any{"include_usage": true},
		"messages": []map[string]string{{"role": "user", "content": prompt}},
	}
	if limit > 0 {
		body["max_tokens"] = limit
	}
	if session != "" {
		body["session_id"] = session
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic("BUG: cannot render a request: " + err.Error())
	}
	return string(b)
}

// storyText is a text of about that many tokens that no other name begins like.
func storyText(name string, tokens int) string {
	return name + " " + strings.Repeat("the ship sails on by night ", tokens/6)
}

// story is two engines, one that predicts tokens and one that decodes plainly,
// and Ramjet in front of them as it comes.
type story struct {
	*testing.T
	r    *rig.Ramjet
	sims []*rig.SimEngine
}

func beginStory(t *testing.T, flags ...string) *story {
	t.Helper()
	sims := []*rig.SimEngine{
		rig.StartSim(t, "a", append([]string{"--profile=mtp"}, rig.Publishing...)...),
		rig.StartSim(t, "b", append([]string{"--profile=standard"}, rig.Publishing...)...),
	}
	return &story{T: t, sims: sims, r: inFrontOfStory(t, sims, flags...)}
}

func inFrontOfStory(t *testing.T, sims []*rig.SimEngine, flags ...string) *rig.Ramjet {
	t.Helper()
	urls := []string{}
	for i, profile := range []string{"mtp", "standard"} {
		urls = append(urls, sims[i].Name+"="+sims[i].URL()+",profile="+profile)
	}
	r := rig.StartWith(t, rig.Setup{Loose: true, URLs: urls, Flags: append([]string{"--tokenizer=" + rig.SimModelFolder(t), "--tokens.source=auto", "--tokens.max-time=5s"}, flags...)})
	if last := rig.Poll(3*rig.Patience, func() string { return rig.Both(rig.Said("token ids compared"), rig.Trusted)(r) }); last != "" {
		t.Fatalf("ramjet does not settle: %s", last)
	}
	return r
}

// says asks and wants the answer of an engine for a reason.
func (s *story) says(what, body, engine, reason string) rig.Reply {
	s.Helper()
	s.r.InStep(s.T, s.sims...)
	return s.answers(what, body, engine, reason)
}

// answers is says while an engine may be away.
func (s *story) answers(what, body, engine, reason string) rig.Reply {
	s.Helper()
	p := s.r.Asker(s.T).Chat(s.r.ID("story"), body)
	if !p.Ok() || p.Engine != engine || p.Reason != reason {
		s.Errorf("%s: %v; want %s(%s)", what, &p, engine, reason)
	}
	return p
}

func (s *story) leaseTokens(engine string) float64 {
	return s.r.Metrics().Sum("ramjet_lease_tokens", "engine", engine)
}

// TestStory is what Ramjet was built for, told in the order of a first evening,
// with nothing configured but the two engines and the model's files.
func TestStory(t *testing.T) {
	rig.Slow(t, "a restarted engine waits 30 s")
	s := beginStory(t)

	// A short answer goes to the engine that predicts tokens, a long one, or
	// one of which nothing is said, to the one that decodes plainly.
	s.says("short and cold", storyAsk(storyText("one", 30), 256, ""), "a", "profile")
	s.says("long and cold", storyAsk(storyText("two", 30), 257, ""), "b", "profile")
	s.says("unspecified and cold", storyAsk(storyText("three", 30), 0, ""), "b", "profile")

	// A warm prompt goes where it is warm, whatever its answer's length.
	warm := storyText("four", 3000)
	s.says("a long prompt", storyAsk(warm, 300, ""), "b", "profile")
	if p := s.says("the same again, for a short answer", storyAsk(warm+"And then?", 64, ""), "b", "exact"); p.Match < 2500 || p.Match != p.Cached {
		t.Errorf("match %d, reported %d of %d", p.Match, p.Cached, p.Prompt)
	}

	s.leaseShrinks()
	s.sixteen()
	s.restart()
}

// leaseShrinks: while a long prompt is computed on a, short requests go to b;
// at its first token the lease of a falls to what is still to be generated.
func (s *story) leaseShrinks() {
	long := make(chan rig.Reply, 1)
	go func() { long <- s.r.Asker(s.T).Chat(s.r.ID("story"), storyAsk(storyText("five", 30_000), 200, "")) }()
	rig.Eventually(s.T, rig.Patience, "the long prompt's lease", func() string {
		if n := s.leaseTokens("a"); n < 20_000 {
			return fmt.Sprintf("a's leases weigh %v tokens", n)
		}
		return ""
	})
	s.says("short, while a computes a long prompt", storyAsk(storyText("six", 30), 64, ""), "b", "load")
	rig.Eventually(s.T, 3*rig.Patience, "the first token", func() string {
		m := s.r.Metrics()
		n, decoding := m.Sum("ramjet_lease_tokens", "engine", "a"), m.Sum("ramjet_leases", "engine", "a", "phase", "decode")
		if decoding == 1 && n > 0 && n <= 200 {
			return ""
		}
		return fmt.Sprintf("a's leases weigh %v tokens, %v decode", n, decoding)
	})
	if p := <-long; !p.Ok() || p.Engine != "a" {
		s.Errorf("the long prompt: %v", &p)
	}
	rig.Eventually(s.T, rig.Patience, "nothing held after its end", func() string {
		if n := s.leaseTokens("a"); n != 0 {
			return fmt.Sprintf("a's leases weigh %v tokens", n)
		}
		return ""
	})
}

// sixteen requests with one new prefix go where the first of them goes, and
// the prefix is computed at most twice.
func (s *story) sixteen() {
	prefix := storyText("seven", 4000)
	before := state(s.T, s.sims[0]).Prefill + state(s.T, s.sims[1]).Prefill
	done := make(chan rig.Reply, 16)
	for i := range 16 {
		body := storyAsk(prefix+fmt.Sprintf("Question %d.", i), 32, "")
		go func() { done <- s.r.Asker(s.T).Chat(s.r.ID("story"), body) }()
	}
	engines, reasons := map[string]int{}, map[string]int{}
	size := 0
	for range 16 {
		p := <-done
		if !p.Ok() {
			s.Errorf("one of sixteen: %v", &p)
		}
		engines[p.Engine]++
		reasons[p.Reason]++
		size = p.Prompt
	}
	computed := state(s.T, s.sims[0]).Prefill + state(s.T, s.sims[1]).Prefill - before
	if len(engines) != 1 {
		s.Errorf("sixteen requests went to %v (%v)", engines, reasons)
	}
	if computed > 2*size+16*64 {
		s.Errorf("%d tokens were computed for a prefix of %d: more than twice", computed, size)
	}
	s.Logf("sixteen requests of %d tokens: engines %v, reasons %v, %d tokens computed", size, engines, reasons, computed)
}

// restart: an engine that comes back takes traffic only after three good
// checks and 30 s, and its record is empty then.
func (s *story) restart() {
	s.sims[0].Control(s.T, "/sim/restart", `{"seconds":3}`)
	state := func() string { return s.r.EngineView("a").State }
	rig.Eventually(s.T, rig.Patience, "the loss of a", func() string {
		if got := state(); got != "down" {
			return got
		}
		return ""
	})
	s.answers("short, while a is down", storyAsk(storyText("eight", 30), 64, ""), "b", "only-one")
	rig.Eventually(s.T, 4*rig.Patience, "a warming up", func() string {
		if got := state(); got != "warming" {
			return got
		}
		return ""
	})
	warming := time.Now()
	if e := s.r.EngineView("a"); e.IndexBlocks == nil || *e.IndexBlocks != 0 {
		s.Errorf("a's record still holds %d blocks (%s: %s), its cache %d", *e.IndexBlocks, e.Trust, e.TrustReason, s.sims[0].Cache(s.T).Blocks)
	}
	for state() == "warming" && time.Since(warming) < 40*time.Second {
		s.answers("short, while a warms up", storyAsk(storyText("nine", 30), 64, ""), "b", "only-one")
		time.Sleep(2 * time.Second)
	}
	if waited := time.Since(warming); state() != "slow-start" || waited < 25*time.Second {
		s.Errorf("after %v of warming up a is %s", waited, state())
	}
	if n := s.r.Metrics().Sum("ramjet_warming_refusals_total", "engine", "a"); n < 5 {
		s.Errorf("%v choices passed a by", n)
	}
}

// TestStoryRollout: exact residency is rolled out by sessions. The sessions of
// 1 % are among those of 10 %, and those among all.
func TestStoryRollout(t *testing.T) {
	rig.Slow(t, "three times two hundred sessions")
	s := beginStory(t, "--exact=100%")
	const sessions = 200
	in := map[string]map[int]bool{}
	r := s.r
	for _, share := range []string{"100%", "10%", "1%"} {
		if share != "100%" {
			r = inFrontOfStory(t, s.sims, "--exact="+share)
		}
		in[share] = map[int]bool{}
		a := r.Asker(t)
		for i := range sessions {
			id := r.ID("rollout")
			if p := a.Chat(id, storyAsk(storyText("roll", 60), 4, fmt.Sprintf("session %d", i))); !p.Ok() {
				t.Fatalf("session %d: %v", i, &p)
			}
			x := r.Explain(t, id)
			switch {
			case x.Keys == "exact":
				in[share][i] = true
			case x.Note() != "outside the cohort":
				t.Errorf("session %d at %s: keys %s, note %q", i, share, x.Keys, x.Note())
			}
		}
		a.Close()
	}
	for i := range sessions {
		if in["1%"][i] && !in["10%"][i] || in["10%"][i] && !in["100%"][i] {
			t.Errorf("session %d is in a smaller cohort and not in a larger one", i)
		}
	}
	if n := len(in["10%"]); len(in["100%"]) != sessions || n < 7 || n > 35 || len(in["1%"]) > 8 {
		t.Errorf("of %d sessions %d, %d and %d are in the cohorts of 100, 10 and 1 %%", sessions, len(in["100%"]), n, len(in["1%"]))
	}
}

// TestStoryLearned is what differs where the engines' measured speeds decide
// instead of the owner's rule: a lone long answer goes to the engine that is
// faster at it, which is the one that predicts tokens, whatever its cap.
func TestStoryLearned(t *testing.T) {
	t.Parallel()
	s := beginStory(t, "--route.profile=learned")
	s.says("short", storyAsk(storyText("one", 30), 64, ""), "a", "profile")
	s.says("long", storyAsk(storyText("two", 30), 2000, ""), "a", "profile")
	s.says("unspecified", storyAsk(storyText("three", 30), 0, ""), "a", "profile")
}
