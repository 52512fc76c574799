package tokens

import (
	"bytes"
	"strings"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/text/unicode/norm"
)

// normalStep is how much text is normalized between two looks at the clock.
const normalStep = 16 << 10

// normalize returns text in normal form C where the file asks for it. The result may lie in m, up to its next use.
func (b *BPE) normalize(m *mergeScratch, text string) string {
	if !b.nfc {
		return text
	}
	for i := 0; i < len(text); {
		end := normalBoundary(m, text, i)
		// IsNormalString would be the word for it, but allocates.
		if end > i && norm.NFC.QuickSpanString(text[i:end]) < end-i {
			return normalizeFrom(m, text, i, end)
		}
		i = end
		if !m.work.spend(normalStep / 16) { // some 300 MB/s
			return ""
		}
	}
	return text
}

// normalizeFrom normalizes text, which is in normal form up to i, and of which text[i:end] is not.
func normalizeFrom(m *mergeScratch, text string, i, end int) string {
	m.normal = append(m.normal[:0], text[:i]...)
	for {
		from := len(m.normal)
		// AppendString would do it, but allocates.
		for m.iter.InitString(norm.NFC, text[i:end]); !m.iter.Done(); {
			m.normal = append(m.normal, m.iter.Next()...)
		}
		if bytes.Count(m.normal[from:], []byte(joiner)) > strings.Count(text[i:end], joiner) {
			m.normal = appendComposed(m.normal[:from], text[i:end])
			m.work.spend(composeWork * (end - i))
		}
		if !m.work.spend(normalStep) {
			return ""
		}
		if i = end; i == len(text) {
			return unsafe.String(unsafe.SliceData(m.normal), len(m.normal))
		}
		end = normalBoundary(m, text, i)
	}
}

// normalBoundary returns where normalization can be cut next: about normalStep after i, before a character that joins
// with none before it. No word has thousands of marks on one letter, so that such text is too long like any other run.
func normalBoundary(m *mergeScratch, text string, i int) int {
	for at := i + normalStep; at < len(text); at++ {
		if text[at] < utf8.RuneSelf || utf8.RuneStart(text[at]) && norm.NFC.PropertiesString(text[at:]).BoundaryBefore() {
			return at
		}
		if at-i > m.work.maxPiece {
			m.work.stop(ErrTooLong)
			return i
		}
	}
	return len(text)
}

// valid replaces each byte of s that is not part of a character by U+FFFD. (strings.ToValidUTF8 makes one of a run.)
// The result may lie in m, up to its next use.
func valid(m *mergeScratch, s string) string {
	if utf8.ValidString(s) {
		return s
	}
	m.valid = m.valid[:0]
	for i, r := range s {
		m.valid = utf8.AppendRune(m.valid, r)
		if i%workStep == 0 && !m.work.spend(workStep/4) {
			return ""
		}
	}
	return unsafe.String(unsafe.SliceData(m.valid), len(m.valid))
}
