package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// manyCase is one request that is several prompts, or several answers.
type manyCase struct {
	name    string
	path    string
	members func(r *manyRig) map[string]any
}

// manyRig is two equal engines whose next request each stands still before its
// first token.
type manyRig struct {
	*testing.T
	r    *rig.Ramjet
	sims []*rig.SimEngine
	name string
}

// text is about n tokens that begin like no other text.
func (m *manyRig) text(n, i int) string {
	return fmt.Sprintf("%s %d %s", m.name, i, strings.Repeat("the ship sails on by night ", n/6))
}

// ids asks an engine for a text's ids.
func (m *manyRig) ids(text string) []int {
	m.Helper()
	body, _ := json.Marshal(map[string]any{"model": "m", "prompt": text})
	resp, err := rig.AdminClient.Post(m.sims[0].URL()+"/tokenize", "application/json", strings.NewReader(string(body)))
	if err != nil {
		m.Fatalf("/tokenize: %v", err)
	}
	defer func() { _ = resp.Body.Close() }()
	var v struct{ Tokens []int }
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil || len(v.Tokens) == 0 {
		m.Fatalf("/tokenize: %d %v", resp.StatusCode, err)
	}
	return v.Tokens
}

var manyCases = []manyCase{
	{"a text", "/v1/completions", func(m *manyRig) map[string]any { return map[string]any{"prompt": m.text(3000, 0)} }},
	{"two texts", "/v1/completions", func(m *manyRig) map[string]any {
		return map[string]any{"prompt": []string{m.text(3000, 0), m.text(1000, 1)}}
	}},
	{"ids", "/v1/completions", func(m *manyRig) map[string]any { return map[string]any{"prompt": m.ids(m.text(3000, 0))} }},
	{"two lists of ids", "/v1/completions", func(m *manyRig) map[string]any {
		return map[string]any{"prompt": [][]int{m.ids(m.text(1000, 0)), m.ids(m.text(3000, 1))}}
	}},
	{"16 texts", "/v1/completions", func(m *manyRig) map[string]any {
		var list []string
		for i := range 16 {
			list = append(list, m.text(2000, i))
		}
		return map[string]any{"prompt": list}
	}},
	{"n", "/v1/completions", func(m *manyRig) map[string]any { return map[string]any{"prompt": m.text(1000, 0), "n": 8} }},
	{"n of two texts", "/v1/completions", func(m *manyRig) map[string]any {
		return map[string]any{"prompt": []string{m.text(1000, 0), m.text(500, 1)}, "n": 4}
	}},
	{"best_of", "/v1/completions", func(m *manyRig) map[string]any {
		return map[string]any{"prompt": m.text(1000, 0), "best_of": 8, "n": 8}
	}},
	{"n of a chat", rig.ChatPath, func(m *manyRig) map[string]any {
		return map[string]any{"messages": []any{map[string]any{"role": "user", "content": m.text(1000, 0)}}, "n": 8}
	}},
}

// TestCaseC30Weights: while such a request waits for its first token, its lease
// stands for what its engine counts in the end, within a tenth, and the next
// client's request goes to the other engine.
func TestCaseC30Weights(t *testing.T) {
	t.Parallel()
	for _, c := range manyCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := &manyRig{T: t, name: strings.ReplaceAll(c.name, " ", "-"), sims: rig.Pair(t, "--kv-blocks=8000")}
			m.r = rig.InFrontOf(t, m.sims, "exact")
			for _, s := range m.sims {
				s.Control(t, "/sim/fault", `{"kind":"stall","after_tokens":0,"count":1}`)
			}
			members := c.members(m)
			members["model"], members["max_tokens"], members["stream"] = "m", 100, true
			members["stream_options"] = map[string]any{"include_usage": true}
			body, err := json.Marshal(members)
			if err != nil {
				t.Fatal(err)
			}
			one := m.r.Dial(t)
			one.Send(rig.Request("POST", c.path, m.r.ID("many"), string(body)))
			first := one.Head(2 * rig.Patience).Fields.Get("X-Ramjet-Engine")
			other := map[string]string{"a": "b", "b": "a"}[first]
			held := m.r.Status(t, first)
			two := m.r.Dial(t)
			two.Send(rig.Request("POST", rig.ChatPath, m.r.ID("next"), storyAsk(m.text(600, 99), 64, "")))
			if got := two.Head(2 * rig.Patience).Fields.Get("X-Ramjet-Engine"); got != other {
				t.Errorf("the first went to %s and the next to %s", first, got)
			}
			if held.Leases.Prefill != 1 || held.Leases.Decode != 0 || m.r.Metrics().Sum("ramjet_lease_tokens", "engine", first) != held.LeaseTokens {
				t.Errorf("leases while it is held: %+v", held)
			}
			for _, s := range m.sims {
				s.Control(t, "/sim/clear", "")
			}
			resp := one.Response(6 * rig.Patience)
			p := rig.Reply{Raw: resp.Body}
			if p.Read(); resp.Status != 200 || !resp.Complete || p.Err != nil || p.Output == 0 {
				t.Fatalf("answered %d, whole %v, %v, usage %v", resp.Status, resp.Complete, p.Err, p.Usage)
			}
			counted := float64(p.Prompt + p.Output)
			t.Logf("lease %v tokens, the engine counts %d + %d", held.LeaseTokens, p.Prompt, p.Output)
			if held.LeaseTokens < 0.9*counted || held.LeaseTokens > 1.1*counted {
				t.Errorf("its lease stood for %v tokens, the engine counted %d + %d", held.LeaseTokens, p.Prompt, p.Output)
			}
			if resp := two.Response(6 * rig.Patience); resp.Status != 200 || !resp.Complete {
				t.Errorf("the next: %d", resp.Status)
			}
		})
	}
}

