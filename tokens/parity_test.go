package tokens

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestTwoMissesStopAClass and only it; one in twenty is looked at; twenty equal ones in a row begin it again.
func TestTwoMissesStopAClass(t *testing.T) {
	t.Parallel()
	var log lines
	m := NewModel(ModelOptions{Source: testSource(t), Log: &log})
	const tools = `{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}]}`
	var p Prepared
	exact := func(body string) bool {
		t.Helper()
		prepare(t, m, &p, EndpointChat, "m", body)
		return p.Exact
	}
	if !exact(tools) {
		t.Fatal(p.Note)
	}
	class, predicted := p.Class, p.Predicted
	m.Observe(class, "a", predicted, predicted+3)
	m.Observe(class, "a", predicted, 0)  // no usage
	m.Observe(class, "a", -1, predicted) // nothing predicted
	if !exact(tools) || len(log.take()) != 0 {
		t.Error("one miss stops a class")
	}
	m.Observe(class, "b", predicted, predicted+3)
	if got := log.take(); len(got) != 1 || !strings.Contains(got[0], "chat+tools") || !strings.Contains(got[0], "b") || !strings.Contains(got[0], fmt.Sprint(predicted+3)) {
		t.Errorf("log %q", got)
	}
	if exact(tools) || p.Note != noteDrifted || p.Tokens < 1 {
		t.Errorf("two misses do not stop a class: %q", p.Note)
	}
	if !exact(hello) {
		t.Error("another class stops too")
	}
	// While stopped one in twenty is counted, and none is exact.
	looked := func(n int) (counted int) {
		for range n {
			if exact(tools) {
				t.Fatal("exact too soon")
			}
			if p.Predicted > 0 {
				counted++
				if p.Predicted != predicted || len(p.IDs) != 0 || p.Class != class {
					t.Errorf("predicted %d, %d ids", p.Predicted, len(p.IDs))
				}
			}
		}
		return counted
	}
	if got := looked(200); got != 10 {
		t.Errorf("%d of 200 are counted", got)
	}
	for range equalsToResume - 1 {
		m.Observe(class, "a", predicted, predicted)
	}
	m.Observe(class, "a", predicted, predicted-1) // the row begins anew
	for range equalsToResume - 1 {
		m.Observe(class, "a", predicted, predicted)
	}
	if exact(tools) || len(log.take()) != 0 {
		t.Error("nineteen in a row are enough")
	}
	m.Observe(class, "a", predicted, predicted)
	if got := log.take(); !exact(tools) || len(got) != 1 || !strings.Contains(got[0], "again") {
		t.Errorf("twenty in a row are not enough: %q, log %q", p.Note, got)
	}
	m.Observe(class, "a", predicted, 1)
	if !exact(tools) {
		t.Error("old misses count again")
	}
	for _, c := range m.Classes() {
		if c.Class == class && (!c.Exact || c.Proven || c.Equal != 39 || c.Missed != 4) {
			t.Errorf("%+v", c)
		}
	}
}

// TestReasoningFallsWithItsClass: what shows only in the rendering is known too late to save its work.
func TestReasoningFallsWithItsClass(t *testing.T) {
	t.Parallel()
	m := NewModel(ModelOptions{Source: testSource(t)})
	const reasoned = `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y","reasoning":"r"},{"role":"user","content":"z"}]}`
	var p Prepared
	prepare(t, m, &p, EndpointChat, "m", reasoned)
	class := p.Class
	for range missesToStop {
		m.Observe(class, "a", 5, 6)
	}
	if prepare(t, m, &p, EndpointChat, "m", reasoned); p.Note != noteDrifted {
		t.Errorf("reasoning is not stopped: %q", p.Note)
	}
	if prepare(t, m, &p, EndpointChat, "m", hello); !p.Exact {
		t.Errorf("a class falls with its reasoning: %q", p.Note)
	}
	plain := p.Class
	for range equalsToResume {
		m.Observe(class, "a", 5, 5)
	}
	if prepare(t, m, &p, EndpointChat, "m", reasoned); !p.Exact {
		t.Errorf("reasoning stays stopped: %q", p.Note)
	}
	for range missesToStop {
		m.Observe(plain, "a", 5, 6)
	}
	if prepare(t, m, &p, EndpointChat, "m", reasoned); p.Note != noteDrifted {
		t.Errorf("reasoning outlives its class: %q", p.Note)
	}
}

