package sim

import (
	"context"
	"strconv"
)

// chat answers POST /v1/chat/completions.
func (s *Server) chat(ctx context.Context, w *responder) {
	m := w.decodeBody(dialectOpenAI)
	if m == nil {
		return
	}
	a := &answerRequest{dialect: dialectOpenAI, id: "chatcmpl-" + requestID(w.req)}
	c, e := readConversation(m)
	if e == nil {
		e = s.sampling(a, m, "max_completion_tokens", "max_tokens")
	}
	var tool *toolCall
	if e == nil {
		e = s.chatPrompt(a, m, c)
	}
	if e == nil {
		e = s.fits(a)
	}
	if e == nil {
		tool, e = s.chooseTool(a, m, c)
	}
	if e != nil {
		w.fail(dialectOpenAI, e)
		return
	}
	g := s.begin(ctx, w, a)
	if g == nil {
		return
	}
	defer g.end()
	if a.stream {
		newChatStream(g, w, tool).run()
		return
	}
	s.chatWhole(g, w, tool)
}

// choice is the state of one sequence of an answer.
type choice struct {
	detok  *detokenizer
	begun  bool // something of it is out
	over   bool // finished, perhaps by a stop string before the engine knew
	tokens int
	text   []byte
	ids    []uint32
	reason string
	stop   string // the stop string that ended it
}

func newChoices(a *answerRequest) []choice {
	cs := make([]choice, a.sequences())
	for i := range cs {
		cs[i].detok = newDetokenizer(a.stops, a.keepStop)
	}
	return cs
}

// take adds a piece to its choice and returns its new text. It aborts the
// sequence when a stop string came up.
func (g *generation) take(c *choice, p piece) []byte {
	c.tokens += len(p.tokens)
	text, stop := c.detok.push(p.tokens, p.finished)
	if p.finished {
		c.over, c.reason = true, p.reason
	}
	if stop != "" {
		c.over, c.reason, c.stop = true, FinishStop, stop
		g.seqs[p.seq].Abort()
	}
	return text
}

// outputTokens is the number of tokens of all choices.
func outputTokens(cs []choice) int {
	n := 0
	for i := range cs {
		n += cs[i].tokens
	}
	return n
}

// chatStream writes one streamed chat answer.
type chatStream struct {
	g       *generation
	w       *responder
	a       *answerRequest
	tool    *toolCall
	choices []choice
	begun   bool   // the role chunks are out
	head    []byte // every chunk up to the list of choices
	inside  []byte // of the present delta
	buf     []byte
}

func newChatStream(g *generation, w *responder, tool *toolCall) *chatStream {
	st := &chatStream{g: g, w: w, a: g.a, tool: tool, choices: newChoices(g.a)}
	st.head = appendChunkHead(nil, g.a, "chat.completion.chunk")
	return st
}

// appendChunkHead appends a chunk of a chat or completion stream up to the
// opening bracket of its choices.
func appendChunkHead(dst []byte, a *answerRequest, object string) []byte {
	dst = append(dst, `data: {"id":`...)
	dst = appendString(dst, a.id)
	dst = append(dst, `,"object":"`...)
	dst = append(dst, object...)
	dst = append(dst, `","created":`...)
	dst = strconv.AppendInt(dst, a.created, 10)
	dst = append(dst, `,"model":`...)
	dst = appendString(dst, a.model)
	return append(dst, `,"choices":[`...)
}

// run writes the whole body: the role of each choice at its first token, then
// its text as it comes, the last piece together with the finish reason, then
// usage if it was asked for, and [DONE].
func (st *chatStream) run() {
	if !st.g.each(st.w, st.piece) {
		return
	}
	if st.a.streamUse != usageNone {
		u := st.usage()
		b := append(st.buf[:0], st.head...)
		b = append(b, `],"system_fingerprint":"`+fingerprint+`","usage":`...)
		b = u.append(b, false)
		st.w.chunk(append(b, "}\n\n"...))
	}
	st.w.chunk(doneEvent)
	st.w.end()
}

func (st *chatStream) usage() usage {
	u := st.g.usageOf(outputTokens(st.choices))
	u.created = st.g.createdTokens(u)
	return u
}

func (st *chatStream) piece(p piece) bool {
	c := &st.choices[p.seq]
	if c.over {
		return true // what came after a stop string
	}
	if !st.begun {
		st.begin()
	}
	text := st.g.take(c, p)
	if st.tool != nil {
		st.inside = st.tool.appendDelta(st.inside[:0], c, len(p.tokens))
	} else {
		st.inside = appendString(append(st.inside[:0], `"content":`...), string(text))
	}
	st.delta(p.seq, c, p.tokens, st.inside)
	return true
}

// begin writes what comes at the first token of any choice.
func (st *chatStream) begin() {
	st.begun = true
	for i := range st.choices {
		st.role(i)
	}
	for i := range st.choices {
		if t := st.a.echoText(i); t != "" {
			st.delta(i, &st.choices[i], nil, appendString([]byte(`"content":`), t))
		}
	}
}

