package tokens

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"ramjet/radix"
	"ramjet/wire"
)

// fakeEngine answers /tokenize by a tokenizer and a template of its own, and everything else by `other`.
type fakeEngine struct {
	source *Source
	status int                // instead of an answer
	err    error              // instead of an answer
	change func(ids []uint32) // what it does to the ids
	other  func(path string, body []byte) (int, string)
	// counted is one more than what it counts too much of a /v1/messages body; 0: it counts none.
	counted int
	count   func() (int, string, error) // what it answers to the question for a count, instead

	mu    sync.Mutex
	asked []string
}

func (f *fakeEngine) Post(_ context.Context, path string, body []byte, _ int64) (int, []byte, error) {
	f.mu.Lock()
	f.asked = append(f.asked, path)
	f.mu.Unlock()
	if f.err != nil {
		return 0, nil, f.err
	}
	if path == "/v1/messages/count_tokens" && f.count != nil {
		status, text, err := f.count()
		return status, []byte(text), err
	}
	if path == "/v1/messages/count_tokens" && f.counted == 0 {
		return 404, nil, nil
	}
	if path == "/v1/messages/count_tokens" {
		var got struct{ Model string }
		ids, ok := f.source.afresh(EndpointMessages, body)
		_ = json.Unmarshal(body, &got) // what is no JSON names no model
		if got.Model != "m" || !ok {
			return 400, nil, nil
		}
		return 200, fmt.Appendf(nil, `{"input_tokens":%d}`, len(ids)+f.counted-1), nil
	}
	if path != "/tokenize" {
		status, text := f.other(path, body)
		return status, []byte(text), nil
	}
	if f.status != 0 {
		return f.status, []byte(`{"error":{}}`), nil
	}
	e := EndpointChat
	if strings.Contains(string(body), `"prompt":`) {
		e = EndpointCompletions
	}
	ids, ok := f.source.afresh(e, body)
	if !ok {
		return 400, []byte(`{"error":{}}`), nil
	}
	if f.change != nil {
		f.change(ids)
	}
	answer, _ := json.Marshal(map[string]any{"count": len(ids), "tokens": ids, "token_strs": nil})
	return 200, answer, nil
}

// lines is a Log that remembers.
type lines struct {
	mu   sync.Mutex
	list []string
}

func (l *lines) Info(msg string, kv ...any) { l.add(msg, kv) }
func (l *lines) Warn(msg string, kv ...any) { l.add(msg, kv) }

func (l *lines) add(msg string, kv []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, msg+" "+fmt.Sprint(kv...))
}

func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.list
	l.list = nil
	return list
}

// prepare is Prepare with its own reading.
func prepare(t testing.TB, m *Model, p *Prepared, e Endpoint, model, body string) *wire.Peeked {
	t.Helper()
	var peek wire.Peeked
	if err := peek.Peek([]byte(body)); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	m.Prepare(p, e, []byte(model), []byte(body), &peek)
	if p.Exact != (p.Note == "") || p.Exact != (len(p.IDs) > 0) || p.Note != "" && !slices.Contains(Notes(), p.Note) {
		t.Errorf("%s: exact %v, note %q, %d ids", body, p.Exact, p.Note, len(p.IDs))
	}
	return &peek
}

const hello = `{"model":"m","messages":[{"role":"user","content":"Hello there"}]}`