func TestProbeParity(t *testing.T) {
	t.Parallel()
	other, err := NewTemplate(strings.Replace(simTemplate().source, "<|im_end|>", "<|im_end|> ", 1), TemplateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r := NewModel(ModelOptions{}).ProbeParity(t.Context(), &fakeEngine{}, "a", "m"); r.Verdict != VerdictNoTokenizer {
		t.Errorf("without a tokenizer: %v", r)
	}
	down := errors.New("connection refused")
	for _, c := range []struct {
		what    string // the fake engine refuses what is converted from Responses
		engine  *fakeEngine
		verdict Verdict
		text    string
		note    string // of a chat afterwards
	}{
		{"the same", &fakeEngine{}, VerdictOK, "21 prompts compared", ""},
		{"counts messages", &fakeEngine{counted: 1}, VerdictOK, "24 prompts compared", ""},
		{"counts messages otherwise", &fakeEngine{counted: 3}, VerdictDiffers, "approximately: messages, messages+tools (24", ""},
		{"another template", &fakeEngine{source: NewSource(testTokenizer(t), other, SourceOptions{})}, VerdictDiffers, "approximately: chat", noteDrifted},
		{"another vocabulary", &fakeEngine{change: func(ids []uint32) { ids[0]++ }}, VerdictForeign, "does not belong to the model", noteForeign},
		{"unreachable", &fakeEngine{err: down}, VerdictUnreachable, "connection refused", ""},
		{"no endpoint", &fakeEngine{status: 404}, VerdictUnreachable, "status 404", ""},
		{"broken", &fakeEngine{status: 500}, VerdictUnreachable, "answers 500", ""},
		{"refuses all", &fakeEngine{status: 400}, VerdictUnreachable, "refuses every question", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			m := NewModel(ModelOptions{Source: testSource(t)})
			engine := c.engine
			if engine.source == nil {
				engine.source = testSource(t)
			}
			r := m.ProbeParity(t.Context(), engine, "a", "m")
			if r.Verdict != c.verdict || !strings.Contains(r.String(), c.text) {
				t.Errorf("%v", r)
			}
			var p Prepared
			if prepare(t, m, &p, EndpointChat, "m", hello); p.Note != c.note {
				t.Errorf("a chat afterwards: %q", p.Note)
			}
			if c.verdict == VerdictForeign {
				if prepare(t, m, &p, EndpointChat, "another", hello); !p.Exact {
					t.Errorf("another model's chats are %q", p.Note)
				}
				if prepare(t, m, &p, EndpointCompletions, "m", `{"prompt":"x"}`); p.Note != noteForeign {
					t.Errorf("completions are %q", p.Note)
				}
				engine.change = nil // the operator has put the right engine there
				if r := m.ProbeParity(t.Context(), engine, "a", "m"); r.Verdict != VerdictOK {
					t.Errorf("afterwards: %v", r)
				}
				if prepare(t, m, &p, EndpointChat, "m", hello); !p.Exact {
					t.Errorf("afterwards: %q", p.Note)
				}
			}
		})
	}
}

// TestNoCountProvesNothing: what was converted here is equal to itself, so that messages are proven by the engine's own
// count only; where it may yet say one it is asked again.
func TestNoCountProvesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		status int
		text   string
		err    error
		want   Verdict
	}{
		{"no such endpoint", 404, "", nil, VerdictOK},
		{"refused", 400, `{"error":{}}`, nil, VerdictOK},
		{"no JSON", 200, "OK", nil, VerdictOK},
		{"no count", 200, `{}`, nil, VerdictOK},
		{"a failure", 503, `{"error":{}}`, nil, VerdictUnreachable},
		{"too many requests", 429, "", nil, VerdictUnreachable},
		{"too slow", 408, "", nil, VerdictUnreachable},
		{"unreachable", 0, "", errors.New("connection refused"), VerdictUnreachable},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			m := NewModel(ModelOptions{Source: testSource(t)})
			engine := &fakeEngine{source: testSource(t), counted: 1, count: func() (int, string, error) { return c.status, c.text, c.err }}
			r := m.ProbeParity(t.Context(), engine, "a", "m")
			if r.Verdict != c.want || c.want == VerdictOK && r.Compared != 21 || c.want == VerdictUnreachable && !strings.Contains(r.Err.Error(), "cannot ask for a count") {
				t.Errorf("%v (%d compared), %v", r, r.Compared, r.Err)
			}
			var p Prepared
			prepare(t, m, &p, EndpointMessages, "m", `{"max_tokens":1,"messages":[{"role":"user","content":"Hello!"}]}`)
			if m.parity.mayHand(p.Class) || m.parity.mayTry(p.Class) {
				t.Error("messages are proven")
			}
			m.Observe(p.Class, "a", p.Predicted, p.Predicted)
			if m.parity.mayHand(p.Class) || !m.parity.mayTry(p.Class) {
				t.Error("an equal count of a request does not let messages be tried, or proves them")
			}
			engine.count = nil
			if r := m.ProbeParity(t.Context(), engine, "a", "m"); r.Verdict != VerdictOK || r.Compared != 24 || !m.parity.mayHand(p.Class) {
				t.Errorf("afterwards: %v", r)
			}
		})
	}
}

