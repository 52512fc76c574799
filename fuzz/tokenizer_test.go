package fuzz

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"ramjet/tokens"
)

// tokenizerRules are pre-tokenizers as tokenizer.json spells them: one or more expressions, each of whose matches is
// isolated in what the one before left.
var tokenizerRules = [][]string{
	{`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	{`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	{`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	{`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	{`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	{`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`},
	{`\p{N}{1,3}`, `[一-龥぀-ゟ゠-ヿ]+`, "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"},
}

// slowTokenizer is the obvious twin of tokens.BPE: Go's regular expressions, maps of strings, and the definition of
// byte-pair encoding.
type slowTokenizer struct {
	nfc    bool
	added  map[string]uint32
	vocab  map[string]uint32
	ranks  map[[2]string]int
	steps  [][]*regexp.Regexp // the alternatives of each expression, in order
	spell  [256]string        // how a byte is spelled in vocab
	longer int                // bytes of the longest added token
}

// onlyTrailing stands for \s+(?!\S) among the alternatives: Go's expressions know no look-ahead.
var onlyTrailing = regexp.MustCompile(`^x{0}`)

// newSlowTokenizer reads the same file as LoadBPE does.
func newSlowTokenizer(t testing.TB, data []byte) *slowTokenizer {
	t.Helper()
	var f struct {
		Normalizer *struct{ Type string }
		Added      []struct {
			ID      uint32
			Content string
		} `json:"added_tokens"`
		Pre struct {
			Steps []struct{ Pattern struct{ Regex string } } `json:"pretokenizers"`
		} `json:"pre_tokenizer"`
		Model struct {
			Vocab  map[string]uint32
			Merges [][2]string
		}
	}
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	s := &slowTokenizer{nfc: f.Normalizer != nil, vocab: f.Model.Vocab, added: map[string]uint32{}, ranks: map[[2]string]int{}}
	for _, a := range f.Added {
		s.added[a.Content] = a.ID
		s.longer = max(s.longer, len(a.Content))
	}
	for i, m := range f.Model.Merges {
		s.ranks[m] = i
	}
	for _, step := range f.Pre.Steps {
		if step.Pattern.Regex != "" {
			s.steps = append(s.steps, alternatives(step.Pattern.Regex))
		}
	}
	other := rune(256)
	for i := range 256 {
		r := rune(i)
		if !(r >= '!' && r <= '~' || r >= 0xa1 && r <= 0xac || r >= 0xae) {
			r = other
			other++
		}
		s.spell[i] = string(r)
	}
	return s
}

// alternatives splits an expression at its outermost bars and makes each part Go's: \s is all white space of Unicode.
func alternatives(regex string) []*regexp.Regexp {
	const space = `\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}`
	var list []*regexp.Regexp
	depth, from := 0, 0
	for i := 0; i <= len(regex); i++ {
		switch {
		case i == len(regex) || regex[i] == '|' && depth == 0:
			part := regex[from:i]
			from = i + 1
			if part == `\s+(?!\S)` {
				list = append(list, onlyTrailing)
				continue
			}
			part = strings.ReplaceAll(part, `[^\s`, `[^`+space)
			part = strings.ReplaceAll(part, `\s`, `[`+space+`]`)
			list = append(list, regexp.MustCompile(`^(?:`+part+`)`))
		case regex[i] == '\\':
			i++
		case strings.IndexByte("([", regex[i]) >= 0:
			depth++
		case strings.IndexByte(")]", regex[i]) >= 0:
			depth--
		}
	}
	return list
}

// isolate cuts text at the matches of an expression.
func isolate(text string, alternatives []*regexp.Regexp) []string {
	var pieces []string
	gap := 0
	for i := 0; i < len(text); {
		n := 0
		for _, a := range alternatives {
			if a == onlyTrailing {
				n = trailing(text[i:])
			} else {
				n = len(a.FindString(text[i:]))
			}
			if n > 0 {
				break
			}
		}
		if n == 0 {
			_, size := utf8.DecodeRuneInString(text[i:])
			i += size
			continue
		}
		if gap < i {
			pieces = append(pieces, text[gap:i])
		}
		pieces = append(pieces, text[i:i+n])
		i += n
		gap = i
	}
	if gap < len(text) {
		pieces = append(pieces, text[gap:])
	}
	return pieces
}

// trailing is \s+(?!\S): white space up to the end, or all of it but the last character.
func trailing(text string) int {
	rest := strings.TrimLeftFunc(text, unicode.IsSpace)
	run := text[:len(text)-len(rest)]
	if rest == "" {
		return len(run)
	}
	_, last := utf8.DecodeLastRuneInString(run)
	return len(run) - last*min(1, len(run))
}

// encode returns the ids of text, and the pieces between added tokens.
func (s *slowTokenizer) encode(text string) (ids []uint32, pieces []string) {
	var valid strings.Builder
	for _, r := range text {
		valid.WriteRune(r)
	}
	text = valid.String()
	plain := func(text string) {
		for _, piece := range s.split(text) {
			pieces = append(pieces, piece)
			for _, symbol := range s.merge(piece) {
				ids = append(ids, s.vocab[symbol])
			}
		}
	}
	from := 0
	for i := 0; i < len(text); {
		var token string
		for n := min(s.longer, len(text)-i); n > 0 && token == ""; n-- {
			if _, ok := s.added[text[i:i+n]]; ok {
				token = text[i : i+n]
			}
		}
		if token == "" {
			i++
			continue
		}
		plain(text[from:i])
		ids = append(ids, s.added[token])
		i += len(token)
		from = i
	}
	plain(text[from:])
	return ids, pieces
}

// split is the normalizer and the pre-tokenizer.
func (s *slowTokenizer) split(text string) []string {
	if s.nfc {
		text = norm.NFC.String(text)
	}
	pieces := []string{text}
	for _, step := range s.steps {
		var cut []string
		for _, piece := range pieces {
			cut = append(cut, isolate(piece, step)...)
		}
		pieces = cut
	}
	return pieces
}

// merge merges the pair that comes first in the file, the leftmost of equals, until none is left.
func (s *slowTokenizer) merge(piece string) []string {
	var symbols []string
	for i := range len(piece) {
		symbols = append(symbols, s.spell[piece[i]])
	}
	for {
		best, at := len(s.ranks), -1
		for i := 0; i+1 < len(symbols); i++ {
			if rank, ok := s.ranks[[2]string{symbols[i], symbols[i+1]}]; ok && rank < best {
				best, at = rank, i
			}
		}
		if at < 0 {
			return symbols
		}
		symbols = slices.Replace(symbols, at, at+2, symbols[at]+symbols[at+1])
	}
}

// tokenizerFile is the simulator's tokenizer.json with the expressions of a rule and with more added tokens.
func tokenizerFile(t testing.TB, regexes []string, nfc bool) []byte {
	t.Helper()
	data, err := os.ReadFile("../sim/model/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	var f map[string]any
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	var steps []any
	for _, regex := range regexes {
		steps = append(steps, map[string]any{"type": "Split", "pattern": map[string]any{"Regex": regex}, "behavior": "Isolated", "invert": false})
	}
	steps = append(steps, map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})
	f["pre_tokenizer"] = map[string]any{"type": "Sequence", "pretokenizers": steps}
	if !nfc {
		delete(f, "normalizer")
	}
	added := f["added_tokens"].([]any)
	for _, content := range []string{"<", "<|", "<|im", "|>", "é", "e\u0301"} {
		if _, ok := f["model"].(map[string]any)["vocab"].(map[string]any)[content]; !ok {
			added = append(added, map[string]any{"id": 4087 + len(added), "content": content})
		}
	}
	f["added_tokens"] = added
	if data, err = json.Marshal(f); err != nil {
		t.Fatal(err)
	}
	return data
}

// assigned says whether Go's tables know all characters of text: tokens knows those of later years too.
func assigned(text string) bool {
	for _, r := range text {
		if !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z, unicode.Cc, unicode.Cf, unicode.Co) {
			return false
		}
	}
	return true
}

// FuzzTokenizer compares ids with the slow twin's, for every rule, with and without normalization; and that text cut at
// a special token is encoded the same in parts.
func FuzzTokenizer(f *testing.F) {
	type both struct {
		fast *tokens.Tokenizer
		slow *slowTokenizer
	}
	var all []both
	for _, regexes := range tokenizerRules {
		for _, nfc := range []bool{true, false} {
			data := tokenizerFile(f, regexes, nfc)
			fast, err := tokens.NewTokenizer(data, nil)
			if err != nil {
				f.Fatal(err)
			}
			all = append(all, both{fast, newSlowTokenizer(f, data)})
		}
	}
	for _, text := range []string{
		"Hello world, it's 12345 o'clock.\n\n  Don't\tYOU'LL see?", "<|im_start|>user\nhi<|im_end|>\n<<|x", "HTTPServer camelCase ABCdef中A", "e\u0301\u0301 \u1112\u1161 ΑΒγ ǅ'S", "a\xffb\xe4\xb8",
		" \u3000\r\n x \u0085", "１２３٣ 中文・あア゠\u0301!", "//\r\n/ ...\n/x", "\x00\x01a\x02", "'ſ'RE're're", strings.Repeat("=", 130) + strings.Repeat(" ab", 50), "\u0301\u0301A\u0301 \u0301b",
	} {
		for i := range all {
			f.Add(byte(i), text)
		}
	}
	f.Fuzz(func(t *testing.T, which byte, text string) {
		pair := all[int(which)%len(all)]
		if len(text) > 2000 || !assigned(text) {
			return
		}
		got, err := pair.fast.AppendEncode(nil, text, tokens.Limits{MaxBytes: 2000})
		want, pieces := pair.slow.encode(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("rule %s: %q is %v, %v, wanted %v", pair.fast.Rule(), text, got, err, want)
		}
		// The small vocabulary merges little across the edges of pieces, so that ids alone would hide most of them.
		if got := slices.Collect(pair.fast.BPE().Pieces(text)); !slices.Equal(got, pieces) {
			t.Errorf("rule %s: the pieces of %q are %q, wanted %q", pair.fast.Rule(), text, got, pieces)
		}
		for c := range pair.fast.Cuts(text) {
			bpe := pair.fast.BPE()
			parts := append(append(bpe.Encode(text[:c.Start]), c.ID), bpe.Encode(text[c.End:])...)
			if !slices.Equal(got, parts) {
				t.Errorf("rule %s: %q cut at %d is %v, whole %v", pair.fast.Rule(), text, c.Start, parts, got)
			}
		}
	})
}
