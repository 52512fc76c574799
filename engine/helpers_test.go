package engine

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestMain fails the package when its tests leave goroutines behind.
func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	if code == 0 && !settled(func() bool { return runtime.NumGoroutine() <= before }) {
		buf := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "FAIL: %d goroutines at the end, %d at the start\n%s\n", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		code = 1
	}
	os.Exit(code)
}

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

func settled(cond func() bool) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if cond() {
			return true
		}
	}
	return cond()
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	if !settled(cond) {
		t.Fatalf("waited in vain: %s", what)
	}
}

// peer is the other side: a listener that keeps what it accepts.
type peer struct {
	ln  net.Listener
	mu  sync.Mutex // guards got
	got []net.Conn
	wg  sync.WaitGroup
}

func newPeer(t testing.TB) *peer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{ln: ln}
	p.wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.got = append(p.got, nc)
			p.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		p.wg.Wait()
		for _, nc := range p.got {
			_ = nc.Close()
		}
	})
	return p
}

// conn returns the i-th connection accepted.
func (p *peer) conn(t testing.TB, i int) *net.TCPConn {
	t.Helper()
	var nc net.Conn
	eventually(t, "a connection", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.got) > i {
			nc = p.got[i]
		}
		return nc != nil
	})
	return nc.(*net.TCPConn)
}

// engine returns an engine at the peer.
func (p *peer) engine(t testing.TB, tweaks ...func(*Options)) *Engine {
	t.Helper()
	o := Options{Name: "a", URL: &url.URL{Scheme: "http", Host: p.ln.Addr().String()}}
	for _, tweak := range tweaks {
		tweak(&o)
	}
	e := New(o)
	t.Cleanup(e.Pool().Close)
	return e
}

func dial(t testing.TB, e *Engine) *Conn {
	t.Helper()
	c, err := e.Pool().Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// watched gives an engine a watch.
func watched(t testing.TB) func(*Options) {
	t.Helper()
	w, err := NewWatch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := w.Len(); n != 0 {
			t.Errorf("%d connections are still watched", n)
		}
		w.Close()
	})
	return func(o *Options) { o.Watch = w }
}

var _ io.ReadWriteCloser = (*Conn)(nil)
