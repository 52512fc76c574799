package tokens

import (
	"fmt"
	"strings"
)

// rule is a pre-tokenizer's split rule: what tokenizer.json says as one or more regular expressions, scanned by hand.
// Go's regexp has no look-ahead, which all of these expressions use, and one engine for all of them costs a factor of
// ten (2 MB/s and less).
//
// All rules but GPT-2's were read in files that models are served with; each is compared with Hugging Face's library
// on every character and on random text (hf_test.go).
type rule struct {
	name string
	// regexes are the expressions of the Split steps, in order.
	regexes []string
	// next returns the end of the piece that begins at i; i < len(s), and s is UTF-8.
	next func(t *classTable, s string, i int) int
	// part returns the end of the part that begins at i: what earlier Split steps leave, which next never looks
	// beyond. Nil where there is one step.
	part func(t *classTable, s string, i int) int
}

// Parts that several expressions share.
const (
	regexContraction = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	regexSpaces      = `|\s*[\r\n]+|\s+(?!\S)|\s+`
	regexCamel       = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	regexUpper       = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
	regexGPT2        = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
)

// rules is the closed list of the rules that are known.
func rules() []rule {
	words := func(letters uint8, digits int) func(*classTable, string, int) int {
		return func(t *classTable, s string, i int) int { return nextWord(t, s, i, letters, digits) }
	}
	camel := func(contractions bool, digits int) func(*classTable, string, int) int {
		return func(t *classTable, s string, i int) int { return nextCamel(t, s, i, contractions, digits) }
	}
	return []rule{
		{name: "qwen2", next: words(classLetter, 1), // Qwen2, Qwen2.5, Qwen3
			regexes: []string{regexContraction + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*` + regexSpaces}},
		{name: "qwen3.5", next: words(classLetter|classMark, 1),
			regexes: []string{regexContraction + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*` + regexSpaces}},
		{name: "llama3", next: words(classLetter, 3), // cl100k, Llama 3, GLM-4
			regexes: []string{regexContraction + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*` + regexSpaces}},
		{name: "o200k", next: camel(true, 3), // GPT-4o, gpt-oss, Llama 4
			regexes: []string{regexCamel + regexContraction + `?|` + regexUpper + regexContraction + `?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + regexSpaces}},
		{name: "tekken", next: camel(false, 1), // Mistral from Nemo on
			regexes: []string{regexCamel + `|` + regexUpper + `|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + regexSpaces}},
		{name: "gpt2", next: nextGPT2, regexes: []string{regexGPT2}},
		{name: "deepseek3", next: nextDeepSeek, part: partDeepSeek, regexes: []string{
			`\p{N}{1,3}`,
			`[一-龥぀-ゟ゠-ヿ]+`,
			"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
		}},
	}
}

// ruleOf finds the rule whose expressions are exactly regexes. Line breaks may be written as such or escaped.
func ruleOf(regexes []string) (rule, error) {
	escape := strings.NewReplacer("\r", `\r`, "\n", `\n`)
	same := func(known []string) bool {
		if len(known) != len(regexes) {
			return false
		}
		for i := range known {
			if escape.Replace(known[i]) != escape.Replace(regexes[i]) {
				return false
			}
		}
		return true
	}
	for _, r := range rules() {
		if same(r.regexes) {
			return r, nil
		}
	}
	return rule{}, fmt.Errorf("split pattern %q is not one of the known ones", regexes)
}

// nextWord scans the rules that keep words whole: contractions, words with one character of another kind in front,
// numbers of so many digits, other characters with a space in front, white space. The alternatives are tried in the
// order of the expression; letters is the class of what words are made of.
func nextWord(t *classTable, s string, i int, letters uint8, digits int) int {
	if s[i] == '\'' {
		if end := contraction(s, i); end > 0 {
			return end
		}
	}
	c, n := t.at(s, i)
	if c&letters != 0 {
		return t.skip(s, i+n, letters)
	}
	if c&classNumber != 0 {
		return numbers(t, s, i+n, digits-1)
	}
	if c&classNewline == 0 {
		if after, m := t.at(s, i+n); after&letters != 0 {
			return t.skip(s, i+n+m, letters)
		}
	}
	return otherOrSpace(t, s, i, c, classSpace|letters|classNumber, false)
}

// nextCamel scans the rules that begin a new piece where a lower-case letter is followed by an upper-case one.
func nextCamel(t *classTable, s string, i int, contractions bool, digits int) int {
	c, n := t.at(s, i)
	end, upper := 0, 0 // of the alternative that ends in lower case, and of the one that is all upper case
	if c&(classNewline|classLetter|classNumber) == 0 {
		end, upper = camelRun(t, s, i+n)
	}
	if end == 0 && c&(classLetter|classMark) != 0 {
		// The character in front is optional: an expression goes through it only if that leads to a match.
		var without int
		if end, without = camelRun(t, s, i); upper == 0 {
			upper = without
		}
	}
	if end == 0 {
		end = upper
	}
	if end > 0 {
		if contractions && end < len(s) && s[end] == '\'' {
			return max(end, contraction(s, end))
		}
		return end
	}
	if c&classNumber != 0 {
		return numbers(t, s, i+n, digits-1)
	}
	return otherOrSpace(t, s, i, c, classSpace|classLetter|classNumber, true)
}

// camelRun matches [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ at i and returns its end, and the end of
// the first part alone; 0 for no match. Letters without case and marks are in both parts, so the first part gives the
// last of them back where no lower-case letter follows it.
func camelRun(t *classTable, s string, i int) (end, upper int) {
	const first, second = classUpper | classNoCase | classMark, classLower | classNoCase | classMark
	at := i
	for at < len(s) {
		c, n := t.at(s, at)
		if c&first == 0 {
			if c&classLower != 0 {
				return t.skip(s, at+n, second), 0
			}
			break
		}
		at += n
		if c&second != 0 {
			end = at
		}
	}
	if at > i {
		upper = at
	}
	return end, upper
}

// nextGPT2 scans GPT-2's expression, in which nothing but a space stands in front of a word or a number.
func nextGPT2(t *classTable, s string, i int) int {
	if s[i] == '\'' && i+1 < len(s) && 'a' <= s[i+1] && s[i+1] <= 'z' {
		if end := contraction(s, i); end > 0 && s[end-1] >= 'a' {
			return end
		}
	}
	at := i
	c, n := t.at(s, i)
	if s[i] == ' ' {
		if after, m := t.at(s, i+1); m > 0 && after&classSpace == 0 {
			at, c, n = i+1, after, m
		}
	}
	switch {
	case c&classLetter != 0:
		return t.skip(s, at+n, classLetter)
	case c&classNumber != 0:
		return t.skip(s, at+n, classNumber)
	case c&classSpace != 0:
		return t.space(s, i, false)
	}
	return t.skipNone(s, at+n, classSpace|classLetter|classNumber)
}

// contraction matches (?i:'s|'t|'re|'ve|'m|'ll|'d) at i, where the apostrophe stands, and returns its end, or 0.
// U+017F, the long s, folds to s.
func contraction(s string, i int) int {
	if i+1 >= len(s) {
		return 0
	}
	switch s[i+1] | 0x20 {
	case 's', 't', 'm', 'd':
		return i + 2
	case 'r', 'v':
		if i+2 < len(s) && s[i+2]|0x20 == 'e' {
			return i + 3
		}
	case 'l':
		if i+2 < len(s) && s[i+2]|0x20 == 'l' {
			return i + 3
		}
	}
	if strings.HasPrefix(s[i+1:], "ſ") {
		return i + 1 + len("ſ")
	}
	return 0
}

// numbers skips up to n more \p{N}.
func numbers(t *classTable, s string, i, n int) int {
	for ; n > 0; n-- {
		c, size := t.at(s, i)
		if c&classNumber == 0 {
			break
		}
		i += size
	}
	return i
}

// otherOrSpace matches " ?X+[\r\n]*" where X is a character of none of the given classes, else white space. Some rules
// let slashes stand among the line breaks.
func otherOrSpace(t *classTable, s string, i int, c, not uint8, slash bool) int {
	at := i
	if s[i] == ' ' {
		if after, n := t.at(s, i+1); n > 0 && after&not == 0 {
			at, c = i+1, after
		}
	}
	if c&not != 0 {
		return t.space(s, i, true)
	}
	at = t.skipNone(s, at, not)
	for at < len(s) && (s[at] == '\r' || s[at] == '\n' || slash && s[at] == '/') {
		at++
	}
	return at
}
