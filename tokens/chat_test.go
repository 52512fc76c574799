package tokens

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"ramjet/wire"
)

// simTemplate is the simulator's own template, the one that is always here.
var simTemplate = sync.OnceValue(func() *Template {
	t, err := LoadTemplate("../sim/model", "", nil)
	if err != nil {
		panic(err)
	}
	return t
})

func parse(t testing.TB, e Endpoint, body string) (*Conversation, string) {
	t.Helper()
	var p wire.Peeked
	if err := p.Peek([]byte(body)); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var c Conversation
	note := c.Parse(e, []byte(body), &p)
	return &c, note
}

func render(t testing.TB, tpl *Template, e Endpoint, body string) (string, string) {
	t.Helper()
	c, note := parse(t, e, body)
	if note != "" {
		return "", note
	}
	out, note := c.Render(nil, tpl)
	return string(out), note
}

// TestNotes lists what cannot be known, and why. (What can be is in testdata/chat/golden.json.)
func TestNotes(t *testing.T) {
	t.Parallel()
	const user = `{"role":"user","content":"x"}`
	tests := []struct {
		endpoint   Endpoint
		body, note string
	}{
		{EndpointChat, `{"messages":[]}`, noteInvalid},
		{EndpointChat, `{}`, noteInvalid},
		{EndpointChat, `[1]`, noteInvalid},
		{EndpointChat, `{"messages":"x"}`, noteInvalid},
		{EndpointChat, `{"messages":[1]}`, noteInvalid},
		{EndpointChat, `{"messages":[{"content":"x"}]}`, noteInvalid},
		{EndpointChat, `{"messages":[{"role":"user","content":null}]}`, noteInvalid},
		{EndpointChat, `{"messages":[{"role":"user","content":5}]}`, noteInvalid},
		{EndpointChat, `{"messages":[` + user + `],"tools":[]}`, noteInvalid},
		{EndpointChat, `{"messages":[` + user + `],"tools":[{"type":"web_search"}]}`, noteInvalid},
		{EndpointChat, `{"messages":[` + user + `],"continue_final_message":true}`, noteInvalid},
		{EndpointChat, `{"messages":[` + user + `],"add_generation_prompt":"yes"}`, noteInvalid},
		{EndpointChat, `{"messages":[` + user + `],"chat_template":"{{ 1 }}"}`, noteTemplate},
		{EndpointChat, `{"messages":[` + user + `],"chat_template":null}`, ""},
		{EndpointChat, `{"messages":[` + user + `],"chat_template_kwargs":{"chat_template":"x"}}`, noteArgument},
		{EndpointChat, `{"messages":[` + user + `],"chat_template_kwargs":{"tools":[]}}`, noteArgument},
		{EndpointChat, `{"messages":[` + user + `],"chat_template_kwargs":{"range":1}}`, noteArgument},
		{EndpointChat, `{"messages":[` + user + `],"chat_template_kwargs":{"rj_out":1}}`, noteArgument},
		{EndpointChat, `{"messages":[` + user + `],"chat_template_kwargs":{"a b":1}}`, noteArgument},
		{EndpointChat, `{"messages":[` + user + `],"chat_template_kwargs":[]}`, noteInvalid},
		{EndpointChat, `{"messages":[` + user + `],"add_special_tokens":true}`, noteSpecial},
		{EndpointChat, `{"messages":[` + user + `],"truncate_prompt_tokens":5}`, noteTruncate},
		{EndpointChat, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]}]}`, noteMedia},
		{EndpointChat, `{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"input_audio"}]}]}`, noteMedia},
		{EndpointChat, `{"messages":[{"role":"user","content":[{"text":"no type"}]}]}`, noteMedia},
		{EndpointChat, `{"messages":[{"role":"user","content":[{"type":"text","text":"x","uuid":"1"}]}]}`, noteMedia},
		{EndpointChat, `{"messages":[{"role":"user","content":["bare"]}]}`, notePart},
		{EndpointChat, `{"messages":[{"role":"tool","content":[{"type":"tool_reference","name":"f"}]}]}`, notePart},
		{EndpointChat, `{"messages":[{"role":"user","content":"ok \ud83d end"}]}`, noteSurrogate},
		{EndpointChat, `{"messages":[{"role":"user","content":"ok \ud83d\ude00 end \u0000"}]}`, ""},
		{EndpointChat, `{"messages":[` + user + `,{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":\"\\udc00\"}"}}]}]}`, noteSurrogate},
		{EndpointChat, `{"messages":[` + user + `],"tools":[{"type":"function","function":{"name":"f","parameters":{"default":99999999999999999999}}}]}`, "big integer"},
		{EndpointChat, `{"messages":[` + user + `],"tools":[{"type":"function","function":{"name":"f","parameters":{"default":1e400}}}]}`, ""},
		{EndpointMessages, `{"messages":[]}`, noteInvalid},
		{EndpointMessages, `{"messages":[{"role":"narrator","content":"x"}]}`, noteInvalid},
		{EndpointMessages, `{"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]}`, noteMedia},
		{EndpointMessages, `{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"image"}]}]}]}`, noteMedia},
		{EndpointMessages, `{"messages":[{"role":"system","content":[{"type":"tool_removal"}]}]}`, noteTools},
		{EndpointMessages, `{"messages":[{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{}}]}]}`, noteInvalid},
		{EndpointMessages, `{"messages":[` + user + `],"tools":[{"type":"web_search_20250305","name":"web_search"}]}`, noteInvalid},
		{EndpointResponses, `{"input":"x","previous_response_id":"resp_1"}`, noteStored},
		{EndpointResponses, `{"input":"x","previous_response_id":null,"truncation":"disabled"}`, ""},
		{EndpointResponses, `{"input":"x","truncation":"auto"}`, noteTruncate},
		{EndpointResponses, `{"input":[]}`, noteInvalid},
		{EndpointResponses, `{"input":[{"type":"computer_call"}]}`, noteItem},
		{EndpointResponses, `{"input":"x","tools":[{"type":"web_search"}]}`, noteTools},
		{EndpointResponses, `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]}`, noteMedia},
		{EndpointCompletions, `{"prompt":[]}`, noteInvalid},
		{EndpointCompletions, `{"prompt":["A",1]}`, noteInvalid},
		{EndpointCompletions, `{"prompt":[[1],"A"]}`, noteInvalid},
		{EndpointCompletions, `{"prompt":[[1],[]]}`, noteInvalid},
		{EndpointCompletions, `{"prompt":[1,-2]}`, noteInvalid},
		{EndpointCompletions, `{"prompt":[1,2.0]}`, noteInvalid},
		{EndpointCompletions, `{}`, noteInvalid},
		{EndpointCompletions, `{"prompt":"x","suffix":"y"}`, noteSuffix},
		{EndpointCompletions, `{"prompt_embeds":"x"}`, noteEmbeds},
	}
	for _, tt := range tests {
		_, note := render(t, simTemplate(), tt.endpoint, tt.body)
		if tt.endpoint == EndpointCompletions {
			_, note = parse(t, tt.endpoint, tt.body)
		}
		if note != tt.note {
			t.Errorf("%d %s: note %q, want %q", tt.endpoint, tt.body, note, tt.note)
		}
	}
}

