package tokens

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"

	"ramjet/wire"
)

func probeTool() jinja.Value {
	v, _, _ := loads(`{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}`)
	return v
}

// probe finds out what vLLM finds out about a template, and proves for which conversations old text is stable.
func (t *Template) probe() {
	// Probes compare renderings with each other; the date does not matter to them, only that it stands still.
	now := t.now
	t.now = func() time.Time { return time.Unix(0, 0).UTC() }
	defer func() { t.now = now }()
	t.mergeSystem = mergesSystem(t.plain) || mergesSystem(t.withTools)
	t.disabledEffort = t.effortForDisabled()
	t.plain.stable = t.proveStable()
	t.withTools.stable = t.plain.stable
}

// mergesSystem asks as vLLM does whether system messages behind the first break the template: it renders such a
// conversation in a bare environment, where raise_exception, strftime_now and special tokens are undefined, so that
// using them fails as well (anthropic/serving.py).
func mergesSystem(v *variant) bool {
	bare := &Template{}
	var list []jinja.Value
	for _, role := range [...]string{"system", "user", "system", "user"} {
		list = append(list, chatMessage(role, jinja.NewString("t")))
	}
	vars := values{"messages": jinja.NewList(list), "add_generation_prompt": jinja.NewBool(false),
		"raise_exception": jinja.Undefined(), "strftime_now": jinja.Undefined()}
	_, err := bare.render(v, vars)
	return err != nil || failsBare(v.source)
}

// failsBare reports whether a template fails in the bare environment by what the library lets pass: the statement
// `generation`, which is transformers' own, and adding a special token to something by +.
func failsBare(source string) bool {
	pieces, err := lexTemplate(source)
	if err != nil {
		return true
	}
	for _, p := range pieces {
		if p.kind == pieceStatement && len(p.tokens) == 1 && p.tokens[0].name("generation") {
			return true
		}
		for i, t := range p.tokens {
			if t.kind == lexName && strings.HasSuffix(t.text, "_token") &&
				(i > 0 && p.tokens[i-1].op("+") || i+1 < len(p.tokens) && p.tokens[i+1].op("+")) {
				return true
			}
		}
	}
	return false
}

// effortForDisabled is the effort that vLLM gives the template for thinking {"type":"disabled"}: "low" where "none"
// fails or makes no difference to some other effort. Empty where we cannot tell.
func (t *Template) effortForDisabled() string {
	unknown := false
	prompt := func(effort string) (string, bool) {
		body := []byte(`{"messages":[{"role":"user","content":"Hi"}],"reasoning_effort":"` + effort + `"}`)
		out, note := renderBody(t, body)
		unknown = unknown || note != "" && note != errRefused.Error() && note != errFailed.Error()
		return out, note == ""
	}
	none, ok := prompt("none")
	if unknown {
		return ""
	}
	if !ok {
		return "low"
	}
	for _, effort := range [...]string{"low", "medium", "high", "xhigh", "max"} {
		if other, ok := prompt(effort); ok && other == none {
			return "low"
		}
	}
	return "none"
}

func renderBody(t *Template, body []byte) (string, string) {
	var p wire.Peeked
	var c Conversation
	if p.Peek(body) != nil {
		return "", noteInvalid
	}
	if note := c.Parse(EndpointChat, body, &p); note != "" {
		return "", note
	}
	out, note := c.Render(nil, t)
	return string(out), note
}

// proveConversations is how many conversations stability is judged by, proveLeast how often a class must have been
// rendered by its end among them.
const (
	proveConversations = 160
	proveLeast         = 24
)

// proveStable renders conversations whole and, wherever an earlier request may have ended, by their end alone, and
// says for which classes both were always the same. The conversations are drawn at random from a fixed seed: what a
// template carries along (DeepSeek-V3's says whether the last output was the first) shows after some turns only.
func (t *Template) proveStable() (stable [shapes]bool) {
	var checked [shapes]int
	stable = [shapes]bool{true, true, true}
	r := rand.New(rand.NewPCG(2026, 1130))
	for i := range proveConversations {
		body, ends := probeConversation(r, i%3 != 0)
		t.proveOne([]byte(body), ends, &stable, &checked)
	}
	for class := range stable {
		// A template that carries something along without any reasoning does so with it as well, seen or not.
		stable[class] = stable[class] && stable[0] && checked[class] >= proveLeast
	}
	return stable
}

