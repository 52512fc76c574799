package tokens_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/radix"
	"ramjet/sim"
	"ramjet/tokens"
	"ramjet/wire"
)

// The simulator renders and counts by code of its own, so that it can bear witness to what stands here.

// simEngine asks a simulated engine.
type simEngine struct {
	url    string
	server *sim.Server
	mu     sync.Mutex
	asked  map[string]int
}

func (e *simEngine) do(ctx context.Context, method, path string, body []byte, limit int64) (int, []byte, error) {
	e.mu.Lock()
	e.asked[path]++
	e.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, method, e.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	return resp.StatusCode, answer, err
}

func (e *simEngine) Post(ctx context.Context, path string, body []byte, limit int64) (int, []byte, error) {
	return e.do(ctx, http.MethodPost, path, body, limit)
}

func (e *simEngine) Get(ctx context.Context, path string, limit int64) (int, []byte, error) {
	return e.do(ctx, http.MethodGet, path, nil, limit)
}

func (e *simEngine) times(path string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked[path]
}

func startSim(t *testing.T, o sim.ServerOptions) *simEngine {
	t.Helper()
	o.Core.Speed, o.Core.Seed, o.Model = 500, 7, "m"
	s, err := sim.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &simEngine{url: "http://" + s.Addr(), server: s, asked: map[string]int{}}
}

func simModel(t *testing.T, o tokens.ModelOptions) *tokens.Model {
	t.Helper()
	s, warning, err := tokens.LoadSource("../sim/model", "", nil, tokens.SourceOptions{Cache: 8 << 20})
	if err != nil || warning != nil {
		t.Fatal(err, warning)
	}
	o.Source = s
	return tokens.NewModel(o)
}

// TestProbeParityAgainstSim: every probe chat of every endpoint has the simulator's ids.
func TestProbeParityAgainstSim(t *testing.T) {
	t.Parallel()
	e := startSim(t, sim.ServerOptions{})
	m := simModel(t, tokens.ModelOptions{})
	r := m.ProbeParity(t.Context(), e, "a", "m")
	if r.Verdict != tokens.VerdictOK || r.Compared < 24 || r.Compared != e.times("/tokenize") {
		t.Errorf("%v; asked %d times", r, e.times("/tokenize"))
	}
	endpoints := map[tokens.Endpoint]bool{}
	for _, c := range m.Classes() {
		endpoints[c.Class.Endpoint()] = true
		if !c.Exact || !c.Proven || c.Equal == 0 || c.Missed != 0 {
			t.Errorf("%v: %+v", c.Class, c)
		}
	}
	if len(endpoints) != 4 || len(m.Classes()) < 12 {
		t.Errorf("%d classes of %d endpoints are proven", len(m.Classes()), len(endpoints))
	}
}

// simBodies are requests of all endpoints; a conversation comes three times, each time with one turn more.
func simBodies() map[string][]string {
	turns := func(n int) string {
		question := `{"role":"user","content":"Question %d, and ` + strings.Repeat("more of it ", 20) + `"}`
		list := []string{`{"role":"system","content":"You are careful."}`}
		for i := range n {
			list = append(list, fmt.Sprintf(question, i), fmt.Sprintf(`{"role":"assistant","content":"Answer %d"}`, i))
		}
		return "[" + strings.Join(append(list, fmt.Sprintf(question, n)), ",") + "]"
	}
	plain := func(n int) string {
		return strings.Replace(turns(n), `{"role":"system","content":"You are careful."},`, "", 1)
	}
	const tools = `"tools":[{"type":"function","function":{"name":"run","description":"d","parameters":{"type":"object","properties":{"z":{"type":"number","default":1.0},"a":{"type":"string"}}}}}]`
	bodies := map[string][]string{}
	add := func(path, format string, args ...any) {
		bodies[path] = append(bodies[path], fmt.Sprintf(`{"model":"m","max_tokens":2,`+format+`}`, args...))
	}
	for _, n := range []int{3, 4, 5} {
		add("/v1/chat/completions", `"messages":%s`, turns(n))
		add("/v1/chat/completions", `"messages":%s,%s`, turns(n), tools)
		add("/v1/chat/completions", `"messages":%s,"n":3`, turns(n))
		add("/v1/chat/completions", `"messages":%s,"chat_template_kwargs":{"enable_thinking":false}`, turns(n))
		add("/v1/completions", `"prompt":"Once upon %d times <|im_start|>"`, n)
		add("/v1/completions", `"prompt":["One","and two %d","three"],"n":2`, n)
		add("/v1/completions", `"prompt":[[1,2,3],[4,5,%d]]`, n)
		add("/v1/messages", `"system":"You are careful.","messages":%s`, plain(n))
		add("/v1/responses", `"instructions":"You are careful.","input":%s`, plain(n))
	}
	return bodies
}

