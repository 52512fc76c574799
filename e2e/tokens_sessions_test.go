package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"ramjet/e2e/rig"
)

// simSession is a conversation of one client, made from a seed: each turn sends
// what was said so far and something new.
type simSession struct {
	rng      *rand.Rand
	kind     string // one of sessionKinds
	id       int
	system   string
	messages []any // chat, messages and responses
	prompt   string
	turns    int
	fill     int // words of a message at most; 0 = 40
}

// sessionKinds are the APIs, chat with tools and without.
var sessionKinds = []string{"chat", "tools", "completions", "messages", "messages-tools", "responses", "responses-tools"}

var sessionPaths = map[string]string{
	"chat": rig.ChatPath, "tools": rig.ChatPath, "completions": "/v1/completions", "messages": rig.MessagesPath, "messages-tools": rig.MessagesPath,
	"responses": rig.ResponsesPath, "responses-tools": rig.ResponsesPath,
}

func newSimSession(seed uint64, id int, kind string) *simSession {
	s := &simSession{rng: rand.New(rand.NewPCG(seed, uint64(id))), kind: kind, id: id}
	if s.rng.IntN(3) > 0 {
		s.system = s.text()
	}
	return s
}

// sessionWords are what texts are made of: what tokenizers and templates treat
// in ways of their own is among them.
var sessionWords = []string{
	"river", "The", "engine", "holds", "12345", "3.14", "naïve", "你好世界", "한국어", "🙂🙃", "\n", "\n\n", "\t", "  ", "don't", "it's", "x=1;",
	"{\"a\": [1, 2]}", "<b>bold</b>", "<|im_start|>", "<|im_end|>", "</tool_call>", "C:\\path", "\u2028", "e\u0301", "```go\nfunc f() {}\n```", "'quoted'", "—",
}

func (s *simSession) text() string {
	var b strings.Builder
	most := s.fill
	if most == 0 {
		most = 40
	}
	for range 1 + s.rng.IntN(most) {
		b.WriteString(sessionWords[s.rng.IntN(len(sessionWords))])
		if s.rng.IntN(4) > 0 {
			b.WriteByte(' ')
		}
	}
	return fmt.Sprintf("%s %d/%d", b.String(), s.id, s.turns)
}

type object = map[string]any

// clock is a tool as each dialect describes it. Its members stand in another
// order than the engine gives its template.
var clock = object{
	"name": "clock", "description": "Tells the time & date <now>",
	"parameters": object{"type": "object", "properties": object{"zone": object{"type": "string", "default": "UTC"}, "n": object{"type": "number", "default": 1.5}}, "required": []string{"zone"}},
}

// next returns the next turn's request. Most ask for few tokens.
func (s *simSession) next(stream bool) (path, body string) {
	s.turns++
	limit := 1 + s.rng.IntN(12)
	m := object{"model": "m", "temperature": 0}
	if stream {
		m["stream"] = true
	}
	switch s.kind {
	case "completions":
		s.prompt += s.text()
		m["prompt"], m["max_tokens"] = s.prompt, limit
	case "messages", "messages-tools":
		s.turnMessages(m)
		m["max_tokens"] = limit
	case "responses", "responses-tools":
		s.turnResponses(m)
		m["max_output_tokens"] = limit
	default:
		s.turnChat(m)
		m["max_tokens"] = limit
	}
	if stream && (s.kind == "chat" || s.kind == "tools" || s.kind == "completions") {
		m["stream_options"] = object{"include_usage": true}
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic("BUG: a request is no JSON: " + err.Error())
	}
	return sessionPaths[s.kind], string(b)
}

// content is text, or parts of text.
func (s *simSession) content(kind string) any {
	if s.rng.IntN(3) > 0 {
		return s.text()
	}
	return []object{{"type": kind, "text": s.text()}, {"type": kind, "text": s.text()}}
}

func (s *simSession) turnChat(m object) {
	if len(s.messages) == 0 && s.system != "" {
		s.messages = append(s.messages, object{"role": "system", "content": s.system})
	}
	if s.kind == "tools" {
		m["tools"] = []object{{"function": clock, "type": "function"}}
		if s.turns > 1 && s.rng.IntN(2) == 0 {
			id := fmt.Sprintf("call_%d", s.turns)
			call := object{"id": id, "type": "function", "function": object{"name": "clock", "arguments": `{"zone":"Europe/Köln","n":2.0}`}}
			s.messages = append(s.messages, object{"role": "user", "content": s.text()}, object{"role": "assistant", "content": nil, "tool_calls": []object{call}},
				object{"role": "tool", "tool_call_id": id, "content": s.text()})
			m["messages"] = s.messages
			return
		}
	}
	s.messages = append(s.messages, object{"role": "user", "content": s.content("text")})
	m["messages"] = s.messages
}

