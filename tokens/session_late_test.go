package tokens

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ramjet/wire"
)

// manyMessages is a conversation of n messages, with short and long texts.
func manyMessages(n int, name string) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`{"role":"%s","content":"%d %s"}`, []string{"user", "assistant"}[i%2], i, strings.Repeat("more of it ", i%20)))
	}
	return `{"max_tokens":1,"` + name + `":[` + strings.Join(list, ",") + `]}`
}

// TestKnownWhenTheTimeIsUp: a rendering may take all the time; what is known is found all the same.
func TestKnownWhenTheTimeIsUp(t *testing.T) {
	t.Parallel()
	for _, n := range []int{500} {
		s := testSource(t)
		var scr Scratch
		c, _ := parse(t, EndpointMessages, manyMessages(n, "messages"))
		rendered, note := c.Render(nil, s.template)
		if note != "" {
			t.Fatal(note)
		}
		want, _, err := s.text(nil, &scr, string(rendered), false) // keeps the segments, and no node
		if err != nil {
			t.Fatal(err)
		}
		scr.begin()
		s.maxTime, scr.deadline = time.Nanosecond, time.Now().Add(-time.Hour)
		if ids, _, err := s.text(nil, &scr, string(rendered), false); err != nil || !slices.Equal(ids, want) {
			t.Errorf("%d messages: %d ids, wanted %d: %v", n, len(ids), len(want), err)
		}
		scr.begin()
		if ids, _, err := s.text(nil, &scr, string(rendered)+strings.Repeat("what is new ", 10), false); err != ErrTooSlow {
			t.Errorf("%d messages: %d ids of a text that is not known: %v", n, len(ids), err)
		}
		scr.begin()
		short := strings.Repeat("<|im_start|>a b c<|im_end|>", 4*lateEncoding/5)
		if ids, _, err := s.text(nil, &scr, short, false); err != ErrTooSlow || len(ids) > lateEncoding {
			t.Errorf("%d ids of short texts without an end: %v", len(ids), err)
		}
	}
}

// TestLateCuttingIsOfTheCall, however many texts it has.
func TestLateCuttingIsOfTheCall(t *testing.T) {
	t.Parallel()
	s := testSource(t)
	s.maxTime = time.Nanosecond
	var scr Scratch
	text := strings.Repeat("<|im_start|>a b c<|im_end|>", 4096)
	scr.deadline = time.Now().Add(-time.Hour)
	for range 2 { // calls
		scr.begin()
		if err := s.split(&scr, text, s.roots[0]); err != nil {
			t.Fatalf("the first text is not cut: %v", err)
		}
		for texts := 1; ; texts++ {
			if err := s.split(&scr, text, s.roots[0]); err == ErrTooSlow {
				break
			}
			if texts*len(text) > 4*lateCutting {
				t.Fatalf("%d texts of %d bytes are cut", texts, len(text))
			}
		}
		for range 3 {
			if err := s.split(&scr, "a", s.roots[0]); err != ErrTooSlow {
				t.Errorf("cut again: %v", err)
			}
		}
	}
}

// TestRenderingLeavesHalf of the time, and no more than is left.
func TestRenderingLeavesHalf(t *testing.T) {
	t.Parallel()
	body := []byte(manyMessages(10, "messages"))
	for _, c := range []struct{ left, least, most time.Duration }{
		{-time.Minute, 25 * time.Minute, 30 * time.Minute},
		{time.Minute, 25 * time.Minute, 30 * time.Minute},
		{50 * time.Minute, 45 * time.Minute, 50 * time.Minute},
	} {
		s := testSource(t)
		s.maxTime = time.Hour
		var p wire.Peeked
		var scr Scratch
		if err := p.Peek(body); err != nil {
			t.Fatal(err)
		}
		if note := scr.conv.open(EndpointChat, body, &p); note != "" {
			t.Fatal(note)
		}
		scr.deadline = time.Now().Add(c.left)
		_, note := s.chat(nil, &scr)
		if left := time.Until(scr.deadline); note != "" || left < c.least || left > c.most {
			t.Errorf("of %v %v are left: %q", c.left, left, note)
		}
	}
}

// TestLongOnesGetKnown though each rendering alone takes more than the time, in every dialect.
func TestLongOnesGetKnown(t *testing.T) {
	t.Parallel()
	for e, name := range map[Endpoint]string{EndpointChat: "messages", EndpointMessages: "messages", EndpointResponses: "input"} {
		s := NewSource(testTokenizer(t), simTemplate(), SourceOptions{Cache: 32 << 20, MaxTime: 500 * time.Microsecond})
		body := []byte(manyMessages(600, name))
		var p wire.Peeked
		var scr Scratch
		if err := p.Peek(body); err != nil {
			t.Fatal(err)
		}
		for try := 1; ; try++ {
			ids, note := s.Ids(nil, e, body, &p, &scr)
			if note == "" {
				if want, _ := s.afresh(e, body); !slices.Equal(ids, want) {
					t.Errorf("%v: wrong ids at attempt %d", e, try)
				}
				t.Logf("%v: known at attempt %d", e, try)
				break
			}
			if note != noteTooSlow || try == 300 {
				t.Fatalf("%v: %q at attempt %d", e, note, try)
			}
		}
	}
}