// TestPrompts reads the forms of case C30.
func TestPrompts(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][]Prompt{
		`{"prompt":"A"}`:                         {{Text: "A"}},
		`{"prompt":["A","B"]}`:                   {{Text: "A"}, {Text: "B"}},
		`{"prompt":[1,2,3]}`:                     {{IDs: []uint32{1, 2, 3}}},
		`{"prompt":[[1,2],[3,4]]}`:               {{IDs: []uint32{1, 2}}, {IDs: []uint32{3, 4}}},
		`{"prompt":""}`:                          {{}},
		`{"prompt":"A","prompt":["\u00e9\n"]}`:   {{Text: "é\n"}},
		`{"pr\u006fmpt": [ 7 ] , "suffix":null}`: {{IDs: []uint32{7}}},
	} {
		c, note := parse(t, EndpointCompletions, body)
		equal := slices.EqualFunc(c.Prompts(), want, func(a, b Prompt) bool { return a.Text == b.Text && slices.Equal(a.IDs, b.IDs) })
		if note != "" || !equal {
			t.Errorf("%s: %v %q, want %v", body, c.Prompts(), note, want)
		}
	}
}

func TestHeadAndItems(t *testing.T) {
	t.Parallel()
	c, _ := parse(t, EndpointChat, `{ "messages" : [ {"role":"user","content":"a]\"b"} , {"role":"assistant","content":null} ] , "tools":[{"type":"function","function":{"name":"f"}}], "model":"m"}`)
	if c.Items() != 2 || c.Item(0) != `{"role":"user","content":"a]\"b"}` || c.Item(1) != `{"role":"assistant","content":null}` {
		t.Errorf("items: %d", c.Items())
	}
	other, _ := parse(t, EndpointChat, `{"model":"n","temperature":1,"tools":[{"type":"function","function":{"name":"f"}}],"messages":[{"role":"user","content":"z"}]}`)
	if string(c.AppendHead(nil)) != string(other.AppendHead(nil)) {
		t.Error("heads differ by what is no part of the prompt")
	}
	third, _ := parse(t, EndpointChat, `{"tools":[{"type":"function","function":{"name":"g"}}],"messages":[{"role":"user","content":"z"}]}`)
	if string(c.AppendHead(nil)) == string(third.AppendHead(nil)) {
		t.Error("heads are equal with other tools")
	}
}

