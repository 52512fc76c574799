package benchmarks

import (
	"bytes"
	"strings"
	"testing"
)

func TestAskTravelsInTheBody(t *testing.T) {
	t.Parallel()
	for _, want := range []Ask{
		{Seed: 123456789012345, Tokens: 200, PaceMicros: 10_000, FirstMicros: 2_000, Stream: true},
		{Seed: 1, Tokens: 2},
	} {
		if got := parseAsk(want.appendBody(nil)); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if got := parseAsk([]byte(`{"messages":[]}`)); got.Tokens != 16 {
		t.Errorf("without max_tokens vLLM makes 16 tokens, the engine makes %d", got.Tokens)
	}
}

func TestEventHasVLLMsSizeAndKnownLength(t *testing.T) {
	t.Parallel()
	ask := Ask{Seed: 42, Tokens: 5, Stream: true}
	for i := range ask.Tokens {
		e := ask.appendEvent(nil, i, 1<<40+int64(i), 1<<39)
		if len(e) != ask.eventLen(i) {
			t.Errorf("event %d has %d bytes, eventLen says %d", i, len(e), ask.eventLen(i))
		}
		if len(e) < 190 || len(e) > 290 {
			t.Errorf("event %d has %d bytes, want about 200", i, len(e))
		}
		sent, received, err := stamps(e)
		if err != nil || sent != 1<<40+int64(i) || received != 1<<39 {
			t.Errorf("stamps %d %d %v", sent, received, err)
		}
		if !bytes.HasSuffix(e, []byte("\n\n")) || bytes.Count(e, []byte("\n")) != 2 {
			t.Errorf("event %d is not one server-sent event: %q", i, e)
		}
	}
}

// wholeAnswer renders what the engine sends for ask, without framing.
func wholeAnswer(ask Ask) []byte {
	var b []byte
	for i := range ask.Tokens {
		b = ask.appendEvent(b, i, int64(1000+i), 7)
	}
	b = ask.appendUsage(b)
	return append(b, doneEvent...)
}

func TestVerifierTakesTheAnswerCutAnywhere(t *testing.T) {
	t.Parallel()
	ask := Ask{Seed: 9, Tokens: 3, Stream: true}
	whole := wholeAnswer(ask)
	for cut := range len(whole) + 1 {
		var seen []int
		v := verifier{seen: func(i int, _, received int64) {
			if received != 7 {
				t.Errorf("received %d", received)
			}
			seen = append(seen, i)
		}}
		v.reset(ask)
		for _, piece := range [][]byte{whole[:cut], whole[cut:]} {
			if err := v.feed(piece); err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
		}
		if err := v.finish(); err != nil || len(seen) != 3 {
			t.Fatalf("cut at %d: %v, events %v", cut, err, seen)
		}
	}
}

// verify runs the whole check of one answer.
func verify(ask Ask, answer []byte) error {
	var v verifier
	v.reset(ask)
	if err := v.feed(answer); err != nil {
		return err
	}
	return v.finish()
}

// Any single byte that a proxy changes is noticed, except inside the two stamps.
func TestVerifierNoticesEveryChangedByte(t *testing.T) {
	t.Parallel()
	ask := Ask{Seed: 0xabc, Tokens: 3, Stream: true}
	whole := wholeAnswer(ask)
	starts := []int{0, ask.eventLen(0), ask.eventLen(0) + ask.eventLen(1)}
	inStamp := func(at int) bool {
		for _, s := range starts {
			if off := at - s - stampAt; off >= 0 && off < 2*hexLen+1 && off != hexLen {
				return true
			}
		}
		return false
	}
	for at := range whole {
		bad := bytes.Clone(whole)
		bad[at] ^= 1 // keeps most hex digits hex digits
		err := verify(ask, bad)
		if inStamp(at) {
			continue
		}
		if err == nil {
			t.Fatalf("byte %d (%q for %q) was not noticed", at, bad[at], whole[at])
		}
	}
}

func TestVerifierNoticesWhatIsMissingOrTooMuch(t *testing.T) {
	t.Parallel()
	ask := Ask{Seed: 5, Tokens: 4, Stream: true}
	whole := wholeAnswer(ask)
	one := ask.eventLen(1)
	other := wholeAnswer(Ask{Seed: 6, Tokens: 4, Stream: true})
	cases := map[string][]byte{
		"nothing":                 nil,
		"cut short":               whole[:len(whole)-1],
		"no [DONE]":               whole[:len(whole)-len(doneEvent)],
		"one more byte":           append(bytes.Clone(whole), '\n'),
		"a second [DONE]":         append(bytes.Clone(whole), doneEvent...),
		"an event missing":        append(bytes.Clone(whole[:ask.eventLen(0)]), whole[ask.eventLen(0)+one:]...),
		"an event twice":          append(bytes.Clone(whole[:ask.eventLen(0)+one]), whole[ask.eventLen(0):]...),
		"another stream's answer": other,
		"another stream's event":  append(bytes.Clone(whole[:ask.eventLen(0)]), other[ask.eventLen(0):]...),
		"a comment in between":    append([]byte(": hello\n\n"), whole...),
		"line ends changed":       []byte(strings.ReplaceAll(string(whole), "\n", "\r\n")),
	}
	for name, answer := range cases {
		if verify(ask, answer) == nil {
			t.Errorf("%s was not noticed", name)
		}
	}
	if err := verify(ask, whole); err != nil {
		t.Errorf("the right answer was refused: %v", err)
	}
}
