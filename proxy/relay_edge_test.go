package proxy

import (
	"strings"
	"testing"

	"ramjet/telemetry"
	"ramjet/wire"
)

const chunkedHead = sseHead + "Transfer-Encoding: chunked\r\n\r\n"

// TestLongEventsGoOutAsTheyCome: beyond 64 KiB an event is not held back, in
// any framing, and if the engine dies inside it the connection closes.
func TestLongEventsGoOutAsTheyCome(t *testing.T) {
	t.Parallel()
	long := "data: " + strings.Repeat("x", 300<<10) + "\n\n"
	for _, c := range []struct {
		name, head, body string
		minor            int
	}{
		{"one chunk", chunkedHead, chunk(tokenEvent) + chunk(long) + chunk(doneEvent) + endOfBody, 1},
		{"many chunks", chunkedHead, chunk(tokenEvent) + inChunks(long, 1000) + chunk(doneEvent) + endOfBody, 1},
		{"shares its chunk", chunkedHead, chunk(tokenEvent+long) + chunk(doneEvent) + endOfBody, 1},
		{"HTTP/1.0", chunkedHead, chunk(tokenEvent) + chunk(long) + chunk(doneEvent) + endOfBody, 0},
		{"until close", sseHead + "\r\n", tokenEvent + long + doneEvent, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFed(t, wire.DialectOpenAI, kindChat, c.head, func(f *flight) { f.c.head.Minor = c.minor })
			defer f.release()
			held := 0
			for s := c.body; len(s) > 0; {
				n := min(len(s), 5000)
				f.pour(s[:n])
				s = s[n:]
				held = max(held, len(c.body)-len(s)-len(f.out))
				if n := f.relay; n.in != nil && len(n.in.b) > 256<<10 {
					t.Fatalf("the buffer grew to %d bytes", len(n.in.b))
				}
			}
			f.hangUp()
			if held > sizeHold+8<<10 {
				t.Errorf("%d bytes were held back", held)
			}
			if data, whole := f.client(t); data != tokenEvent+long+doneEvent || !whole {
				t.Errorf("the body changed (whole: %v)", whole)
			}
		})
		if !strings.Contains(c.head, "chunked") {
			continue // where the end of the connection is the body's, a cut cannot be told from it
		}
		t.Run(c.name+", dies inside", func(t *testing.T) {
			t.Parallel()
			f := newFed(t, wire.DialectOpenAI, kindChat, c.head, func(f *flight) { f.c.head.Minor = c.minor })
			defer f.release()
			f.pour(c.body[:100<<10])
			f.hangUp()
			before := len(f.out)
			f.endStream(wire.CodeEngineDied, telemetry.EndEngineDied)
			if !f.close || f.sink.Len() > 0 || before < 30<<10 {
				t.Errorf("closes: %v, sent %q behind %d bytes", f.close, f.sink.Bytes(), before)
			}
		})
	}
}

// TestUnfinishedLastEvent: the end of the body is the end, whether or not the
// last event has its blank line. Trailers end here.
func TestUnfinishedLastEvent(t *testing.T) {
	t.Parallel()
	const rest = "data: no blank line"
	for name, body := range map[string]string{
		"plain":                  chunk(tokenEvent) + chunk(rest) + endOfBody,
		"trailers":               chunk(tokenEvent) + chunk(rest) + "0\r\nX-T: secret\r\n\r\n",
		"trailers, one chunk":    chunk(tokenEvent+rest) + "0\r\nX-T: secret\r\n\r\n",
		"trailers, small chunks": inChunks(tokenEvent+rest, 7) + "0\r\nX-T: secret\r\n\r\n",
	} {
		for _, minor := range []int{0, 1} {
			c := combination{name: name, dialectBody: dialectBodies[0], framed: framings[0], wire: body}
			c.feeds(t, func(t *testing.T, how string, f *fed) {
				if data, whole := f.client(t); data != tokenEvent+rest || !whole {
					t.Fatalf("%s, HTTP/1.%d, %s: got %q (whole: %v)", name, minor, how, data, whole)
				}
			}, func(f *flight) { f.c.head.Minor = minor })
		}
	}
}