// TestProbesAreVaried: each common class has a probe, and those that we can know are known.
func TestProbesAreVaried(t *testing.T) {
	t.Parallel()
	m := NewModel(ModelOptions{Source: testSource(t)})
	var p Prepared
	var seen []string
	for _, q := range probes {
		prepare(t, m, &p, q.endpoint, "m", q.body)
		if !p.Exact {
			t.Errorf("%s: %q", q.body, p.Note)
		}
		seen = append(seen, p.Class.String())
	}
	for _, want := range []string{"completions", "completions+special-tokens", "chat", "chat+tools", "chat+tools+template-arguments", "chat+tools+effort", "chat+tools+reasoning", "chat+template-arguments", "chat+effort",
		"chat+reasoning", "chat+open", "messages", "messages+tools", "responses", "responses+tools"} {
		if !slices.Contains(seen, want) {
			t.Errorf("no probe for %s", want)
		}
	}
	for _, class := range seen {
		if strings.Contains(class, "tool-choice-none") {
			t.Errorf("a probe for %s, which /tokenize does not know", class)
		}
	}
}

// TestParityFromManySides: under the race detector, and no class is lost.
func TestParityFromManySides(t *testing.T) {
	t.Parallel()
	m := NewModel(ModelOptions{Source: testSource(t)})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			var p Prepared
			for k := range 60 {
				prepare(t, m, &p, EndpointChat, fmt.Sprint("m", (i+k)%10), hello)
				m.Observe(p.Class, "a", p.Predicted, p.Predicted)
			}
		})
	}
	all.Wait()
	total := uint64(0)
	for _, c := range m.Classes() {
		total += c.Equal
	}
	if total != 480 || len(m.Classes()) != 10 {
		t.Errorf("%d comparisons in %d classes", total, len(m.Classes()))
	}
}

// TestForget: what was found about an engine that left says nothing about those
// that stay, and they say nothing else for it.
func TestForget(t *testing.T) {
	t.Parallel()
	m := NewModel(ModelOptions{Source: testSource(t)})
	foreign := func(ids []uint32) { ids[0]++ }
	for _, name := range []string{"a", "b"} {
		if r := m.ProbeParity(t.Context(), &fakeEngine{source: testSource(t), change: foreign}, name, "m"); r.Verdict != VerdictForeign {
			t.Fatalf("%s: %v", name, r)
		}
	}
	if r := m.ProbeParity(t.Context(), &fakeEngine{source: testSource(t)}, "c", "m"); r.Verdict != VerdictOK {
		t.Fatalf("c: %v", r)
	}
	var p Prepared
	for _, step := range []struct{ forget, note string }{{"", noteForeign}, {"c", noteForeign}, {"a", noteForeign}, {"nobody", noteForeign}, {"b", ""}, {"b", ""}} {
		m.Forget(step.forget)
		if prepare(t, m, &p, EndpointChat, "m", hello); p.Note != step.note {
			t.Errorf("after %q is forgotten a chat is %q, want %q", step.forget, p.Note, step.note)
		}
	}
}

