package tokens

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
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
			if r := b.pairs.rank(ids[i], ids[i+1]); r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			return ids
		}
		ids = slices.Replace(ids, at, at+2, b.pairs.results[best])
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
	m.work.begin(Limits{})
	for n := 1; n < 400; n += 13 {
		for at := 0; at+n < len(src); at += 509 {
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

// normalForm is text as it is split: what decoding gives back.
func normalForm(b *BPE, text string) string {
	m := new(mergeScratch)
	m.work.begin(Limits{})
	return b.normalize(m, strings.Clone(valid(m, text)))
}

// TestNormalize compares with the whole text normalized at once, around every place where it may be cut.
func TestNormalize(t *testing.T) {
	t.Parallel()
	b := testBPE(t)
	r := rand.New(rand.NewPCG(11, 12))
	parts := []string{"a", "e\u0301", "q\u0307\u0323", "\u1112\u1161\u11ab", "中", "\u0958", "\u0338", "\u0301", "\u0345", "\u11ab", "\u1161", "\uac00", "\uff9e", "\u0bc6\u0bbe", "\U000110a5\U000110ba", "x", "<", strings.Repeat("\u0301", 40)}
	for i := range 300 {
		text := mixed(r, 1, parts)[0]
		if i%3 == 0 {
			text = strings.Repeat("中", normalStep/3-r.IntN(40)) + text + strings.Repeat("b", normalStep-r.IntN(60)) + text
		}
		got, want := normalForm(b, text), norm.NFC.String(text)
		if strings.Contains(want, joiner) { // 30 marks on one letter: Go puts this character between
			want = string(appendComposed(nil, text))
		}
		if got != want {
			at := 0
			for at < min(len(got), len(want)) && got[at] == want[at] {
				at++
			}
			t.Fatalf("text %d, %d bytes, is %.200q from byte %d on, wanted %.200q", i, len(text), got[at:], at, want[at:])
		}
	}
	if got := normalForm(b, "a\xffb\xe4\xb8c"); got != "a\uFFFDb\uFFFD\uFFFDc" {
		t.Errorf("what is not UTF-8 is %q", got)
	}
}

func FuzzEncode(f *testing.F) {
	for _, s := range []string{"", "Hello world", "a\xffb", "<|im_start|>x", " \n 's1", strings.Repeat("x ", 200), "e\u0301"} {
		f.Add(s)
	}
	b := testBPE(f)
	f.Fuzz(func(t *testing.T, text string) {
		ids := b.Encode(text)
		if got, want := b.Decode(ids, false), normalForm(b, text); got != want && !strings.Contains(text, "<") {
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
