package wire

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// split runs the scanner over pieces, each in a buffer of its own that is
// overwritten afterwards, as a relay's is. It returns the blocks and the rest.
func split(t *testing.T, s *EventScanner, pieces ...[]byte) (blocks []string, rest int) {
	t.Helper()
	for _, p := range pieces {
		own := bytes.Clone(p)
		for b := own; len(b) > 0; {
			n, event, complete, abbreviated := s.Next(b)
			if n <= 0 || !complete && n != len(b) || complete && (len(event) == 0 || s.Pending() != 0) || abbreviated {
				t.Fatalf("n = %d of %d, complete %v, event %q, pending %d", n, len(b), complete, event, s.Pending())
			}
			if complete {
				blocks = append(blocks, string(event))
			}
			b = b[n:]
		}
		for i := range own {
			own[i] = '!'
		}
	}
	return blocks, s.Pending()
}

// filled drops the blank lines and byte order marks that are blocks of their
// own, and the LF that may or may not belong to a block ending in CR.
func filled(blocks []string) []string {
	var out []string
	for _, b := range blocks {
		if strings.Trim(b, "\r\n") != "" && b != byteOrderMark {
			if strings.HasSuffix(b, "\r\n") {
				b = b[:len(b)-1]
			}
			out = append(out, b)
		}
	}
	return out
}

var streams = []struct {
	name, text string
	blocks     []string
	rest       string
}{
	{"LF", "data: a\n\ndata: b\n\n", []string{"data: a\n\n", "data: b\n\n"}, ""},
	{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"data: a\r\n\r\n", "data: b\r\n\r\n"}, ""},
	{"CR", "data: a\r\rdata: b\r\r", []string{"data: a\r\r", "data: b\r\r"}, ""},
	{"mixed", "data: a\r\n\ndata: b\n\r\ndata: c\r\r\ndata: d\n\r", []string{"data: a\r\n\n", "data: b\n\r\n", "data: c\r\r\n", "data: d\n\r"}, ""},
	{"several lines", "event: e\nid: 1\ndata: a\ndata: b\n\n", []string{"event: e\nid: 1\ndata: a\ndata: b\n\n"}, ""},
	{"comment", ": keep-alive\n\n:\n\n", []string{": keep-alive\n\n", ":\n\n"}, ""},
	{"retry", "retry: 100\n\n", []string{"retry: 100\n\n"}, ""},
	{"blank lines", "\n\ndata: a\n\n\n\r\n\r", []string{"\n", "\n", "data: a\n\n", "\n", "\r\n", "\r"}, ""},
	{"no blank line at the end", "data: a\n\ndata: b\n", []string{"data: a\n\n"}, "data: b\n"},
	{"cut line", "data: a", nil, "data: a"},
	{"byte order mark", "\xef\xbb\xbfdata: a\n\n", []string{"\xef\xbb\xbf", "data: a\n\n"}, ""},
	{"byte order mark and blank line", "\xef\xbb\xbf\n", []string{"\xef\xbb\xbf", "\n"}, ""},
	{"later byte order mark", "data: a\n\n\xef\xbb\xbfdata: b\n\n", []string{"data: a\n\n", "\xef\xbb\xbfdata: b\n\n"}, ""},
	{"second byte order mark", "\xef\xbb\xbf\xef\xbb\xbf\n\n", []string{"\xef\xbb\xbf", "\xef\xbb\xbf\n\n"}, ""},
	{"half a byte order mark", "\xef\xbbdata: a\n\n", []string{"\xef\xbbdata: a\n\n"}, ""},
	{"line of half a byte order mark", "\xef\n\xef\xbb\r\n\r\n", []string{"\xef\n\xef\xbb\r\n\r\n"}, ""},
	{"unfinished byte order mark", "\xef\xbb", nil, "\xef\xbb"},
	{"invalid UTF-8", "data: \xff\xfe\x00\n\n", []string{"data: \xff\xfe\x00\n\n"}, ""},
	{"done", chatDelta + "data: [DONE]\n\n", []string{chatDelta, "data: [DONE]\n\n"}, ""},
}

