package sim

import (
	"context"
	"encoding/json"
	"strings"
)

// messages answers POST /v1/messages, which vLLM builds on chat.
func (s *Server) messages(ctx context.Context, w *responder) {
	m := w.decodeBody(dialectAnthropic)
	if m == nil {
		return
	}
	a := &answerRequest{dialect: dialectAnthropic, id: "chatcmpl-" + requestID(w.req)}
	if !m.given("max_tokens") {
		w.fail(dialectAnthropic, invalid("missing", "max_tokens", "Field required"))
		return
	}
	c, e := readAnthropic(m)
	if e == nil {
		e = s.sampling(a, m, "max_tokens")
	}
	if e == nil {
		a.stops, e = m.strings("stop_sequences")
	}
	if e == nil {
		e = s.chatPrompt(a, m, c)
	}
	if e == nil {
		e = s.fits(a)
	}
	var tool *toolCall
	if e == nil {
		tool, e = s.chooseTool(a, anthropicToolChoice(m), c)
	}
	if e != nil {
		w.fail(dialectAnthropic, e)
		return
	}
	g := s.begin(ctx, w, a)
	if g == nil {
		return
	}
	defer g.end()
	st := &messageStream{g: g, w: w, a: a, tool: tool, choices: newChoices(a)}
	if a.stream {
		st.run()
		return
	}
	st.whole()
}

// countTokens answers POST /v1/messages/count_tokens.
func (s *Server) countTokens(ctx context.Context, w *responder) {
	m := w.decodeBody(dialectAnthropic)
	if m == nil {
		return
	}
	a := &answerRequest{}
	c, e := readAnthropic(m)
	if e == nil {
		e = s.readModel(a, m)
	}
	if e == nil {
		e = s.chatPrompt(a, nil, c)
	}
	if e != nil {
		w.fail(dialectAnthropic, e)
		return
	}
	n := len(a.prompts[0])
	if !s.frontend.spend(ctx, s.core.TokenizeTime(n)) {
		return
	}
	b := appendInt([]byte(`{"input_tokens":`), n)
	b = append(b, `,"context_management":{"original_input_tokens":`...)
	w.json(200, append(appendInt(b, n), "}}"...))
}

// readAnthropic turns an Anthropic body into a conversation for the template.
func readAnthropic(m members) (*conversation, *apiError) {
	var list []members
	if !m.given("messages") {
		return nil, invalid("missing", "messages", "Field required")
	}
	if json.Unmarshal(m["messages"], &list) != nil {
		return nil, invalid("list_type", "messages", "Input should be a valid list")
	}
	c := &conversation{options: ChatOptions{AddGenerationPrompt: true}}
	if system, e := readSystem(m["system"]); e != nil {
		return nil, e
	} else if system != "" {
		c.messages = append(c.messages, ChatMessage{Role: "system", Content: system})
	}
	for _, raw := range list {
		if e := c.addAnthropic(raw); e != nil {
			return nil, e
		}
	}
	return c, c.addAnthropicTools(m)
}

// readSystem joins the system prompt. A billing header that Claude Code puts
// in front is dropped, because it would defeat the prefix cache (vLLM 0.32).
func readSystem(raw json.RawMessage) (string, *apiError) {
	var text string
	if len(raw) == 0 || json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var blocks []members
	if json.Unmarshal(raw, &blocks) != nil {
		return "", invalid("string_type", "system", "Input should be a valid string")
	}
	for _, b := range blocks {
		t, e := b.text("text")
		if e != nil {
			return "", e
		}
		if !strings.HasPrefix(t, "x-anthropic-billing-header") {
			text += t
		}
	}
	return text, nil
}

