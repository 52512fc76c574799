package tokens

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"ramjet/wire"
)

// takes answers like an engine that uses ids from the given places: "" for none, and counts 20 for a message else.
func takes(places ...string) func(path string, body []byte) (int, string) {
	return func(path string, body []byte) (int, string) {
		n := 20
		for _, place := range places {
			if at := strings.Index(string(body), place); at >= 0 {
				list, _, _ := strings.Cut(string(body)[at:], "]")
				n = 1 + strings.Count(list, ",") - strings.Count(place, ",")
			}
		}
		if path == "/v1/messages" {
			return 200, fmt.Sprintf(`{"usage":{"input_tokens":%d,"cache_read_input_tokens":10,"cache_creation_input_tokens":null}}`, n-10)
		}
		return 200, fmt.Sprintf(`{"usage":{"prompt_tokens":%d},"kv_transfer_params":null}`, n)
	}
}

const (
	inField  = `,"prompt_token_ids":[`
	inParams = `"kv_transfer_params":{"prompt_token_ids":[`
	inPrompt = `"prompt":[`
)

// metered is a fakeEngine with metrics.
type metered struct {
	fakeEngine
	status  int
	metrics string
}

func (m *metered) Get(context.Context, string, int64) (int, []byte, error) {
	return m.status, []byte(m.metrics), nil
}

const quietMetrics = "# HELP vllm:num_requests_running x\nvllm:num_requests_running{engine=\"0\"} 0\nvllm:external_prefix_cache_queries_total{engine=\"0\"} 0.0\n"

func TestProbeHandoff(t *testing.T) {
	t.Parallel()
	const none = handoffNone
	all := takes(inField, inParams, inPrompt)
	params := takes(inParams, inPrompt)
	for _, c := range []struct {
		what                        string
		engine                      *metered
		chat, completions, messages string
		why                         string
		fails                       bool
	}{
		{what: "all", engine: &metered{fakeEngine: fakeEngine{other: all}}, chat: "prompt_token_ids", completions: "prompt", messages: "prompt_token_ids"},
		{what: "params", engine: &metered{fakeEngine{other: params}, 200, quietMetrics}, chat: "kv_transfer_params", completions: "prompt", messages: "kv_transfer_params"},
		{what: "params, metrics hidden", engine: &metered{fakeEngine{other: params}, 404, ""}, chat: none, completions: "prompt", messages: none, why: "cannot be read"},
		{what: "params, other metrics", engine: &metered{fakeEngine{other: params}, 200, "up 1\n"}, chat: none, completions: "prompt", messages: none, why: "cannot be read"},
		{what: "params, connector counts", engine: &metered{fakeEngine{other: params}, 200, strings.Replace(quietMetrics, "} 0.0", "} 67.0", 1)}, chat: none, completions: "prompt", messages: none, why: "KV connector"},
		{what: "params, connector's own", engine: &metered{fakeEngine{other: params}, 200, quietMetrics + "vllm:nixl_xfer_time_seconds_count 0\n"}, chat: none, completions: "prompt", messages: none, why: "KV connector"},
		{what: "connector answers", engine: &metered{fakeEngine{other: func(path string, body []byte) (int, string) {
			_, text := params(path, body)
			return 200, strings.Replace(text, `"kv_transfer_params":null`, `"kv_transfer_params":{"remote_host":"h"}`, 1)
		}}, 200, quietMetrics}, chat: none, completions: "prompt", messages: none, why: "KV connector"},
		{what: "old", engine: &metered{fakeEngine{other: takes()}, 200, quietMetrics}, chat: none, completions: none, messages: none, why: "ignores ids"},
		{what: "refuses", engine: &metered{fakeEngine{other: func(string, []byte) (int, string) { return 400, "{}" }}, 200, quietMetrics}, chat: none, completions: none, messages: none, why: "answers 400"},
		{what: "nonsense", engine: &metered{fakeEngine{other: func(string, []byte) (int, string) { return 200, "hello" }}, 200, quietMetrics}, chat: none, completions: none, messages: none, why: "ignores"},
		{what: "the message has 67 tokens by chance", engine: &metered{fakeEngine{other: func(string, []byte) (int, string) { return 200, `{"usage":{"prompt_tokens":67}}` }}, 200, quietMetrics}, chat: none, completions: none, messages: none, why: "ignores"},
		{what: "no messages", engine: &metered{fakeEngine{other: func(path string, body []byte) (int, string) {
			if path == "/v1/messages" {
				return 404, "{}"
			}
			return all(path, body)
		}}, 200, quietMetrics}, chat: "prompt_token_ids", completions: "prompt", messages: none, why: "404"},
		{what: "busy", engine: &metered{fakeEngine{other: func(string, []byte) (int, string) { return 503, "{}" }}, 200, quietMetrics}, fails: true},
		{what: "down", engine: &metered{fakeEngine{err: errors.New("refused")}, 200, quietMetrics}, fails: true},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			counts := &outcomes{}
			h := NewHandoff(HandoffOptions{Model: NewModel(ModelOptions{Source: testSource(t)}), Counts: counts})
			got, err := h.ProbeHandoff(t.Context(), c.engine, 0, "a", "m")
			if (err != nil) != c.fails {
				t.Fatal(err)
			}
			if c.fails {
				if got.Chat != handoffUnknown || len(counts.list) != 0 {
					t.Errorf("%+v, %v", got, counts.list)
				}
				return
			}
			if got.Chat != c.chat || got.Completions != c.completions || got.Messages != c.messages || !strings.Contains(got.Why, c.why) || c.why == "" && got.Why != "" {
				t.Errorf("%+v", got)
			}
			want := "a probed"
			if c.chat == none && c.completions == none {
				want = "a unsupported"
			}
			if !slices.Equal(counts.list, []string{want}) || len(c.engine.asked) > 10 {
				t.Errorf("counted %q, asked %d times", counts.list, len(c.engine.asked))
			}
		})
	}
	h := NewHandoff(HandoffOptions{Model: NewModel(ModelOptions{})})
	if st, err := h.ProbeHandoff(t.Context(), &fakeEngine{}, 0, "a", ""); err != nil || st.Chat != handoffNone || st.Why != noteNoTokenizer {
		t.Errorf("without a tokenizer: %+v, %v", st, err)
	}
}

