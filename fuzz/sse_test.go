package fuzz

import (
	"fmt"
	"strings"
	"testing"

	"ramjet/wire"
)

// dispatched is one event as a browser would see it.
type dispatched struct{ name, data string }

// twinEvents is the event-stream interpretation of the WHATWG HTML standard,
// section 9.2.6, on a whole stream: normalise line ends, go line by line.
// start says that the text stands at the start of a stream, where a byte order
// mark is dropped.
func twinEvents(text string, start bool) (events []dispatched) {
	if start {
		text = strings.TrimPrefix(text, "\xef\xbb\xbf")
	}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	lines := strings.Split(text, "\n")
	lines = lines[:len(lines)-1] // what is behind the last line end is no line
	name, data, any := "", "", false
	for _, line := range lines {
		if line == "" {
			if any {
				events = append(events, dispatched{name, strings.TrimSuffix(data, "\n")})
			}
			name, data, any = "", "", false
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data += value + "\n"
			any = true
		case "event":
			name = value
		}
	}
	return events
}

// scanEvents runs the scanner over the stream in pieces.
func scanEvents(t *testing.T, stream, plan []byte) (blocks []string, rest int) {
	t.Helper()
	var s wire.EventScanner
	defer s.Release()
	cuts(stream, plan, func(piece []byte) bool {
		for len(piece) > 0 {
			before := s.Pending()
			n, event, complete, abbreviated := s.Next(piece)
			switch {
			case n < 1 || n > len(piece):
				t.Fatalf("consumed %d of %d", n, len(piece))
			case !complete && (n != len(piece) || event != nil || s.Pending() != before+n):
				t.Fatalf("unfinished: consumed %d of %d, pending %d after %d", n, len(piece), s.Pending(), before)
			case complete && s.Pending() != 0:
				t.Fatalf("pending %d behind an event", s.Pending())
			case abbreviated:
				t.Fatalf("%d bytes abbreviated", before+n)
			case complete && len(event) != before+n:
				t.Fatalf("an event of %d bytes after %d pending and %d consumed", len(event), before, n)
			}
			if complete {
				blocks = append(blocks, string(event))
			}
			piece = piece[n:]
		}
		return true
	})
	return blocks, s.Pending()
}

func FuzzSSE(f *testing.F) {
	for _, s := range []string{
		"data: a\n\n", "data: a\r\n\r\ndata: b\r\n\r\n", "data: a\r\rdata: b\r\r", "data: a\n\rdata: b\r\n\ndata: c\r\r\ndata: d\n\n",
		"\xef\xbb\xbfdata: a\n\n", "\xef\xbbdata: a\n\n", "\xef\xbb\xbf\n\n\xef\xbb\xbfdata: x\n\n", "\xef\xbb\xbf\xef\xbb\xbfdata: x\n\ndata: y\n\n",
		": keep-alive\n\n:\n\nretry: 10\n\nid: 1\n\n", "data\n\ndata:\n\ndata: \n\ndata:  x\n\n", "event: a\nevent:b\ndata: 1\ndata:2\n\nevent\ndata: 3\n\n",
		"\n\n\r\n\r\rdata: a\n\n\n", "data: unfinished\n", "DATA: x\n data: y\ndata : z\n\n", "data: \xf0\x9f\x98\x80\x00\xff\n\ndata: [DONE]\n\n",
		"data: " + strings.Repeat("x", 300) + "\r\n\r\n",
	} {
		for _, plan := range []string{"", "\x01", "\x02\x01", "\x07\x03\x00"} {
			f.Add([]byte(s), []byte(plan))
		}
	}
	f.Fuzz(func(t *testing.T, stream, plan []byte) {
		if len(stream) > wire.AbridgeLimit {
			return // abbreviated blocks are tested in wire
		}
		blocks, rest := scanEvents(t, stream, plan)
		all := strings.Join(blocks, "") + string(stream[len(stream)-rest:])
		if all != string(stream) {
			t.Fatalf("the blocks make %q", all)
		}
		var got []dispatched
		for i, b := range blocks {
			events := twinEvents(b, i == 0 && b == "\xef\xbb\xbf")
			if len(events) > 1 {
				t.Fatalf("two events in one block: %q", b)
			}
			got = append(got, events...)
		}
		want := twinEvents(string(stream), true)
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Fatalf("events %q\ntwin   %q", got, want)
		}
		// What is left over dispatches nothing, and at a boundary nothing
		// at all is left over: one more event must read as just that.
		more := twinEvents(string(stream)+"data: more\n\n", true)
		if rest == 0 && (len(more) != len(want)+1 || more[len(want)] != dispatched{"", "more"}) && len(stream) > 0 {
			t.Fatalf("not at a boundary after all: %q", more)
		}
	})
}
