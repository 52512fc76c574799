package tokens

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ramjet/wire"
)

// Verdict is the outcome of ProbeParity.
type Verdict uint8

// The verdicts.
const (
	VerdictOK          Verdict = iota // every prompt that was compared has the engine's ids
	VerdictDiffers                    // some classes have others: these are approximate now
	VerdictForeign                    // the tokenizer does not belong to the model that the engine serves
	VerdictUnreachable                // the engine could not be asked
	VerdictNoTokenizer                // there is nothing to compare
)

// ParityResult is what ProbeParity found.
type ParityResult struct {
	Verdict  Verdict
	Compared int     // prompts
	Differ   []Class // with VerdictDiffers
	Err      error   // with VerdictUnreachable
}

// String returns the result as a sentence for log and `check --probe`.
func (r ParityResult) String() string {
	switch r.Verdict {
	case VerdictOK:
		return fmt.Sprintf("tokenizer and chat template make the engine's ids (%d prompts compared)", r.Compared)
	case VerdictDiffers:
		var words []string
		for _, c := range r.Differ {
			words = append(words, c.String())
		}
		return fmt.Sprintf("ids differ from the engine's for requests of these classes, which are routed approximately: %s (%d prompts compared)", strings.Join(words, ", "), r.Compared)
	case VerdictForeign:
		return "the tokenizer does not belong to the model that the engine serves: set tokens.path to that model's own files; requests are routed approximately"
	case VerdictUnreachable:
		return fmt.Sprintf("ids could not be compared with the engine's: %v", r.Err)
	case VerdictNoTokenizer:
	}
	return "there is no local tokenizer to compare with the engine's"
}

// ProbeParity compares the ids of a set of varied prompts, some for each class that is common, with an engine's own
// (POST /tokenize), and notes what it finds: classes that are equal are proven, one that differs is approximate at
// once, and with a foreign tokenizer all are until a later probe of that engine finds otherwise. models are the names
// that the engine serves: the first is asked for, the engine's default without. It asks some 30 short questions, one
// after the other; run it beside requests, when an engine is found and when it has restarted.
func (m *Model) ProbeParity(ctx context.Context, a Asker, engine string, models ...string) ParityResult {
	s := m.Source()
	if s == nil {
		return ParityResult{Verdict: VerdictNoTokenizer}
	}
	model := ""
	var numbers modelBits
	numbers.add(Class(0)) // a request that names no model may come to any engine
	for i := len(models) - 1; i >= 0; i-- {
		model = models[i]
		numbers.add(m.names.number([]byte(model)))
	}
	var r ParityResult
	for _, text := range plainProbes {
		body := `{"prompt":` + string(wire.AppendQuoted(nil, text)) + `,"add_special_tokens":false}`
		got, err := m.compareProbe(ctx, a, probe{EndpointCompletions, body}, model)
		switch {
		case err != nil:
			return ParityResult{Verdict: VerdictUnreachable, Compared: r.Compared, Err: err}
		case got.known && !got.equal:
			m.parity.setForeign(engine, numbers)
			return ParityResult{Verdict: VerdictForeign, Compared: r.Compared + 1}
		case got.known:
			r.Compared++
		}
	}
	m.parity.setForeign(engine, modelBits{})
	for _, probe := range probes {
		got, err := m.compareProbe(ctx, a, probe, model)
		if err != nil {
			return ParityResult{Verdict: VerdictUnreachable, Compared: r.Compared, Differ: r.Differ, Err: err}
		}
		if !got.known {
			continue
		}
		r.Compared++
		if !got.equal && !slices.Contains(r.Differ, got.class) {
			r.Verdict = VerdictDiffers
			r.Differ = append(r.Differ, got.class)
		}
		m.parity.observe(got.class, comparison{engine: engine, equal: got.equal, ids: true, predicted: got.ours, reported: got.theirs})
	}
	if r.Compared == 0 {
		return ParityResult{Verdict: VerdictUnreachable, Err: errors.New("it refuses every question")}
	}
	return r
}

