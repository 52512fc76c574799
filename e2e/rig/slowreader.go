package rig

import (
	"strings"
	"sync"
	"testing"
)

// SlowReader connects with a small receive buffer, sends a request and then
// reads nothing.
func SlowReader(t testing.TB, r *Ramjet, id string) *Client {
	t.Helper()
	c := r.Dial(t)
	_ = c.Conn.SetReadBuffer(4 << 10)
	c.Send(Request("POST", ChatPath, id, ChatBody(true)))
	return c
}

// Flood streams up to n bytes in events of 64 KB and says how many the peer
// took.
func Flood(n int, taken *Counter) Script {
	ev := Chunk(DeltaEvent(strings.Repeat("x", 64<<10)))
	return func(x *Exchange) {
		x.StreamHead()
		for range n / len(ev) {
			if !x.Write(ev) {
				return
			}
			taken.Add(len(ev))
		}
		x.Events(DoneEvent)
		x.Write(LastChunk)
	}
}

// Counter counts bytes; several goroutines may use it.
type Counter struct {
	mu sync.Mutex // guards n
	n  int
}

// Add adds n.
func (c *Counter) Add(n int) { c.mu.Lock(); defer c.mu.Unlock(); c.n += n }

// Get returns the sum so far.
func (c *Counter) Get() int { c.mu.Lock(); defer c.mu.Unlock(); return c.n }