// TestReasoningVanishes is case C21: with a template that drops old reasoning, old text is stable inside a tool loop
// and not when a new user message comes.
func TestReasoningVanishes(t *testing.T) {
	t.Parallel()
	const source = `{%- set ns = namespace(last=0) %}{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}` +
		`{%- for m in messages %}{{- '<|' + m.role + '|>' }}{%- if m.reasoning and loop.index0 > ns.last %}{{- '<think>' + m.reasoning + '</think>' }}{%- endif %}` +
		`{{- m.content }}{%- for c in m.tool_calls or [] %}{{- c.function.arguments | tojson }}{%- endfor %}{{- '<|end|>' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}`
	tpl, err := NewTemplate(source, TemplateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := [shapes]bool{true, true, false}; tpl.plain.stable != want {
		t.Fatalf("stable %v, want %v", tpl.plain.stable, want)
	}
	base := `{"role":"user","content":"q"},{"role":"assistant","content":"","reasoning":"r1","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"out"}`
	loop := base + `,{"role":"assistant","content":"","reasoning":"r2","tool_calls":[{"id":"2","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"2","content":"out2"}`
	asked := base + `,{"role":"assistant","content":"done","reasoning":"r2"},{"role":"user","content":"more"}`
	if !sameByEnd(t, tpl, loop, 3) {
		t.Error("a tool loop was not rendered by its end")
	}
	if sameByEnd(t, tpl, asked, 3) {
		t.Error("a new user message was rendered by its end though reasoning vanishes")
	}
}

// sameByEnd compares a whole rendering with that of the first n items and the end; false when the end was refused.
func sameByEnd(t testing.TB, tpl *Template, messages string, n int) bool {
	t.Helper()
	return checkEnd(t, tpl, `{"messages":[`+messages+`]}`, n)
}

func checkEnd(t testing.TB, tpl *Template, body string, n int) bool {
	t.Helper()
	c, note := parse(t, EndpointChat, body)
	if note != "" {
		return false
	}
	whole, note := c.Render(nil, tpl)
	if note != "" {
		return false
	}
	// What an earlier request, that of the first n items, leaves behind: its text without the generation prompt and
	// the shape of its items.
	var items []string
	for i := range n {
		items = append(items, c.Item(i))
	}
	old := `{"messages":[` + strings.Join(items, ",") + `]` + restOf(t, body) + `}`
	earlier, note := parse(t, EndpointChat, old)
	if note != "" {
		t.Fatal(note)
	}
	before, note := earlier.Render(nil, tpl)
	seen := earlier.Shape()
	tail, ok := earlier.Boundary(tpl)
	if note != "" || !ok {
		return false
	}
	end, ok := c.RenderFrom(before[:len(before)-tail], tpl, n, seen)
	if !ok {
		return false
	}
	if string(end) != string(whole) {
		t.Fatalf("%s\nfrom item %d on: got\n%q\nwant\n%q", body, n, end, whole)
	}
	return true
}

// restOf returns the members beside messages, each behind a comma.
func restOf(t testing.TB, body string) string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatal(err)
	}
	rest := ""
	for name, raw := range m {
		if name != "messages" {
			rest += fmt.Sprintf(",%q:%s", name, raw)
		}
	}
	return rest
}

// TestByEndAgainstWhole renders random conversations by their end from wherever an earlier request may have ended.
func TestByEndAgainstWhole(t *testing.T) {
	t.Parallel()
	g := readGolden(t)
	for name := range g.Templates {
		tpl := provenTemplate(t, g, name)
		if tpl == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, 2))
			done, tried := 0, 0
			for range 40 {
				body, ends := randomChat(r)
				for _, n := range ends {
					tried++
					if checkEnd(t, tpl, body, n) {
						done++
					}
				}
			}
			t.Logf("%s: %d of %d by their end, stable %v", name, done, tried, tpl.plain.stable)
			if name == "sim" && done*10 < tried*7 {
				t.Errorf("only %d of %d were rendered by their end", done, tried)
			}
		})
	}
}

