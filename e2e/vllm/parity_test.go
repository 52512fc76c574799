package vllm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ramjet/tokens"
	"ramjet/wire"
)

// prompts makes ids as Ramjet does.
type prompts struct {
	source *tokens.Source
	peeked wire.Peeked
	memory tokens.Scratch
}

func newPrompts(t *testing.T, folder string) *prompts {
	t.Helper()
	tok, err := tokens.LoadTokenizer(folder)
	if err != nil {
		t.Fatal(err)
	}
	tpl, err := tokens.LoadTemplate(folder, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return &prompts{source: tokens.NewSource(tok, tpl, tokens.SourceOptions{MaxBytes: 8 << 20, Cache: 64 << 20})}
}

// ids returns a body's ids, or the note that says why they are not known.
func (p *prompts) ids(t *testing.T, e tokens.Endpoint, body string) (ids []uint32, note string) {
	t.Helper()
	if err := p.peeked.Peek([]byte(body)); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return p.source.Ids(nil, e, []byte(body), &p.peeked, &p.memory)
}

// tally counts how a list of requests came out. What is neither equal nor explained has failed the test already.
type tally struct {
	equal, refused int
	notes          map[string]int
}

func (c *tally) note(n string) {
	if c.notes == nil {
		c.notes = map[string]int{}
	}
	c.notes[n]++
}

// check ends a list: most have to be comparable, and every reason not to know a prompt has to be an expected one.
func (c *tally) check(t *testing.T, total int, expected ...string) {
	t.Helper()
	t.Logf("%d of %d equal; vLLM refused %d; not known: %v", c.equal, total, c.refused, c.notes)
	for n := range c.notes {
		if !slices.Contains(expected, n) {
			t.Errorf("%d prompts are not known: %s", c.notes[n], n)
		}
	}
	if c.equal < total*9/10 {
		t.Errorf("only %d of %d could be compared", c.equal, total)
	}
}

// reference is what vLLM says a prompt is, beside its usage.
type reference struct {
	Tokens []uint32 // of /tokenize
	Prompt []uint32 `json:"prompt_token_ids"` // of a chat, asked for by return_token_ids
}

// one makes an answer as short as can be, and return_token_ids shows the prompt that the engine was given.
var one = []string{`"max_tokens":1`, `"return_token_ids":true`}

// testChats compares the ids of many chats with those that the engine's model was given and with /tokenize.
func testChats(t *testing.T, e *engine, total int) {
	p, w := newPrompts(t, model(t, e.options.model)), newWriter(1)
	var count tally
	drifted, differ := 0, 0
	for i := range total {
		c := w.chat()
		ids, note := p.ids(t, tokens.EndpointChat, c.body(one...))
		a := post(t, e.url+"/v1/chat/completions", c.body(one...))
		switch {
		case a.status >= 500:
			t.Fatalf("chat %d: vLLM answered %d %.300s", i, a.status, a.body)
		case a.status != 200:
			count.refused++
			continue
		case note != "":
			count.note(note)
			continue
		}
		given := decode[reference](t, a.body).Prompt
		if !slices.Equal(ids, given) || len(ids) != usageOf(t, "", a.body).Prompt {
			t.Errorf("chat %d: %s\n%.2000s", i, firstDifference(ids, given), c.body())
			continue
		}
		seen := decode[reference](t, post(t, e.url+"/tokenize", c.tokenize()).ok(t, "/tokenize").body).Tokens
		if !c.seen {
			drifted++
			if !slices.Equal(seen, ids) {
				differ++
			}
		} else if !slices.Equal(ids, seen) {
			t.Errorf("chat %d against /tokenize: %s\n%.2000s", i, firstDifference(ids, seen), c.tokenize())
			continue
		}
		count.equal++
	}
	t.Logf("%d chats have members that /tokenize does not know; in %d of them it sees another prompt", drifted, differ)
	count.check(t, total)
}

func firstDifference(got, want []uint32) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	return fmt.Sprintf("%d ids instead of %d, different from number %d on: %v instead of %v", len(got), len(want), i, got[i:min(len(got), i+8)], want[i:min(len(want), i+8)])
}

// testCompletions compares prompts of every form.
func testCompletions(t *testing.T, e *engine, total int) {
	p, w := newPrompts(t, model(t, e.options.model)), newWriter(2)
	var count tally
	for i := range total {
		prompt := w.quote("x" + w.text()) // an empty prompt is refused
		switch i % 8 {
		case 0:
			prompt = "[" + prompt + "," + w.quote("y"+w.text()) + "]"
		case 1:
			prompt = "[1,2,3,999,5]"
		case 2:
			prompt = "[[7,8],[9]]"
		case 3:
			prompt += `,"add_special_tokens":` + []string{"true", "false"}[w.IntN(2)]
		}
		body := `{"model":"tiny","prompt":` + prompt + `,` + strings.Join(one, ",") + `}`
		ids, note := p.ids(t, tokens.EndpointCompletions, body)
		a := post(t, e.url+"/v1/completions", body).ok(t, body)
		if note != "" {
			count.note(note)
			continue
		}
		var given []uint32
		for _, c := range decode[struct{ Choices []reference }](t, a.body).Choices {
			given = append(given, c.Prompt...)
		}
		if !slices.Equal(ids, given) || len(ids) != usageOf(t, "", a.body).Prompt {
			t.Errorf("completion %d: %s\n%s", i, firstDifference(ids, given), body)
			continue
		}
		count.equal++
	}
	count.check(t, total)
}