// probeConversation makes a chat of a few turns with tool calls, and lists after how many messages a request may have
// been sent.
func probeConversation(r *rand.Rand, reasoning bool) (body string, ends []int) {
	texts := [...]string{`"one"`, `""`, `"  padded text \n"`, `"two\nlines"`, `"\n\nlead"`, `"[\"json\"]"`, `"{\"k\": 1}"`}
	pick := func() string { return texts[r.IntN(len(texts))] }
	thought := func() string {
		if reasoning && r.IntN(2) == 0 {
			return `,"reasoning":` + pick()
		}
		return ""
	}
	var b strings.Builder
	count := 0
	add := func(message string) {
		if count++; count > 1 {
			b.WriteByte(',')
		}
		b.WriteString(message)
	}
	if r.IntN(2) == 0 {
		add(`{"role":"system","content":` + pick() + `}`)
	}
	calls, turns, middle := 0, 1+r.IntN(4), r.IntN(2) == 0 // middle: the conversation ends among calls
	for turn := range turns {
		add(`{"role":"user","content":` + pick() + `}`)
		ends = append(ends, count)
		last := middle && turn == turns-1
		steps := max(0, r.IntN(5)-1)
		if last {
			steps += 2
		}
		for range steps {
			list, results := "", []string{}
			for k := range 1 + r.IntN(2) {
				calls++
				id := fmt.Sprintf("call%05d", calls)
				list += [...]string{"", ","}[min(k, 1)] + `{"id":"` + id + `","type":"function","function":{"name":"f","arguments":"{\"a\": ` + strconv.Itoa(k) + `}"}}`
				results = append(results, `{"role":"tool","tool_call_id":"`+id+`","content":`+pick()+`}`)
			}
			add(`{"role":"assistant","content":` + pick() + thought() + `,"tool_calls":[` + list + `]}`)
			for _, result := range results {
				add(result)
			}
			ends = append(ends, count)
		}
		if !last && r.IntN(8) > 0 {
			add(`{"role":"assistant","content":` + pick() + thought() + `}`)
		}
	}
	if middle {
		ends = ends[:len(ends)-1]
	} else {
		add(`{"role":"user","content":` + pick() + `}`)
	}
	tools := [...]string{"", `,"tools":[{"type":"function","function":{"name":"f","description":"another","parameters":{"type":"object","properties":{"b":{"type":"number"}}}}},` +
		`{"type":"function","function":{"name":"g","description":"long text","parameters":{"type":"object","properties":{}}}}]`}[r.IntN(2)]
	setting := [...]string{"", "", `,"chat_template_kwargs":{"enable_thinking":false}`, `,"chat_template_kwargs":{"enable_thinking":true,"preserve_thinking":true}`}[r.IntN(4)]
	return `{"messages":[` + b.String() + `]` + tools + setting + `}`, ends
}

func (t *Template) proveOne(body []byte, ends []int, stable *[shapes]bool, checked *[shapes]int) {
	var p wire.Peeked
	var c Conversation
	if p.Peek(body) != nil || c.Parse(EndpointChat, body, &p) != "" {
		panic("BUG: a probe conversation is not valid")
	}
	whole, note := c.Render(nil, t)
	if note != "" {
		return // refused shapes are never rendered by their end either
	}
	for _, n := range ends {
		if n < shortestHistory {
			continue
		}
		with, before, ok := c.windows(t, n, len(c.items))
		if !ok || !strings.HasPrefix(with, before) {
			continue // RenderFrom finds out as well
		}
		old, ok := c.prefix(t, n)
		if !ok {
			continue
		}
		class := shapeClass(c.shape&ShapeOpen != 0, c.addsUser(n))
		checked[class]++
		if old+with[len(before):] != string(whole) {
			stable[class] = false
		}
	}
}

// prefix renders the first n items without generation prompt, and leaves their shape.
func (c *Conversation) prefix(t *Template, n int) (string, bool) {
	all := c.items
	c.items = c.items[:n]
	defer func() { c.items = all }()
	r, note := c.request(t)
	if note != "" {
		return "", false
	}
	r.vars["add_generation_prompt"] = jinja.NewBool(false)
	text, note := c.finish(t, r)
	return text, note == ""
}