func (s *simSession) turnMessages(m object) {
	if s.system != "" {
		m["system"] = s.system
	}
	if s.kind == "messages-tools" {
		m["tools"] = []object{{"input_schema": clock["parameters"], "description": clock["description"], "name": "clock"}}
		if s.turns > 1 && s.rng.IntN(2) == 0 {
			id := fmt.Sprintf("toolu_%d", s.turns)
			s.messages = append(s.messages, object{"role": "user", "content": s.text()},
				object{"role": "assistant", "content": []object{{"type": "tool_use", "id": id, "name": "clock", "input": object{"zone": "UTC"}}}},
				object{"role": "user", "content": []object{{"type": "tool_result", "tool_use_id": id, "content": s.text()}}})
			m["messages"] = s.messages
			return
		}
	}
	s.messages = append(s.messages, object{"role": "user", "content": s.content("text")})
	m["messages"] = s.messages
}

func (s *simSession) turnResponses(m object) {
	if s.system != "" {
		m["instructions"] = s.system
	}
	if s.kind == "responses-tools" {
		m["tools"] = []object{{"type": "function", "parameters": clock["parameters"], "description": clock["description"], "name": "clock"}}
	}
	s.messages = append(s.messages, object{"role": "user", "content": s.content("input_text")})
	m["input"] = s.messages
}

// answered takes the answer into the history, as clients do.
func (s *simSession) answered(a simAnswer) {
	switch s.kind {
	case "completions":
		s.prompt += a.text
	default:
		s.messages = append(s.messages, object{"role": "assistant", "content": a.text})
	}
}

// simAnswer is what a client keeps of one answer.
type simAnswer struct {
	text           string
	prompt, cached int // by the engine's usage; -1 without
}

// simUsage is usage in the words of all dialects.
type simUsage struct {
	Prompt  *int `json:"prompt_tokens"`
	Details *struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Input        *int `json:"input_tokens"`
	InputDetails *struct {
		Cached int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Read int `json:"cache_read_input_tokens"`
	Made int `json:"cache_creation_input_tokens"`
}

func (u *simUsage) into(a *simAnswer) {
	switch {
	case u == nil:
	case u.Prompt != nil:
		a.prompt = *u.Prompt
		if u.Details != nil {
			a.cached = u.Details.Cached
		}
	case u.Input != nil && u.InputDetails != nil:
		a.prompt, a.cached = *u.Input, u.InputDetails.Cached
	case u.Input != nil:
		a.prompt, a.cached = *u.Input+u.Read+u.Made, u.Read
	}
}

type textPart struct {
	Text string `json:"text"`
}

// simObject is a whole answer or an event in any dialect.
type simObject struct {
	Type    string    `json:"type"`
	Usage   *simUsage `json:"usage"`
	Choices []struct {
		Text    string                    `json:"text"`
		Message struct{ Content *string } `json:"message"`
		Delta   struct{ Content *string } `json:"delta"`
	} `json:"choices"`
	Content []textPart `json:"content"`
	Output  []struct {
		Content []textPart `json:"content"`
	} `json:"output"`
	Response *simObject      `json:"response"`
	Delta    json.RawMessage `json:"delta"`
}

// readSimAnswer reads a whole answer, plain or streamed.
func readSimAnswer(r *rig.Response) (a simAnswer, err error) {
	a.prompt, a.cached = -1, -1
	if r.Status != 200 || !r.Whole() {
		return a, fmt.Errorf("answer %d, whole %v: %.300s", r.Status, r.Whole(), r.Body)
	}
	events, rest := r.Events()
	if len(events) == 0 {
		var o simObject
		if err := json.Unmarshal([]byte(rest), &o); err != nil {
			return a, fmt.Errorf("cannot read %.300q: %w", rest, err)
		}
		o.into(&a)
		return a, nil
	}
	for _, ev := range events {
		for line := range strings.Lines(ev) {
			data, ok := strings.CutPrefix(line, "data: ")
			if !ok || strings.TrimSpace(data) == "[DONE]" {
				continue
			}
			var o simObject
			if err := json.Unmarshal([]byte(data), &o); err != nil {
				return a, fmt.Errorf("cannot read event %.300q: %w", data, err)
			}
			o.into(&a)
		}
	}
	return a, nil
}

func (o *simObject) into(a *simAnswer) {
	o.Usage.into(a)
	for _, c := range o.Choices {
		a.text += c.Text
		for _, t := range []*string{c.Message.Content, c.Delta.Content} {
			if t != nil {
				a.text += *t
			}
		}
	}
	for _, p := range o.Content {
		a.text += p.Text
	}
	switch o.Type {
	case "content_block_delta":
		var d textPart
		_ = json.Unmarshal(o.Delta, &d)
		a.text += d.Text
	case "response.output_text.delta":
		var d string
		_ = json.Unmarshal(o.Delta, &d)
		a.text += d
	case "response.completed", "response.incomplete":
		if o.Response != nil { // its text came as deltas
			o.Response.Usage.into(a)
		}
	default:
		for _, out := range o.Output {
			for _, p := range out.Content {
				a.text += p.Text
			}
		}
	}
}
