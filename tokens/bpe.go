// Package tokens turns requests into token ids: text into ids and back by a byte-level BPE read from a Hugging Face
// tokenizer.json, and messages into text by the model's chat template.
//
// A BPE or a Tokenizer never changes after loading and may be used from any number of goroutines. The package reads
// files only where it is told to (LoadTokenizer, LoadTemplate), and keeps no state between calls but pooled scratch
// memory and the bounded cache of a Source, which knows what conversations said before. It refuses
// every tokenizer.json whose pre-tokenizer, normalizer, model, decoder or post-processor asks for something that it does
// not do exactly, and names it: a wrong id is worse than none.
package tokens

import (
	"iter"
	"strings"
	"sync"
)

// BPE is a byte-level byte-pair tokenizer. It is immutable and safe for concurrent use.
type BPE struct {
	rule  rule
	class *classTable
	nfc   bool // normalize to NFC between the added tokens, as Qwen's files ask

	bytes     [256]uint32 // id of each single byte
	vocab     vocab       // added tokens included
	vocabSize int         // entries of the model's own vocabulary
	pairs     pairs
	added     addedTokens

	prefix, suffix []uint32 // what the post-processor puts around a text

	scratch sync.Pool // *mergeScratch
}

// maxPooled is the most scratch memory in bytes that is kept for the next call.
const maxPooled = 4 << 20

// Encode returns the ids of text. Added tokens (such as <|im_start|>) are recognised wherever they stand; no token is
// put in front or behind. Bytes that are not UTF-8 count as U+FFFD, one for each.
func (b *BPE) Encode(text string) []uint32 {
	return b.AppendEncode(make([]uint32, 0, len(text)/3+4), text)
}

// AppendEncode appends the ids of text to dst, as Encode does. It allocates only to grow dst.
func (b *BPE) AppendEncode(dst []uint32, text string) []uint32 {
	dst, _ = b.AppendEncodeLimited(dst, text, Limits{}) // without limits nothing fails
	return dst
}

// AppendEncodeLimited is AppendEncode with bounded work. The error is ErrTooLong or ErrTooSlow, and dst then comes back
// without an id added.
func (b *BPE) AppendEncodeLimited(dst []uint32, text string, lim Limits) ([]uint32, error) {
	if lim.MaxBytes > 0 && len(text) > lim.MaxBytes {
		return dst, ErrTooLong
	}
	m := b.scratch.Get().(*mergeScratch)
	m.work.begin(lim)
	n := len(dst)
	dst = b.appendText(dst, m, valid(m, text))
	err := m.work.err
	if err != nil {
		dst = dst[:n]
	}
	if 24*cap(m.ids)+cap(m.normal)+cap(m.valid) > maxPooled {
		m = new(mergeScratch)
	}
	b.scratch.Put(m)
	return dst, err
}

// appendText encodes text up to the end or to m.work's error.
func (b *BPE) appendText(dst []uint32, m *mergeScratch, text string) []uint32 {
	scan := addedScan{set: &b.added.raw, text: text}
	for {
		plain, token := scan.next(&m.work)
		if m.work.err != nil {
			return dst
		}
		if plain = b.normalize(m, plain); m.work.err != nil {
			return dst
		} else if len(b.added.normal.tokens) == 0 {
			dst = b.appendPlain(dst, m, plain)
		} else {
			dst = b.appendNormal(dst, m, plain)
		}
		if token == nil || m.work.err != nil {
			return dst
		}
		dst = append(dst, token.ID)
	}
}

// appendNormal encodes normalized text, in which the added tokens flagged so are looked for.
func (b *BPE) appendNormal(dst []uint32, m *mergeScratch, text string) []uint32 {
	scan := addedScan{set: &b.added.normal, text: text}
	for {
		plain, token := scan.next(&m.work)
		if m.work.err != nil {
			return dst
		}
		dst = b.appendPlain(dst, m, plain)
		if token == nil || m.work.err != nil {
			return dst
		}
		dst = append(dst, token.ID)
	}
}

