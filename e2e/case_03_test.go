package e2e

import (
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestCaseC03LastChunk: the end of a chunked body is the zero chunk and nothing
// else. The sentinel passes at once; the zero chunk follows when the engine
// sends it, in whatever pieces; the client's connection then serves the next
// request.
func TestCaseC03LastChunk(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	for name, tail := range map[string][]string{
		"later":      {rig.LastChunk},
		"same write": {},
		"split":      {"0", "\r\n\r", "\n"},
		"size apart": {"0\r\n", "\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			seen := make(chan struct{}, 1) // the client has the sentinel
			play := func(x *rig.Exchange) {
				x.StreamHead()
				x.Events(rig.ChatEvents(1)[:2]...)
				if len(tail) == 0 {
					x.Write(rig.Chunk(rig.DoneEvent) + rig.LastChunk)
					return
				}
				x.Write(rig.Chunk(rig.DoneEvent))
				x.Hold(seen)
				for _, piece := range tail {
					x.Pause(50 * time.Millisecond)
					x.Write(piece)
				}
			}
			a.On(play)
			b.On(play)
			c := r.Dial(t)
			want := strings.Join(rig.ChatEvents(1)[:2], "") + rig.DoneEvent
			for range 2 {
				c.Send(rig.Request("POST", rig.ChatPath, r.ID("c03"), rig.ChatBody(true)))
				if resp := c.EventCount(rig.Patience, 3); len(tail) > 0 && resp.Complete {
					t.Error("the body ended before the engine ended it")
				}
				if len(tail) > 0 {
					seen <- struct{}{}
				}
				if resp := c.Response(rig.Patience); !resp.Complete || string(resp.Body) != want || resp.Status != 200 {
					t.Errorf("answered %d %.300q (properly ended %v)", resp.Status, resp.Body, resp.Complete)
				}
			}
		})
	}
}

// TestCaseC03LastChunkAbsent: without a zero chunk the engine's connection is
// not pooled, and the client's ends soon.
func TestCaseC03LastChunkAbsent(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	play := func(x *rig.Exchange) {
		x.StreamHead()
		x.Events(rig.ChatEvents(1)...)
		x.Close()
	}
	a.On(play)
	b.On(play)
	id := r.ID("c03")
	c := r.Dial(t)
	c.Send(rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true)))
	c.EventCount(rig.Patience, 4)
	began := time.Now()
	resp, err := c.Until(rig.Patience, func(resp *rig.Response) bool { return resp.Complete || resp.Closed })
	if err != nil {
		t.Fatalf("the client hangs: %v", err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("ended after %v", took)
	}
	if !strings.HasPrefix(string(resp.Body), strings.Join(rig.ChatEvents(1), "")) {
		t.Errorf("body %.400q", resp.Body)
	}
	r.Ended(t, id, "engine-died", "done")
}

// TestCaseC03Kind looks for the same mistake elsewhere: a plain answer in chunks
// whose JSON is whole long before its zero chunk.
func TestCaseC03Kind(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	play := func(x *rig.Exchange) {
		x.Write("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n" + rig.Chunk(rig.ChatAnswer("x")))
		x.Pause(200 * time.Millisecond)
		x.Write(rig.LastChunk)
	}
	a.On(play)
	b.On(play)
	c := r.Dial(t)
	for range 2 {
		c.Send(rig.Request("POST", rig.ChatPath, r.ID("c03"), rig.ChatBody(false)))
		if resp := c.Response(rig.Patience); !resp.Complete || string(resp.Body) != rig.ChatAnswer("x") {
			t.Errorf("answered %d %.300q (properly ended %v)", resp.Status, resp.Body, resp.Complete)
		}
	}
}
