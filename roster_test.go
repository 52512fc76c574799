package main

import (
	"net"
	"net/url"
	"testing"

	"ramjet/engine"
)

// TestOpenCountsThoseThatLeave: an engine that left the set holds descriptors
// until its last request is over.
func TestOpenCountsThoseThatLeave(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	connected := func(n int) *member {
		e := engine.New(engine.Options{Name: "a", URL: &url.URL{Scheme: "http", Host: ln.Addr().String()}})
		t.Cleanup(e.Close)
		for range n {
			c, err := e.Pool().Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
		}
		return &member{engine: e}
	}
	r := &roster{present: []*member{connected(1), connected(0)}, leaving: []*member{connected(3)}}
	if n := r.open(); n != 4 {
		t.Errorf("%d connections, want 4", n)
	}
}
