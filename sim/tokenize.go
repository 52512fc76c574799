package sim

import (
	"context"
	"encoding/json"
)

// tokenize answers POST /tokenize in its completion form (prompt) and its chat
// form (messages). As in vLLM no length is refused, and fields of the chat
// endpoint that this one does not know are ignored.
func (s *Server) tokenize(ctx context.Context, w *responder) {
	m := w.decodeBody(dialectOpenAI)
	if m == nil {
		return
	}
	ids, e := s.tokensOf(m)
	if e != nil {
		w.fail(dialectOpenAI, e)
		return
	}
	if !s.frontend.spend(ctx, s.core.TokenizeTime(len(ids))) {
		return
	}
	b := appendInt([]byte(`{"count":`), len(ids))
	b = append(b, `,"max_model_len":`...)
	b = appendInt(b, s.core.Options().MaxModelLen)
	b = append(b, `,"tokens":`...)
	b = appendIDs(b, ids)
	b = append(b, `,"token_strs":`...)
	if strs, _ := m.flag("return_token_strs", false); strs {
		b = append(b, '[')
		for i, id := range ids {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, Tokenizer().Decode([]uint32{id}, false))
		}
		b = append(b, ']')
	} else {
		b = append(b, "null"...)
	}
	w.json(200, append(b, '}'))
}

func (s *Server) tokensOf(m members) ([]uint32, *apiError) {
	if name, e := m.text("model"); e != nil {
		return nil, e
	} else if name != "" && !s.serves(name) {
		return nil, modelNotFound(name)
	}
	if !m.given("messages") {
		text, e := m.text("prompt")
		if e == nil && !m.given("prompt") {
			e = invalid("missing", "prompt", "Field required")
		}
		return Tokenizer().Encode(text), e
	}
	delete(m, "reasoning_effort") // of the chat endpoint only
	c, e := readConversation(m)
	if e != nil {
		return nil, e
	}
	for i := range c.messages {
		// Only the chat endpoint renames reasoning_content for the template.
		c.messages[i].Reasoning = ""
	}
	if e := c.keepReasoning(m); e != nil {
		return nil, e
	}
	c.options.DropReasoning = s.o.DropReasoning
	text, e := c.render()
	return Tokenizer().Encode(text), e
}

// keepReasoning restores the reasoning that stands under its new name.
func (c *conversation) keepReasoning(m members) *apiError {
	var list []members
	if json.Unmarshal(m["messages"], &list) != nil {
		return invalid("list_type", "messages", "Input should be a valid list")
	}
	for i := range list {
		r, e := list[i].text("reasoning")
		if e != nil {
			return e
		}
		c.messages[i].Reasoning = r
	}
	return nil
}

// detokenize answers POST /detokenize.
func (s *Server) detokenize(_ context.Context, w *responder) {
	m := w.decodeBody(dialectOpenAI)
	if m == nil {
		return
	}
	ids, e := m.ids("tokens")
	if e == nil && ids == nil {
		e = invalid("missing", "tokens", "Field required")
	}
	if e != nil {
		w.fail(dialectOpenAI, e)
		return
	}
	w.json(200, append(appendString([]byte(`{"prompt":`), Tokenizer().Decode(ids, false)), '}'))
}