// testCounts compares the number of ids with the engine's usage, for the APIs that do not show a prompt.
func testCounts(t *testing.T, e *engine, endpoint tokens.Endpoint, path string, bodies []string, expected ...string) {
	p := newPrompts(t, model(t, e.options.model))
	var count tally
	for i, body := range bodies {
		ids, note := p.ids(t, endpoint, body)
		a := post(t, e.url+path, body)
		switch {
		case a.status >= 500:
			t.Fatalf("%s %d: vLLM answered %d %.300s\n%s", path, i, a.status, a.body, body)
		case a.status != 200:
			count.refused++
			continue
		case note != "":
			count.note(note)
			continue
		}
		if u := usageOf(t, path, a.body); len(ids) != u.Prompt {
			t.Errorf("%s %d: %d ids, the engine counts %d\n%s", path, i, len(ids), u.Prompt, body)
			continue
		}
		count.equal++
	}
	count.check(t, len(bodies), expected...)
}

// anthropic makes bodies for /v1/messages.
func (w writer) anthropic(total int) (bodies []string) {
	text := func() string { return `{"type":"text","text":` + w.quote(w.text()) + `}` }
	for i := range total {
		members := []string{`"model":"tiny"`, `"max_tokens":1`}
		switch w.IntN(3) {
		case 0:
			members = append(members, `"system":`+w.quote(w.text()))
		case 1:
			members = append(members, `"system":[`+text()+`,{"type":"text","text":"cached","cache_control":{"type":"ephemeral"}}]`)
		}
		var messages []string
		for turn := range w.IntN(4) {
			messages = append(messages, `{"role":"user","content":`+w.content()+`}`)
			if w.IntN(3) > 0 {
				messages = append(messages, `{"role":"assistant","content":[`+text()+`]}`)
				continue
			}
			id := fmt.Sprintf("toolu_%d_%d", i, turn)
			messages = append(messages, `{"role":"assistant","content":[`+text()+`,{"type":"tool_use","id":"`+id+`","name":"run","input":`+argumentTexts[w.IntN(len(argumentTexts))]+`}]}`)
			messages = append(messages, `{"role":"user","content":[{"type":"tool_result","tool_use_id":"`+id+`","content":`+w.quote(w.text())+`}]}`)
			messages = append(messages, `{"role":"assistant","content":`+w.quote(w.text())+`}`)
		}
		members = append(members, `"messages":[`+strings.Join(append(messages, `{"role":"user","content":`+w.quote("Go on."+w.text())+`}`), ",")+`]`)
		if w.IntN(3) == 0 {
			members = append(members, `"tools":[{"name":"run","description":"Runs it","input_schema":{"type":"object","properties":{"z":{"type":"number"},"a":{"type":"string"}},"required":["z"]}}]`)
		}
		bodies = append(bodies, "{"+strings.Join(members, ",")+"}")
	}
	return bodies
}

// responses makes bodies for /v1/responses.
func (w writer) responses(total int) (bodies []string) {
	for i := range total {
		members := []string{`"model":"tiny"`, `"max_output_tokens":1`, `"store":false`}
		if w.IntN(2) == 0 {
			members = append(members, `"instructions":`+w.quote(w.text()))
		}
		if i%4 == 0 {
			members = append(members, `"input":`+w.quote("Well, "+w.text()))
		} else {
			var items []string
			for range w.IntN(3) {
				items = append(items, `{"role":"user","content":`+w.quote(w.text())+`}`, `{"role":"assistant","content":`+w.quote(w.text())+`}`)
			}
			items = append(items, `{"type":"message","role":"user","content":[{"type":"input_text","text":`+w.quote("Now "+w.text())+`}]}`)
			members = append(members, `"input":[`+strings.Join(items, ",")+`]`)
		}
		if w.IntN(3) == 0 {
			members = append(members, `"tools":[{"type":"function","name":"run","description":"Runs it","parameters":{"type":"object","properties":{"z":{"type":"number"}}},"strict":false}]`)
		}
		bodies = append(bodies, "{"+strings.Join(members, ",")+"}")
	}
	return bodies
}

// testDrift shows what docs/VLLM.md says of /tokenize: the members that it does not know change the prompt.
func testDrift(t *testing.T, e *engine) {
	const messages = `"messages":[{"role":"user","content":"Hello"}]`
	count := func(path, more string) int {
		v := decode[map[string]json.RawMessage](t, post(t, e.url+path, `{"model":"tiny",`+messages+more+`}`).ok(t, path).body)
		if path == "/tokenize" {
			return decode[int](t, v["count"])
		}
		return decode[usageText](t, v["usage"]).Prompt
	}
	more := `,"reasoning_effort":"none"`
	seen, given := count("/tokenize", more), count("/v1/chat/completions", more+`,"max_tokens":1`)
	if seen == given {
		t.Errorf("reasoning_effort: /tokenize counts %d as the chat endpoint does; docs/VLLM.md says that it does not know that member", seen)
	}
}

type usageText struct {
	Prompt int `json:"prompt_tokens"`
}