type outcomes struct {
	mu   sync.Mutex
	list []string
}

func (o *outcomes) Handoff(engine, outcome string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, engine+" "+outcome)
}

// TestResetDuringAProbe: what a probe found of the process before says nothing of the next.
func TestResetDuringAProbe(t *testing.T) {
	t.Parallel()
	h := NewHandoff(HandoffOptions{Model: NewModel(ModelOptions{Source: testSource(t)})})
	engine := &fakeEngine{other: func(path string, body []byte) (int, string) {
		h.Reset(0)
		return takes(inField)(path, body)
	}}
	if st, err := h.ProbeHandoff(t.Context(), engine, 0, "a", ""); err == nil || st.Chat != handoffUnknown {
		t.Errorf("%+v, %v", st, err)
	}
}

// proven is a Handoff whose engine 0 takes everything and whose classes are proven.
func proven(t testing.TB, log Log, counts HandoffCounts) (*Handoff, *fakeEngine) {
	t.Helper()
	m := NewModel(ModelOptions{Source: testSource(t), Log: log})
	h := NewHandoff(HandoffOptions{Model: m, MinTokens: 8, Log: log, Counts: counts})
	engine := &fakeEngine{source: testSource(t), other: takes(inField, inPrompt)}
	if r := m.ProbeParity(t.Context(), engine, "a", "m"); r.Verdict != VerdictOK {
		t.Fatal(r)
	}
	if _, err := h.ProbeHandoff(t.Context(), engine, 0, "a", "m"); err != nil {
		t.Fatal(err)
	}
	return h, engine
}

