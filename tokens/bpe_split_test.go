package tokens

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// handTexts hold what tells the rules apart, and their corners. Add more at the end: piecesGolden goes by position.
var handTexts = []string{
	"", " ", "  ", "\n", "\r\n", "\n\n \n", " \n x", "x \n", "x  \n\n  y", "\t\tx", "\tx y", "a  b", "a   b", "a\u00a0b", "a \u3000 b", "\u2028x", "x\n  ", "x  \n", "x \u0085 y", " \u0301", "\n\u0301a",
	"Hello world", "Hello, world!", "don't DON'T Don'T we'll WE'LL they've I'm i'd 'tis 's ''s 'ſ it'ſ 'r 'l 'v 're're", "'", "'x", " 's", "x's'", "X'Sx", "'Ll'lL'rE'Ve", "Él'S éÉ's",
	"x=1234567", "3.14159e-10", "١٢٣", "ⅠⅡ", "½ cup", "a1b2", "12345 67 8", "if (x != nil) {\n\treturn fmt.Errorf(\"%w\", err)\n}\n", "!!!???...\n\n", "...\r\nx", " ...x", "  ...x", "(foo", " (foo)", "_foo", "-foo-bar", "///\n/", " //x", "http://a.b/c?d=e&f",
	"camelCaseWord HTTPServer XMLHttpRequest iPhone ABCdef ABC AbC aBc ÀÉî ΑΒγ ǅx xǅ Xǅǅ", "中文A中文b ABC中 A中B中c", "ªºʰX Xʰ", "a\u0301B\u0301c \u0301A \u0301\u0301", "A\u0301", " \u0301A", "!\u0301A",
	"e\u0301clair", "\u1112\u1161\u11ab한글", "ﬁsh", "A\u030angstrom", "\u212b", "\u0958", "q\u0307\u0323", "\u0344",
	"你好，世界。", "こんにちは、ハロー・ワールド゠ー", "ゝヽ゛゜", "Привет", "สวัสดี", "नमस्ते", "😀👨‍👩‍👧", "\u200b\u200c\ufeff", "\x00\x01\x1f\x7f\u0080\u0085\u00a0\u00ad", "\x00a\x01\x02 b\x03\n", "\u0378\u0379x\u0378",
	"#include <a.h>", "&amp;x", "@user #tag $x %d ^y *z", "`code`~x", "{a:[b]}|c\\d", "«quoted»", "—dash", "€5 £6 ¥7", "😀a", " 😀 a",
	strings.Repeat("a", 95), strings.Repeat("a", 96), strings.Repeat("a", 97), strings.Repeat("the", 100), strings.Repeat("-", 300), strings.Repeat(" ", 300) + "x", strings.Repeat("=", 200) + "\n", strings.Repeat("中文", 90), strings.Repeat("supercalifragilistic", 6),
}

// piecesGolden is what Hugging Face's library makes of handTexts by every rule: for each text the lengths of its pieces
// in bytes, with spaces between. `go test ./tokens -run TestHuggingFacePieces -update` writes it.
const piecesGolden = "testdata/pieces_golden.json"

func TestPiecesGolden(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(piecesGolden)
	if err != nil {
		t.Fatal(err)
	}
	var golden map[string][]string
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	for _, r := range rules() {
		b, err := LoadBPE(fileWithRule(t, r))
		if err != nil {
			t.Fatal(err)
		}
		want := golden[r.name]
		if len(want) != len(handTexts) {
			t.Errorf("%s: the golden file has %d texts of %d", r.name, len(want), len(handTexts))
			continue
		}
		for i, text := range handTexts {
			if got := lengths(b.Pieces(text)); got != want[i] {
				t.Errorf("%s: the pieces of %q are %s bytes long, wanted %s", r.name, text, got, want[i])
			}
		}
	}
}

// lengths joins the lengths of pieces.
func lengths(pieces func(func(string) bool)) string {
	var out []string
	for piece := range pieces {
		out = append(out, strconv.Itoa(len(piece)))
	}
	return strings.Join(out, " ")
}

