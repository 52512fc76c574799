package tokens

import (
	"bytes"

	"github.com/zeebo/xxh3"

	"ramjet/wire"
)

// ChunkBytes is the length of the pieces of a prompt's text that AppendChunks names: some 500 tokens, so that the
// memory of a long prompt is short, and what two prompts share is known to within a block of the larger sizes.
const ChunkBytes = 2 << 10

// ChunkTokens is what a chunk counts for before anything is learnt; Model.BytesPerToken knows better.
const ChunkTokens = ChunkBytes / 4

// shortestMedium is the length of a string beginning with "data:" from which it is a medium and no text.
const shortestMedium = 256

// billingKey begins a line of the system prompt that changes with each request and that vLLM drops (billingHeader);
// a chunk that held it would make every request of that client a new conversation.
var (
	billingKey = []byte(billingHeader)
	dataKey    = []byte(`"data:`)
)

// chunker cuts a text that comes in pieces into chunks and names each by its bytes and all that stands in front.
type chunker struct {
	keys   []uint64
	parent uint64
	n      int
	buf    [ChunkBytes]byte
}

func (c *chunker) feed(text []byte) {
	if c.n > 0 {
		k := copy(c.buf[c.n:], text)
		c.n += k
		text = text[k:]
		if c.n < ChunkBytes {
			return
		}
		c.key(c.buf[:])
		c.n = 0
	}
	for ; len(text) >= ChunkBytes; text = text[ChunkBytes:] {
		c.key(text[:ChunkBytes])
	}
	c.n = copy(c.buf[:], text)
}

func (c *chunker) key(chunk []byte) {
	c.parent = xxh3.HashSeed(chunk, c.parent)
	c.keys = append(c.keys, c.parent)
}

// AppendChunks appends chained fingerprints of the prompt's own text behind root, one for each full ChunkBytes of it:
// tools, system prompt, messages or input, in the order in which templates put them, as they stand in the body. A
// conversation that has grown keeps its leading fingerprints; other members of the body do not matter. A medium
// counts by its hash, so that it takes no chunks of its own. Of several prompts it is the first. peek is body's
// reading, also after Prepare has noted that nothing is known. It allocates only to grow dst.
func (p *Prepared) AppendChunks(dst []uint64, root uint64, body []byte, peek *wire.Peeked) []uint64 {
	c := &p.chunks
	c.keys, c.parent, c.n = dst, root, 0
	for i, text := range promptTexts(body, peek) {
		if len(text) == 0 {
			continue
		}
		c.feed(spanMarks[i : i+1]) // what is a tool definition in one body is not a message in another
		if i == systemText {
			text = c.withoutBilling(text)
		}
		if peek.Media {
			c.feedMedia(text)
		} else {
			c.feed(text)
		}
	}
	dst, c.keys = c.keys, nil
	return dst
}

// withoutBilling feeds what is in front of the billing line and returns what is behind it.
func (c *chunker) withoutBilling(text []byte) []byte {
	const near = 512 // it is the first of the system prompt's parts
	at := bytes.Index(text[:min(len(text), near)], billingKey)
	if at < 0 {
		return text
	}
	c.feed(text[:at])
	rest := text[at:]
	end := bytes.IndexByte(rest, '"')
	if line := bytes.Index(rest, []byte(`\n`)); line >= 0 && line < end {
		end = line
	}
	if end < 0 {
		return nil
	}
	return rest[end:]
}

// feedMedia is feed with a hash instead of each medium.
func (c *chunker) feedMedia(text []byte) {
	for len(text) > 0 {
		before, medium, rest := cutMedium(text)
		c.feed(before)
		if medium != nil {
			h := xxh3.Hash(medium)
			var b [8]byte
			for i := range b {
				b[i] = byte(h >> (8 * i))
			}
			c.feed(b[:])
		}
		text = rest
	}
}

// cutMedium finds the first string that is a data URL; medium is nil without one.
func cutMedium(text []byte) (before, medium, rest []byte) {
	for from := 0; ; {
		at := bytes.Index(text[from:], dataKey)
		if at < 0 {
			return text, nil, nil
		}
		at += from + 1
		end := bytes.IndexByte(text[at:], '"')
		if end < 0 {
			return text, nil, nil
		}
		if end >= shortestMedium {
			return text[:at], text[at : at+end], text[at+end:]
		}
		from = at + end
	}
}

// measure returns the bytes of the prompt's text without media, and the number of media.
func (p *Prepared) measure(body []byte, peek *wire.Peeked) (text, media int) {
	if !peek.Object {
		return len(body), 0
	}
	spans := promptSpans(peek)
	for _, span := range spans {
		text += span.End - span.Start
	}
	if !peek.Media {
		return text, 0
	}
	for _, span := range [...]wire.Span{peek.Messages, promptOrInput(peek)} {
		for rest := span.Of(body); len(rest) > 0; {
			var medium []byte
			if _, medium, rest = cutMedium(rest); medium != nil {
				media++
				text -= len(medium)
			}
		}
	}
	return text, media
}

// The parts of a body that make the prompt, in the order in which templates put them.
const (
	systemText   = 1
	messagesText = 3
	promptText   = 4
	promptKinds  = 5
)

var spanMarks = []byte{0, 1, 2, 3, 4}

func promptSpans(peek *wire.Peeked) [promptKinds]wire.Span {
	return [...]wire.Span{peek.Tools, peek.System, peek.Instructions, peek.Messages, promptOrInput(peek)}
}

// promptTexts are the parts of the body that make the prompt, without the brackets of lists: what follows a conversation's last message is not part of it.
func promptTexts(body []byte, peek *wire.Peeked) (texts [promptKinds][]byte) {
	if !peek.Object {
		return texts
	}
	for i, span := range promptSpans(peek) {
		text := span.Of(body)
		if i == promptText && peek.Prompts > 1 && peek.MessageCount == 0 {
			text = firstElement(text)
		}
		if len(text) > 1 && (text[0] == '[' || text[0] == '"') {
			text = text[1 : len(text)-1]
		}
		texts[i] = text
	}
	return texts
}

// promptOrInput is the span of a prompt that is no conversation, or of a Responses input.
func promptOrInput(peek *wire.Peeked) wire.Span {
	switch {
	case !peek.Messages.Empty():
		return wire.Span{}
	case !peek.Prompt.Empty():
		return peek.Prompt
	}
	return peek.Input
}

// firstElement returns the first element of a list.
func firstElement(list []byte) []byte {
	if len(list) < 2 || list[0] != '[' {
		return list
	}
	r := jsonReader{s: aliasOf(list)}
	from := r.space(1)
	return list[from:skipJSON(r.s, from)]
}
