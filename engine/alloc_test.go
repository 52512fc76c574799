//go:build !race

package engine

import (
	"testing"
	"time"
)

// TestHotPathAllocatesNothing: what a request does on a connection that exists.
func TestHotPathAllocatesNothing(t *testing.T) {
	p := newPeer(t)
	e := p.engine(t, watched(t))
	c := dial(t, e)
	other := p.conn(t, 0)
	e.Pool().Put(c, time.Now())
	out, in := []byte("hello"), make([]byte, 100)
	get, put := func() []byte { return in }, func() {}
	f := &fakeFlight{}
	e.Enter(f)
	e.Leave(f)
	for name, step := range map[string]func(){
		"Reuse and Put": func() { e.Pool().Put(e.Pool().Reuse(time.Now()), time.Now()) },
		"Write":         func() { mustN(t, 5)(c.Socket.Write(out)); mustN(t, 5)(other.Read(in)) },
		"Read":          func() { mustN(t, 5)(other.Write(out)); mustN(t, 5)(c.Socket.Read(in)) },
		"Await":         func() { mustN(t, 5)(other.Write(out)); mustN(t, 5)(c.Socket.Await(get, put)) },
		"Enter, Leave":  func() { e.Enter(f); e.Leave(f) },
		"State":         func() { _ = e.State(); e.AddBytesIn(1) },
	} {
		if n := testing.AllocsPerRun(200, step); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func mustN(t *testing.T, want int) func(int, error) {
	return func(n int, err error) {
		if n != want || err != nil {
			t.Fatal(n, err)
		}
	}
}

func BenchmarkReuseAndPut(b *testing.B) {
	p := newPeer(b)
	e := p.engine(b)
	e.Pool().Put(dial(b, e), time.Now())
	b.ReportAllocs()
	for b.Loop() {
		e.Pool().Put(e.Pool().Reuse(time.Now()), time.Now())
	}
}
