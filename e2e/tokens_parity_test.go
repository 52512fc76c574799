package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// asked is one turn that was sent.
type asked struct {
	kind   string
	stream bool
	answer simAnswer
	x      rig.Explained
	line   rig.AccessLine
	match  int // X-Ramjet-Match
}

// ask sends a session's next turn and collects what everybody says of it.
func ask(t testing.TB, r *rig.Ramjet, s *simSession, stream bool) (a asked) {
	t.Helper()
	path, body := s.next(stream)
	a = askBody(t, r, path, body)
	a.kind, a.stream = s.kind, stream
	s.answered(a.answer)
	return a
}

func askBody(t testing.TB, r *rig.Ramjet, path, body string, headers ...string) (a asked) {
	t.Helper()
	id := r.ID("tok")
	c := r.Dial(t)
	defer c.Close()
	c.Send(rig.Request("POST", path, id, body, headers...))
	res := c.Response(6 * rig.Patience) // of megabytes, too
	answer, err := readSimAnswer(res)
	if err != nil {
		t.Fatalf("%s %.300s: %v", path, body, err)
	}
	a = asked{answer: answer, x: r.Explain(t, id), line: r.Line(t, id)}
	match, err := strconv.Atoi(res.Fields.Get("x-ramjet-match"))
	if err != nil {
		t.Errorf("X-Ramjet-Match: %v", err)
	}
	a.match = match
	return a
}

// counted checks that all who count a prompt's tokens agree.
func (a *asked) counted(t testing.TB) {
	t.Helper()
	if got := int(a.x.PromptTokens); got != a.answer.prompt {
		t.Errorf("%s stream %v: the explanation counts %d tokens, the engine %d (note %q)", a.kind, a.stream, got, a.answer.prompt, a.x.Note())
	}
	if got := int(a.line.Num("prompt_tokens")); got != a.answer.prompt {
		t.Errorf("%s: the access line counts %d tokens, the engine %d", a.kind, got, a.answer.prompt)
	}
	if a.x.Result == nil || a.x.Result.Prompt == nil || *a.x.Result.Prompt != a.answer.prompt || a.x.Result.Cached == nil || *a.x.Result.Cached != max(a.answer.cached, 0) {
		t.Errorf("%s: result %+v, the engine reported %+v", a.kind, a.x.Result, a.answer)
	}
	if a.match != a.x.Match() || int(a.line.Num("match_tokens")) != a.match {
		t.Errorf("%s: X-Ramjet-Match %d, explanation %d, access line %v", a.kind, a.match, a.x.Match(), a.line["match_tokens"])
	}
	if a.line.Str("keys") != a.x.Keys {
		t.Errorf("keys %q in the access line, %q in the explanation", a.line.Str("keys"), a.x.Keys)
	}
}

// sessionTurns are 300 requests in sessions of all kinds, in the order of a
// seed.
func sessionTurns(seed uint64, requests int, do func(s *simSession, stream bool)) {
	rng := rand.New(rand.NewPCG(seed, 0))
	var open []*simSession
	for n := range requests {
		if len(open) < 2*len(sessionKinds) && (len(open) < len(sessionKinds) || rng.IntN(4) == 0) {
			open = append(open, newSimSession(seed, n, sessionKinds[len(open)%len(sessionKinds)]))
		}
		i := rng.IntN(len(open))
		do(open[i], rng.IntN(2) == 0)
		if open[i].turns > 6 {
			open[i] = newSimSession(seed, n, open[i].kind)
		}
	}
}

// TestTokensEqualUsage: every prompt of 300 requests, in all dialects, with
// tools and without, streamed and plain, has exactly the engine's count, and
// with events the match is what the engine then reports as cached.
func TestTokensEqualUsage(t *testing.T) {
	t.Parallel()
	star := []string{"--events=tcp://*:0", "--replay=tcp://*:0"}
	sims := []*rig.SimEngine{rig.StartSim(t, "a", slices.Concat(star, simFast)...), rig.StartSim(t, "b", slices.Concat(star, simFast)...)}
	r := rig.StartSims(t, rig.SimSetup{Sims: sims, Events: "auto", Model: rig.SimModelFolder(t), Settled: rig.Both(rig.Trusted, rig.Said("token ids compared"))})
	kinds, warm, off := map[string]int{}, 0, 0
	sessionTurns(1, 300, func(s *simSession, stream bool) {
		r.InStep(t, sims...)
		a := ask(t, r, s, stream)
		a.counted(t)
		kinds[fmt.Sprintf("%s %v", a.kind, stream)]++
		if a.x.Keys != "exact" || a.x.Note() != "" {
			t.Errorf("%s: keys %q, note %q, want exact ones", a.kind, a.x.Keys, a.x.Note())
		}
		if a.answer.cached > 0 {
			warm++
		}
		switch {
		case a.match > a.answer.cached:
			t.Errorf("%s: match %d, but only %d tokens were cached", a.kind, a.match, a.answer.cached)
		case a.match < a.answer.cached:
			off++ // an event was on its way when the request was decided
		}
	})
	if len(kinds) != 2*len(sessionKinds) {
		t.Errorf("not every kind was asked: %v", kinds)
	}
	if warm < 150 {
		t.Errorf("%d of 300 requests found something cached: sessions do not return to where they were", warm)
	}
	if off > 6 {
		t.Errorf("%d of 300 matches are below what was cached; at most 6 can be due to events on their way", off)
	}
	if m := r.Metrics(); m.Sum("ramjet_match_tokens_total") == 0 || m.Sum("ramjet_exact_agreement_total", "outcome", "agree") == 0 {
		t.Errorf("match %v tokens, agreement %v", m.Sum("ramjet_match_tokens_total"), m.Sum("ramjet_exact_agreement_total"))
	}
	for _, e := range r.Topology().Engines {
		if e.BlockTokens == nil || *e.BlockTokens != 16 || e.IndexBlocks == 0 || e.Trust != "exact" {
			t.Errorf("%+v", e)
		}
	}
}

