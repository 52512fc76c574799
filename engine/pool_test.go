package engine

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestPoolReusesTheNewest(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	e := p.engine(t)
	a, b, c := dial(t, e), dial(t, e), dial(t, e)
	if a.Reused {
		t.Error("a fresh connection says that it was used before")
	}
	for _, x := range []*Conn{a, b, c} {
		e.Pool().Put(x, time.Now())
	}
	if e.Pool().Open() != 3 || e.Pool().Idle() != 3 {
		t.Errorf("%d open, %d idle", e.Pool().Open(), e.Pool().Idle())
	}
	for _, want := range []*Conn{c, b, a} {
		got := e.Pool().Reuse(time.Now())
		if got != want || !got.Reused {
			t.Errorf("got %p, want %p (reused: %v)", got, want, got != nil && got.Reused)
		}
	}
	if e.Pool().Reuse(time.Now()) != nil {
		t.Error("an empty pool gave a connection")
	}
	for _, x := range []*Conn{a, b, c, a} { // a second Close does nothing
		_ = x.Close()
	}
	if e.Pool().Open() != 0 {
		t.Errorf("%d open", e.Pool().Open())
	}
}

// TestPoolRejectsUselessConnections: closed, reset, or with bytes to read that
// belong to no request.
func TestPoolRejectsUselessConnections(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(nc *net.TCPConn){
		"FIN":   func(nc *net.TCPConn) { _ = nc.Close() },
		"RST":   func(nc *net.TCPConn) { _ = nc.SetLinger(0); _ = nc.Close() },
		"bytes": func(nc *net.TCPConn) { _, _ = nc.Write([]byte("HTTP/1.1 408\r\n\r\n")) },
	} {
		for _, watch := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := newPeer(t)
				var e *Engine
				if watch {
					e = p.engine(t, watched(t))
				} else {
					e = p.engine(t)
				}
				good, bad := dial(t, e), dial(t, e)
				e.Pool().Put(good, time.Now())
				e.Pool().Put(bad, time.Now())
				spoil(p.conn(t, 1))
				// Loopback delivers before the call returns, or a moment later.
				eventually(t, "the bad connection to be seen", func() bool { return !bad.quiet() })
				if got := e.Pool().Reuse(time.Now()); got != good {
					t.Errorf("got %p, want the good one %p", got, good)
				}
				if e.Pool().Open() != 1 || e.Pool().Reuse(time.Now()) != nil {
					t.Errorf("%d open", e.Pool().Open())
				}
				_ = good.Close()
			})
		}
	}
}

// TestPoolEvictsAtOnce: with a watch, an idle connection that the engine
// closed leaves without being asked for.
func TestPoolEvictsAtOnce(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	e := p.engine(t, watched(t))
	for range 3 {
		c := dial(t, e)
		defer e.Pool().Put(c, time.Now())
	}
	c := dial(t, e)
	e.Pool().Put(c, time.Now())
	_ = p.conn(t, 3).Close()
	eventually(t, "the eviction", func() bool { return e.Pool().Idle() == 0 && e.Pool().Open() == 3 })
	// A connection in use is not touched by it: its user finds out.
	used := dial(t, e)
	_, _ = p.conn(t, 4).Write([]byte("data"))
	_ = p.conn(t, 4).Close()
	eventually(t, "the watch", func() bool { return !used.Watched() })
	buf := make([]byte, 10)
	if n, err := used.Socket.Read(buf); string(buf[:n]) != "data" || err != nil {
		t.Errorf("got %q, %v", buf[:n], err)
	}
	_ = used.Close()
}

// nowhere is a descriptor that anybody may look at.
type nowhere struct{ syscall.RawConn }

// Control implements syscall.RawConn.
func (nowhere) Control(f func(uintptr)) error { f(0); return nil }

// pipes puts connections without sockets into a pool, so that time is the
// test's.
func pipes(t *testing.T, p *Pool, n int) []*Conn {
	t.Helper()
	var out []*Conn
	for range n {
		nc, other := net.Pipe()
		t.Cleanup(func() { _ = other.Close() })
		c := &Conn{Conn: nc, pool: p, raw: nowhere{}, under: nowhere{}}
		c.look = func(uintptr) { c.alive = true }
		p.open.Add(1)
		out = append(out, c)
	}
	return out
}

