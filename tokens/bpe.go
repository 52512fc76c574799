// Package tokens turns text into token ids and back with a byte-level BPE that it reads from a Hugging Face
// tokenizer.json.
//
// A BPE never changes after loading and may be used from any number of goroutines. The package does no I/O and keeps
// no state between calls but pooled scratch memory. It refuses every tokenizer.json whose pre-tokenizer, normalizer,
// model or added tokens ask for something that it does not do exactly: a wrong id is worse than none.
package tokens

import (
	"iter"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// BPE is a byte-level byte-pair tokenizer. It is immutable and safe for concurrent use.
type BPE struct {
	pattern pattern
	nfc     bool // normalize to NFC between the added tokens, as Qwen's files ask

	bytes  [256]uint32       // id of each single byte
	merges map[uint64]merge  // left id << 32 | right id
	whole  map[string]uint32 // pieces that are one token
	pieces [][]byte          // id -> bytes, nil where no token has that id
	ids    map[string]uint32 // token's bytes -> id, added tokens included
	added  addedTokens

	scratch sync.Pool // *mergeScratch
}

// merge is what two adjacent symbols become, and how early.
type merge struct{ rank, id uint32 }

func pairKey(left, right uint32) uint64 { return uint64(left)<<32 | uint64(right) }

// Encode returns the ids of text. Added tokens (such as <|im_start|>) are recognised wherever they stand; no token is
// put in front or behind. Bytes that are not UTF-8 count as U+FFFD, one for each.
func (b *BPE) Encode(text string) []uint32 {
	return b.AppendEncode(make([]uint32, 0, len(text)/3+4), text)
}

// AppendEncode appends the ids of text to dst, as Encode does. It allocates only to grow dst, and where text is not
// in normal form C.
func (b *BPE) AppendEncode(dst []uint32, text string) []uint32 {
	text = validUTF8(text)
	m := b.scratch.Get().(*mergeScratch)
	for text != "" {
		at, token := b.added.find(text)
		dst = b.appendSegment(dst, m, text[:at])
		if token == nil {
			break
		}
		dst = append(dst, token.id)
		text = text[at+len(token.text):]
	}
	b.scratch.Put(m)
	return dst
}

// appendSegment encodes text that holds no added token.
func (b *BPE) appendSegment(dst []uint32, m *mergeScratch, text string) []uint32 {
	text = b.normalize(text)
	for i := 0; i < len(text); {
		end := b.pattern.next(text, i)
		piece := text[i:end]
		i = end
		if id, ok := b.whole[piece]; ok {
			dst = append(dst, id)
			continue
		}
		dst = b.appendMerged(dst, m, piece)
	}
	return dst
}

// Pieces yields the parts of text that are merged each for itself: what the pre-tokenizer makes of the text between
// added tokens. Added tokens are left out. A trainer counts these.
func (b *BPE) Pieces(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		text := validUTF8(text)
		for text != "" {
			at, token := b.added.find(text)
			segment := b.normalize(text[:at])
			for i := 0; i < len(segment); {
				end := b.pattern.next(segment, i)
				if !yield(segment[i:end]) {
					return
				}
				i = end
			}
			if token == nil {
				return
			}
			text = text[at+len(token.text):]
		}
	}
}

func (b *BPE) normalize(text string) string {
	// IsNormalString would be the word for it, but allocates.
	if !b.nfc || norm.NFC.QuickSpanString(text) == len(text) {
		return text
	}
	return norm.NFC.String(text)
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
func (b *BPE) TokenBytes(id uint32) []byte {
	if int64(id) >= int64(len(b.pieces)) {
		return nil
	}
	return b.pieces[id]
}

// TokenID finds a token by the bytes it stands for, added tokens included.
func (b *BPE) TokenID(token string) (uint32, bool) {
	id, ok := b.ids[token]
	return id, ok
}

// IsSpecial says whether id is an added token flagged special, which decoding may skip.
func (b *BPE) IsSpecial(id uint32) bool { return b.added.special[id] }

// Size is one more than the largest id.
func (b *BPE) Size() int { return len(b.pieces) }

// validUTF8 replaces each byte that is not part of a character by U+FFFD. (strings.ToValidUTF8 makes one of a run.)
func validUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		out.WriteRune(r)
	}
	return out.String()
}