// TestTokensWithoutEvents: the counts are the same, but nothing is called
// exact, and no match exceeds what was cached: the sims evict nothing here.
func TestTokensWithoutEvents(t *testing.T) {
	t.Parallel()
	sims := []*rig.SimEngine{rig.StartSim(t, "a", simFast...), rig.StartSim(t, "b", simFast...)}
	r := rig.StartSims(t, rig.SimSetup{Sims: sims, Model: rig.SimModelFolder(t), Settled: rig.Said("token ids compared")})
	matched, cached := 0, 0
	sessionTurns(2, 120, func(s *simSession, stream bool) {
		a := ask(t, r, s, stream)
		a.counted(t)
		if a.x.Keys != "approximate" || a.x.Note() != "an engine's cache is not known exactly" {
			t.Errorf("%s: keys %q, note %q", a.kind, a.x.Keys, a.x.Note())
		}
		if a.match > a.answer.cached {
			t.Errorf("%s: match %d, but only %d tokens were cached", a.kind, a.match, a.answer.cached)
		}
		matched += a.match
		cached += a.answer.cached
	})
	if cached == 0 || float64(matched) < 0.8*float64(cached) {
		t.Errorf("match %d of %d cached tokens: the memory knows too little", matched, cached)
	}
}

// TestTokensDrift: a class whose prompts differ from the engine's is routed
// approximately and says so, and the others stay exact. That tools differ is
// found by the probes; documents are in none, and two answers give them away.
func TestTokensDrift(t *testing.T) {
	t.Parallel()
	dir := rig.SimModelFolder(t)
	template := filepath.Join(dir, "chat_template.jinja")
	editFile(t, template, "You may call functions.", "You may call any of these functions.")
	editFile(t, template, "{%- if add_generation_prompt -%}", "{%- if documents -%}{{- 'There are documents.' -}}{%- endif -%}{%- if add_generation_prompt -%}")
	sims := []*rig.SimEngine{rig.StartSim(t, "a", slices.Concat(simFast, simEvents)...)}
	r := rig.StartSims(t, rig.SimSetup{Sims: sims, Model: dir, Settled: rig.Both(rig.Trusted, rig.Said("token ids compared"))})
	if line := r.LogLine("token ids compared", "chat+tools"); !strings.Contains(line, `"level":"warn"`) || !strings.Contains(line, "responses+tools") {
		t.Errorf("the log does not name the classes that differ: %s", line)
	}
	for _, kind := range sessionKinds {
		a := ask(t, r, newSimSession(3, 1, kind), false)
		if drifts := strings.Contains(kind, "tools"); drifts {
			if a.x.Keys == "exact" || a.x.Note() != "class drifted" {
				t.Errorf("%s: keys %q, note %q", kind, a.x.Keys, a.x.Note())
			}
			continue
		}
		a.counted(t)
		if a.x.Keys != "exact" || a.x.Note() != "" {
			t.Errorf("%s: keys %q, note %q", kind, a.x.Keys, a.x.Note())
		}
	}
	const documents = `{"model":"m","max_tokens":1,"documents":[{"text":"d"}],"messages":[{"role":"user","content":"Read them, please."}]}`
	for n := range 4 {
		a := askBody(t, r, rig.ChatPath, documents)
		if exact := a.x.Keys == "exact"; exact != (n < 2) || exact != (a.x.Note() == "") {
			t.Errorf("request %d with documents: keys %q, note %q", n+1, a.x.Keys, a.x.Note())
		}
		if n == 2 && a.x.Note() != "class drifted" { // then the engine's own ids may be at hand
			t.Errorf("note %q", a.x.Note())
		}
	}
	if !r.Logged("chat+documents", "routed approximately", `"predicted_tokens"`, `"level":"warn"`) {
		t.Error("the log does not name the class that drifted")
	}
}

// TestTokensExactOff: with exact off or in shadow nothing is called exact, and
// shadow tells what it would have done.
func TestTokensExactOff(t *testing.T) {
	t.Parallel()
	sims := []*rig.SimEngine{rig.StartSim(t, "a", slices.Concat(simFast, simEvents)...), rig.StartSim(t, "b", slices.Concat(simFast, simEvents)...)}
	dir := rig.SimModelFolder(t)
	for _, mode := range []string{"off", "shadow", "0.5%"} {
		r := rig.StartSims(t, rig.SimSetup{Sims: sims, Model: dir, Flags: []string{"--exact=" + mode}, Settled: rig.Both(rig.Trusted, rig.Said("token ids compared"))})
		s := newSimSession(4, 1, "chat")
		for range 3 {
			a := ask(t, r, s, true)
			a.counted(t)
			if a.x.Keys != "approximate" || a.x.Note() == "" {
				t.Errorf("exact %s: keys %q, note %q", mode, a.x.Keys, a.x.Note())
			}
		}
	}
}

func TestEditFile(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte("one two"), 0o600); err != nil {
		t.Fatal(err)
	}
	editFile(t, name, "two", "three")
	if b, err := os.ReadFile(name); err != nil || string(b) != "one three" {
		t.Errorf("%q, %v", b, err)
	}
}