// compared is a prompt whose ids were asked for.
type compared struct {
	class        Class
	known        bool // both sides have ids
	equal        bool
	ours, theirs int // ids
}

// compareProbe asks for one prompt's ids. What we do not know, or the engine refuses, is not compared: its requests
// are approximate, or fail at the engine. But an engine that has no such endpoint is an error. Time does not matter
// here, so that ours are made without limits.
func (m *Model) compareProbe(ctx context.Context, a Asker, q probe, model string) (got compared, err error) {
	var peek wire.Peeked
	var c Conversation
	body := []byte(q.body)
	if err := peek.Peek(body); err != nil {
		panic("BUG: a probe is no JSON: " + q.body)
	}
	s := m.Source()
	if s == nil || c.Parse(q.endpoint, body, &peek) != "" {
		return got, nil
	}
	ours, note := s.encodeAfresh(&c)
	if note != "" {
		return got, nil
	}
	class := (c.class(&peek) | m.names.number([]byte(model))).withShape(c.Shape())
	question, ok := c.appendTokenize(nil, model, s.template, false)
	if !ok {
		return got, nil
	}
	theirs, err := askIDs(ctx, a, question)
	switch {
	case errors.Is(err, errNoTokenize):
		return got, err
	case errors.Is(err, errCannotAsk):
		return got, nil
	case err != nil:
		return got, err
	}
	got = compared{class: class, known: true, equal: slices.Equal(ours, theirs), ours: len(ours), theirs: len(theirs)}
	if q.endpoint == EndpointMessages && got.equal {
		n, err := askCount(ctx, a, model, q.body)
		if err != nil {
			return compared{}, err
		}
		if n == 0 {
			return compared{}, nil
		}
		got.theirs, got.equal = n, got.ours == n
	}
	return got, nil
}

// askCount asks an engine how many tokens a /v1/messages body has, and returns 0 where it cannot say. What /tokenize is
// asked was converted here, so that it alone would not show a conversion that differs from the engine's. The error says
// that asking again may help.
func askCount(ctx context.Context, a Asker, model, body string) (int, error) {
	question := []byte(body)
	if model != "" {
		question = append(append(wire.AppendQuoted([]byte(`{"model":`), model), ','), body[1:]...)
	}
	status, answer, err := a.Post(ctx, "/v1/messages/count_tokens", question, maxProbeAnswer)
	if err != nil {
		return 0, fmt.Errorf("cannot ask for a count: %w", err)
	}
	if status >= 500 || status == 429 || status == 408 {
		return 0, fmt.Errorf("cannot ask for a count: the engine answers %d", status)
	}
	var got struct {
		Tokens int `json:"input_tokens"`
	}
	if status == 200 {
		_ = json.Unmarshal(answer, &got) // what cannot be read says nothing
	}
	return max(got.Tokens, 0), nil
}

type probe struct {
	endpoint Endpoint
	body     string
}

// plainProbes are texts without a template: a tokenizer of another model gives some of them other ids.
var plainProbes = []string{
	"The quick brown fox jumps over the lazy dog, and 1234567 more things happen in 2026.",
	"def f(x):\n\treturn [i**2 for i in range(x) if i % 3 == 0]  # squares\n",
	"今天天气很好，我们去公园散步吧。Ünïcödé, 한국어, العربية, \U0001F600",
}

// probeTools are definitions whose members stand in another order than vLLM's, with defaults that it leaves out.
const probeTools = `"tools":[{"type":"function","function":{"parameters":{"type":"object","properties":{"zone":{"type":"string","default":"UTC"},"count":{"type":"number","default":1.5}},"required":["zone"]},` +
	`"name":"clock","description":"Tells the time","strict":null}}]`

const probeCall = `{"role":"user","content":"What time is it?"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_00001","type":"function","function":{"name":"clock","arguments":"{\"zone\":\"UTC\",\"count\":2.0}"}}]},` +
	`{"role":"tool","tool_call_id":"call_00001","content":"12:30"}`