var endpointOf = map[string]tokens.Endpoint{"/v1/chat/completions": tokens.EndpointChat, "/v1/completions": tokens.EndpointCompletions,
	"/v1/messages": tokens.EndpointMessages, "/v1/responses": tokens.EndpointResponses}

func reported(t *testing.T, e *simEngine, path, body string) int {
	t.Helper()
	status, answer, err := e.Post(t.Context(), path, []byte(body), 1<<20)
	if err != nil || status != 200 {
		t.Fatalf("%s: %d %v %s\n%s", path, status, err, answer, body)
	}
	var got struct {
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Input  int `json:"input_tokens"`
			Read   int `json:"cache_read_input_tokens"`
			Made   int `json:"cache_creation_input_tokens"`
		}
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		t.Fatal(err)
	}
	if path == "/v1/responses" {
		return got.Usage.Input
	}
	return max(got.Usage.Prompt, got.Usage.Input+got.Usage.Read+got.Usage.Made)
}

// TestPredictedIsReported: the count of every kind of request is the engine's, so that its class is proven by usage
// alone; and the ids, handed over, are counted the same.
func TestPredictedIsReported(t *testing.T) {
	t.Parallel()
	e := startSim(t, sim.ServerOptions{})
	m := simModel(t, tokens.ModelOptions{})
	var p tokens.Prepared
	var peek wire.Peeked
	for path, bodies := range simBodies() {
		for _, body := range bodies {
			if err := peek.Peek([]byte(body)); err != nil {
				t.Fatal(err)
			}
			m.Prepare(&p, endpointOf[path], []byte("m"), []byte(body), &peek)
			got := reported(t, e, path, body)
			if !p.Exact {
				t.Errorf("%s: %q\n%s", path, p.Note, body)
				continue
			}
			if p.Note != "" || p.Predicted != got || p.Tokens != got || len(p.IDs) != got {
				t.Errorf("%s: predicted %d (%q), reported %d\n%s", path, p.Predicted, p.Note, got, body)
			}
			if keys, want := p.AppendKeys(nil, p.Root("m", ""), 4), radix.AppendKeys(nil, radix.Root("m", "", ""), p.IDs[:p.Ends[0]], 4); !slices.Equal(keys, want) {
				t.Errorf("%s: keys of the first prompt differ", path)
			}
			m.Observe(p.Class, "a", p.Predicted, got)
			p.Release()
		}
	}
	for _, c := range m.Classes() {
		if !c.Exact || !c.Proven {
			t.Errorf("%v: %+v", c.Class, c)
		}
	}
}

// TestProbeHandoffAgainstSim: what is found of engines that take ids here, there or nowhere.
func TestProbeHandoffAgainstSim(t *testing.T) {
	t.Parallel()
	const none = "unsupported"
	for _, c := range []struct{ mode, chat, messages string }{
		{sim.HandoffBoth, "prompt_token_ids", "prompt_token_ids"},
		{sim.HandoffField, "prompt_token_ids", "prompt_token_ids"},
		{sim.HandoffParams, "kv_transfer_params", "kv_transfer_params"},
		{sim.HandoffIgnore, none, none},
		{sim.HandoffRefuse, none, none},
		{sim.HandoffConnector, none, none},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			o := sim.ServerOptions{Handoff: c.mode}
			if c.mode == sim.HandoffConnector {
				o.Core.OffloadBlocks = 100 // the connector shows in the metrics by what it is asked for
			}
			e := startSim(t, o)
			counts := &counter{}
			h := tokens.NewHandoff(tokens.HandoffOptions{Model: simModel(t, tokens.ModelOptions{}), Counts: counts})
			status, err := h.ProbeHandoff(t.Context(), e, 3, "a", "m")
			if err != nil || status.Chat != c.chat || status.Messages != c.messages || status.Completions != "prompt" || status != h.Status(3) {
				t.Errorf("%+v, %v", status, err)
			}
			if got := counts.String(); got != "a probed 1" {
				t.Error(got)
			}
			if n := e.server.State().ToConnector; n != 0 {
				t.Errorf("a KV connector was given %d requests", n)
			}
			if h.Status(2).Chat != "unknown" {
				t.Errorf("another engine: %+v", h.Status(2))
			}
			h.Reset(3)
			if h.Status(3).Chat != "unknown" {
				t.Errorf("after a restart: %+v", h.Status(3))
			}
		})
	}
}

// counter is a HandoffCounts and a Counts.
type counter struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *counter) add(a, b string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]int{}
	}
	c.seen[a+" "+b]++
}

func (c *counter) Handoff(engine, outcome string)   { c.add(engine, outcome) }
func (c *counter) Tokenized(source, outcome string) { c.add(source, outcome) }

