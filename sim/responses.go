package sim

import (
	"context"
	"encoding/json"
	"strconv"
)

// responsesRequest is one POST /v1/responses.
type responsesRequest struct {
	a            *answerRequest
	g            *generation
	w            *responder
	tool         *toolCall
	turns        []ChatMessage // the conversation without instructions
	instructions string
	previous     string
	store        bool
	background   bool
	limit        int    // max_output_tokens, or what it defaults to
	item         string // id of the output item
	seq          int    // of events
	choice       choice
	buf          []byte
}

// responses answers POST /v1/responses.
func (s *Server) responses(ctx context.Context, w *responder) {
	m := w.decodeBody(dialectResponses)
	if m == nil {
		return
	}
	r := &responsesRequest{w: w, a: &answerRequest{dialect: dialectResponses, id: "resp_" + requestID(w.req)}}
	if e := s.readResponses(r, m); e != nil {
		w.fail(dialectResponses, e)
		return
	}
	if r.background {
		s.responsesBackground(r)
		return
	}
	s.answerResponses(ctx, r)
}

// readResponses reads the body into r.
func (s *Server) readResponses(r *responsesRequest, m members) *apiError {
	if e := s.sampling(r.a, m, "max_output_tokens"); e != nil {
		return e
	}
	if e := r.readFlags(m); e != nil {
		return e
	}
	if r.previous != "" {
		old, ok := s.store.get(r.previous)
		if !ok {
			e := responseMissing(r.previous)
			e.param = "previous_response_id"
			return e
		}
		r.turns = append(r.turns, old.turns...)
	}
	c, e := r.conversation(m)
	if e != nil {
		return e
	}
	if e = s.chatPrompt(r.a, nil, c); e != nil {
		return e
	}
	if e = s.fits(r.a); e != nil {
		return e
	}
	r.a.choices = 1
	if r.limit = r.a.job.MaxTokens; r.limit == 0 {
		r.limit = s.core.Options().MaxModelLen - len(r.a.prompts[0])
	}
	r.tool, e = s.chooseTool(r.a, m, c)
	r.item = "msg_" + newID()
	if r.tool != nil {
		r.item = "fc_" + newID()
	}
	return e
}

func (r *responsesRequest) readFlags(m members) (e *apiError) {
	if r.store, e = m.flag("store", true); e != nil {
		return e
	}
	if r.background, e = m.flag("background", false); e != nil {
		return e
	}
	if r.background && (!r.store || r.a.stream) {
		return badRequest("background", "background can only be used when `store` is true and `stream` is false")
	}
	if r.instructions, e = m.text("instructions"); e != nil {
		return e
	}
	r.previous, e = m.text("previous_response_id")
	return e
}

// conversation appends the input's items to the turns and returns what the
// template is given.
func (r *responsesRequest) conversation(m members) (*conversation, *apiError) {
	if !m.given("input") {
		return nil, invalid("missing", "input", "Field required")
	}
	var text string
	var items []members
	switch {
	case json.Unmarshal(m["input"], &text) == nil:
		r.turns = append(r.turns, ChatMessage{Role: "user", Content: text})
	case json.Unmarshal(m["input"], &items) == nil:
		for _, item := range items {
			if e := r.addItem(item); e != nil {
				return nil, e
			}
		}
	default:
		return nil, invalid("string_type", "input", "Input should be a valid string")
	}
	c := &conversation{options: ChatOptions{AddGenerationPrompt: true}}
	if r.instructions != "" {
		c.messages = append(c.messages, ChatMessage{Role: "system", Content: r.instructions})
	}
	c.messages = append(c.messages, r.turns...)
	return c, c.addFlatTools(m)
}

// addItem adds one input item.
func (r *responsesRequest) addItem(m members) *apiError {
	kind, e := m.text("type")
	if e != nil {
		return e
	}
	switch kind {
	case "", "message":
		msg, e := readMessage(m)
		if e != nil {
			return e
		}
		r.turns = append(r.turns, msg)
	case "function_call":
		name, _ := m.text("name")
		r.turns = append(r.turns, ChatMessage{Role: "assistant", ToolCalls: []ChatToolCall{{Name: name, Arguments: normalArguments(m["arguments"])}}})
	case "function_call_output":
		out, e := readContent(m["output"])
		if e != nil {
			return e
		}
		r.turns = append(r.turns, ChatMessage{Role: "tool", Content: out})
	case "reasoning":
	default:
		return badRequest("input", "Unsupported input item type: "+kind)
	}
	return nil
}

// addFlatTools nests Responses' flat tools as the template knows them.
func (c *conversation) addFlatTools(m members) *apiError {
	if !m.given("tools") {
		return nil
	}
	var tools []members
	if json.Unmarshal(m["tools"], &tools) != nil {
		return invalid("list_type", "tools", "Input should be a valid list")
	}
	for _, t := range tools {
		if kind, _ := t.text("type"); kind != "function" {
			continue
		}
		if e := c.addTool(t, nil); e != nil {
			return e
		}
	}
	return nil
}