// TestPoolIdleLimit: uvicorn closes after 5 s; no connection is used after 4,
// and none is kept much longer, without a timer when nothing is idle.
func TestPoolIdleLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := New(Options{Name: "a"})
		p := e.Pool()
		c := pipes(t, p, 2)
		p.Put(c[0], time.Now())
		time.Sleep(IdleLimit - time.Millisecond)
		if p.Reuse(time.Now()) != c[0] {
			t.Error("a connection that is young enough was not used")
		}
		p.Put(c[0], time.Now())
		time.Sleep(IdleLimit / 4)
		p.Put(c[1], time.Now())
		time.Sleep(3 * IdleLimit / 4)
		if got := p.Reuse(time.Now()); got != c[1] {
			t.Errorf("got %p, want the younger %p", got, c[1])
		}
		if p.Reuse(time.Now()) != nil || p.Open() != 1 {
			t.Errorf("an aged connection is kept: %d open", p.Open())
		}
		p.Put(c[1], time.Now())
		time.Sleep(2 * IdleLimit)
		synctest.Wait()
		p.mu.Lock()
		if len(p.idle) != 0 || p.reaping {
			t.Errorf("%d idle, reaping: %v", len(p.idle), p.reaping)
		}
		p.mu.Unlock()
		if p.Open() != 0 {
			t.Errorf("%d open", p.Open())
		}
		// A timer left behind would keep the bubble from ending.
	})
}

// TestChecksLetAgedConnectionsGo: where no timer reaps, connections below the
// one that every check takes must not stay for ever.
func TestChecksLetAgedConnectionsGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Options{Name: "a"}).checks
		c := pipes(t, p, 4)
		for _, x := range c { // four at once, and then never again
			p.Put(x, time.Now())
		}
		for i, want := range []int{4, 4, 4, 3, 2, 1} {
			time.Sleep(IdleLimit / 4)
			if p.Reuse(time.Now()) != c[3] {
				t.Fatalf("%d: the check got another connection", i)
			}
			p.Put(c[3], time.Now())
			if p.Idle() != want {
				t.Errorf("%d: %d idle, want %d", i, p.Idle(), want)
			}
		}
		for i, x := range c {
			if x.closed.Load() != (i < 3) {
				t.Errorf("connection %d closed: %v", i, x.closed.Load())
			}
		}
		if p.Open() != 1 {
			t.Errorf("%d open", p.Open())
		}
	})
}

func TestPoolClose(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	e := p.engine(t)
	idle, used := dial(t, e), dial(t, e)
	e.Pool().Put(idle, time.Now())
	e.Pool().Close()
	if e.Pool().Open() != 1 {
		t.Errorf("%d open after Close, want the one in use", e.Pool().Open())
	}
	e.Pool().Put(used, time.Now())
	if e.Pool().Open() != 0 || e.Pool().Idle() != 0 {
		t.Errorf("%d open, %d idle", e.Pool().Open(), e.Pool().Idle())
	}
}

// TestPoolRace: many users at once; a connection has one user at a time.
func TestPoolRace(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	e := p.engine(t, watched(t))
	var mu sync.Mutex // guards busy
	busy := map[*Conn]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 50 {
				c := e.Pool().Reuse(time.Now())
				if c == nil {
					c = dial(t, e)
				}
				mu.Lock()
				if busy[c] {
					t.Error("two users of one connection")
				}
				busy[c] = true
				mu.Unlock()
				mu.Lock()
				busy[c] = false
				mu.Unlock()
				if i%10 == 9 {
					_ = c.Close()
					continue
				}
				e.Pool().Put(c, time.Now())
			}
		})
	}
	wg.Wait()
	if e.Pool().Open() != e.Pool().Idle() {
		t.Errorf("%d open, %d idle", e.Pool().Open(), e.Pool().Idle())
	}
	e.Pool().Close()
}

func TestForbiddenAddresses(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	_, port, _ := net.SplitHostPort(p.ln.Addr().String())
	for _, host := range []string{"127.0.0.1", "localhost"} {
		e := p.engine(t, func(o *Options) {
			o.URL.Host = net.JoinHostPort(host, port)
			o.Forbidden = func(a netip.Addr) string {
				if a.IsLoopback() {
					return "it is here"
				}
				return ""
			}
		})
		_, err := e.Pool().Dial(t.Context())
		if err == nil || !strings.Contains(err.Error(), "it is here") || Refused(err) {
			t.Errorf("%s: %v", host, err)
		}
		if _, _, err := e.Get(t.Context(), "/health", 100); err == nil || !strings.Contains(err.Error(), "it is here") {
			t.Errorf("Get at %s: %v", host, err)
		}
		if e.Pool().Open() != 0 {
			t.Errorf("%d open", e.Pool().Open())
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	e := p.engine(t)
	_ = p.ln.Close()
	_, err := e.Pool().Dial(t.Context())
	if !Refused(err) || e.Pool().Open() != 0 {
		t.Errorf("%v, %d open", err, e.Pool().Open())
	}
	if _, _, err := e.Get(t.Context(), "/", 1); !Refused(err) {
		t.Errorf("Get: %v", err)
	}
	if Refused(nil) || Refused(errors.New("connection refused")) {
		t.Error("a text alone is taken for a refusal")
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{"h": "h:80", "h:81": "h:81", "[::1]": "[::1]:80", "[::1]:8": "[::1]:8"} {
		e := newPeer(t).engine(t, func(o *Options) { o.URL.Host = host })
		if got := e.Address(); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
		e.URL.Scheme = "https"
		if got := e.Address(); got != strings.Replace(want, ":80", ":443", 1) {
			t.Errorf("https %s: %s", host, got)
		}
	}
}
