package tokens

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"ramjet/wire"
)

// TestTokenizeBodies: what /tokenize is asked, by endpoint.
func TestTokenizeBodies(t *testing.T) {
	t.Parallel()
	const user = `{"role":"user","content":"x"}`
	for _, c := range []struct {
		e          Endpoint
		body, want string // "" for not to be asked
		prefix     bool
	}{
		{EndpointChat, `{"model":"z","messages":[` + user + `],"stream":true}`, `{"model":"m","messages":[` + user + `]}`, false},
		{EndpointChat, `{"messages":[` + user + `]}`, `{"model":"m","messages":[` + user + `],"add_generation_prompt":false}`, true},
		{EndpointChat, `{"messages":[ ` + user + ` , ` + user + ` ],"tools":[{"a":1}],"add_generation_prompt":false}`, `{"model":"m","messages":[` + user + `,` + user + `],"tools":[{"a":1}],"add_generation_prompt":false}`, false},
		{EndpointChat, `{"messages":[` + user + `],"continue_final_message":true,"add_generation_prompt":false}`, `{"model":"m","messages":[` + user + `],"continue_final_message":true,"add_generation_prompt":false}`, true},
		{EndpointChat, `{"messages":[` + user + `],"chat_template_kwargs":{"a":1 }}`, `{"model":"m","messages":[` + user + `],"chat_template_kwargs":{"a":1}}`, false},
		{EndpointChat, `{"messages":[` + user + `],"chat_template_kwargs":{"enable_thinking":true},"reasoning_effort":"none","documents":[{}]}`,
			`{"model":"m","messages":[` + user + `],"chat_template_kwargs":{"enable_thinking":false,"enable_thinking":true,"reasoning_effort":"none","documents":[{}]}}`, false},
		{EndpointChat, `{"messages":[` + user + `],"reasoning_effort":"low"}`, `{"model":"m","messages":[` + user + `],"chat_template_kwargs":{"enable_thinking":true,"reasoning_effort":"low"}}`, false},
		{EndpointChat, `{"messages":[{"role":"assistant","reasoning_content" : "r","content":"reasoning_content"}]}`, `{"model":"m","messages":[{"role":"assistant","reasoning" : "r","content":"reasoning_content"}]}`, false},
		{EndpointChat, `{"messages":[{"reasoning_content":"r","reasoning":"s"}]}`, `{"model":"m","messages":[{"reasoning_content":"r","reasoning":"s"}]}`, false},
		{EndpointChat, `{"messages":[{"reasoning":null,"reasoning_content":"r"}]}`, `{"model":"m","messages":[{"reasoning":null,"reasoning":"r"}]}`, false},
		{EndpointChat, `{"messages":[` + user + `],"reasoning_effort":5}`, "", false},
		{EndpointChat, `{"messages":[` + user + `],"chat_template_kwargs":[]}`, "", false},
		{EndpointCompletions, `{"prompt":"a\"b"}`, `{"model":"m","prompt":"a\"b"}`, false},
		{EndpointCompletions, `{"prompt":["a"],"add_special_tokens":false}`, `{"model":"m","prompt":"a","add_special_tokens":false}`, false},
		{EndpointCompletions, `{"prompt":["a","b"]}`, "", false},
		{EndpointCompletions, `{"prompt":[1]}`, "", false},
	} {
		conv, note := parse(t, c.e, c.body)
		if note != "" {
			t.Fatalf("%s: %s", c.body, note)
		}
		out, ok := conv.appendTokenize([]byte("head "), "m", nil, c.prefix)
		want := c.want
		if want != "" && !json.Valid(out[len("head "):]) {
			t.Errorf("%s becomes %s, which is no JSON", c.body, out)
		}
		if ok != (want != "") || string(out) != "head "+want {
			t.Errorf("%s becomes\n%s, %v", c.body, out, ok)
		}
	}
}

