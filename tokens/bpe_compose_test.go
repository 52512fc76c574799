package tokens

import (
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// TestManyMarks: a letter with more marks than Go's library lets stand is normalized as Unicode says. The wanted forms
// are CPython's (unicodedata), which knows no such limit either.
func TestManyMarks(t *testing.T) {
	t.Parallel()
	many := strings.Repeat
	b := testBPE(t)
	for _, c := range [][2]string{
		{"a" + many("\u0301", 40), "\u00e1" + many("\u0301", 39)},
		{many("\uff9e", 40), many("\uff9e", 40)},
		{"a" + many("\u0301\u0323", 25), "\u1ea1" + many("\u0323", 24) + many("\u0301", 25)},
		{"\u1100\u1161" + many("\u0323", 33) + "\u11a8", "\uac00" + many("\u0323", 33) + "\u11a8"},
		{"\uac01" + many("\u0323", 33), "\uac01" + many("\u0323", 33)},
		{"\u0915" + many("\u093c", 35), "\u0915" + many("\u093c", 35)},
		{many("\u0344", 20) + "x\u0301", many("\u0308\u0301", 20) + "x\u0301"},
		{"q" + many("\u0315\u0300\u05ae\u0300", 12), "q" + many("\u05ae", 12) + many("\u0300", 24) + many("\u0315", 12)},
		{"\u09c7" + many("\u0300", 31) + "\u09be", "\u09c7" + many("\u0300", 31) + "\u09be"},
		{"\u1e9b\u0323" + many("\u0307", 31), "\u1e9b\u0323" + many("\u0307", 31)},
		{"e\u0301 " + many("\u034f", 3) + many("\u0300", 40) + "\u034f\u0300", "\u00e9 " + many("\u034f", 3) + many("\u0300", 40) + "\u034f\u0300"},
		{many("e\u0301 ", 9000) + many("\u0301", 40), many("\u00e9 ", 9000) + many("\u0301", 40)},
	} {
		if got := normalForm(b, c[0]); got != c[1] {
			t.Errorf("%+.60q becomes\n%+.200q, wanted\n%+.200q", c[0], got, c[1])
		}
		if got := b.Decode(b.Encode(c[0]), false); got != c[1] {
			t.Errorf("the ids of %+.60q are those of\n%+.200q, wanted\n%+.200q", c[0], got, c[1])
		}
	}
}

// TestComposedIsTheLibrarys wherever the library keeps to Unicode: with few marks on a letter.
func TestComposedIsTheLibrarys(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	blocks := [][2]rune{{0x20, 0x250}, {0x300, 0x370}, {0x5b0, 0x5d0}, {0x900, 0xe80}, {0x1100, 0x1200}, {0x1dc0, 0x2000}, {0x3040, 0x3100}, {0xac00, 0xad00}, {0xf900, 0xfb50}, {0xff60, 0xffa0}, {0x11080, 0x110c0}, {0x1d150, 0x1d1c0}}
	for range 20000 {
		var b strings.Builder
		for range 1 + r.IntN(12) {
			block := blocks[r.IntN(len(blocks))]
			b.WriteRune(block[0] + r.Int32N(block[1]-block[0]))
		}
		if got, want := string(appendComposed(nil, b.String())), norm.NFC.String(b.String()); got != want {
			t.Fatalf("%+q becomes %+q, wanted %+q", b.String(), got, want)
		}
	}
	for c := rune(1); c <= 0x31fff; c++ {
		if c >= 0xd800 && c <= 0xdfff {
			continue
		}
		text := "a" + string(c) + "\u0323" + string(c)
		if got, want := string(appendComposed(nil, text)), norm.NFC.String(text); got != want {
			t.Fatalf("%+q becomes %+q, wanted %+q", text, got, want)
		}
	}
}
