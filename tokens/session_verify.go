package tokens

import (
	"slices"

	"ramjet/wire"
)

// Verify returns what is to be run to find out whether the last call of Ids with scr was right, nil for most calls:
// the first of each Way is looked at and then each hundredth. It may run at any time and in
// any goroutine, holds copies of body and ids, and takes as long as rendering and encoding the whole does.
//
// The function returns false where the ids differ from those without a memory. From then on the source remembers
// nothing.
func (s *Source) Verify(e Endpoint, body []byte, ids []uint32, scr *Scratch) func() bool {
	if !scr.verify {
		return nil
	}
	scr.verify = false
	body, ids = slices.Clone(body), slices.Clone(ids)
	at := s.now()
	return func() bool {
		want, ok := s.afresh(e, body)
		if !ok || slices.Equal(ids, want) || at != s.now() {
			return true
		}
		s.failed.Add(1)
		s.whole.Store(true)
		s.cache.clear()
		return false
	}
}

// afresh makes a body's ids without limits and without a memory.
func (s *Source) afresh(e Endpoint, body []byte) (ids []uint32, ok bool) {
	var p wire.Peeked
	var c Conversation
	if p.Peek(body) != nil || c.Parse(e, body, &p) != "" {
		return nil, false
	}
	ids, note := s.encodeAfresh(&c)
	return ids, note == ""
}

// Unlimited says why a body's ids are not known however long they may take, "" if they are.
func (s *Source) Unlimited(e Endpoint, body []byte) (note string) {
	var p wire.Peeked
	var c Conversation
	if p.Peek(body) != nil {
		return noteInvalid
	}
	if note = c.Parse(e, body, &p); note != "" {
		return note
	}
	_, note = s.encodeAfresh(&c)
	return note
}

// encodeAfresh makes the ids of a conversation that was parsed without a note.
func (s *Source) encodeAfresh(c *Conversation) (ids []uint32, note string) {
	texts := c.Prompts()
	if c.endpoint != EndpointCompletions {
		if s.template == nil {
			return nil, noteNoTemplate
		}
		text, note := c.Render(nil, s.template)
		if note != "" {
			return nil, note
		}
		texts = []Prompt{{Text: string(text)}}
	}
	for _, prompt := range texts {
		if prompt.IDs != nil {
			ids = append(ids, prompt.IDs...)
			continue
		}
		if c.SpecialTokens() {
			ids = append(ids, s.tokenizer.Prefix()...)
		}
		ids, _ = s.tokenizer.AppendEncode(ids, prompt.Text, Limits{}) // without limits nothing fails
		if c.SpecialTokens() {
			ids = append(ids, s.tokenizer.Suffix()...)
		}
	}
	return ids, ""
}