// role writes the chunk that tells that generation has begun.
func (st *chatStream) role(seq int) {
	b := append(st.buf[:0], st.head...)
	b = append(b, `{"index":`...)
	b = appendInt(b, seq)
	b = append(b, `,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`...)
	b = st.appendRunningUsage(b)
	b = append(b, `,"prompt_token_ids":`...)
	b = appendIDsOrNull(b, st.a.promptOf(seq), st.a.returnIDs)
	st.buf = append(b, "}\n\n"...)
	st.w.chunk(st.buf)
}

// delta writes one piece of one choice; delta is the inside of its object.
func (st *chatStream) delta(seq int, c *choice, ids []uint32, delta []byte) {
	b := append(st.buf[:0], st.head...)
	b = append(b, `{"index":`...)
	b = appendInt(b, seq)
	b = append(b, `,"delta":{`...)
	b = append(b, delta...)
	b = append(b, `},"logprobs":null,"finish_reason":`...)
	if c.over {
		b = appendString(b, st.tool.finish(c.reason))
		b = append(b, `,"stop_reason":`...)
		b = appendStringOrNull(b, c.stop)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"token_ids":`...)
	b = appendIDsOrNull(b, ids, st.a.returnIDs)
	b = append(b, "}]"...)
	b = st.appendRunningUsage(b)
	st.buf = append(b, "}\n\n"...)
	st.w.chunk(st.buf)
}

// appendRunningUsage adds usage to a chunk under continuous_usage_stats.
func (st *chatStream) appendRunningUsage(b []byte) []byte {
	if st.a.streamUse != usageEvery {
		return b
	}
	u := st.g.usageOf(outputTokens(st.choices))
	b = append(b, `,"usage":{"prompt_tokens":`...)
	b = appendInt(b, u.prompt)
	b = append(b, `,"total_tokens":`...)
	b = appendInt(b, u.prompt+u.output)
	b = append(b, `,"completion_tokens":`...)
	return append(appendInt(b, u.output), '}')
}

// chatWhole writes one answer that is not streamed.
func (s *Server) chatWhole(g *generation, w *responder, tool *toolCall) {
	choices := newChoices(g.a)
	if !g.collect(w, choices, func(c *choice, p piece) {
		if tool != nil {
			tool.appendDelta(nil, c, len(p.tokens))
		}
	}) {
		return
	}
	u := g.usageOf(outputTokens(choices))
	u.created = g.createdTokens(u)
	w.json(200, appendChatAnswer(nil, g.a, choices, tool, u))
}

// collect gathers every piece of an answer that is not streamed.
func (g *generation) collect(w *responder, cs []choice, also func(*choice, piece)) bool {
	return g.each(w, func(p piece) bool {
		c := &cs[p.seq]
		if c.over {
			return true
		}
		c.text = append(c.text, g.take(c, p)...)
		if g.a.returnIDs {
			c.ids = append(c.ids, p.tokens...)
		}
		if also != nil {
			also(c, p)
		}
		return true
	})
}

func appendChatAnswer(b []byte, a *answerRequest, cs []choice, tool *toolCall, u usage) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, a.id)
	b = append(b, `,"object":"chat.completion","created":`...)
	b = strconv.AppendInt(b, a.created, 10)
	b = append(b, `,"model":`...)
	b = appendString(b, a.model)
	b = append(b, `,"choices":[`...)
	for i := range cs {
		c := &cs[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"index":`...)
		b = appendInt(b, i)
		b = append(b, `,"message":{"role":"assistant","content":`...)
		b = tool.appendContent(b, a.echoText(i)+string(c.text))
		b = append(b, `,"refusal":null,"annotations":null,"audio":null,"function_call":null,"tool_calls":[`...)
		b = tool.appendCall(b, c)
		b = append(b, `],"reasoning":null},"logprobs":null,"finish_reason":`...)
		b = appendString(b, tool.finish(c.reason))
		b = append(b, `,"stop_reason":`...)
		b = appendStringOrNull(b, c.stop)
		b = append(b, `,"token_ids":`...)
		b = appendIDsOrNull(b, c.ids, a.returnIDs)
		b = append(b, '}')
	}
	b = append(b, `],"service_tier":null,"system_fingerprint":"`+fingerprint+`","usage":`...)
	b = u.append(b, true)
	b = append(b, `,"prompt_logprobs":null,"prompt_token_ids":`...)
	b = appendIDsOrNull(b, a.prompts[0], a.returnIDs)
	return append(b, `,"kv_transfer_params":null}`...)
}

// fingerprint is what vLLM calls its build and layout.
const fingerprint = "vllm-" + Version + "-tp4-51a3c0de"

// echoText is what stands in front of the text for prompt i if echo was asked for.
func (a *answerRequest) echoText(i int) string {
	if len(a.echoes) == 0 {
		return ""
	}
	return a.echoes[i/a.choices]
}
