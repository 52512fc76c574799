package e2e

import (
	"strings"
	"testing"
	"time"
)

// TestCaseC03LastChunk: the end of a chunked body is the zero chunk and nothing
// else. The sentinel passes at once; the zero chunk follows when the engine
// sends it, in whatever pieces; the client's connection then serves the next
// request.
func TestCaseC03LastChunk(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	for name, tail := range map[string][]string{
		"later":      {lastChunk},
		"same write": {},
		"split":      {"0", "\r\n\r", "\n"},
		"size apart": {"0\r\n", "\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			seen := make(chan struct{}, 1) // the client has the sentinel
			play := func(x *exchange) {
				x.streamHead()
				x.events(chatEvents(1)[:2]...)
				if len(tail) == 0 {
					x.write(chunk(doneEvent) + lastChunk)
					return
				}
				x.write(chunk(doneEvent))
				x.hold(seen)
				for _, piece := range tail {
					x.pause(50 * time.Millisecond)
					x.write(piece)
				}
			}
			a.on(play)
			b.on(play)
			c := r.dial(t)
			want := strings.Join(chatEvents(1)[:2], "") + doneEvent
			for range 2 {
				c.send(request("POST", chatPath, r.id("c03"), chatBody(true)))
				if resp := c.eventCount(patience, 3); len(tail) > 0 && resp.complete {
					t.Error("the body ended before the engine ended it")
				}
				if len(tail) > 0 {
					seen <- struct{}{}
				}
				if resp := c.response(patience); !resp.complete || string(resp.body) != want || resp.status != 200 {
					t.Errorf("answered %d %.300q (properly ended %v)", resp.status, resp.body, resp.complete)
				}
			}
		})
	}
}

// TestCaseC03LastChunkAbsent: without a zero chunk the engine's connection is
// not pooled, and the client's ends within a second.
func TestCaseC03LastChunkAbsent(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	play := func(x *exchange) {
		x.streamHead()
		x.events(chatEvents(1)...)
		x.close()
	}
	a.on(play)
	b.on(play)
	id := r.id("c03")
	c := r.dial(t)
	c.send(request("POST", chatPath, id, chatBody(true)))
	c.eventCount(patience, 4)
	began := time.Now()
	resp, err := c.until(patience, func(resp *response) bool { return resp.complete || resp.closed })
	if err != nil {
		t.Fatalf("the client hangs: %v", err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("ended after %v", took)
	}
	if !strings.HasPrefix(string(resp.body), strings.Join(chatEvents(1), "")) {
		t.Errorf("body %.400q", resp.body)
	}
	r.ended(t, id, "engine-died", "done")
}

// TestCaseC03Kind looks for the same mistake elsewhere: a plain answer in chunks
// whose JSON is whole long before its zero chunk.
func TestCaseC03Kind(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	play := func(x *exchange) {
		x.write("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(chatAnswer("x")))
		x.pause(200 * time.Millisecond)
		x.write(lastChunk)
	}
	a.on(play)
	b.on(play)
	c := r.dial(t)
	for range 2 {
		c.send(request("POST", chatPath, r.id("c03"), chatBody(false)))
		if resp := c.response(patience); !resp.complete || string(resp.body) != chatAnswer("x") {
			t.Errorf("answered %d %.300q (properly ended %v)", resp.status, resp.body, resp.complete)
		}
	}
}