// randomChat makes a conversation and lists after how many items a request may have been sent.
func randomChat(r *rand.Rand) (body string, ends []int) {
	texts := []string{"hello", "", " x ", "a\nb\n", "ünï 你好", "\n\nlead", "<think>\nt\n</think>\n\nafter", "<tool_response>\nz\n</tool_response>", "<|im_end|>"}
	pick := func() string {
		n := 5 // the others hold what templates look for
		if r.IntN(40) == 0 {
			n = len(texts)
		}
		b, _ := json.Marshal(texts[r.IntN(n)])
		return string(b)
	}
	var items []string
	if r.IntN(2) == 0 {
		items = append(items, `{"role":"system","content":`+pick()+`}`)
	}
	reasoning := func() string {
		if r.IntN(3) == 0 {
			return `,"reasoning":` + pick()
		}
		return ""
	}
	calls := 0
	for range 1 + r.IntN(4) {
		items = append(items, `{"role":"user","content":`+pick()+`}`)
		ends = append(ends, len(items))
		for range r.IntN(4) {
			list, results := []string{}, []string{}
			for range 1 + r.IntN(2) {
				calls++
				id := fmt.Sprintf("call%05d", calls)
				list = append(list, `{"id":"`+id+`","type":"function","function":{"name":"f","arguments":"{\"a\":`+fmt.Sprint(r.IntN(9))+`}"}}`)
				results = append(results, `{"role":"tool","tool_call_id":"`+id+`","content":`+pick()+`}`)
			}
			items = append(items, `{"role":"assistant","content":`+pick()+reasoning()+`,"tool_calls":[`+strings.Join(list, ",")+`]}`)
			items = append(items, results...)
			ends = append(ends, len(items))
		}
		items = append(items, `{"role":"assistant","content":`+pick()+reasoning()+`}`)
	}
	if r.IntN(2) == 0 {
		items = items[:ends[len(ends)-1]]
		ends = ends[:len(ends)-1]
	} else {
		items = append(items, `{"role":"user","content":`+pick()+`}`)
	}
	rest := []string{"", `,"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{}}}}]`}[r.IntN(2)]
	rest += []string{"", "", `,"chat_template_kwargs":{"enable_thinking":false}`, `,"chat_template_kwargs":{"preserve_thinking":true}`}[r.IntN(4)]
	return `{"messages":[` + strings.Join(items, ",") + `]` + rest + `}`, ends
}

// TestCutAnywhere: a body cut short is never valid JSON, and one with any byte changed gives a text or a note.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	body, _ := randomChat(r)
	tpl := simTemplate()
	for i := range len(body) {
		changed := []byte(body)
		changed[i] ^= byte(1 + r.IntN(127))
		var p wire.Peeked
		if p.Peek(changed) != nil {
			continue
		}
		var c Conversation
		if c.Parse(EndpointChat, changed, &p) == "" {
			c.Render(nil, tpl)
		}
	}
}

func TestLoads(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a":1,"b":2,"a":3}`: `{"a": 3, "b": 2}`, ` [1.0, -0, 1e5, NaN, -Infinity] `: `[1.0, 0, 100000.0, NaN, -Infinity]`, `"\u00e9\/\b"`: `"é/\b"`, `{}`: `{}`, `[]`: `[]`,
		`01`: "bad", `1.`: "bad", `.5`: "bad", `-`: "bad", `{"a":1,}`: "bad", `[1,]`: "bad", `{'a':1}`: "bad", "\"a\nb\"": "bad", `"\x"`: "bad", `"\u12g4"`: "bad", `tru`: "bad", ``: "bad", `1 2`: "bad", `{"a" 1}`: "bad", `"open`: "bad", `"\`: "bad", `"\u00`: "bad",
		strings.Repeat("[", 200) + strings.Repeat("]", 200): "odd deep value", `123456789012345678901`: "odd big integer", `"\ud800"`: "odd surrogate", `9007199254740993`: "9007199254740993",
	} {
		v, odd, ok := loads(text)
		got := "bad"
		if odd != "" {
			got = "odd " + odd
		} else if ok {
			style := jsonStyle{item: ", ", key: ": "}
			got = string(style.appendJSON(nil, v, 0))
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// TestConcurrently renders with one template from several goroutines; -race watches.
func TestConcurrently(t *testing.T) {
	t.Parallel()
	tpl := simTemplate()
	r := rand.New(rand.NewPCG(5, 6))
	var bodies, want []string
	for range 8 {
		body, _ := randomChat(r)
		out, note := render(t, tpl, EndpointChat, body)
		if note != "" {
			t.Fatal(note)
		}
		bodies, want = append(bodies, body), append(want, out)
	}
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range 40 {
				k := (i + g) % len(bodies)
				if out, _ := render(t, tpl, EndpointChat, bodies[k]); out != want[k] {
					t.Errorf("body %d renders differently beside others", k)
				}
			}
		})
	}
	group.Wait()
}

// TestTemplatePanics: what panics inside the library is a note.
func TestTemplatePanics(t *testing.T) {
	t.Parallel()
	// The library repeats a string a negative number of times, which Go's strings.Repeat refuses by a panic.
	tpl, err := NewTemplate("{{ messages[0].content * (0 - 1) }}", TemplateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if out, note := render(t, tpl, EndpointChat, `{"messages":[{"role":"user","content":"x"}]}`); note != errFailed.Error() {
		t.Errorf("got %q, note %q", out, note)
	}
}
