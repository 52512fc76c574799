package tokens

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// pattern is a pre-tokenizer's split rule: a regular expression that tokenizer.json names by its text, and the same
// rule scanned by hand. Go's regexp has no look-ahead, which all of these expressions use.
type pattern struct {
	name  string
	regex string
	next  func(s string, i int) int // end of the piece that begins at i; i < len(s), s is UTF-8
}

// patterns is the closed list of the rules that are known.
var patterns = []pattern{
	{"qwen2", `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`, nextQwen2},
}

// patternOf finds the rule whose expression is exactly regex.
func patternOf(regex string) (pattern, error) {
	for _, p := range patterns {
		if p.regex == regex {
			return p, nil
		}
	}
	return pattern{}, fmt.Errorf("split pattern %q is not one of the known ones", regex)
}

// nextQwen2 scans the pattern of Qwen2 and Qwen3; its alternatives are tried in the order of the expression.
func nextQwen2(s string, i int) int {
	r, size := decodeRune(s, i)
	if r == '\'' {
		if end := contraction(s, i+1); end > 0 {
			return end
		}
	}
	switch {
	case isLetter(r):
		return skipLetters(s, i+size)
	case isNumber(r):
		return i + size
	case r != '\r' && r != '\n' && letterAt(s, i+size):
		return skipLetters(s, i+size)
	case r == ' ' && otherAt(s, i+1):
		return skipOther(s, i+1)
	case !isSpace(r):
		return skipOther(s, i)
	}
	return skipSpace(s, i)
}

// contraction matches (?i:s|t|re|ve|m|ll|d) at i and returns its end, or 0. U+017F, the long s, folds to s.
func contraction(s string, i int) int {
	if i >= len(s) {
		return 0
	}
	switch s[i] | 0x20 {
	case 's', 't', 'm', 'd':
		return i + 1
	case 'r', 'v':
		if i+1 < len(s) && s[i+1]|0x20 == 'e' {
			return i + 2
		}
	case 'l':
		if i+1 < len(s) && s[i+1]|0x20 == 'l' {
			return i + 2
		}
	}
	if r, size := decodeRune(s, i); r == 'ſ' {
		return i + size
	}
	return 0
}

// skipOther is [^\s\p{L}\p{N}]+[\r\n]* from i.
func skipOther(s string, i int) int {
	for i < len(s) {
		r, size := decodeRune(s, i)
		if !isOther(r) {
			break
		}
		i += size
	}
	for i < len(s) && (s[i] == '\r' || s[i] == '\n') {
		i++
	}
	return i
}

// skipSpace is \s*[\r\n]+|\s+(?!\S)|\s+ from i, where s[i] is white space: up to the last line break of the run if
// it has one, else the whole run at the end of the text, else all but the run's last character, else that one.
func skipSpace(s string, i int) int {
	end, last, lineEnd := i, i, 0
	for end < len(s) {
		r, size := decodeRune(s, end)
		if !isSpace(r) {
			break
		}
		last = end
		end += size
		if r == '\r' || r == '\n' {
			lineEnd = end
		}
	}
	switch {
	case lineEnd > 0:
		return lineEnd
	case end == len(s) || last == i:
		return end
	}
	return last
}

func skipLetters(s string, i int) int {
	for i < len(s) {
		r, size := decodeRune(s, i)
		if !isLetter(r) {
			break
		}
		i += size
	}
	return i
}

func letterAt(s string, i int) bool {
	if i >= len(s) {
		return false
	}
	r, _ := decodeRune(s, i)
	return isLetter(r)
}

func otherAt(s string, i int) bool {
	if i >= len(s) {
		return false
	}
	r, _ := decodeRune(s, i)
	return isOther(r)
}

// decodeRune is utf8.DecodeRuneInString with the common case inlined.
func decodeRune(s string, i int) (rune, int) {
	if c := s[i]; c < utf8.RuneSelf {
		return rune(c), 1
	}
	return utf8.DecodeRuneInString(s[i:])
}

// isLetter is \p{L}.
func isLetter(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r|0x20 && r|0x20 <= 'z'
	}
	return unicode.IsLetter(r)
}

// isNumber is \p{N}.
func isNumber(r rune) bool {
	if r < utf8.RuneSelf {
		return '0' <= r && r <= '9'
	}
	return unicode.IsNumber(r)
}

// isSpace is \s as Hugging Face's regular expressions read it: Unicode's White_Space.
func isSpace(r rune) bool { return unicode.IsSpace(r) }

// isOther is [^\s\p{L}\p{N}].
func isOther(r rune) bool { return !isSpace(r) && !isLetter(r) && !isNumber(r) }