// addAnthropic adds one message: results of tools become messages of their
// own in front of it, calls and thinking become members of it.
func (c *conversation) addAnthropic(m members) *apiError {
	msg := ChatMessage{}
	var e *apiError
	if msg.Role, e = m.text("role"); e != nil {
		return e
	}
	if msg.Content, e = m.text("content"); e == nil {
		c.messages = append(c.messages, msg)
		return nil
	}
	var blocks []members
	if json.Unmarshal(m["content"], &blocks) != nil {
		return invalid("list_type", "messages", "Input should be a valid list")
	}
	var texts []string
	for _, b := range blocks {
		kind, _ := b.text("type")
		switch kind {
		case "text":
			t, e := b.text("text")
			if e != nil {
				return e
			}
			texts = append(texts, t)
		case "thinking":
			t, _ := b.text("thinking")
			msg.Reasoning += t
		case "redacted_thinking":
		case "tool_use":
			name, _ := b.text("name")
			msg.ToolCalls = append(msg.ToolCalls, ChatToolCall{Name: name, Arguments: normalArguments(b["input"])})
		case "tool_result":
			t, e := readContent(b["content"])
			if e != nil {
				return e
			}
			c.messages = append(c.messages, ChatMessage{Role: "tool", Content: t})
		default:
			return badRequest("", "At most 0 "+kind+"(s) may be provided in one prompt: the model is not a multimodal model.")
		}
	}
	msg.Content = strings.Join(texts, "\n")
	if len(texts) > 0 || len(msg.ToolCalls) > 0 || msg.Reasoning != "" {
		c.messages = append(c.messages, msg)
	}
	return nil
}

// addAnthropicTools puts tools into the form that the template knows.
func (c *conversation) addAnthropicTools(m members) *apiError {
	if !m.given("tools") {
		return nil
	}
	var tools []members
	if json.Unmarshal(m["tools"], &tools) != nil {
		return invalid("list_type", "tools", "Input should be a valid list")
	}
	for _, t := range tools {
		schema, e := t.object("input_schema")
		if e != nil || schema == nil {
			return invalid("missing", "tools", "Field required")
		}
		t["parameters"] = t["input_schema"]
		if _, typed := schema["type"]; !typed { // vLLM 0.32 entrypoints/anthropic/protocol.py
			text := strings.TrimSuffix(string(t["input_schema"]), "}") // a raw member has no blanks around it
			if len(schema) > 0 {
				text += ","
			}
			t["parameters"] = json.RawMessage(text + `"type":"object"}`)
		}
		if e := c.addTool(t, nil); e != nil {
			return e
		}
	}
	return nil
}

// anthropicToolChoice translates tool_choice into chat's form.
func anthropicToolChoice(m members) members {
	var choice struct{ Type, Name string }
	if !m.given("tool_choice") || json.Unmarshal(m["tool_choice"], &choice) != nil {
		return nil
	}
	switch choice.Type {
	case "any":
		return members{"tool_choice": json.RawMessage(`"required"`)}
	case "tool":
		return members{"tool_choice": append(appendString([]byte(`{"type":"function","function":{"name":`), choice.Name), "}}"...)}
	}
	return members{"tool_choice": appendString(nil, choice.Type)}
}

// messageStream writes one Anthropic answer. It has one choice.
type messageStream struct {
	g       *generation
	w       *responder
	a       *answerRequest
	tool    *toolCall
	choices []choice
	buf     []byte
}

// run writes the events: message_start and the block's start at the first
// token, deltas, then the three ends. vLLM 0.32 sends no [DONE] here.
func (st *messageStream) run() {
	if !st.g.each(st.w, st.piece) {
		return
	}
	st.event("content_block_stop", `,"index":0}`)
	c := &st.choices[0]
	b := append([]byte(nil), `,"delta":{"stop_reason":`...)
	b = st.appendStop(b, c)
	b = append(b, `},"usage":`...)
	b = st.appendUsage(b)
	st.event("message_delta", string(append(b, '}')))
	st.event("message_stop", "}")
	st.w.end()
}

// event writes one event; rest is its object after the type.
func (st *messageStream) event(name, rest string) {
	b := append(st.buf[:0], "event: "...)
	b = append(b, name...)
	b = append(b, "\ndata: {\"type\":\""...)
	b = append(b, name...)
	b = append(b, '"')
	b = append(b, rest...)
	st.buf = append(b, "\n\n"...)
	st.w.chunk(st.buf)
}