// appendPlain encodes text that holds no added token.
func (b *BPE) appendPlain(dst []uint32, m *mergeScratch, text string) []uint32 {
	if b.rule.part == nil {
		return b.appendPart(dst, m, text)
	}
	for i := 0; i < len(text); {
		end := b.rule.part(b.class, text, i)
		dst = b.appendPart(dst, m, text[i:end])
		if m.work.err != nil {
			return dst
		}
		i = end
	}
	return dst
}

// appendPart encodes text that only the last step of the rule splits.
func (b *BPE) appendPart(dst []uint32, m *mergeScratch, text string) []uint32 {
	for i := 0; i < len(text); {
		end := b.rule.next(b.class, text, i)
		piece := text[i:end]
		i = end
		if len(piece) == 1 {
			dst = append(dst, b.bytes[piece[0]])
		} else if id, ok := b.vocab.whole(piece); ok {
			dst = append(dst, id)
		} else if len(piece) > m.work.maxPiece {
			m.work.stop(ErrTooLong)
		} else {
			dst = b.appendMerged(dst, m, piece)
		}
		if !m.work.spend(len(piece)) {
			break
		}
	}
	return dst
}

// Pieces yields the parts of text that are merged each for itself: what the pre-tokenizer makes of the text between
// added tokens. Added tokens are left out. A trainer counts these.
func (b *BPE) Pieces(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		m := new(mergeScratch)
		m.work.begin(Limits{})
		raw := addedScan{set: &b.added.raw, text: valid(m, text)}
		for {
			outer, cut := raw.next(&m.work)
			normal := addedScan{set: &b.added.normal, text: strings.Clone(b.normalize(m, outer))}
			for {
				plain, token := normal.next(&m.work)
				if !b.piecesOf(plain, yield) {
					return
				}
				if token == nil {
					break
				}
			}
			if cut == nil {
				return
			}
		}
	}
}

func (b *BPE) piecesOf(plain string, yield func(string) bool) bool {
	for len(plain) > 0 {
		part := plain
		if b.rule.part != nil {
			part = plain[:b.rule.part(b.class, plain, 0)]
		}
		plain = plain[len(part):]
		for i := 0; i < len(part); {
			end := b.rule.next(b.class, part, i)
			if !yield(part[i:end]) {
				return false
			}
			i = end
		}
	}
	return true
}

// Decode returns the text of ids; ids without a token are passed over, and special tokens too if skipSpecial. Bytes
// that are not UTF-8 (a character cut in two) become U+FFFD, as in Python's decode(errors="replace").
func (b *BPE) Decode(ids []uint32, skipSpecial bool) string {
	return strings.ToValidUTF8(string(b.AppendDecode(nil, ids, skipSpecial)), "\uFFFD")
}

// AppendDecode appends the bytes of ids to dst as they are: the result may end within a character.
func (b *BPE) AppendDecode(dst []byte, ids []uint32, skipSpecial bool) []byte {
	for _, id := range ids {
		if skipSpecial && b.IsSpecial(id) {
			continue
		}
		dst = append(dst, b.TokenBytes(id)...)
	}
	return dst
}

// TokenBytes returns the bytes that id stands for; nil for an id without a token. The slice must not be changed.
func (b *BPE) TokenBytes(id uint32) []byte { return b.vocab.token(id) }

// TokenID finds a token by the bytes it stands for, added tokens included.
func (b *BPE) TokenID(token string) (uint32, bool) { return b.vocab.id(token) }

// IsSpecial says whether id is an added token flagged special, which decoding may skip.
func (b *BPE) IsSpecial(id uint32) bool {
	t := b.added.byID[id]
	return t != nil && t.Special
}

// Size is one more than the largest id.
func (b *BPE) Size() int { return len(b.vocab.spans) }