// TestGuards: every reason not to hand over, one by one, and that each is the only one.
func TestGuards(t *testing.T) {
	t.Parallel()
	h, _ := proven(t, nil, nil)
	const messages = `"messages":[{"role":"user","content":"Some words that make a prompt which is long enough"}]`
	for _, c := range []struct {
		what string
		e    Endpoint
		body string
		form wire.TokenForm
	}{
		{"plain", EndpointChat, `{` + messages + `}`, wire.TokenField},
		{"stream", EndpointChat, `{` + messages + `,"stream":true,"n":2,"logprobs":true,"kv_transfer_params":null,"echo":false}`, wire.TokenField},
		{"salt", EndpointChat, `{` + messages + `,"cache_salt":"s"}`, wire.TokenField},
		{"messages", EndpointMessages, `{` + messages + `,"max_tokens":1}`, wire.TokenField},
		{"completions", EndpointCompletions, `{"prompt":"Some words that make a prompt which is long enough"}`, wire.TokenPrompt},
		{"responses", EndpointResponses, `{"input":"Some words that make a prompt which is long enough"}`, wire.TokenNone},
		{"short", EndpointCompletions, `{"prompt":"One"}`, wire.TokenNone},
		{"kv_transfer_params", EndpointChat, `{` + messages + `,"kv_transfer_params":{}}`, wire.TokenNone},
		{"prompt_token_ids", EndpointChat, `{` + messages + `,"prompt_token_ids":[1]}`, wire.TokenNone},
		{"echo", EndpointChat, `{` + messages + `,"echo":true}`, wire.TokenNone},
		{"odd echo", EndpointCompletions, `{"prompt":"Some words that make a prompt which is long enough","echo":"yes"}`, wire.TokenNone},
		{"prompt_logprobs", EndpointChat, `{` + messages + `,"prompt_logprobs":1}`, wire.TokenNone},
		{"truncate", EndpointChat, `{` + messages + `,"truncate_prompt_tokens":5}`, wire.TokenNone},
		{"media", EndpointChat, `{"messages":[{"role":"user","content":"Some words that make a prompt which is long enough","image_url":null}]}`, wire.TokenNone},
		{"two prompts", EndpointCompletions, `{"prompt":["Some words that make a prompt which","is long enough"]}`, wire.TokenNone},
		{"the client's ids", EndpointCompletions, `{"prompt":[1,2,3,4,5,6,7,8,9,10]}`, wire.TokenNone},
		{"class not proven", EndpointChat, `{` + messages + `,"documents":[]}`, wire.TokenNone},
		{"not exact", EndpointChat, `{` + messages + `,"chat_template":"x"}`, wire.TokenNone},
	} {
		var p Prepared
		peek := prepare(t, h.o.Model, &p, c.e, "m", c.body)
		s, ok := h.Plan(0, &p, peek)
		if ok != (c.form != wire.TokenNone) || s.Form != c.form || ok && !slices.Equal(s.IDs, p.IDs) || !ok && s.IDs != nil {
			t.Errorf("%s: %v, %d ids (note %q, class %v)", c.what, s.Form, len(s.IDs), p.Note, p.Class)
		}
		if _, ok := h.Plan(1, &p, peek); ok {
			t.Errorf("%s: handed to an engine that was not probed", c.what)
		}
		for _, slot := range []int{-1, MaxHandoffEngines} {
			if _, ok := h.Plan(slot, &p, peek); ok {
				t.Errorf("%s: handed to slot %d", c.what, slot)
			}
		}
		if _, ok := (*Handoff)(nil).Plan(0, &p, peek); ok {
			t.Error("handed over though it is off")
		}
	}
	// What usage has shown proves a class too.
	var p Prepared
	body := `{` + messages + `,"documents":[]}`
	peek := prepare(t, h.o.Model, &p, EndpointChat, "m", body)
	h.o.Model.Observe(p.Class, "a", p.Predicted, p.Predicted)
	if _, ok := h.Plan(0, &p, peek); !ok {
		t.Error("a class that was seen equal is not handed over")
	}
	h.o.Model.Observe(p.Class, "a", p.Predicted, p.Predicted+1)
	if _, ok := h.Plan(0, &p, peek); ok {
		t.Error("a class that has missed once is handed over")
	}
}

