package tokens

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// testBPE is the simulator's tokenizer, the only one in the repository.
func testBPE(t testing.TB) *BPE {
	t.Helper()
	b, err := LoadBPE(testFile(t))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func testFile(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("../sim/model/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestGolden compares with Hugging Face's tokenizers library; testdata/make_golden.py makes the file, and a larger one
// named by RAMJET_BPE_GOLDEN is read in its place.
func TestGolden(t *testing.T) {
	t.Parallel()
	path := "testdata/bpe_golden.json"
	if other := os.Getenv("RAMJET_BPE_GOLDEN"); other != "" {
		path = other
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Text    string
		IDs     []uint32
		Decoded *string // where it is not Text: normalization
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	b := testBPE(t)
	for i, row := range rows {
		if got := b.Encode(row.Text); !slices.Equal(got, row.IDs) {
			t.Errorf("row %d: %q is %v, wanted %v", i, row.Text, got, row.IDs)
		}
		want := row.Text
		if row.Decoded != nil {
			want = *row.Decoded
		}
		if got := b.Decode(row.IDs, false); got != want {
			t.Errorf("row %d decodes to %q, wanted %q", i, got, want)
		}
	}
	t.Logf("%d texts", len(rows))
}

func TestAppendEncode(t *testing.T) {
	t.Parallel()
	b := testBPE(t)
	dst := b.AppendEncode([]uint32{1, 2}, "Hello world")
	if want := append([]uint32{1, 2}, b.Encode("Hello world")...); !slices.Equal(dst, want) {
		t.Errorf("got %v, wanted %v", dst, want)
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	b := testBPE(t)
	ids := b.Encode("a<|im_end|><think>é")
	if got := b.Decode(ids, true); got != "a<think>é" {
		t.Errorf("special tokens skipped: %q", got)
	}
	if got := b.Decode(b.Encode("中")[:1], false); got != "\uFFFD" {
		t.Errorf("half a character: %q", got)
	}
	if got := b.Decode([]uint32{1 << 30, b.bytes['x'], ^uint32(0)}, false); got != "x" {
		t.Errorf("unknown ids: %q", got)
	}
	if b.TokenBytes(uint32(b.Size())) != nil || b.TokenBytes(uint32(b.Size()-1)) == nil {
		t.Error("Size is not one more than the largest id")
	}
	if id, ok := b.TokenID("<|im_end|>"); !ok || !b.IsSpecial(id) {
		t.Error("<|im_end|> is not special")
	}
	if id, ok := b.TokenID("<think>"); !ok || b.IsSpecial(id) {
		t.Error("<think> is special")
	}
}

// TestInvalidUTF8: each stray byte counts as U+FFFD, as for a text that Python read with errors="replace".
func TestInvalidUTF8(t *testing.T) {
	t.Parallel()
	b := testBPE(t)
	if got, want := b.Encode("a\xff\xfeb"), b.Encode("a\uFFFD\uFFFDb"); !slices.Equal(got, want) {
		t.Errorf("got %v, wanted %v", got, want)
	}
}

func TestPieces(t *testing.T) {
	t.Parallel()
	got := slices.Collect(testBPE(t).Pieces("I've 12 cats.\n\n  <|im_start|>ok e\u0301"))
	want := []string{"I", "'ve", " ", "1", "2", " cats", ".\n\n", "  ", "ok", " \u00e9"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, wanted %q", got, want)
	}
}

// slowMerge is the definition: merge the best pair, the leftmost among equals, until there is none.
func slowMerge(b *BPE, piece string) []uint32 {
	var ids []uint32
	for i := range len(piece) {
		ids = append(ids, b.bytes[piece[i]])
	}
	for {
		best, at := noMerge, -1
		for i := 0; i+1 < len(ids); i++ {
			if r := b.rank(ids[i], ids[i+1]); r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			return ids
		}
		ids = slices.Replace(ids, at, at+2, b.merges[pairKey(ids[at], ids[at+1])].id)
	}
}

// TestHeapEqualsLinear merges the same pieces all three ways.
func TestHeapEqualsLinear(t *testing.T) {
	t.Parallel()
	b := testBPE(t)
	src, err := os.ReadFile("bpe_load.go")
	if err != nil {
		t.Fatal(err)
	}
	m := new(mergeScratch)
	for n := 1; n < 400; n += 7 {
		for at := 0; at+n < len(src); at += 211 {
			piece := string(src[at : at+n])
			want := slowMerge(b, piece)
			m.ids = m.ids[:0]
			for i := range len(piece) {
				m.ids = append(m.ids, b.bytes[piece[i]])
			}
			if got := b.appendMergedHeap(nil, m); !slices.Equal(got, want) {
				t.Fatalf("heap: %q is %v, wanted %v", piece, got, want)
			}
			if got := b.appendMerged(nil, m, piece); !slices.Equal(got, want) {
				t.Fatalf("%q is %v, wanted %v", piece, got, want)
			}
		}
	}
}

// TestLoadRefuses changes one thing in a good file; each must be refused by its name.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	whole := string(testFile(t))
	for _, c := range []struct{ name, old, new, want string }{
		{"not JSON", "{", "[", "cannot read tokenizer.json"},
		{"other pattern", `\\p{N}|`, `\\p{N}{1,3}|`, "is not one of the known ones"},
		{"other normalizer", `{"type": "NFC"}`, `{"type": "NFKC"}`, `normalizer "NFKC"`},
		{"no pre-tokenizer", `"pre_tokenizer"`, `"pre"`, "no pre-tokenizer"},
		{"other pre-tokenizer", `{"type": "Sequence"`, `{"type": "Whitespace"`, `pre-tokenizer "Whitespace"`},
		{"removing split", `"Isolated"`, `"Removed"`, `behavior "Removed"`},
		{"second pattern", `"ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}` + "\n ]", `"ByteLevel", "add_prefix_space": false}` + "\n ]", `pre-tokenizer "ByteLevel"`},
		{"post-processor", `"post_processor": {"type": "ByteLevel"`, `"post_processor": {"type": "TemplateProcessing"`, `post-processor "TemplateProcessing"`},
		{"other model", `"type": "BPE"`, `"type": "Unigram"`, `model type "Unigram"`},
		{"dropout", `"dropout": null`, `"dropout": 0.1`, "dropout"},
		{"subword prefix", `"continuing_subword_prefix": ""`, `"continuing_subword_prefix": "##"`, "subwords"},
		{"byte fallback", `"byte_fallback": false`, `"byte_fallback": true`, "falls back"},
		{"stripping token", `"lstrip": false`, `"lstrip": true`, `added token "<|endoftext|>"`},
		{"empty token", `"content": "<think>"`, `"content": ""`, "empty"},
		{"missing byte", `"!": 0`, `"!!!!!": 0`, "byte 0x21"},
		{"id twice", `"!": 0`, `"!": 1`, "two tokens"},
		{"added id twice", `"id": 4087`, `"id": 400`, "two tokens"},
		{"wild id", `"!": 0`, `"!": 4000000000`, "out of bounds"},
		{"not byte-level", `"!": 0`, `"!": 0, "a b": 5000`, "byte-level form"},
		{"merge of three", "\"merges\": [\n", "\"merges\": [\n[\"a\",\"b\",\"c\"],", "3 symbols"},
		{"merge unknown", "\"merges\": [\n", "\"merges\": [\n[\"Q\",\"Z\"],", "not in the vocabulary"},
	} {
		if !strings.Contains(whole, c.old) {
			t.Errorf("%s: the file has no %q", c.name, c.old)
		}
		_, err := LoadBPE([]byte(strings.Replace(whole, c.old, c.new, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, wanted %q", c.name, err, c.want)
		}
	}
}

// TestLoadCut: a file cut anywhere is refused; no cut is taken for a smaller vocabulary.
func TestLoadCut(t *testing.T) {
	t.Parallel()
	whole := strings.TrimRight(string(testFile(t)), "\n")
	for n := 0; n < len(whole); n += 1 + n/25 {
		if _, err := LoadBPE([]byte(whole[:n])); err == nil {
			t.Errorf("the first %d bytes were taken", n)
		}
	}
}

// TestMergesAsLines reads the older spelling of merges.
func TestMergesAsLines(t *testing.T) {
	t.Parallel()
	var pairs, lines mergeList
	if err := json.Unmarshal([]byte(`[["a","b"],["ab","c"]]`), &pairs); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(`["a b","ab c"]`), &lines); err != nil || !reflect.DeepEqual(pairs, lines) {
		t.Errorf("%v, %v, wanted %v", lines, err, pairs)
	}
	for _, bad := range []string{`["a"]`, `["a b c"]`, `{}`, `[1]`} {
		if json.Unmarshal([]byte(bad), &lines) == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

// TestWholeOnlyWhereMerged: a vocabulary entry that its merges do not lead to is no piece of its own, unless the file
// says so.
func TestWholeOnlyWhereMerged(t *testing.T) {
	t.Parallel()
	whole := strings.Replace(string(testFile(t)), `"!": 0`, `"!": 0, "qzqz": 5000`, 1)
	for ignore, want := range map[string]bool{"false": false, "true": true} {
		b, err := LoadBPE([]byte(strings.Replace(whole, `"ignore_merges": false`, `"ignore_merges": `+ignore, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Equal(b.Encode("qzqz"), []uint32{5000}); got != want {
			t.Errorf("ignore_merges %s: %v", ignore, b.Encode("qzqz"))
		}
	}
}

// TestAddedTokens: the leftmost, and there the longest.
func TestAddedTokens(t *testing.T) {
	t.Parallel()
	a := newAddedTokens([]addedEntry{{ID: 1, Content: "<a"}, {ID: 2, Content: "<a>"}, {ID: 3, Content: "<"}, {ID: 4, Content: "[x]"}})
	for _, c := range []struct {
		text string
		at   int
		id   uint32
	}{{"<a>", 0, 2}, {"x<ab", 1, 1}, {"y<b", 1, 3}, {"[x<", 2, 3}, {"..[x]<a>", 2, 4}, {"", 0, 0}, {"plain", 5, 0}} {
		at, token := a.find(c.text)
		if at != c.at || (token == nil) != (c.id == 0) || token != nil && token.id != c.id {
			t.Errorf("%q: %d, %v", c.text, at, token)
		}
	}
}

func FuzzEncode(f *testing.F) {
	for _, s := range []string{"", "Hello world", "a\xffb", "<|im_start|>x", " \n 's1", strings.Repeat("x ", 200), "e\u0301"} {
		f.Add(s)
	}
	b := testBPE(f)
	f.Fuzz(func(t *testing.T, text string) {
		ids := b.Encode(text)
		if got, want := b.Decode(ids, false), b.normalize(validUTF8(text)); got != want && !strings.Contains(text, "<") {
			t.Errorf("%q comes back as %q", want, got)
		}
		if strings.Contains(text, "<") {
			return
		}
		var slow []uint32
		for piece := range b.Pieces(text) {
			if !utf8.ValidString(piece) {
				t.Errorf("piece %q cuts a character", piece)
			}
			slow = append(slow, slowMerge(b, piece)...)
		}
		if !slices.Equal(ids, slow) {
			t.Errorf("%q is %v, by definition %v", text, ids, slow)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	bpe := testBPE(b)
	src, err := os.ReadFile("bpe_load.go")
	if err != nil {
		b.Fatal(err)
	}
	text := string(src)
	var dst []uint32
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		dst = bpe.AppendEncode(dst[:0], text)
	}
}