// TestTrailersOfPlainAnswers are dropped too.
func TestTrailersOfPlainAnswers(t *testing.T) {
	t.Parallel()
	c := combination{dialectBody: dialectBodies[0], wire: inChunks(answerBody, 50) + "0\r\nX-T: secret\r\n\r\n", framed: framed{
		head: "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"}}
	c.feeds(t, func(t *testing.T, how string, f *fed) {
		if data, whole := f.client(t); data != answerBody || !whole {
			t.Fatalf("%s: got %q (whole: %v)", how, data, whole)
		}
	})
}

// TestJunkBehindTheBody never reaches a client, and is noticed.
func TestJunkBehindTheBody(t *testing.T) {
	t.Parallel()
	const junk = "HTTP/1.1 200 OK\r\n\r\n"
	for _, c := range []struct{ name, head, body, want string }{
		{"chunked", chunkedHead, chunk(tokenEvent) + endOfBody, tokenEvent},
		{"trailers", chunkedHead, chunk(tokenEvent) + "0\r\nA: b\r\n\r\n", tokenEvent},
		{"length", sseHead + "Content-Length: 6\r\n\r\n", "data\n\n", "data\n\n"},
		{"no body", "HTTP/1.1 204 No Content\r\n\r\n", "", ""},
	} {
		f := newFed(t, wire.DialectOpenAI, kindChat, c.head)
		if c.body == "" {
			copy(f.relay.space(), junk)
			f.relay.took(len(junk))
			f.collect()
		}
		f.pour(c.body + junk)
		if data, whole := f.client(t); data != c.want || !whole || !f.relay.junk || !f.relay.done {
			t.Errorf("%s: got %q (whole: %v, junk: %v)", c.name, data, whole, f.relay.junk)
		}
		f.release()
	}
}

// TestBrokenChunksEndInAnErrorEvent, and what was whole before is delivered.
func TestBrokenChunksEndInAnErrorEvent(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"zz\r\n", "5\n", "-1\r\n", "5 \r\n", "ffffffffffffffffff\r\n", "5\r\nhelloX", "0\r\nbad trailer\r\n\r\n", "0\r\n\n"} {
		f := newFed(t, wire.DialectOpenAI, kindChat, chunkedHead)
		f.pour(chunk(tokenEvent) + bad)
		if f.relay.broken == nil {
			t.Errorf("%q: not noticed", bad)
			continue
		}
		f.endStream(wire.CodeEngineBadResponse, telemetry.EndEngineBadResponse)
		f.out = append(f.out, f.sink.Bytes()...)
		data, whole := f.client(t)
		if !whole || f.close || !strings.HasPrefix(data, tokenEvent+`data: {"error":`) || strings.Count(data, "engine_bad_response") != 1 {
			t.Errorf("%q: the client got %q (whole: %v, closes: %v)", bad, data, whole, f.close)
		}
		f.release()
	}
}

// TestEventsAreUnderstood: what the relay notes of each dialect's stream.
func TestEventsAreUnderstood(t *testing.T) {
	t.Parallel()
	want := map[string]seen{
		"chat":        {events: 6, first: true, delta: true, done: true, tokens: 3},
		"completions": {events: 3, first: true, delta: true, done: true, tokens: 2},
		"responses":   {events: 4, first: true, delta: true, done: true, tokens: 1},
		"anthropic":   {events: 4, first: true, delta: true, done: true, tokens: 1},
	}
	for _, d := range dialectBodies {
		f := newFed(t, d.dialect, d.kind, chunkedHead)
		f.pour(framings[0].frame(d.events))
		got := f.relay.seen
		if d.name != "completions" && (!got.hasUsage || got.usage.Prompt != 9 || got.usage.Completion != 3) {
			t.Errorf("%s: usage %+v", d.name, got.usage)
		}
		got.hasUsage, got.usage = false, wire.Usage{}
		if got != want[d.name] {
			t.Errorf("%s: saw %+v, want %+v", d.name, got, want[d.name])
		}
		f.release()
	}
}
