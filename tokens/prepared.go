package tokens

import (
	"bytes"
	"strings"
	"unsafe"

	"ramjet/radix"
)

// Prepared is what is known of one request's prompt, and the memory to find it out. The zero value is ready; it is
// meant to be kept in a pool and used again, by one goroutine at a time. Slices hold until the next Prepare.
type Prepared struct {
	// IDs are the ids of all prompts, one behind the other, exactly as the engine makes them; empty where they are
	// not known. Ends are the ends of the prompts in them: one but for completions with a list of prompts.
	IDs  []uint32
	Ends []int
	// Exact says that IDs are known; Note says why not, a word out of Notes, empty when Exact.
	Exact bool
	Note  string
	// Class is what the request uses.
	Class Class
	// Tokens is the number of prompt tokens over all prompts: counted when Exact, else estimated.
	Tokens int
	// Bytes is the length of the prompt's text as JSON, without media.
	Bytes int
	// Predicted is what the engine's usage.prompt_tokens should be, -1 when there is nothing to compare: give it to
	// Observe. It is also set for some requests that are not Exact.
	Predicted int
	// Prefix is the ids of the prompt's beginning as an engine gave them for an earlier turn, where the whole is not
	// known. What follows is not known, and whether the beginning stayed is likely but not proven.
	Prefix []uint32

	model  *Model
	source *Source // as it was when this was prepared
	scr    Scratch
	salt   []byte // cache_salt, decoded; aliases the body or saltBuf
	// guards are what of the body forbids handing over ids.
	guards  guard
	fresh   bool // the answer speaks of the prompt's own probabilities
	saltBuf []byte
	chunks  chunker
}

// guard is a set of reasons not to hand over a request's ids.
type guard uint8

const (
	guardOwnIDs    guard = 1 << iota // the client sent prompt_token_ids or kv_transfer_params of its own
	guardOwnPrompt                   // and they are ids of a prompt
	guardLogprobs                    // prompt_logprobs: the answer speaks of the prompt
	guardEcho                        // echo, in any form
	guardEmbeds
)

// maxKept is the most ids that a Prepared keeps memory for, and maxSalt the most bytes of a salt.
const (
	maxKept = 1 << 20
	maxSalt = 4 << 10
)

func (p *Prepared) reset(m *Model) {
	if cap(p.IDs) > maxKept {
		p.IDs = nil
	}
	if cap(p.Prefix) > maxKept {
		p.Prefix = nil
	}
	p.IDs, p.Ends, p.Prefix = p.IDs[:0], p.Ends[:0], p.Prefix[:0]
	p.Exact, p.Note, p.Class, p.Tokens, p.Bytes, p.Predicted = false, "", 0, 0, 0, -1
	p.model, p.source, p.salt, p.guards, p.fresh = m, m.Source(), nil, 0, false
	p.scr.begin()
}

// Release lets go of what p holds of the request's body. Call it before p goes back to its pool.
func (p *Prepared) Release() {
	p.salt, p.model, p.source = nil, nil, nil
	if cap(p.saltBuf) > maxSalt {
		p.saltBuf = nil
	}
	p.scr.begin()
}

// Salt returns the request's cache_salt, empty without.
func (p *Prepared) Salt() []byte { return p.salt }

// Root is the key in front of the prompt's first block: prompts of another model, adapter or cache salt share none.
// model is the base model's name, lora the adapter's, empty without.
func (p *Prepared) Root(model, lora string) uint64 { return radix.Root(model, lora, aliasOf(p.salt)) }

// First returns the ids of the first prompt when they are exact, else the known prefix, else nothing.
func (p *Prepared) First() []uint32 {
	if p.Exact && len(p.Ends) > 0 {
		return p.IDs[:p.Ends[0]]
	}
	return p.Prefix
}

// Way says how the local tokenizer found the ids; it means something when Exact.
func (p *Prepared) Way() Way { return p.scr.way }

// AppendKeys appends the keys of the full blocks of blockTokens tokens of the first prompt behind root: of all of it
// when Exact, else of the known prefix. What is remembered of the conversation has its keys remembered too.
func (p *Prepared) AppendKeys(dst []uint64, root uint64, blockTokens int) []uint64 {
	ids := p.First()
	if p.Exact && p.source != nil {
		return p.source.AppendKeys(dst, root, ids, blockTokens, &p.scr)
	}
	return radix.AppendKeys(dst, root, ids, blockTokens)
}

// Verify is Source.Verify for the last Prepare: nil for most requests, else a function to run beside them.
func (p *Prepared) Verify(body []byte) func() bool {
	if !p.Exact || p.source == nil {
		return nil
	}
	return p.source.Verify(p.Class.Endpoint(), body, p.IDs, &p.scr)
}

// Unverified says that what Verify gave will not be run: the next request whose ids are found the same way is verified
// instead.
func (p *Prepared) Unverified() {
	if p.source != nil {
		p.source.owed[p.scr.way].Store(true)
	}
}

// Postpone says that Verify will not be called, as nobody could run what it gives: where it would give something, the
// next request whose ids are found the same way is verified instead.
func (p *Prepared) Postpone() {
	if p.source != nil && p.Exact && p.scr.verify {
		p.scr.verify = false
		p.source.owed[p.scr.way].Store(true)
	}
}

// ReadsCache reports whether the engine looks for the prompt in its cache. It does not where the answer speaks of the
// prompt's own probabilities, which only computing it gives (measured with vLLM 0.32): prompt_logprobs, and logprobs of
// completions that echo the prompt.
func (p *Prepared) ReadsCache() bool { return !p.fresh }

// readGuards notes the members that matter beside the prompt.
func (p *Prepared) readGuards(c *Conversation) {
	for i := range c.members {
		raw := c.body[c.members[i].span.Start:c.members[i].span.End]
		if raw == "null" {
			continue
		}
		switch c.members[i].name {
		case "cache_salt":
			p.readSalt(raw)
		case "prompt_token_ids":
			p.guards |= guardOwnIDs | guardOwnPrompt
		case "kv_transfer_params":
			p.guards |= guardOwnIDs
			// An escaped name may be that of the ids.
			if strings.Contains(raw, "prompt_token_ids") || strings.Contains(raw, `\`) {
				p.guards |= guardOwnPrompt
			}
		case "prompt_logprobs":
			p.guards |= guardLogprobs
		case "echo":
			if raw != "false" {
				p.guards |= guardEcho
			}
		case "prompt_embeds":
			p.guards |= guardEmbeds
		}
	}
	p.fresh = p.guards&guardLogprobs != 0 || c.endpoint == EndpointCompletions && p.guards&guardEcho != 0 && c.raw("logprobs") != ""
}

func (p *Prepared) readSalt(raw string) {
	if len(raw) < 2 || raw[0] != '"' {
		return // the engine will refuse it
	}
	inner := unsafe.Slice(unsafe.StringData(raw), len(raw))[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		p.salt = inner
		return
	}
	r := jsonReader{s: raw}
	text, _ := r.text(0)
	p.saltBuf = append(p.saltBuf[:0], text...)
	p.salt = p.saltBuf
}
