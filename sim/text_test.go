package sim

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestText: whole characters in every token, and a text that encodes to the tokens it came from.
func TestText(t *testing.T) {
	t.Parallel()
	all := ""
	for number := range 60 {
		prompt := promptOf(number, 20)
		made := ExpectedTokens(uint64(number%3), prompt, 200)
		for i, id := range made {
			if text := Tokenizer().TokenBytes(id); !utf8.Valid(text) || len(text) == 0 {
				t.Fatalf("token %d is %q", i, text)
			}
		}
		text := ExpectedText(uint64(number%3), prompt, 200)
		if got := Tokenizer().Encode(text); !slices.Equal(got, made) {
			t.Errorf("%q encodes to other tokens", text)
		}
		all += text
	}
	if words, stops := strings.Count(all, " "), strings.Count(all, ". "); words < 9_000 || stops < words/30 || stops > words/8 {
		t.Errorf("%d words in %d sentences", words, stops)
	}
}

// TestTextIsPure: the same for the same arguments and a prefix of the longer one, another for others.
func TestTextIsPure(t *testing.T) {
	t.Parallel()
	prompt := promptOf(1, 50)
	text := ExpectedText(1, prompt, 100)
	if again := ExpectedText(1, slices.Clone(prompt), 100); again != text {
		t.Error("two answers to one prompt")
	}
	if short := ExpectedText(1, prompt, 40); !strings.HasPrefix(text, short) {
		t.Error("a shorter answer is no prefix of the longer one")
	}
	other := slices.Clone(prompt)
	other[0]++
	if ExpectedText(1, other, 100) == text || ExpectedText(2, prompt, 100) == text {
		t.Error("another prompt or seed gives the same answer")
	}
}

// TestTextBeginning: behind a line break, as in chat, an answer begins with a capital, else with a blank.
func TestTextBeginning(t *testing.T) {
	t.Parallel()
	for prompt, want := range map[string]string{"<|im_start|>assistant\n": "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "Once upon a time": " ", "<|im_end|>": " "} {
		if text := ExpectedText(3, Tokenizer().Encode(prompt), 5); !strings.Contains(want, text[:1]) {
			t.Errorf("behind %q: %q", prompt, text)
		}
	}
}

func TestNaturalLength(t *testing.T) {
	t.Parallel()
	sum, longest := 0, 0
	for i := range 2000 {
		n := NaturalLength(1, PromptHash(promptOf(i, 8)))
		if n < 16 || n > 815 {
			t.Fatalf("length %d", n)
		}
		sum += n
		longest = max(longest, n)
	}
	if mean := sum / 2000; mean < 195 || mean > 237 || longest < 600 {
		t.Errorf("mean %d, longest %d", mean, longest)
	}
}

// TestAcceptance: one to four tokens a step, 2.5 on average early and 2 late, the same for the same sequence.
func TestAcceptance(t *testing.T) {
	t.Parallel()
	for key := range uint64(50) {
		a, b := acceptance{key: key}, acceptance{key: key}
		produced, steps, late := 1, 0, 0
		for produced < 2000 {
			n := a.next(produced)
			if n < 1 || n > 1+draftTokens || n != b.next(produced) {
				t.Fatalf("%d tokens in a step", n)
			}
			produced += n
			steps++
			if produced < lateOutput {
				late = steps
			}
		}
		if late < 98 || late > 105 {
			t.Errorf("%d steps for the first %d tokens, wanted 102", late, lateOutput)
		}
		if rest := steps - late; rest < 865 || rest > 880 {
			t.Errorf("%d steps for the other %d tokens, wanted 872", rest, 2000-lateOutput)
		}
	}
	a, b := acceptance{key: 1}, acceptance{key: 2}
	same := true
	for range 40 {
		same = a.next(0) == b.next(0) && same
	}
	if same {
		t.Error("two sequences have one pattern")
	}
}

func TestSpeedup(t *testing.T) {
	t.Parallel()
	for _, p := range []struct {
		n int
		r float64
	}{{1, 1.791}, {8, 1.350}, {16, 1.270}, {32, 1.075}, {64, 0.88}, {128, 0.72}, {1000, 0.72}, {0, 1.791}} {
		if got := speedupAt(p.n); got < p.r-1e-9 || got > p.r+1e-9 {
			t.Errorf("speed-up at %d is %v, wanted %v", p.n, got, p.r)
		}
	}
	for n := 1; n < 200; n++ {
		if speedupAt(n) < speedupAt(n+1) {
			t.Errorf("speed-up rises from %d to %d", n, n+1)
		}
		l := stepLoad{decodes: n, kvTokens: 300 * n}
		m := stepLoad{decodes: n + 1, kvTokens: 300 * (n + 1)}
		if stepSeconds(true, l) > stepSeconds(true, m) || stepSeconds(false, l) > stepSeconds(false, m) {
			t.Errorf("a step of %d takes longer than one of %d", n, n+1)
		}
	}
}
