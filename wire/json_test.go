package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAppendQuoted(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                   `""`,
		"plain é 你 😀":        `"plain é 你 😀"`,
		`a"b\c/`:             `"a\"b\\c/"`,
		"\n\r\t":             `"\n\r\t"`,
		"\x00\x08\x1b\x7f":   `"\u0000\u0008\u001b\u007f"`,
		"<script>&":          `"\u003cscript\u003e\u0026"`,
		"\u2028\u2029\u2027": "\"\\u2028\\u2029\u2027\"",
		"a\xff\xc3b":         `"a\ufffd\ufffdb"`,
		"\xed\xa0\x80":       `"\ufffd\ufffd\ufffd"`,
		"\ufffd":             `"\ufffd"`,
	} {
		if got := string(AppendQuoted([]byte("x"), in)); got != "x"+want {
			t.Errorf("%q becomes %s, want x%s", in, got, want)
		}
	}
	long := strings.Repeat("m\"", 64<<10)
	var back string
	if err := json.Unmarshal(AppendQuoted(nil, long), &back); err != nil || back != long {
		t.Errorf("a long name does not come back: %v", err)
	}
}

func FuzzAppendQuoted(f *testing.F) {
	f.Add("a\"\\\x00\u2028<\xff")
	f.Fuzz(func(t *testing.T, s string) {
		out := AppendQuoted(nil, s)
		var back string
		if err := json.Unmarshal(out, &back); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		if want := string([]rune(s)); back != want {
			t.Fatalf("%q comes back as %q", s, back)
		}
		if !utf8.Valid(out) || strings.ContainsAny(string(out), "<>&\u2028\u2029\n\r\x7f") {
			t.Fatalf("%q is not safe", out)
		}
	})
}

func TestAppendUnescaped(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`a`:                   "a",
		`\"\\\/\b\f\n\r\t`:    "\"\\/\b\f\n\r\t",
		`\u0041\u00e9\u4f60`:  "Aé你",
		`\ud83d\ude00`:        "😀",
		`\uD83D\uDE00`:        "😀",
		`\ud83d`:              "\xed\xa0\xbd",
		`\ude00\ud83d`:        "\xed\xb8\x80\xed\xa0\xbd",
		`\ud83d\ud83d\ude00`:  "\xed\xa0\xbd😀",
		`\ud83d\n`:            "\xed\xa0\xbd\n",
		`\ud83d\u0041`:        "\xed\xa0\xbdA",
		`\udbff\udfff`:        "\U0010ffff",
		`\u0000`:              "\x00",
		"\\ud83d\xed\xb8\x80": "\xed\xa0\xbd\xed\xb8\x80",
	} {
		if got := string(appendUnescaped(nil, []byte(in))); got != want {
			t.Errorf("%s becomes %q, want %q", in, got, want)
		}
	}
}

func TestInvalidUTF8(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int{
		"": -1, "aé你😀": -1, "\xed\xa0\x80": -1, "a\xed\xbf\xbfb\xff": 5, "\xed\xa0": 0, "\xed\xc0\x80": 0, "\xc0\x80": 0, "a\x80": 1, "é\xf4\x90\x80\x80": 2,
		"\xed\xa0\x80\xed\xa0\x80\ufffd": -1, "\xed\x9f\xbf": -1,
	} {
		if got := invalidUTF8([]byte(in)); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}
