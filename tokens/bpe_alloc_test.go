//go:build !race

package tokens

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestAppendEncodeAllocatesNothing once dst is large enough; the race detector allocates on its own.
func TestAppendEncodeAllocatesNothing(t *testing.T) {
	tok := testTokenizer(t)
	for name, text := range map[string]string{
		"chat":                "<|im_start|>user\n" + strings.Repeat("The quick brown fox isn't lazy, n'est-ce pas, garçon? ", 40) + strings.Repeat("=", 300) + "<|im_end|>\n",
		"code":                strings.Repeat("\tif err := f(x[i], \"名前\"); err != nil {\n\t\treturn 0x1F, fmt.Errorf(\"cannot: %w\", err)\n\t}\n", 50),
		"not in normal form":  strings.Repeat("e\u0301te\u0301 ", 3000),
		"longer than a chunk": strings.Repeat("中文字符, no e\u0301nd ", 5000),
	} {
		dst := tok.BPE().Encode(text)
		n := testing.AllocsPerRun(100, func() {
			var err error
			if dst, err = tok.AppendEncode(dst[:0], text, Limits{MaxBytes: 1 << 20, MaxTime: time.Hour}); err != nil {
				t.Fatal(err)
			}
		})
		if n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestCutsAllocateNothing: walking through the cuts of a conversation is free.
func TestCutsAllocateNothing(t *testing.T) {
	tok := testTokenizer(t)
	text := strings.Repeat("<|im_start|>user\nHello<|im_end|>\n", 20)
	sum := 0
	n := testing.AllocsPerRun(100, func() {
		for c := range tok.Cuts(text) {
			sum += c.End - c.Start
		}
	})
	if n > 0 || sum == 0 {
		t.Errorf("%v allocations, %d bytes", n, sum)
	}
}

// TestTimeIsKept: 8 MB of the worst kinds of text end soon after the limit, or are too long at once. What counts is the
// CPU time of the thread, so that other work on the machine is not this one's fault, with the best of three attempts.
func TestTimeIsKept(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tok := testTokenizer(t)
	const limit = 20 * time.Millisecond
	for _, s := range []string{"-", " ", "a", "中", "<", "<|im_start|", "<|im_end|>", "\u0301", "e\u0301", "\n", "0", "a ", "'", "\xff", "ab\x00", "Aa", "\u1112\u1161\u11ab", "a" + strings.Repeat("\u0301", 40), strings.Repeat("\u0315\u0300\u05ae", 4000) + "a"} {
		text := strings.Repeat(s, 8<<20/len(s))
		dst := make([]uint32, 0, len(text))
		var err error
		took := time.Duration(math.MaxInt64)
		for try := 0; try < 3 && took > 11*limit; try++ {
			start := threadCPU(t)
			_, err = tok.AppendEncode(dst, text, Limits{MaxBytes: 8 << 20, MaxTime: limit})
			took = min(took, threadCPU(t)-start)
		}
		if err != nil && !errors.Is(err, ErrTooLong) && !errors.Is(err, ErrTooSlow) {
			t.Errorf("%q: %v", s, err)
		}
		if took > 11*limit {
			t.Errorf("%q took %v", s, took)
		}
		t.Logf("%-14q %v, %v", s, took.Round(100*time.Microsecond), err)
	}
}