// TestWrongIsInherited: where the plainest class of an endpoint, or one with a single of a class's bits, is wrong, a
// class that was hardly compared is too.
func TestWrongIsInherited(t *testing.T) {
	t.Parallel()
	other, err := NewTemplate(strings.Replace(simTemplate().source, "<|im_end|>", "<|im_end|> ", 1), TemplateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const head = `{"messages":[{"role":"user","content":"x"}]`
	combined := head + `,"chat_template_kwargs":{"a":1},"documents":[],` + probeTools + `}`
	m := NewModel(ModelOptions{Source: testSource(t)})
	if r := m.ProbeParity(t.Context(), &fakeEngine{source: NewSource(testTokenizer(t), other, SourceOptions{})}, "a", "m"); r.Verdict != VerdictDiffers {
		t.Fatal(r)
	}
	var p Prepared
	note := func(e Endpoint, body string) string {
		t.Helper()
		prepare(t, m, &p, e, "m", body)
		return p.Note
	}
	for body, e := range map[string]Endpoint{combined: EndpointChat, head + `,"documents":[]}`: EndpointChat, head + `,"max_tokens":1,"thinking":{"type":"enabled"}}`: EndpointMessages} {
		if got := note(e, body); got != noteDrifted || p.Predicted < 1 {
			t.Errorf("%s: %q, predicted %d", body, got, p.Predicted)
		}
	}
	if got := note(EndpointCompletions, `{"prompt":["x","y"]}`); got != "" {
		t.Errorf("completions: %q", got)
	}
	if prepare(t, m, &p, EndpointChat, "another", combined); !p.Exact {
		t.Errorf("another model: %q", p.Note)
	}

	// One bit alone.
	m = NewModel(ModelOptions{Source: testSource(t)})
	if note(EndpointChat, combined) != "" {
		t.Fatal(p.Note)
	}
	class := p.Class
	for range missesToStop {
		m.Observe(class&^(ClassTools|ClassArguments), "a", 5, 6)
	}
	if got := note(EndpointChat, combined); got != noteDrifted {
		t.Errorf("with documents: %q", got)
	}
	if got := note(EndpointChat, hello); got != "" {
		t.Errorf("without: %q", got)
	}
	// What was seen of the class itself weighs more: twenty equal counts in a row, or equal ids.
	for range equalsToResume {
		if got := note(EndpointChat, combined); got != noteDrifted {
			t.Errorf("after fewer than twenty equal ones: %q", got)
		}
		m.Observe(class, "a", 5, 5)
	}
	if got := note(EndpointChat, combined); got != "" {
		t.Errorf("after twenty equal ones: %q", got)
	}
	m.Observe(class, "a", 5, 6)
	if got := note(EndpointChat, combined); got != noteDrifted {
		t.Errorf("after a miss: %q", got)
	}
	m.parity.observe(class, comparison{equal: true, ids: true})
	if got := note(EndpointChat, combined); got != "" {
		t.Errorf("after equal ids: %q", got)
	}
}

// TestForeignByEveryName: an engine's tokenizer is another one for all the names that it serves, and for requests that
// name none.
func TestForeignByEveryName(t *testing.T) {
	t.Parallel()
	m := NewModel(ModelOptions{Source: testSource(t)})
	engine := &fakeEngine{source: testSource(t), change: func(ids []uint32) { ids[0]++ }}
	if r := m.ProbeParity(t.Context(), engine, "a", "m", "n", "adapter"); r.Verdict != VerdictForeign {
		t.Fatal(r)
	}
	var p Prepared
	for name, want := range map[string]string{"m": noteForeign, "n": noteForeign, "adapter": noteForeign, "": noteForeign, "another": ""} {
		if prepare(t, m, &p, EndpointChat, name, hello); p.Note != want {
			t.Errorf("model %q: %q, want %q", name, p.Note, want)
		}
	}
	m.Forget("a")
	for _, name := range []string{"m", "n", ""} {
		if prepare(t, m, &p, EndpointChat, name, hello); !p.Exact {
			t.Errorf("model %q after the engine left: %q", name, p.Note)
		}
	}
}

// TestForeignIsOneModel: what is found of one of the most names that are numbered says nothing of the others.
func TestForeignIsOneModel(t *testing.T) {
	t.Parallel()
	m := NewModel(ModelOptions{Source: testSource(t)})
	var names []string
	for i := range lastName - 1 {
		names = append(names, fmt.Sprint("n", i))
		m.names.number([]byte(names[i]))
	}
	engine := &fakeEngine{source: testSource(t), change: func(ids []uint32) { ids[0]++ }}
	for i := 0; i < len(names); i += 61 {
		if r := m.ProbeParity(t.Context(), engine, "a", names[i]); r.Verdict != VerdictForeign {
			t.Fatal(r)
		}
		for k, name := range names {
			if got := m.parity.isForeign(m.names.number([]byte(name))); got != (i == k) {
				t.Errorf("%s is foreign, says %s: %v", names[i], name, got)
			}
		}
	}
	if m.Forget("a"); m.parity.isForeign(m.names.number([]byte(names[len(names)-1]))) || m.parity.isForeign(0) {
		t.Error("still foreign after the engine left")
	}
}

// TestProbesHaveTime: what the probes compare does not depend on how fast this machine is just now.
func TestProbesHaveTime(t *testing.T) {
	t.Parallel()
	m := NewModel(ModelOptions{Source: NewSource(testTokenizer(t), simTemplate(), SourceOptions{MaxBytes: 8 << 20, MaxTime: 1, Cache: 1 << 20})})
	if r := m.ProbeParity(t.Context(), &fakeEngine{source: testSource(t), counted: 1}, "a", "m"); r.Verdict != VerdictOK || r.Compared != 24 {
		t.Error(r)
	}
	if note := m.Source().Unlimited(EndpointChat, []byte(hello)); note != "" {
		t.Errorf("a plain chat: %q", note)
	}
	for body, want := range map[string]string{`{"messages":[]}`: noteInvalid, `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`: noteMedia, `{`: noteInvalid} {
		if note := m.Source().Unlimited(EndpointChat, []byte(body)); note != want {
			t.Errorf("%s: %q, want %q", body, note, want)
		}
	}
	if note := NewSource(testTokenizer(t), nil, SourceOptions{}).Unlimited(EndpointChat, []byte(hello)); note != noteNoTemplate {
		t.Errorf("without a template: %q", note)
	}
}
