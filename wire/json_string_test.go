package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// twinStr is the slow and obvious twin of jsonScanner.str: it reads the string
// at i byte by byte.
func twinStr(b []byte, i int) (end, errAt int, errText string) {
	const open = "has a string that does not end"
	for at := i + 1; at < len(b); at++ {
		switch c := b[at]; {
		case c == '"':
			return at + 1, 0, ""
		case c < ' ':
			return -1, at, "has a raw control character in a string"
		case c != '\\':
		case at+1 == len(b):
			return -1, i, open
		case bytes.IndexByte([]byte(`"\/bfnrt`), b[at+1]) >= 0:
			at++
		case b[at+1] != 'u':
			return -1, at, "has an unknown escape in a string"
		default:
			const hex = "0123456789abcdefABCDEF"
			if digits := b[at+2:]; len(digits) < 4 || len(bytes.TrimLeft(digits[:4], hex)) > 0 {
				return -1, at, `has a \u without four hex digits`
			}
			at++
		}
	}
	return -1, i, open
}

// compareStr reads the string at i and wants the twin's answer, and to know of
// bytes beyond ASCII in it.
func compareStr(t *testing.T, b []byte, i int) {
	t.Helper()
	s := jsonScanner{b: b}
	got := s.str(i)
	want, errAt, errText := twinStr(b, i)
	if got != want || s.errAt != errAt || s.errText != errText {
		t.Fatalf("%q from %d: %d, %q at %d; want %d, %q at %d", b, i, got, s.errText, s.errAt, want, errText, errAt)
	}
	if want >= 0 && !isASCII(b[i+1:want]) && s.wide&highBits == 0 || isASCII(b) && s.wide&highBits != 0 {
		t.Fatalf("%q: the words are %#x", b, s.wide)
	}
}

func isASCII(b []byte) bool {
	return bytes.IndexFunc(b, func(r rune) bool { return r >= 0x80 }) < 0
}

// stringTexts are what the passes of longStr are made for, and what they leave
// to one another.
var stringTexts = map[string]string{
	"plain":   "words and words ",
	"common":  `\tif x == \"a\" {\n`,
	"dense":   `\n\n\t\"`,
	"rare":    `C:\\dir\r\n\/`,
	"unicode": `\u4f60\u597D`,
	"letters": "слово, ",
	"mixed":   `a\n b\\n caf` + "é" + ` \"\u00e9\" and then plain words for a while, longer than a step\t`,
}

