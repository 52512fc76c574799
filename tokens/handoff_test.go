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
	engine := &fakeEngine{source: testSource(t), counted: 1, other: takes(inField, inPrompt)}
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
	// Counts alone prove no ids, but one that differs takes back what ids proved, until one is equal again.
	var p Prepared
	body := `{` + messages + `,"documents":[]}`
	peek := prepare(t, h.o.Model, &p, EndpointChat, "m", body)
	for range 2 * equalsToResume {
		h.o.Model.Observe(p.Class, "a", p.Predicted, p.Predicted)
	}
	if _, ok := h.Plan(0, &p, peek); ok {
		t.Error("a class of which counts were compared only is handed over")
	}
	peek = prepare(t, h.o.Model, &p, EndpointChat, "m", `{`+messages+`}`)
	for _, want := range []bool{false, true} {
		h.o.Model.Observe(p.Class, "a", p.Predicted, p.Predicted+bit(!want))
		if h.Would(0, &p, peek) != want {
			t.Errorf("handed over: %v", !want)
		}
	}
}

// TestNoToolsIsNeverHanded: an engine may leave the tools out where the tool choice is none, and its /tokenize, which does
// not know the member, would not tell.
func TestNoToolsIsNeverHanded(t *testing.T) {
	t.Parallel()
	h, engine := proven(t, nil, nil)
	const words = `"messages":[{"role":"user","content":"Some words that make a prompt which is long enough"}],"max_tokens":1,`
	const tools = `"tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}]`
	for _, c := range []struct {
		e    Endpoint
		body string
		want bool
	}{
		{EndpointChat, `{` + words + probeTools + `}`, true},
		{EndpointChat, `{` + words + `"tool_choice":"auto",` + probeTools + `}`, true},
		{EndpointChat, `{` + words + `"tool_choice":"none",` + probeTools + `}`, false},
		{EndpointMessages, `{` + words + tools + `}`, true},
		{EndpointMessages, `{` + words + `"tool_choice":{"type":"auto"},` + tools + `}`, true},
		{EndpointMessages, `{` + words + `"tool_choice":{ "disable_parallel_tool_use":true, "type" : "none" },` + tools + `}`, false},
		{EndpointMessages, `{` + words + `"tool_choice":{"type":"auto","t\u0079pe":"non\u0065"},` + tools + `}`, false},
		{EndpointMessages, `{` + words + `"tool_choice":{"type":["none"]},` + tools + `}`, true},
	} {
		if r := h.o.Model.ProbeParity(t.Context(), engine, "a", "m"); r.Verdict != VerdictOK {
			t.Fatal(r)
		}
		var p Prepared
		peek := prepare(t, h.o.Model, &p, c.e, "m", c.body)
		h.o.Model.parity.observe(p.Class, comparison{equal: true, ids: true}) // as if somebody had compared it
		if !p.Exact || h.Would(0, &p, peek) != c.want {
			t.Errorf("%s: note %q, class %v, would be handed over %v", c.body, p.Note, p.Class, !c.want)
		}
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
	for range 2 {
		if s = send(1); s == nil {
			t.Fatal("no sample after one that failed, or was dropped")
		}
		s.Drop()
	}
	if s = send(1); s == nil {
		t.Fatal("no sample after one that was dropped")
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

// TestTrial: of a class of which counts were compared only, one request's ids are, and then it is handed over, or
// stopped without that any wrong ids went to an engine.
func TestTrial(t *testing.T) {
	t.Parallel()
	for _, differs := range []bool{false, true} {
		h, engine := proven(t, nil, nil)
		const body = `{"messages":[{"role":"user","content":"Some words that make a prompt which is long enough"}],"reasoning_effort":"low","chat_template_kwargs":{"a":1}}`
		var p Prepared
		peek := prepare(t, h.o.Model, &p, EndpointChat, "m", body)
		try := func() *Sample { return h.Trial(0, &p, "m", []byte(body), peek) }
		if try() != nil {
			t.Error("nothing is known of the class, and its ids are compared")
		}
		h.o.Model.Observe(p.Class, "a", 5, 5)
		if h.Would(0, &p, peek) || h.Trial(1, &p, "m", []byte(body), peek) != nil || (*Handoff)(nil).Trial(0, &p, "m", []byte(body), peek) != nil {
			t.Error("a class of which counts were compared only is handed over, or compared at an engine that was not probed")
		}
		s := try()
		if s == nil || try() != nil {
			t.Fatal("no trial, or two at once")
		}
		s.Drop()
		if s = try(); s == nil {
			t.Fatal("no trial after one that was dropped")
		}
		engine.status = 400
		if _, err := s.Run(t.Context(), engine); err == nil || try() != nil {
			t.Errorf("%v, or what the engine refuses is tried again at once", err)
		}
		engine.status = 0
		if differs {
			engine.change = func(ids []uint32) { ids[len(ids)-1]++ }
		}
		if equal, err := s.Run(t.Context(), engine); equal == differs || err != nil {
			t.Fatalf("%v, %v", equal, err)
		}
		if try() != nil {
			t.Error("a class that was tried is tried again")
		}
		peek = prepare(t, h.o.Model, &p, EndpointChat, "m", body)
		if h.Would(0, &p, peek) == differs || p.Exact == differs {
			t.Errorf("differs %v: exact %v, handed over %v", differs, p.Exact, !differs)
		}
		if !differs && h.Sample(0, &p, "m", []byte(body), peek) == nil {
			t.Error("the first that is handed over is no sample")
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