func (st *messageStream) piece(p piece) bool {
	c := &st.choices[0]
	if c.over {
		return true
	}
	if !c.begun {
		c.begun = true
		st.start()
	}
	text := st.g.take(c, p)
	if st.tool != nil {
		text = []byte(st.tool.advance(c, len(p.tokens)))
	}
	if len(text) == 0 {
		return true // vLLM makes no Anthropic event of an empty delta
	}
	b := append([]byte(nil), `,"index":0,"delta":{"type":"text_delta","text":`...)
	if st.tool != nil {
		b = append(b[:0], `,"index":0,"delta":{"type":"input_json_delta","partial_json":`...)
	}
	b = appendString(b, string(text))
	st.event("content_block_delta", string(append(b, "}}"...)))
	return true
}

func (st *messageStream) start() {
	b := append([]byte(nil), `,"message":{"id":`...)
	b = appendString(b, st.a.id)
	b = append(b, `,"type":"message","role":"assistant","content":[],"model":`...)
	b = appendString(b, st.a.model)
	b = append(b, `,"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":`...)
	b = appendInt(b, len(st.a.prompts[0]))
	st.event("message_start", string(append(b, `,"output_tokens":0}}}`...)))
	if st.tool == nil {
		st.event("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}}`)
		return
	}
	b = append(b[:0], `,"index":0,"content_block":{"type":"tool_use","id":`...)
	b = appendString(b, st.tool.id)
	b = append(b, `,"name":`...)
	b = appendString(b, st.tool.name)
	st.event("content_block_start", string(append(b, `,"input":{}}}`...)))
}

// appendStop appends the stop reason in Anthropic's words. vLLM has none for an
// abort and says null.
func (st *messageStream) appendStop(b []byte, c *choice) []byte {
	reason := c.reason
	switch {
	case c.stop != "":
		reason = "stop_sequence"
	case st.tool != nil && reason == FinishLength && st.tool.sent == len(st.tool.arguments):
		reason = "tool_use"
	case reason == FinishStop:
		reason = "end_turn"
	case reason == FinishLength:
		reason = "max_tokens"
	}
	if reason == FinishAbort {
		reason = "" // null
	}
	b = appendStringOrNull(b, reason)
	b = append(b, `,"stop_sequence":`...)
	return appendStringOrNull(b, c.stop)
}

// appendUsage appends usage in Anthropic's way: input_tokens leaves out what
// was read from the cache and what was written to it.
func (st *messageStream) appendUsage(b []byte) []byte {
	u := st.g.usageOf(outputTokens(st.choices))
	created := st.g.createdTokens(u)
	b = append(b, `{"input_tokens":`...)
	b = appendInt(b, u.prompt-u.cached-max(created, 0))
	b = append(b, `,"output_tokens":`...)
	b = appendInt(b, u.output)
	b = append(b, `,"cache_creation_input_tokens":`...)
	b = appendCountOrNull(b, created)
	b = append(b, `,"cache_read_input_tokens":`...)
	return append(appendInt(b, u.cached), '}')
}

func (st *messageStream) whole() {
	if !st.g.collect(st.w, st.choices, func(c *choice, p piece) {
		if st.tool != nil {
			st.tool.advance(c, len(p.tokens))
		}
	}) {
		return
	}
	c := &st.choices[0]
	b := appendString([]byte(`{"id":`), st.a.id)
	b = append(b, `,"type":"message","role":"assistant","content":[`...)
	switch {
	case st.tool != nil:
		b = append(b, `{"type":"tool_use","id":`...)
		b = appendString(b, st.tool.id)
		b = append(b, `,"name":`...)
		b = appendString(b, st.tool.name)
		b = append(b, `,"input":`...)
		if json.Valid(st.tool.text) {
			b = append(b, st.tool.text...)
		} else {
			b = append(b, "{}"...)
		}
		b = append(b, '}')
	case len(c.text) > 0:
		b = appendString(append(b, `{"type":"text","text":`...), string(c.text))
		b = append(b, '}')
	}
	b = append(b, `],"model":`...)
	b = appendString(b, st.a.model)
	b = append(b, `,"stop_reason":`...)
	b = st.appendStop(b, c)
	b = append(b, `,"usage":`...)
	st.w.json(200, append(st.appendUsage(b), '}'))
}