// probes are the classes that clients use most, in every dialect. tool_choice "none" is not among them, as /tokenize
// does not know it.
var probes = []probe{
	{EndpointCompletions, `{"prompt":"Once upon a time"}`},
	{EndpointCompletions, `{"prompt":"  Two  spaces,\n\na line, and a number 3.14159 "}`},
	{EndpointCompletions, `{"prompt":"Once more","add_special_tokens":false}`},
	{EndpointChat, `{"messages":[{"role":"user","content":"Hello!"}]}`},
	{EndpointChat, `{"messages":[{"role":"system","content":"You are terse. \u4f60\u597d"},{"role":"user","content":"List three primes.\n\n"}]}`},
	{EndpointChat, `{"messages":[{"role":"user","content":"One"},{"role":"assistant","content":" Two "},{"role":"user","content":"Three"},{"role":"assistant","content":"Four"},{"role":"user","content":"Five \ud83d\ude00"}]}`},
	{EndpointChat, `{"messages":[{"role":"user","content":[{"type":"text","text":"Part one."},{"type":"text","text":"Part two."}]}]}`},
	{EndpointChat, `{"messages":[{"role":"system","content":"S"},{"role":"user","content":"<|im_start|>text that looks special<|im_end|>"}]}`},
	{EndpointChat, `{"messages":[{"role":"user","content":"What time is it?"}],` + probeTools + `}`},
	{EndpointChat, `{"messages":[` + probeCall + `],` + probeTools + `}`},
	{EndpointChat, `{"messages":[` + probeCall + `,{"role":"assistant","content":"Half past twelve."},{"role":"user","content":"Thanks"}],` + probeTools + `}`},
	{EndpointChat, `{"messages":[{"role":"user","content":"What time is it?"}],"chat_template_kwargs":{"enable_thinking":false},` + probeTools + `}`},
	{EndpointChat, `{"messages":[{"role":"user","content":"What time is it?"}],"reasoning_effort":"low",` + probeTools + `}`},
	{EndpointChat, `{"messages":[{"role":"user","content":"What is it?"},{"role":"assistant","reasoning":"The clock knows.","content":"Noon."},` + probeCall + `],` + probeTools + `}`},
	{EndpointChat, `{"messages":[{"role":"user","content":"Quick answer, please."}],"chat_template_kwargs":{"enable_thinking":false}}`},
	{EndpointChat, `{"messages":[{"role":"user","content":"Think well."}],"reasoning_effort":"low"}`},
	{EndpointChat, `{"messages":[{"role":"user","content":"1+1"},{"role":"assistant","reasoning":"Add them.","content":"2"},{"role":"user","content":"2+2"}]}`},
	{EndpointChat, `{"messages":[{"role":"user","content":"Go on"},{"role":"assistant","content":"Once upon"}],"continue_final_message":true,"add_generation_prompt":false}`},
	{EndpointMessages, `{"max_tokens":1,"messages":[{"role":"user","content":"Hello!"}]}`},
	{EndpointMessages, `{"max_tokens":1,"system":"You are terse.","messages":[{"role":"user","content":[{"type":"text","text":"One"}]},{"role":"assistant","content":"Two"},{"role":"user","content":"Three"}]}`},
	{EndpointMessages, `{"max_tokens":1,"tools":[{"name":"clock","description":"Tells the time","input_schema":{"type":"object","properties":{"zone":{"type":"string"}}}}],` +
		`"messages":[{"role":"user","content":"Time?"},{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01","name":"clock","input":{"zone":"UTC"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01","content":"12:30"}]}]}`},
	{EndpointResponses, `{"input":"Hello!"}`},
	{EndpointResponses, `{"instructions":"You are terse.","input":[{"role":"user","content":"One"},{"role":"assistant","content":"Two"},{"role":"user","content":"Three"}]}`},
	{EndpointResponses, `{"tools":[{"type":"function","name":"clock","description":"Tells the time","parameters":{"type":"object","properties":{"zone":{"type":"string"}}}}],"input":[{"role":"user","content":"Time?"}]}`},
}
