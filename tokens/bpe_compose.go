package tokens

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// joiner is what Go's library puts behind 30 marks on one letter ("stream-safe text"). Hugging Face's does not, so that
// such text, which nobody writes, is normalized here.
const joiner = "\u034f"

// composeWork is what a byte costs here in bytes of common text.
const composeWork = 4

// letter is a character with its canonical combining class.
type letter struct {
	r     rune
	class uint8
}

// appendComposed appends text in normal form C as Unicode defines it (UAX 15), however many marks a letter has.
func appendComposed(dst []byte, text string) []byte {
	letters := decomposed(text)
	for i := 0; i < len(letters); {
		if letters[i].class == 0 {
			i++
			continue
		}
		end := i
		for end < len(letters) && letters[end].class > 0 {
			end++
		}
		slices.SortStableFunc(letters[i:end], func(a, b letter) int { return int(a.class) - int(b.class) })
		i = end
	}
	for _, l := range composed(letters) {
		dst = utf8.AppendRune(dst, l.r)
	}
	return dst
}

// decomposed takes every character of text apart.
func decomposed(text string) []letter {
	letters := make([]letter, 0, len(text)/2+1)
	for i, r := range text {
		if r >= 0xac00 && r <= 0xd7a3 { // a syllable of Hangul is not in the tables
			s := r - 0xac00
			letters = append(letters, letter{0x1100 + s/588, 0}, letter{0x1161 + s%588/28, 0})
			if s%28 > 0 {
				letters = append(letters, letter{0x11a7 + s%28, 0})
			}
			continue
		}
		p := norm.NFD.PropertiesString(text[i:])
		parts := p.Decomposition()
		if parts == nil {
			letters = append(letters, letter{r, p.CCC()})
			continue
		}
		for len(parts) > 0 {
			p := norm.NFD.Properties(parts)
			part, size := utf8.DecodeRune(parts)
			letters = append(letters, letter{part, p.CCC()})
			parts = parts[size:]
		}
	}
	return letters
}

// composed joins letters in canonical order, in place.
func composed(letters []letter) []letter {
	out := letters[:0]
	starter := -1 // index in out
	for _, l := range letters {
		if starter >= 0 {
			last := out[len(out)-1]
			// Between it and the starter there is nothing, or nothing of its class or a higher one.
			if len(out)-1 == starter || last.class > 0 && last.class < l.class {
				if r, ok := join(out[starter].r, l.r); ok {
					out[starter].r = r
					continue
				}
			}
		}
		if l.class == 0 {
			starter = len(out)
		}
		out = append(out, l)
	}
	return out
}

// join is the one character that two become. Two are never too many marks for the library.
func join(a, b rune) (rune, bool) {
	var pair [2 * utf8.UTFMax]byte
	n := utf8.EncodeRune(pair[:], a)
	text := pair[:n+utf8.EncodeRune(pair[n:], b)]
	if norm.NFC.Properties(text[n:]).BoundaryBefore() {
		return 0, false
	}
	var both [4 * utf8.UTFMax]byte
	joined := norm.NFC.Append(both[:0], text...)
	r, size := utf8.DecodeRune(joined)
	return r, size == len(joined)
}