// TestOneDifferenceEndsIt for the class and on all engines, and says so.
func TestOneDifferenceEndsIt(t *testing.T) {
	t.Parallel()
	var log lines
	counts := &outcomes{}
	h, engine := proven(t, &log, counts)
	m := h.o.Model
	if _, err := h.ProbeHandoff(t.Context(), engine, 1, "b", "m"); err != nil {
		t.Fatal(err)
	}
	const body = `{"messages":[{"role":"user","content":"Some words that make a prompt which is long enough"}]}`
	var p Prepared
	peek := prepare(t, m, &p, EndpointChat, "m", body)
	send := func(slot int) *Sample {
		t.Helper()
		if _, ok := h.Plan(slot, &p, peek); !ok {
			t.Fatal("nothing is handed over")
		}
		return h.Sample(slot, &p, "m", []byte(body), peek)
	}
	s := send(0)
	if s == nil {
		t.Fatal("the first is no sample")
	}
	// Nothing is compared while the engine does not answer: the next one is a sample.
	engine.status = 503
	if _, err := s.Run(t.Context(), engine); err == nil {
		t.Error("no error of an engine that does not answer")
	}
	engine.status = 0
	if s = send(1); s == nil {
		t.Fatal("no sample after one that failed")
	}
	if equal, err := s.Run(t.Context(), engine); !equal || err != nil {
		t.Errorf("%v, %v", equal, err)
	}
	for i := range sampledOf - 1 {
		if send(i%2) != nil {
			t.Fatalf("request %d is a sample", i+2)
		}
	}
	if s = send(1); s == nil {
		t.Fatal("the 101st is no sample")
	}
	log.take()
	counts.list = nil
	engine.change = func(ids []uint32) { ids[len(ids)-1]++ } // of the same length
	if equal, err := s.Run(t.Context(), engine); equal || err != nil {
		t.Errorf("%v, %v", equal, err)
	}
	if !slices.Equal(counts.list, []string{"b mismatch", "b stopped"}) {
		t.Errorf("counted %q", counts.list)
	}
	if got := strings.Join(log.take(), "\n"); !strings.Contains(got, "no more are handed over") || !strings.Contains(got, "chat") {
		t.Errorf("log %q", got)
	}
	for slot := range 2 {
		if _, ok := h.Plan(slot, &p, peek); ok {
			t.Errorf("slot %d is still handed ids", slot)
		}
	}
	if prepare(t, m, &p, EndpointChat, "m", body); p.Exact || p.Note != noteDrifted {
		t.Errorf("its keys are still exact: %q", p.Note)
	}
	// Other classes go on, and equal counts do not bring it back.
	completion := `{"prompt":"Some words that make a prompt which is long enough"}`
	if peek := prepare(t, m, &p, EndpointCompletions, "m", completion); true {
		if _, ok := h.Plan(0, &p, peek); !ok {
			t.Error("another class is stopped too")
		}
	}
	for range 2 * equalsToResume {
		m.Observe(s.class, "a", 5, 5)
	}
	peek = prepare(t, m, &p, EndpointChat, "m", body)
	if _, ok := h.Plan(0, &p, peek); ok || !p.Exact {
		t.Errorf("exact %v, handed over %v", p.Exact, ok)
	}
	for _, c := range m.Classes() {
		if c.HandoffOff != (c.Class == s.class) {
			t.Errorf("%+v", c)
		}
	}
}

// TestNobodyWatches: an engine without /tokenize is handed nothing more.
func TestNobodyWatches(t *testing.T) {
	t.Parallel()
	var log lines
	h, engine := proven(t, &log, nil)
	const body = `{"messages":[{"role":"user","content":"Some words that make a prompt which is long enough"}]}`
	var p Prepared
	peek := prepare(t, h.o.Model, &p, EndpointChat, "m", body)
	if _, ok := h.Plan(0, &p, peek); !ok {
		t.Fatal("nothing is handed over")
	}
	s := h.Sample(0, &p, "m", []byte(body), peek)
	engine.status = 404
	if _, err := s.Run(t.Context(), engine); err == nil {
		t.Error("no error")
	}
	if _, ok := h.Plan(0, &p, peek); ok || !strings.Contains(h.Status(0).Why, "cannot be compared") {
		t.Errorf("still handed over: %+v", h.Status(0))
	}
	if got := log.take(); len(got) != 1 || !strings.Contains(got[0], "not handed over any more") {
		t.Errorf("log %q", got)
	}
}
