package sim

import (
	"context"
	"encoding/json"
	"strconv"
)

// defaultCompletionTokens is the output cap of /v1/completions without
// max_tokens (vLLM 0.32).
const defaultCompletionTokens = 16

// completions answers POST /v1/completions.
func (s *Server) completions(ctx context.Context, w *responder) {
	m := w.decodeBody(dialectOpenAI)
	if m == nil {
		return
	}
	a := &answerRequest{dialect: dialectOpenAI, id: "cmpl-" + requestID(w.req)}
	a.job.MaxTokens = defaultCompletionTokens
	e := a.readPrompts(m)
	if e == nil {
		e = s.sampling(a, m, "max_tokens")
	}
	if e == nil {
		e = a.readEcho(m)
	}
	if e == nil {
		e = s.fits(a)
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
		newCompletionStream(g, w).run()
		return
	}
	choices := newChoices(a)
	if g.collect(w, choices, nil) {
		w.json(200, appendCompletion(nil, a, choices, g.usageOf(outputTokens(choices))))
	}
}

// readPrompts takes prompt in its four forms: text, texts, ids, lists of ids.
func (a *answerRequest) readPrompts(m members) *apiError {
	if !m.given("prompt") {
		return invalid("missing", "prompt", "Field required")
	}
	raw := m["prompt"]
	var texts []string
	var one string
	if json.Unmarshal(raw, &one) == nil {
		texts = []string{one}
	} else if json.Unmarshal(raw, &texts) != nil {
		texts = nil
	}
	if texts != nil {
		if len(texts) == 0 {
			return badRequest("prompt", "You must pass at least one prompt")
		}
		a.textual = true
		for _, t := range texts {
			a.prompts = append(a.prompts, Tokenizer().Encode(t))
		}
		return nil
	}
	var ids []uint32
	if json.Unmarshal(raw, &ids) == nil {
		a.prompts = [][]uint32{ids}
	} else if json.Unmarshal(raw, &a.prompts) != nil {
		return invalid("list_type", "prompt", "Input should be a valid list")
	}
	for _, p := range a.prompts {
		for _, id := range p {
			if int(id) >= Tokenizer().Size() {
				return badRequest("prompt", "Token id "+strconv.Itoa(int(id))+" is out of vocabulary")
			}
		}
	}
	return nil
}

// readEcho takes echo, which puts each prompt in front of its text.
func (a *answerRequest) readEcho(m members) *apiError {
	echo, e := m.flag("echo", false)
	if e != nil || !echo {
		return e
	}
	for _, p := range a.prompts {
		a.echoes = append(a.echoes, Tokenizer().Decode(p, true))
	}
	return nil
}

// completionStream writes one streamed completion: no role chunk, text in
// every choice.
type completionStream struct {
	g       *generation
	w       *responder
	a       *answerRequest
	choices []choice
	head    []byte
	buf     []byte
}

func newCompletionStream(g *generation, w *responder) *completionStream {
	return &completionStream{g: g, w: w, a: g.a, choices: newChoices(g.a), head: appendChunkHead(nil, g.a, "text_completion")}
}

func (st *completionStream) run() {
	if !st.g.each(st.w, st.piece) {
		return
	}
	if st.a.streamUse != usageNone {
		b := append(st.buf[:0], st.head...)
		b = append(b, `],"system_fingerprint":"`+fingerprint+`","usage":`...)
		b = st.g.usageOf(outputTokens(st.choices)).append(b, false)
		st.w.chunk(append(b, "}\n\n"...))
	}
	st.w.chunk(doneEvent)
	st.w.end()
}

func (st *completionStream) piece(p piece) bool {
	c := &st.choices[p.seq]
	if c.over {
		return true
	}
	text := string(st.g.take(c, p))
	b := append(st.buf[:0], st.head...)
	b = append(b, `{"index":`...)
	b = appendInt(b, p.seq)
	b = append(b, `,"text":`...)
	if !c.begun {
		text = st.a.echoText(p.seq) + text
	}
	b = appendString(b, text)
	b = append(b, `,"logprobs":null,"finish_reason":`...)
	b = appendEnd(b, c)
	b = append(b, `,"prompt_token_ids":`...)
	b = appendIDsOrNull(b, st.a.promptOf(p.seq), st.a.returnIDs && !c.begun)
	b = append(b, `,"token_ids":`...)
	b = appendIDsOrNull(b, p.tokens, st.a.returnIDs)
	c.begun = true
	b = append(b, "}]"...)
	if st.a.streamUse == usageEvery {
		b = append(b, `,"usage":`...)
		b = st.g.usageOf(outputTokens(st.choices)).append(b, false)
	}
	st.buf = append(b, "}\n\n"...)
	st.w.chunk(st.buf)
	return true
}

// appendEnd appends the values of finish_reason and stop_reason with the name
// of the second between them.
func appendEnd(b []byte, c *choice) []byte {
	if !c.over {
		return append(b, `null,"stop_reason":null`...)
	}
	b = appendString(b, c.reason)
	b = append(b, `,"stop_reason":`...)
	return appendStringOrNull(b, c.stop)
}

func appendCompletion(b []byte, a *answerRequest, cs []choice, u usage) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, a.id)
	b = append(b, `,"object":"text_completion","created":`...)
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
		b = append(b, `,"text":`...)
		b = appendString(b, a.echoText(i)+string(c.text))
		b = append(b, `,"logprobs":null,"finish_reason":`...)
		b = appendEnd(b, c)
		b = append(b, `,"token_ids":`...)
		b = appendIDsOrNull(b, c.ids, a.returnIDs)
		b = append(b, `,"prompt_logprobs":null,"prompt_token_ids":`...)
		b = appendIDsOrNull(b, a.promptOf(i), a.returnIDs)
		b = append(b, '}')
	}
	b = append(b, `],"service_tier":null,"system_fingerprint":"`+fingerprint+`","usage":`...)
	b = u.append(b, true)
	return append(b, `,"kv_transfer_params":null}`...)
}