// answerResponses generates and writes the answer.
func (s *Server) answerResponses(ctx context.Context, r *responsesRequest) {
	r.choice = newChoices(r.a)[0]
	if r.g = s.begin(ctx, r.w, r.a); r.g == nil {
		return
	}
	defer r.g.end()
	if r.a.stream {
		// Here data comes before the first token, unlike in chat.
		r.responseEvent("response.created", "in_progress")
		r.responseEvent("response.in_progress", "in_progress")
	}
	if !r.g.each(r.w, r.piece) {
		return
	}
	status, event := "completed", "response.completed"
	switch r.finish() {
	case FinishLength:
		status = "incomplete" // vLLM 0.32 still calls the event response.completed
	case FinishAbort:
		status, event = "incomplete", "response.incomplete"
	}
	if r.store {
		s.store.put(r.a.id, storedResponse{body: r.appendResponse(nil, status), status: status, turns: append(r.turns, r.turn()), finished: true})
	}
	if !r.a.stream {
		r.w.json(200, r.appendResponse(nil, status))
		return
	}
	if r.choice.begun {
		r.closeItem()
	}
	r.responseEvent(event, status)
	r.w.end()
}

// responsesBackground answers at once and generates without a client.
func (s *Server) responsesBackground(r *responsesRequest) {
	client := r.w
	ctx, cancel := context.WithCancel(s.ctx)
	r.choice = newChoices(r.a)[0]
	body := r.appendResponse(nil, "in_progress")
	s.store.put(r.a.id, storedResponse{body: body, status: "in_progress", turns: r.turns, cancel: cancel})
	r.w = &responder{c: client.c, req: client.req, dead: false, discard: true}
	s.wg.Go(func() {
		defer cancel()
		s.answerResponses(ctx, r)
	})
	client.json(200, body)
}

// finish is the reason of the end; a complete call is a completed answer.
func (r *responsesRequest) finish() string {
	if r.tool != nil && r.choice.reason != FinishAbort && r.tool.sent == len(r.tool.arguments) {
		return FinishStop
	}
	return r.choice.reason
}

// turn is the answer as a later request sees it in the conversation.
func (r *responsesRequest) turn() ChatMessage {
	if r.tool != nil {
		return ChatMessage{Role: "assistant", ToolCalls: []ChatToolCall{{Name: r.tool.name, Arguments: string(r.tool.text)}}}
	}
	return ChatMessage{Role: "assistant", Content: string(r.choice.text)}
}

func (r *responsesRequest) piece(p piece) bool {
	c := &r.choice
	if c.over {
		return true
	}
	text := r.g.take(c, p)
	if r.tool != nil {
		text = []byte(r.tool.advance(c, len(p.tokens)))
	} else {
		c.text = append(c.text, text...)
	}
	if !r.a.stream || len(p.tokens) == 0 && !c.begun {
		return true // an abort before the first token opens no item
	}
	if !c.begun {
		c.begun = true
		r.openItem()
	}
	if len(text) == 0 {
		return true
	}
	if r.tool != nil {
		r.event("response.function_call_arguments.delta", func(b []byte) []byte {
			b = appendString(append(b, `"delta":`...), string(text))
			return r.appendItemID(append(b, `,"item_id":`...))
		})
		return true
	}
	r.event("response.output_text.delta", func(b []byte) []byte {
		b = appendString(append(b, `"content_index":0,"delta":`...), string(text))
		return append(r.appendItemID(append(b, `,"item_id":`...)), `,"logprobs":[]`...)
	})
	return true
}

func (r *responsesRequest) appendItemID(b []byte) []byte {
	return append(appendString(b, r.item), `,"output_index":0`...)
}

// event writes one event; fill appends the members in front of
// sequence_number and type.
func (r *responsesRequest) event(name string, fill func([]byte) []byte) {
	b := append(r.buf[:0], "event: "...)
	b = append(b, name...)
	b = append(b, "\ndata: {"...)
	b = fill(b)
	b = append(b, `,"sequence_number":`...)
	b = strconv.AppendInt(b, int64(r.seq), 10)
	b = append(b, `,"type":"`...)
	b = append(b, name...)
	r.buf = append(b, "\"}\n\n"...)
	r.seq++
	r.w.chunk(r.buf)
}

func (r *responsesRequest) responseEvent(name, status string) {
	r.event(name, func(b []byte) []byte { return r.appendResponse(append(b, `"response":`...), status) })
}

// openItem announces the output item at the first token.
func (r *responsesRequest) openItem() {
	r.event("response.output_item.added", func(b []byte) []byte {
		return append(r.appendItem(append(b, `"item":`...), "in_progress", true), `,"output_index":0`...)
	})
	if r.tool != nil {
		return
	}
	r.event("response.content_part.added", func(b []byte) []byte {
		b = r.appendItemID(append(b, `"content_index":0,"item_id":`...))
		return append(b, `,"part":{"annotations":[],"text":"","type":"output_text","logprobs":[]}`...)
	})
}