func TestEventScanner(t *testing.T) {
	t.Parallel()
	for _, c := range streams {
		text := []byte(c.text)
		var s EventScanner
		blocks, rest := split(t, &s, text)
		if fmt.Sprintf("%q", blocks) != fmt.Sprintf("%q", c.blocks) || rest != len(c.rest) {
			t.Errorf("%s: %q and %d bytes, want %q and %q", c.name, blocks, rest, c.blocks, c.rest)
		}
		if got, _ := s.Unfinished(); string(got) != c.rest {
			t.Errorf("%s: unfinished %q", c.name, got)
		}
		s.Release()
		single := make([][]byte, len(text))
		for i := range text {
			single[i] = text[i : i+1]
			cut, rest := split(t, &s, text[:i], text[i:])
			checkCut(t, c.name, text, cut, rest, c.blocks, c.rest)
			s.Release()
		}
		cut, rest := split(t, &s, single...)
		checkCut(t, c.name+" byte by byte", text, cut, rest, c.blocks, c.rest)
		s.Release()
	}
}

// checkCut compares the blocks of a stream that came in pieces: every byte is
// there once, and blocks with content are the same as in one piece.
func checkCut(t *testing.T, name string, text []byte, blocks []string, rest int, want []string, wantRest string) {
	t.Helper()
	if all := strings.Join(blocks, "") + string(text[len(text)-rest:]); all != string(text) {
		t.Errorf("%s: the blocks make %q", name, all)
	}
	if fmt.Sprintf("%q", filled(blocks)) != fmt.Sprintf("%q", filled(want)) || rest != len(wantRest) {
		t.Errorf("%s: %q and %d bytes, want %q", name, blocks, rest, want)
	}
}

// TestEventScannerNeverWaits: a blank line that ends in CR is complete without
// the byte behind it, and the LF that may follow starts nothing.
func TestEventScannerNeverWaits(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"data: a\r\r", "data: a\n\r", "data: a\r\n\r"} {
		var s EventScanner
		n, event, complete, _ := s.Next([]byte(text))
		if n != len(text) || !complete || string(event) != text || s.Pending() != 0 {
			t.Fatalf("%q: %d %q %v", text, n, event, complete)
		}
		n, event, complete, _ = s.Next([]byte("\ndata: b"))
		if n != 1 || !complete || string(event) != "\n" || s.Pending() != 0 {
			t.Fatalf("%q: the late LF: %d %q %v, pending %d", text, n, event, complete, s.Pending())
		}
		if blocks, rest := split(t, &s, []byte("data: b\n\n")); len(blocks) != 1 || blocks[0] != "data: b\n\n" || rest != 0 {
			t.Fatalf("%q: %q", text, blocks)
		}
	}
}

// TestEventScannerAliases: an event that lies in one read is not copied.
func TestEventScannerAliases(t *testing.T) {
	t.Parallel()
	b := []byte("data: a\n\ndata: b\n\n")
	var s EventScanner
	if _, event, _, _ := s.Next(b); &event[0] != &b[0] {
		t.Error("the event is a copy")
	}
	s.Next(b[9:12])
	if _, event, complete, _ := s.Next(b[12:]); !complete || &event[0] == &b[9] || string(event) != "data: b\n\n" {
		t.Errorf("%q", event)
	}
}

