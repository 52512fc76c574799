package tokens

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// A vocabulary and its merges are nine tenths of a tokenizer.json, 10 to 30 MB. Into Go's maps and slices they would
// take seconds and some hundred megabytes; the functions here walk through them in place. Both are valid JSON already.

// jsonWalk stands within valid JSON.
type jsonWalk struct {
	data []byte
	at   int
}

// next skips white space and returns the next character, 0 at the end.
func (w *jsonWalk) next() byte {
	for ; w.at < len(w.data); w.at++ {
		switch c := w.data[w.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// take is next, and steps over the character if it is c.
func (w *jsonWalk) take(c byte) bool {
	if w.next() != c {
		return false
	}
	w.at++
	return true
}

// text reads a string. It is valid until the data changes.
func (w *jsonWalk) text() (string, bool) {
	if w.next() != '"' {
		return "", false
	}
	start := w.at
	escaped := false
	for w.at++; w.data[w.at] != '"'; w.at++ {
		if w.data[w.at] == '\\' {
			escaped = true
			w.at++
		}
	}
	w.at++
	if !escaped {
		return string(w.data[start+1 : w.at-1]), true
	}
	var s string
	if json.Unmarshal(w.data[start:w.at], &s) != nil {
		return "", false
	}
	return s, true
}

// number reads an id.
func (w *jsonWalk) number() (uint32, bool) {
	w.next()
	start := w.at
	n := uint64(0)
	for ; w.at < len(w.data) && '0' <= w.data[w.at] && w.data[w.at] <= '9' && n < 1<<32; w.at++ {
		n = n*10 + uint64(w.data[w.at]-'0')
	}
	c := w.next()
	return uint32(n), w.at > start && n < 1<<32 && (c == ',' || c == '}')
}

// eachID calls yield for every entry of a vocabulary: its spelling and its id.
func eachID(vocab []byte, yield func(text string, id uint32) error) error {
	w := jsonWalk{data: vocab}
	if !w.take('{') {
		return errors.New("there is no vocabulary")
	}
	for !w.take('}') {
		text, ok := w.text()
		if !ok || !w.take(':') {
			return errors.New("vocabulary is not an object of ids")
		}
		id, ok := w.number()
		if !ok {
			return fmt.Errorf("vocabulary entry %q has no id", text)
		}
		if err := yield(text, id); err != nil {
			return err
		}
		w.take(',')
	}
	return nil
}

// eachMerge calls yield for every merge, spelled "a b" (tokenizers before 0.20) or ["a","b"].
func eachMerge(merges []byte, yield func(left, right string) error) error {
	w := jsonWalk{data: merges}
	if !w.take('[') {
		return errors.New("there are no merges")
	}
	for i := 0; !w.take(']'); i++ {
		left, right, err := w.merge()
		if err != nil {
			return fmt.Errorf("merge %d %w", i, err)
		}
		if err := yield(left, right); err != nil {
			return err
		}
		w.take(',')
	}
	return nil
}

func (w *jsonWalk) merge() (left, right string, err error) {
	if w.next() == '"' {
		line, _ := w.text()
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			return "", "", fmt.Errorf("is %q, not two symbols", line)
		}
		return left, right, nil
	}
	if !w.take('[') {
		return "", "", errors.New("is neither a string nor a list")
	}
	var pair [2]string
	n := 0
	for ; !w.take(']'); n++ {
		text, ok := w.text()
		if !ok {
			return "", "", errors.New("holds what is no symbol")
		}
		if n < len(pair) {
			pair[n] = text
		}
		w.take(',')
	}
	if n != len(pair) {
		return "", "", fmt.Errorf("has %d symbols", n)
	}
	return pair[0], pair[1], nil
}

// appendFromByteLevel undoes GPT-2's spelling of bytes as printable characters: the printable ones of Latin-1 stand
// for themselves, the 68 others for U+0100 onwards in their order. False if text is empty or not so spelled.
func appendFromByteLevel(dst []byte, text string) ([]byte, bool) {
	for _, r := range text {
		switch {
		case r < 256 && byteLevelPrintable(byte(r)):
			dst = append(dst, byte(r))
		case r >= 256 && int(r-256) < len(byteLevelOthers):
			dst = append(dst, byteLevelOthers[r-256])
		default:
			return dst, false
		}
	}
	return dst, text != ""
}

func byteLevelPrintable(c byte) bool {
	return c >= '!' && c <= '~' || c >= 0xa1 && c <= 0xac || c >= 0xae
}

// byteLevelOthers are the bytes that are not printable in Latin-1, in order.
var byteLevelOthers = func() []byte {
	var out []byte
	for c := range 256 {
		if !byteLevelPrintable(byte(c)) {
			out = append(out, byte(c))
		}
	}
	return out
}()