// backdrop is n bytes of a text that ends with a whole escape.
func backdrop(text string, n int) string {
	long := strings.Repeat(text, n/len(text)+1)
	for n > 0 && strings.HasSuffix(long[:n], `\`) { // never in the middle of one
		n--
	}
	if at := strings.LastIndex(long[:n], `\u`); at >= 0 && n-at < 6 {
		n = at
	}
	return long[:n]
}

// Bytes behind a backslash, and alone, at every place of a string that is
// several blocks long: all values in the two texts that have a pass of their
// own, those that differ in the others.
func TestStringsAtEveryPlace(t *testing.T) {
	t.Parallel()
	const longest = 2*64 + 48
	few := []byte("\"\\/bfnrtuxN \x00\x1f\x7f\x80\xe9\xff")
	all := make([]byte, 256)
	for c := range all {
		all[c] = byte(c)
	}
	for name, text := range stringTexts {
		values := few
		if name == "plain" || name == "common" {
			values = all
		}
		behind := backdrop(text, 100) + `","next":"` + strings.Repeat("x", 70) + `"`
		for at := range longest {
			front := `"` + backdrop(text, at)
			for _, c := range values {
				compareStr(t, []byte(front+`\`+string([]byte{c})+behind), 0)
			}
			for _, c := range few {
				compareStr(t, []byte(front+string([]byte{c})+behind), 0)
				compareStr(t, []byte(front+"é"+string([]byte{c})+behind), 0)
			}
		}
	}
}

// Runs of backslashes across the borders of blocks: an odd one escapes what is
// behind it.
func TestRunsOfBackslashes(t *testing.T) {
	t.Parallel()
	for _, text := range stringTexts {
		for at := range 2*64 + 40 {
			for _, run := range []int{1, 2, 3, 4, 5, 31, 32, 33, 64, 65} {
				for _, next := range []string{`"`, `n`, `x`, `u00g9`, "é"} {
					body := `"` + backdrop(text, at) + strings.Repeat(`\`, run) + next + backdrop(text, 80) + `"`
					compareStr(t, []byte(body), 0)
				}
			}
		}
	}
}

// Strings that start anywhere in the body, and bodies that end anywhere in
// them, with nothing behind that could be read instead.
func TestStringsCutAnywhere(t *testing.T) {
	t.Parallel()
	for _, text := range stringTexts {
		for start := range 9 {
			whole := []byte(strings.Repeat(" ", start) + `"` + backdrop(text, 220) + `"`)
			for n := start + 1; n <= len(whole); n++ {
				compareStr(t, bytes.Clone(whole[:n]), start)
			}
		}
	}
}

// Go's own reader accepts the same strings: random texts of what the passes
// tell apart, half of them without a fault.
func TestStringsLikeEncodingJSON(t *testing.T) {
	t.Parallel()
	good := []string{`\n`, `\t`, `\"`, `\\`, `\r`, `\/`, `\b`, `\f`, `\u0041`, `\u4F60`, "a", "n", "t", "u", " plain words of some length ", "é", "你", "\x7f", "\u2028"}
	bad := []string{`\`, `"`, `\x`, `\u12`, "\n", "\x00", "\x1f", `\N`, `\'`, "\\é"}
	r := rand.New(rand.NewPCG(7, 11))
	accepted := 0
	for range 20_000 {
		var b strings.Builder
		few := good[r.IntN(len(good)):] // texts that resemble themselves stay in one pass
		few = few[:1+r.IntN(min(4, len(few)))]
		for b.WriteByte('"'); b.Len() < 300 && r.IntN(60) > 0; {
			if r.IntN(12) == 0 {
				few = good
			}
			b.WriteString(few[r.IntN(len(few))])
		}
		if r.IntN(2) == 0 {
			b.WriteString(bad[r.IntN(len(bad))])
			b.WriteString(strings.Repeat(few[0], r.IntN(30)))
		}
		b.WriteByte('"')
		body := []byte(b.String())
		compareStr(t, body, 0)
		s := jsonScanner{b: body}
		whole := s.str(0) == len(body)
		if want := json.Valid(body); whole != want {
			t.Fatalf("%q: accepted %v, encoding/json %v", body, whole, want)
		}
		var text string
		if whole {
			accepted++
			if err := json.Unmarshal(body, &text); err != nil || string(appendUnescaped(nil, body[1:len(body)-1])) != text {
				t.Fatalf("%q: %q, %v", body, text, err)
			}
		}
	}
	if accepted < 3_000 {
		t.Errorf("%d strings accepted, too few to say anything", accepted)
	}
}

func FuzzString(f *testing.F) {
	for _, text := range stringTexts {
		f.Add([]byte(`"`+backdrop(text, 200)+`"`), 0)
	}
	f.Fuzz(func(t *testing.T, b []byte, i int) {
		if i < 0 || i >= len(b) {
			return
		}
		compareStr(t, b, i)
	})
}

// The two passes that step over many bytes stop at the step with a byte that
// is not for them, wherever it is, and not before.
func TestStepsOverText(t *testing.T) {
	t.Parallel()
	const step, steps = 32, 4
	text := []byte(strings.Repeat("x", step*steps+1))
	check := func(what string, at, got, want int) {
		t.Helper()
		if got != want {
			t.Fatalf("%s at %d: stops at %d, want %d", what, at, got, want)
		}
	}
	for at := 1; at < len(text)-1; at++ {
		for c := range 256 {
			b := bytes.Clone(text)
			b[at] = byte(c)
			special := c < ' ' || c == '"' || c == '\\'
			stop := len(b)
			if special {
				stop = 1 + (at-1)/step*step
			}
			end, _ := plainText(b, 1, 0)
			check(fmt.Sprintf("plainText, byte %#x", c), at, end, stop)

			if stop = len(b); c < ' ' || c == '"' || c >= 0x80 {
				stop = 1 + (at-1)/step*step
			} else if c == '\\' { // in front of an x
				if stop = 1 + at/step*step; at%step == 0 {
					stop--
				}
			}
			check(fmt.Sprintf("commonText, byte %#x", c), at, commonText(b, 1), stop)

			b[at], b[at+1] = '\\', byte(c)
			if stop = len(b); c != 'n' && c != 't' && c != '"' {
				if stop = 1 + at/step*step; at%step == 0 {
					stop--
				}
			}
			check(fmt.Sprintf("commonText, backslash and %#x", c), at, commonText(b, 1), stop)
		}
	}
	b := append(bytes.Clone(text), '\\', 'n')
	check("a backslash behind the last step", 0, commonText(b, 1), len(text))
	b = append(bytes.Clone(text[1:]), '\\', 'n')
	check("a backslash as the last byte of it", 0, commonText(b, 1), len(text)-1)
}