// TestRuleOf: the expressions decide, all of them and nothing else; line breaks may be escaped or not.
func TestRuleOf(t *testing.T) {
	t.Parallel()
	for _, r := range rules() {
		for _, change := range []func(string) string{
			func(s string) string { return s },
			func(s string) string { return strings.ReplaceAll(s, `\n`, "\n") },
			func(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "\r", `\r`), "\n", `\n`) },
		} {
			regexes := slices.Clone(r.regexes)
			for i := range regexes {
				regexes[i] = change(regexes[i])
			}
			if got, err := ruleOf(regexes); err != nil || got.name != r.name {
				t.Errorf("%q is %s, %v, wanted %s", regexes, got.name, err, r.name)
			}
		}
		regexes := slices.Clone(r.regexes)
		regexes[0] = strings.Replace(regexes[0], `\p{N}`, `\p{Nd}`, 1)
		for _, other := range [][]string{regexes, append(slices.Clone(r.regexes), `\d`), r.regexes[:len(r.regexes)-1]} {
			if got, err := ruleOf(other); err == nil {
				t.Errorf("%q is taken for %s", other, got.name)
			}
		}
	}
}

// TestGPT2WithoutSplit: a ByteLevel alone brings GPT-2's expression.
func TestGPT2WithoutSplit(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{false, true} {
		b, err := LoadBPE(changedFile(t, func(f map[string]any) {
			level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true}
			if whole {
				level["use_regex"] = true
			}
			f["pre_tokenizer"] = level
		}))
		if err != nil || b.rule.name != "gpt2" {
			t.Errorf("rule %v, %v", b, err)
		}
	}
}

// TestTiktokenSplit: files made from tiktoken's remove what does not match instead of isolating what does.
func TestTiktokenSplit(t *testing.T) {
	t.Parallel()
	for _, r := range rules() {
		data := string(fileWithRule(t, r))
		data = strings.ReplaceAll(data, `"behavior":"Isolated","invert":false`, `"behavior":"Removed","invert":true`)
		_, err := LoadBPE([]byte(data))
		if known := len(r.regexes) == 1; known != (err == nil) {
			t.Errorf("%s: %v", r.name, err)
		}
	}
}

// TestScannersMove: every rule ends each piece after it began and within the text, at the begin of a character.
func TestScannersMove(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	texts := mixed(r, 150, []string{"a", "B", "é", "É", "中", "あ", "・", "1", "٣", "\u0301", " ", "\u3000", "\n", "\r", "'", "'s", "/", "!", "\x00", "\u200d", "\u0378", "😀"})
	for _, rule := range rules() {
		b, err := LoadBPE(fileWithRule(t, rule))
		if err != nil {
			t.Fatal(err)
		}
		b.nfc = false
		for _, text := range texts {
			if got := strings.Join(slices.Collect(b.Pieces(text)), ""); got != text {
				t.Errorf("%s: the pieces of %q join to %q", rule.name, text, got)
			}
		}
	}
}

// mixed joins parts at random.
func mixed(r *rand.Rand, n int, parts []string) []string {
	texts := make([]string, n)
	for i := range texts {
		var b strings.Builder
		for range 1 + r.IntN(30) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		texts[i] = b.String()
	}
	return texts
}

// fileWithRule is the simulator's tokenizer.json with the pre-tokenizer of a rule.
func fileWithRule(t testing.TB, r rule) []byte {
	t.Helper()
	return changedFile(t, func(f map[string]any) {
		var steps []any
		for _, regex := range r.regexes {
			steps = append(steps, map[string]any{"type": "Split", "pattern": map[string]any{"Regex": regex}, "behavior": "Isolated", "invert": false})
		}
		steps = append(steps, map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false})
		f["pre_tokenizer"] = map[string]any{"type": "Sequence", "pretokenizers": steps}
		f["added_tokens"] = []any{}
	})
}