func (c *counter) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []string
	for name, n := range c.seen {
		list = append(list, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// TestHandedOver: from the probes to the 101st request, against an engine that takes the ids.
func TestHandedOver(t *testing.T) {
	t.Parallel()
	e := startSim(t, sim.ServerOptions{Handoff: sim.HandoffParams})
	counts := &counter{}
	m := simModel(t, tokens.ModelOptions{})
	h := tokens.NewHandoff(tokens.HandoffOptions{Model: m, MinTokens: 20, Counts: counts})
	m.ProbeParity(t.Context(), e, "a", "m")
	if _, err := h.ProbeHandoff(t.Context(), e, 0, "a", "m"); err != nil {
		t.Fatal(err)
	}
	before := e.times("/tokenize")
	var p tokens.Prepared
	var peek wire.Peeked
	sampled, sent := []int{}, 0
	for i := range 105 {
		body := fmt.Appendf(nil, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"Number %d of a long row of questions that are all alike, and that all are long enough."}]}`, i)
		if err := peek.Peek(body); err != nil {
			t.Fatal(err)
		}
		m.Prepare(&p, tokens.EndpointChat, []byte("m"), body, &peek)
		splice, ok := h.Plan(0, &p, &peek)
		if !ok {
			t.Fatalf("nothing is handed over with request %d: %q", i, p.Note)
		}
		sent++
		out, done := wire.AppendEdits(nil, body, &peek, wire.Edits{Tokens: splice})
		if !done.Tokens {
			t.Fatal("nothing was spliced")
		}
		if i%50 == 0 {
			h.ObserveHanded(0, p.Tokens, reported(t, e, "/v1/chat/completions", string(out)))
		}
		if s := h.Sample(0, &p, "m", body, &peek); s != nil {
			sampled = append(sampled, i)
			clear(p.IDs) // the sample has copies
			if equal, err := s.Run(t.Context(), e); !equal || err != nil {
				t.Errorf("sample %d: %v, %v", i, equal, err)
			}
		}
	}
	if !slices.Equal(sampled, []int{0, 100}) || e.times("/tokenize") != before+2 {
		t.Errorf("sampled %v, asked %d times", sampled, e.times("/tokenize")-before)
	}
	if got := counts.String(); got != "a probed 1, a sent 105" {
		t.Error(got)
	}
	if st := e.server.State(); st.HandedOver < 3 {
		t.Errorf("the engine took ids %d times", st.HandedOver)
	}
	// The engine restarts as an older version.
	if err := e.server.SetHandoff(sim.HandoffIgnore); err != nil {
		t.Fatal(err)
	}
	h.ObserveHanded(0, 50, 20)
	if _, ok := h.Plan(0, &p, &peek); ok || h.Status(0).Chat != "unknown" {
		t.Errorf("ids go to an engine that ignores them: %+v", h.Status(0))
	}
}

// TestEngineSourceAgainstSim: without a tokenizer here the second turn finds the ids of the first.
func TestEngineSourceAgainstSim(t *testing.T) {
	t.Parallel()
	e := startSim(t, sim.ServerOptions{})
	counts := &counter{}
	source := tokens.NewEngineSource(tokens.EngineSourceOptions{Pick: func(string) tokens.Asker { return e }, Cache: 1 << 20, Counts: counts})
	m := tokens.NewModel(tokens.ModelOptions{Engines: source, Counts: counts})
	local := simModel(t, tokens.ModelOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { source.Run(ctx); close(done) }()
	var p, want tokens.Prepared
	var peek wire.Peeked
	prepare := func(body string) {
		if err := peek.Peek([]byte(body)); err != nil {
			t.Fatal(err)
		}
		m.Prepare(&p, tokens.EndpointChat, []byte("m"), []byte(body), &peek)
		local.Prepare(&want, tokens.EndpointChat, []byte("m"), []byte(body), &peek)
	}
	bodies := simBodies()["/v1/chat/completions"]
	prepare(bodies[0])
	if p.Exact || p.Note != "no tokenizer" || len(p.Prefix) != 0 {
		t.Errorf("first turn: %q, %d ids", p.Note, len(p.Prefix))
	}
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(counts.String(), "engine kept 1"); {
		if time.Now().After(deadline) {
			t.Fatal("nothing was fetched: ", counts)
		}
		time.Sleep(time.Millisecond)
	}
	prepare(bodies[4]) // the same conversation, with one turn more
	if p.Exact || p.Note != "known prefix" || len(p.Prefix) == 0 || !slices.Equal(p.Prefix, want.IDs[:len(p.Prefix)]) {
		t.Errorf("second turn: %q, %d ids, wanted the beginning of %d", p.Note, len(p.Prefix), len(want.IDs))
	}
	if keys, all := p.AppendKeys(nil, 1, 16), radix.AppendKeys(nil, 1, want.IDs, 16); len(keys) == 0 || !slices.Equal(keys, all[:len(keys)]) {
		t.Errorf("%d keys are not the beginning of %d", len(keys), len(all))
	}
	prepare(strings.Replace(bodies[4], "Question 1", "Question X", 1)) // edited history
	if len(p.Prefix) != 0 {
		t.Errorf("an edited conversation has a prefix of %d ids", len(p.Prefix))
	}
	cancel()
	<-done
}