func TestPrepareNotes(t *testing.T) {
	t.Parallel()
	full := NewModel(ModelOptions{Source: testSource(t), MaxBytes: 1 << 20})
	noTemplate := NewModel(ModelOptions{Source: NewSource(testTokenizer(t), nil, SourceOptions{Cache: 1 << 20})})
	none := NewModel(ModelOptions{})
	long := `{"messages":[{"role":"user","content":"` + strings.Repeat("x", 1<<20) + `"}]}`
	for _, c := range []struct {
		m    *Model
		e    Endpoint
		body string
		note string
	}{
		{full, EndpointChat, hello, ""},
		{full, EndpointChat, long, "too long"},
		{full, EndpointChat, `[1]`, "invalid request"},
		{full, EndpointChat, `{}`, "invalid request"},
		{full, EndpointChat, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x"}}]}]}`, "media"},
		{noTemplate, EndpointChat, hello, "no chat template"},
		{noTemplate, EndpointCompletions, `{"prompt":"x"}`, ""},
		{none, EndpointChat, hello, "no tokenizer"},
		{none, EndpointCompletions, `{"prompt":"x"}`, "no tokenizer"},
		{none, EndpointCompletions, `{"prompt":[1,2,3]}`, ""}, // what the client has tokenized needs no tokenizer
		{none, EndpointCompletions, `{"prompt":[[1,2],[3]]}`, ""},
		{none, EndpointResponses, `{"input":"x"}`, "no tokenizer"},
	} {
		var p Prepared
		peek := prepare(t, c.m, &p, c.e, "m", c.body)
		if p.Note != c.note || p.Tokens < 0 || c.note != "" && p.Predicted != -1 {
			t.Errorf("%.80s: note %q, %d tokens, predicted %d", c.body, p.Note, p.Tokens, p.Predicted)
		}
		if p.Exact && (p.Predicted != len(p.IDs) || p.Ends[len(p.Ends)-1] != len(p.IDs)) {
			t.Errorf("%.80s: %d ids, predicted %d, ends %v", c.body, len(p.IDs), p.Predicted, p.Ends)
		}
		p.AppendChunks(nil, 1, []byte(c.body), peek) // must not break on any
		if got, want := p.AppendKeys(nil, 1, 2), radix.AppendKeys(nil, 1, p.First(), 2); !slices.Equal(got, want) {
			t.Errorf("%.80s: keys differ", c.body)
		}
	}
}

// TestLongBodiesKeepTheirSalt: of a body whose prompt is not looked at, what else it says holds.
func TestLongBodiesKeepTheirSalt(t *testing.T) {
	t.Parallel()
	m := NewModel(ModelOptions{Source: testSource(t), MaxBytes: 1 << 10})
	text := `"` + strings.Repeat("x", 1<<10) + `"`
	for e, prompt := range map[Endpoint]string{EndpointChat: `"messages":[{"role":"user","content":` + text + `}]`, EndpointMessages: `"messages":[{"role":"user","content":` + text + `}]`,
		EndpointCompletions: `"prompt":` + text, EndpointResponses: `"input":` + text} {
		var p Prepared
		roots := map[uint64]bool{}
		for _, salt := range []string{``, `,"cache_salt":"a"`, `,"cache_salt":"b"`} {
			prepare(t, m, &p, e, "m", `{`+prompt+salt+`,"tools":[1]}`)
			roots[p.Root("m", "")] = true
			if p.Note != noteTooLong || !p.ReadsCache() || p.Class&ClassTools == 0 || p.Class.model() == 0 || p.Class.Endpoint() != e || p.Tokens < 100 || len(p.scr.conv.items) > 0 {
				t.Errorf("%v%s: %q, class %v, %d tokens", e, salt, p.Note, p.Class, p.Tokens)
			}
		}
		if len(roots) != 3 {
			t.Errorf("%v: prompts of three salts have %d roots", e, len(roots))
		}
		if prepare(t, m, &p, e, "m", `{`+prompt+`,"prompt_logprobs":1}`); p.ReadsCache() {
			t.Errorf("%v: an answer about the prompt is taken from the cache", e)
		}
	}
	var p Prepared
	prepare(t, m, &p, EndpointChat, "m", `[`+text+`]`)
	if p.Note != noteTooLong {
		t.Errorf("no object: %q", p.Note)
	}
}

// TestClasses: what a request uses decides its class, and nothing else does.
func TestClasses(t *testing.T) {
	t.Parallel()
	m := NewModel(ModelOptions{Source: testSource(t)})
	const user = `{"role":"user","content":"x"}`
	const tools = `"tools":[{"type":"function","function":{"name":"f"}}]`
	seen := map[string]Class{}
	for _, c := range []struct {
		e          Endpoint
		body, want string
	}{
		{EndpointChat, `{"messages":[` + user + `]}`, "chat"},
		{EndpointChat, `{"temperature":1,"messages":[` + user + `],"n":2,"tools":null,"stream":true,"echo":false}`, "chat"},
		{EndpointChat, `{"messages":[` + user + `],` + tools + `}`, "chat+tools"},
		{EndpointChat, `{"messages":[` + user + `],` + tools + `,"tool_choice":"auto"}`, "chat+tools"},
		{EndpointChat, `{"messages":[` + user + `],` + tools + `,"tool_choice":"none"}`, "chat+tools+tool-choice-none"},
		{EndpointChat, `{"messages":[` + user + `],"chat_template_kwargs":{}}`, "chat+template-arguments"},
		{EndpointChat, `{"messages":[` + user + `],"reasoning_effort":"low","documents":[]}`, "chat+effort+documents"},
		{EndpointChat, `{"messages":[` + user + `,{"role":"assistant","content":"y"}],"continue_final_message":true,"add_generation_prompt":false}`, "chat+open"},
		{EndpointChat, `{"messages":[` + user + `,{"role":"assistant","content":"y","reasoning":"r"},` + user + `]}`, "chat+reasoning"},
		{EndpointChat, `{"messages":[{"role":"developer","content":"y"},` + user + `]}`, "chat+roles"},
		{EndpointChat, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":"x"}]}]}`, "chat+media"},
		{EndpointCompletions, `{"prompt":"x"}`, "completions"},
		{EndpointCompletions, `{"prompt":["x","y"]}`, "completions+prompts"},
		{EndpointCompletions, `{"prompt":[1,2]}`, "completions+ids"},
		{EndpointCompletions, `{"prompt":"x","add_special_tokens":false}`, "completions+special-tokens"},
		{EndpointMessages, `{"system":"s","messages":[` + user + `]}`, "messages"},
		{EndpointMessages, `{"thinking":{"type":"enabled","budget_tokens":9},"messages":[` + user + `]}`, "messages+effort"},
		{EndpointResponses, `{"input":"x","reasoning":{"effort":"low"}}`, "responses+effort"},
	} {
		var p Prepared
		for again := range 2 { // the second time it is remembered
			prepare(t, m, &p, c.e, "m", c.body)
			if got := p.Class.String(); got != c.want || p.Class.Endpoint() != c.e {
				t.Errorf("%s: %s, wanted %s (time %d)", c.body, got, c.want, again)
			}
		}
		if other, ok := seen[c.want]; ok && other != p.Class {
			t.Errorf("%s has two classes", c.want)
		}
		seen[c.want] = p.Class
	}
	var a, b Prepared
	prepare(t, m, &a, EndpointChat, "m", hello)
	prepare(t, m, &b, EndpointChat, "other", hello)
	if a.Class == b.Class || a.Class.String() != b.Class.String() {
		t.Errorf("models: %v %v", a.Class, b.Class)
	}
	for i := range 400 { // names come from clients
		m.names.number(fmt.Append(nil, "n", i))
	}
	if last, more := m.names.number([]byte("n399")), m.names.number([]byte("new")); last != more || last.model() != lastName || m.names.number([]byte("m")) != a.Class&^(1<<classModel-1) {
		t.Errorf("numbers %d and %d", last.model(), more.model())
	}
}

// TestRootAndSalt: prompts of another model, adapter or salt share no block.
func TestRootAndSalt(t *testing.T) {
	t.Parallel()
	m := NewModel(ModelOptions{Source: testSource(t)})
	var p Prepared
	for _, c := range []struct{ body, salt string }{
		{`{"messages":[{"role":"user","content":"x"}]}`, ""},
		{`{"cache_salt":"s1","messages":[{"role":"user","content":"x"}]}`, "s1"},
		{`{"cache_salt":"s\u00311","messages":[{"role":"user","content":"x"}]}`, "s11"},
		{`{"cache_salt":"a","cache_salt":"b","messages":[{"role":"user","content":"x"}]}`, "b"},
		{`{"cache_salt":null,"messages":[{"role":"user","content":"x"}]}`, ""},
		{`{"cache_salt":5,"messages":[{"role":"user","content":"x"}]}`, ""},
	} {
		prepare(t, m, &p, EndpointChat, "m", c.body)
		if string(p.Salt()) != c.salt || p.Root("m", "l") != radix.Root("m", "l", c.salt) {
			t.Errorf("%s: salt %q", c.body, p.Salt())
		}
	}
	if p.Root("m", "") == p.Root("m", "l") {
		t.Error("an adapter shares its model's root")
	}
	p.Release()
	if len(p.Salt()) != 0 {
		t.Error("a released Prepared holds on to the body")
	}
}

// TestEstimates: what is not counted is guessed by its length, and the guess learns.
func TestEstimates(t *testing.T) {
	t.Parallel()
	m := NewModel(ModelOptions{})
	var p Prepared
	text := strings.Repeat("words ", 1000)
	body := `{"messages":[{"role":"user","content":"` + text + `"}],"user":"` + strings.Repeat("u", 5000) + `"}`
	prepare(t, m, &p, EndpointChat, "m", body)
	if p.Tokens < 1500 || p.Tokens > 1520 {
		t.Errorf("%d tokens of %d bytes", p.Tokens, p.Bytes)
	}
	for range 300 {
		m.ObserveTokens(p.Bytes, p.Bytes/6)
	}
	m.ObserveTokens(10, 1000) // too short to learn from
	m.ObserveTokens(p.Bytes, 0)
	prepare(t, m, &p, EndpointChat, "m", body)
	if p.Tokens < 980 || p.Tokens > 1030 {
		t.Errorf("%d tokens after learning, %v bytes a token", p.Tokens, m.BytesPerToken())
	}
	image := `{"messages":[{"role":"user","content":[{"type":"text","text":"` + text + `"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 1<<20) + `"}}]}]}`
	before := p.Tokens
	prepare(t, m, &p, EndpointChat, "m", image)
	if got := p.Tokens - before; got < tokensPerMedium || got > tokensPerMedium+50 {
		t.Errorf("an image counts %d tokens", got)
	}
	// The local tokenizer teaches too.
	local := NewModel(ModelOptions{Source: testSource(t)})
	for range 200 {
		prepare(t, local, &p, EndpointChat, "m", body)
	}
	if want := float64(p.Bytes) / float64(len(p.IDs)); math.Abs(local.BytesPerToken()-want) > 0.1 {
		t.Errorf("%v bytes a token, wanted %v", local.BytesPerToken(), want)
	}
}

// TestNoFailedRequest: what is wrong with the files or the text has a note or an error, and costs no request.
func TestNoFailedRequest(t *testing.T) {
	t.Parallel()
	tpl, err := NewTemplate(`{{ raise_exception("never") }}`, TemplateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m := NewModel(ModelOptions{Source: NewSource(testTokenizer(t), tpl, SourceOptions{MaxBytes: 8 << 20, Cache: 1 << 20})})
	var p Prepared
	prepare(t, m, &p, EndpointChat, "m", hello)
	if p.Note != errRefused.Error() || p.Tokens == 0 {
		t.Errorf("a template that raises: %q", p.Note)
	}
	four := NewModel(ModelOptions{Source: NewSource(testTokenizer(t), simTemplate(), SourceOptions{MaxBytes: 8 << 20, MaxTime: 1, Cache: 1 << 20})})
	prepare(t, four, &p, EndpointChat, "m", `{"messages":[{"role":"user","content":"`+strings.Repeat("a", 4<<20)+`"}]}`)
	if p.Exact || p.Tokens < 1<<19 {
		t.Errorf("4 MB of one character: %q, %d tokens", p.Note, p.Tokens)
	}
	var none error
	if _, _, none = LoadSource("testdata", "", nil, SourceOptions{}); none == nil || !strings.HasPrefix(none.Error(), "cannot load a tokenizer: ") {
		t.Errorf("no tokenizer: %v", none)
	}
	s, warning, err := LoadSource("../sim/model", "testdata/nothing.jinja", nil, SourceOptions{Cache: 1 << 20})
	if err != nil || warning == nil || s.Refusal() != noteNoTemplate {
		t.Errorf("no template: %v, %v", warning, err)
	}
	if errors.Is(warning, ErrNoTemplate) {
		t.Error("a file that was named and is missing is more than no template")
	}
}