// TestConvertedIsTheSamePrompt: what messages and Responses become for /tokenize has the ids that they have by
// themselves, when it is read as a chat.
func TestConvertedIsTheSamePrompt(t *testing.T) {
	t.Parallel()
	s := testSource(t)
	for _, q := range append(slices.Clone(probes), probe{EndpointMessages, `{"max_tokens":9,"system":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"thinking":{"type":"enabled","budget_tokens":5},` +
		`"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"a"}]},{"role":"user","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]}]}`}) {
		if q.endpoint != EndpointMessages && q.endpoint != EndpointResponses {
			continue
		}
		conv, note := parse(t, q.endpoint, q.body)
		if note != "" {
			t.Fatal(note)
		}
		asked, ok := conv.appendTokenize(nil, "", s.template, false)
		if !ok || !json.Valid(asked) {
			t.Errorf("%s becomes %s, %v", q.body, asked, ok)
			continue
		}
		asked = []byte(strings.Replace(string(asked), `,"add_special_tokens":true`, "", 1)) // the sim's model has none
		want, _ := s.afresh(q.endpoint, []byte(q.body))
		got, known := s.afresh(EndpointChat, asked)
		if !known || !slices.Equal(got, want) {
			t.Errorf("%s becomes\n%s: %d ids, wanted %d", q.body, asked, len(got), len(want))
		}
		if _, ok := conv.appendTokenize(nil, "", nil, false); ok {
			t.Error("converted without a template")
		}
	}
}

// TestReadIDs: what engines may answer, cut at every byte.
func TestReadIDs(t *testing.T) {
	t.Parallel()
	const answer = `{"count":3,"max_model_len":16,"tokens":[1,20,300],"token_strs":null}`
	for cut := range len(answer) {
		if ids, err := askIDs(t.Context(), answers(200, answer[:cut]), nil); err == nil || ids != nil {
			t.Errorf("%s: %v, %v", answer[:cut], ids, err)
		}
	}
	if ids, err := askIDs(t.Context(), answers(200, answer), nil); err != nil || !slices.Equal(ids, []uint32{1, 20, 300}) {
		t.Errorf("%v, %v", ids, err)
	}
	for _, odd := range []string{`{}`, `[]`, `{"tokens":[]}`, `{"tokens":[-1]}`, `{"tokens":[1.5]}`, `{"tokens":[4294967296]}`, `{"tokens":"1"}`} {
		if ids, err := askIDs(t.Context(), answers(200, odd), nil); err == nil {
			t.Errorf("%s: %v", odd, ids)
		}
	}
}

func answers(status int, text string) Asker { return plainAnswer{status, text} }

func FuzzAppendTokenize(f *testing.F) {
	for _, q := range probes {
		f.Add(uint8(q.endpoint), []byte(q.body))
	}
	f.Add(uint8(0), []byte(`{"messages":[{"reasoning_content":1,"reasoning_content":"x"}],"chat_template_kwargs":{ },"documents":{}}`))
	tpl := simTemplate()
	f.Fuzz(func(t *testing.T, e uint8, body []byte) {
		var p wire.Peeked
		var c Conversation
		endpoint := Endpoint(e % 4)
		if p.Peek(body) != nil || c.Parse(endpoint, body, &p) != "" {
			return
		}
		out, ok := c.appendTokenize(nil, "m", tpl, e >= 128)
		if !ok {
			return
		}
		var again wire.Peeked
		if err := again.Peek(out); err != nil {
			t.Fatalf("%q becomes %q: %v", body, out, err)
		}
	})
}

type plainAnswer struct {
	status int
	text   string
}

func (a plainAnswer) Post(context.Context, string, []byte, int64) (int, []byte, error) {
	return a.status, []byte(a.text), nil
}

// TestTokenizeBodiesAgainstVLLM: of each body whose prompt real vLLM has made (testdata/chat), what /tokenize is asked
// renders to that very text. Where our own reading refuses the question it is not compared: it holds arguments that
// only an engine may be given so.
func TestTokenizeBodiesAgainstVLLM(t *testing.T) {
	t.Parallel()
	g := readGolden(t)
	equal := map[string]int{}
	for _, c := range g.Cases {
		var p wire.Peeked
		var conv Conversation
		want, answered := c.Want["sim"]
		if !answered || p.Peek(c.Body) != nil || conv.Parse(endpointOf[c.Kind], c.Body, &p) != "" {
			continue
		}
		asked, ok := conv.appendTokenize(nil, "", simTemplate(), false)
		if !ok {
			continue
		}
		asked = []byte(strings.Replace(string(asked), `,"add_special_tokens":true`, "", 1)) // the sim's model has none
		got, note := renderGolden(t, simTemplate(), EndpointChat, asked)
		switch {
		case note != "":
		case got == want || digest(got) == want:
			equal[c.Kind]++
		default:
			t.Errorf("%s %s is asked as\n%s: got\n%q\nwant\n%q", c.Kind, c.Body, asked, clip(got, want), clip(want, got))
		}
	}
	if equal["chat"] < 100 || equal["messages"] < 30 || equal["responses"] < 30 {
		t.Errorf("only %v were compared", equal)
	}
}