// closeItem ends the output item.
func (r *responsesRequest) closeItem() {
	if r.tool != nil {
		r.event("response.function_call_arguments.done", func(b []byte) []byte {
			b = appendString(append(b, `"arguments":`...), string(r.tool.text))
			b = appendString(append(r.appendItemID(append(b, `,"item_id":`...)), `,"name":`...), r.tool.name)
			return b
		})
	} else {
		r.event("response.output_text.done", func(b []byte) []byte {
			b = r.appendItemID(append(b, `"content_index":0,"item_id":`...))
			return appendString(append(b, `,"logprobs":[],"text":`...), string(r.choice.text))
		})
		r.event("response.content_part.done", func(b []byte) []byte {
			b = r.appendItemID(append(b, `"content_index":0,"item_id":`...))
			b = append(b, `,"part":`...)
			return r.appendPart(b)
		})
	}
	r.event("response.output_item.done", func(b []byte) []byte {
		return append(r.appendItem(append(b, `"item":`...), "completed", false), `,"output_index":0`...)
	})
}

func (r *responsesRequest) appendPart(b []byte) []byte {
	b = appendString(append(b, `{"annotations":[],"text":`...), string(r.choice.text))
	return append(b, `,"type":"output_text","logprobs":null}`...)
}

// appendItem appends the output item; fresh leaves its content out.
func (r *responsesRequest) appendItem(b []byte, status string, fresh bool) []byte {
	if r.tool != nil {
		args := string(r.tool.text)
		if fresh {
			args = ""
		}
		b = appendString(append(b, `{"arguments":`...), args)
		b = appendString(append(b, `,"call_id":`...), "call_"+r.tool.id[len("chatcmpl-tool-"):])
		b = appendString(append(b, `,"name":`...), r.tool.name)
		b = appendString(append(b, `,"type":"function_call","id":`...), r.item)
		return append(append(append(b, `,"status":"`...), status...), `"}`...)
	}
	b = append(appendString(append(b, `{"id":`...), r.item), `,"content":[`...)
	if !fresh {
		b = r.appendPart(b)
	}
	b = append(b, `],"role":"assistant","status":"`...)
	return append(append(b, status...), `","type":"message"}`...)
}

// appendResponse appends the response object as it stands with status.
func (r *responsesRequest) appendResponse(b []byte, status string) []byte {
	a := r.a
	running := status == "in_progress"
	b = appendString(append(b, `{"id":`...), a.id)
	b = strconv.AppendInt(append(b, `,"created_at":`...), a.created, 10)
	if status == "incomplete" && r.choice.reason == FinishLength {
		b = append(b, `,"incomplete_details":{"reason":"max_output_tokens"}`...)
	} else {
		b = append(b, `,"incomplete_details":null`...)
	}
	b = appendStringOrNull(append(b, `,"instructions":`...), r.instructions)
	b = appendString(append(b, `,"metadata":null,"model":`...), a.model)
	b = append(b, `,"object":"response","output":[`...)
	if !running && r.choice.tokens > 0 {
		b = r.appendItem(b, status, false)
	}
	b = append(b, `],"parallel_tool_calls":true,"temperature":1.0,"tool_choice":"auto","tools":[],"top_p":1.0,"background":`...)
	b = strconv.AppendBool(b, r.background)
	b = appendInt(append(b, `,"max_output_tokens":`...), r.limit)
	b = appendStringOrNull(append(b, `,"max_tool_calls":null,"previous_response_id":`...), r.previous)
	b = append(b, `,"prompt":null,"reasoning":null,"service_tier":"auto","status":"`...)
	b = append(b, status...)
	b = append(b, `","text":null,"top_logprobs":null,"truncation":"disabled","usage":`...)
	if running {
		b = append(b, "null"...)
	} else {
		b = r.appendUsage(b)
	}
	return append(b, `,"user":null}`...)
}

func (r *responsesRequest) appendUsage(b []byte) []byte {
	u := r.g.usageOf(r.choice.tokens)
	b = appendInt(append(b, `{"input_tokens":`...), u.prompt)
	b = appendInt(append(b, `,"input_tokens_details":{"cached_tokens":`...), u.cached)
	b = appendCountOrNull(append(b, `,"cache_write_tokens":`...), r.g.createdTokens(u))
	b = appendInt(append(b, `,"input_tokens_per_turn":[],"cached_tokens_per_turn":[]},"output_tokens":`...), u.output)
	b = append(b, `,"output_tokens_details":{"reasoning_tokens":0,"tool_output_tokens":0,"output_tokens_per_turn":[],"tool_output_tokens_per_turn":[]},"total_tokens":`...)
	return append(appendInt(b, u.prompt+u.output), '}')
}