// TestEventScannerLarge passes an event of 16 MiB in reads of many sizes: the
// two ends are kept, memory stays bounded, and what follows is found.
func TestEventScannerLarge(t *testing.T) {
	t.Parallel()
	large := make([]byte, 16<<20)
	for i := range large {
		large[i] = "0123456789abcdef"[i%13]
	}
	copy(large, "data: ")
	text := append(large, "\n\ndata: b\n\n"...)
	block := text[:len(large)+2]
	want := string(block[:AbridgeEnd]) + string(block[len(block)-AbridgeEnd:])
	sizes := []int{len(text), 1 << 20, 64 << 10, 65537, 4097, 4096, 4095, 100}
	if !testing.Short() {
		sizes = append(sizes, 1)
	}
	for _, size := range sizes {
		var s EventScanner
		var got []string
		for at := 0; at < len(text); at += size {
			for b := text[at:min(at+size, len(text))]; len(b) > 0; {
				n, event, complete, abbreviated := s.Next(b)
				if complete {
					if abbreviated != (len(got) == 0) {
						t.Fatalf("reads of %d: abbreviated %v", size, abbreviated)
					}
					got = append(got, string(event))
				}
				b = b[n:]
			}
			if s.side.buf != nil && cap(s.side.buf.b) > 2*AbridgeLimit {
				t.Fatalf("reads of %d: %d bytes held", size, cap(s.side.buf.b))
			}
		}
		if len(got) != 2 || got[0] != want || got[1] != "data: b\n\n" {
			t.Fatalf("reads of %d: %d events, the first of %d bytes", size, len(got), len(got[0]))
		}
	}
}

// TestEventScannerLimit: exactly AbridgeLimit bytes are kept whole, in one
// piece or many.
func TestEventScannerLimit(t *testing.T) {
	t.Parallel()
	for over := range 2 {
		block := "data: " + strings.Repeat("x", AbridgeLimit+over-8) + "\n\n"
		for _, size := range []int{len(block), 1000} {
			var s EventScanner
			for at := 0; at < len(block); at += size {
				_, event, complete, abbreviated := s.Next([]byte(block[at:min(at+size, len(block))]))
				if last := at+size >= len(block); complete != last || last && (abbreviated != (over == 1) || over == 0 && string(event) != block) {
					t.Fatalf("%d bytes in reads of %d: complete %v, abbreviated %v", len(block), size, complete, abbreviated)
				}
			}
		}
	}
}

// TestEventScannerLinear: a read full of short lines of one kind must not be
// searched to its end for the other kind at every event.
func TestEventScannerLinear(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"\n", "\r"} {
		text := []byte(strings.Repeat("data: a"+end+end, 1<<20/9))
		var s EventScanner
		events := 0
		// A search to the end at every event would look at 6e10 bytes here:
		// minutes, where this takes milliseconds.
		for b := text; len(b) > 0; events++ {
			n, _, complete, _ := s.Next(b)
			if !complete {
				t.Fatal("not complete")
			}
			b = b[n:]
		}
		if events != 1<<20/9 {
			t.Errorf("%d events", events)
		}
	}
}

func TestAbridger(t *testing.T) {
	t.Parallel()
	var a Abridger
	if b, short := a.Bytes(); b != nil || short || a.Len() != 0 {
		t.Error("not empty at first")
	}
	text := make([]byte, 200<<10)
	for i := range text {
		text[i] = byte(i * 7 >> 3)
	}
	for _, total := range []int{1, AbridgeEnd, AbridgeLimit, AbridgeLimit + 1, 2*AbridgeLimit + 17, len(text)} {
		for _, size := range []int{1, 1000, 5000, 70000} {
			for at := 0; at < total; at += size {
				a.Add(text[at:min(at+size, total)])
			}
			want := text[:total]
			if total > AbridgeLimit {
				want = append(bytes.Clone(text[:AbridgeEnd]), text[total-AbridgeEnd:total]...)
			}
			b, short := a.Bytes()
			if !bytes.Equal(b, want) || short != (total > AbridgeLimit) || a.Len() != int64(total) {
				t.Errorf("%d bytes in pieces of %d: %d kept, abbreviated %v", total, size, len(b), short)
			}
			a.Release()
		}
	}
}