// TestCaseC30Embeddings: 500 texts weigh their bytes by four (CONTRACT 10.18),
// and hold one lease until the answer is there.
func TestCaseC30Embeddings(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	release := make(chan struct{})
	hold := func(x *rig.Exchange) {
		if x.Target != "/v1/embeddings" || x.Hold(release) {
			x.Plain()
		}
	}
	a.On(hold)
	b.On(hold)
	var texts []string
	for i := range 500 {
		texts = append(texts, fmt.Sprintf("text %d of some", i))
	}
	body, _ := json.Marshal(map[string]any{"model": "m", "input": texts})
	c, id := r.Dial(t), r.ID("embed")
	c.Send(rig.Request("POST", "/v1/embeddings", id, string(body)))
	x := rig.WaitFor(t, id, a, b)
	e := r.Status(t, x.E.Name)
	if want := float64(len(body)) / 4; e.LeaseTokens < 0.9*want || e.LeaseTokens > 1.1*want || e.Leases.Prefill != 1 {
		t.Errorf("held: %+v, want about %.0f tokens in one lease", e, want)
	}
	if resp := r.Post(t, rig.ChatPath, rig.ChatBody(false)); resp.Fields.Get("X-Ramjet-Engine") == x.E.Name {
		t.Error("the next client's request went to the same engine")
	}
	close(release)
	if resp := c.Response(rig.Patience); resp.Status != 200 || !resp.Complete {
		t.Errorf("answered %d", resp.Status)
	}
}

// TestCaseC30SameKeys: ids are keyed by those very ids: a prompt that was
// computed as text is found as ids, and the other way round, alone or among
// others.
func TestCaseC30SameKeys(t *testing.T) {
	t.Parallel()
	m := &manyRig{T: t, name: "keys", sims: rig.Pair(t, "--kv-blocks=8000")}
	m.r = rig.InFrontOf(t, m.sims, "exact")
	a := m.r.Asker(t)
	ask := func(what string, prompt any, warm bool) rig.Reply {
		t.Helper()
		m.r.InStep(t, m.sims...)
		body, _ := json.Marshal(map[string]any{"model": "m", "max_tokens": 8, "prompt": prompt, "stream": true, "stream_options": map[string]any{"include_usage": true}})
		p := a.Post("/v1/completions", m.r.ID("keys"), string(body))
		if !p.Ok() || p.Match != p.Cached || warm != (p.Match > 900) {
			t.Errorf("%s: %v", what, &p)
		}
		return p
	}
	text, other := m.text(1000, 1), m.text(1000, 2)
	first := ask("cold text", text, false)
	if p := ask("the same as ids", m.ids(text), true); p.Engine != first.Engine || p.Prompt != first.Prompt {
		t.Errorf("as text by %s with %d tokens, as ids by %s with %d", first.Engine, first.Prompt, p.Engine, p.Prompt)
	}
	second := ask("cold ids", m.ids(other), false)
	if p := ask("the same as text", other, true); p.Engine != second.Engine {
		t.Errorf("as ids by %s, as text by %s", second.Engine, p.Engine)
	}
	ask("a list of one", []string{text}, true)
	ask("a list of one list", [][]int{m.ids(other)}, true)

	// Of several prompts, those that were computed are found afterwards each by
	// itself, wherever they stood in the list.
	list := []string{m.text(1000, 3), m.text(1000, 4), m.text(1000, 5)}
	m.r.InStep(t, m.sims...)
	body, _ := json.Marshal(map[string]any{"model": "m", "max_tokens": 8, "prompt": list, "stream": true, "stream_options": map[string]any{"include_usage": true}})
	p := a.Post("/v1/completions", m.r.ID("keys"), string(body))
	if !p.Ok() || p.Cached != 0 || p.Match != 0 {
		t.Errorf("three cold prompts: %v", &p)
	}
	for i, text := range list {
		if q := ask(fmt.Sprintf("prompt %d of the list", i), text, true); q.Engine != p.Engine {
			t.Errorf("prompt %d was computed by %s, and asked of %s", i, p.Engine, q.Engine)
		}
	}
}

// TestCaseC30Malformed: what the engine refuses, it refuses in its own words,
// and nothing stays booked.
func TestCaseC30Malformed(t *testing.T) {
	t.Parallel()
	m := &manyRig{T: t, sims: rig.Pair(t)}
	m.r = rig.InFrontOf(t, m.sims, "exact")
	for _, prompt := range []string{`[]`, `["A",1]`, `[1,"A"]`, `[[1,2],"A"]`, `[[]]`, `5`, `{}`, `null`, `[1,-2]`, `[1.5]`, `[null]`, `[[["A"]]]`, `[99999999999]`} {
		body := `{"model":"m","max_tokens":4,"prompt":` + prompt + `}`
		direct := rig.NewAsker(t, m.sims[0].URL()).Post("/v1/completions", "direct", body)
		resp := m.r.Do(t, rig.Request("POST", "/v1/completions", m.r.ID("odd"), body))
		if resp.Status != direct.Status || resp.Status < 400 || string(resp.Body) != string(direct.Raw) {
			t.Errorf("prompt %s: %d %.300s, the engine says %d %.300s", prompt, resp.Status, resp.Body, direct.Status, direct.Raw)
		}
		rig.Eventually(t, rig.Patience, "nothing held", func() string {
			if n := m.r.Metrics().Leases(); n != 0 {
				return fmt.Sprintf("prompt %s: %v leases", prompt, n)
			}
			return ""
		})
	}
}
