package engine

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// bell counts what it was told.
type bell struct{ rings atomic.Int32 }

// HungUp implements Watched.
func (b *bell) HungUp() { b.rings.Add(1) }

func newTestWatch(t testing.TB) *Watch {
	t.Helper()
	w, err := NewWatch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func rawOf(t testing.TB, nc net.Conn) syscall.RawConn {
	t.Helper()
	raw, err := RawConn(nc)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func accepted(t testing.TB, p *peer, i int) (client net.Conn, server *net.TCPConn) {
	t.Helper()
	client, err := net.Dial("tcp", p.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return client, p.conn(t, i)
}

// TestWatchTellsOfEveryWayToLeave, also behind unread bytes, and touches none
// of them.
func TestWatchTellsOfEveryWayToLeave(t *testing.T) {
	t.Parallel()
	w := newTestWatch(t)
	p := newPeer(t)
	for i, c := range []struct {
		name  string
		leave func(nc *net.TCPConn)
	}{
		{"FIN", func(nc *net.TCPConn) { _ = nc.Close() }},
		{"half-close", func(nc *net.TCPConn) { _ = nc.CloseWrite() }},
		{"RST", func(nc *net.TCPConn) { _ = nc.SetLinger(0); _ = nc.Close() }},
		{"bytes and FIN", func(nc *net.TCPConn) { _, _ = nc.Write([]byte("hello")); _ = nc.Close() }},
		{"gone before", nil},
	} {
		var b bell
		client, server := accepted(t, p, i)
		if c.leave == nil {
			_ = client.Close()
			time.Sleep(5 * time.Millisecond)
		}
		ticket, err := w.Add(rawOf(t, server), &b)
		if err != nil || !ticket.Valid() {
			t.Fatal(err)
		}
		if c.leave != nil {
			if b.rings.Load() != 0 {
				t.Errorf("%s: told before it left", c.name)
			}
			c.leave(client.(*net.TCPConn))
		}
		eventually(t, c.name, func() bool { return b.rings.Load() > 0 })
		if c.name == "bytes and FIN" {
			buf := make([]byte, 10)
			if n, _ := server.Read(buf); string(buf[:n]) != "hello" {
				t.Errorf("the bytes are gone: %q", buf[:n])
			}
		}
		w.Remove(ticket)
		w.Remove(ticket)
		_ = client.Close()
	}
	if w.Len() != 0 {
		t.Errorf("%d left", w.Len())
	}
}

// TestWatchGenerations: an event that was under way when its connection ended
// must not reach the next one in the same place.
func TestWatchGenerations(t *testing.T) {
	t.Parallel()
	w := newTestWatch(t)
	p := newPeer(t)
	c1, s1 := accepted(t, p, 0)
	c2, s2 := accepted(t, p, 1)
	defer c1.Close()
	defer c2.Close()
	var first, second bell
	old, err := w.Add(rawOf(t, s1), &first)
	if err != nil {
		t.Fatal(err)
	}
	w.Remove(old)
	fresh, err := w.Add(rawOf(t, s2), &second)
	if err != nil {
		t.Fatal(err)
	}
	if fresh.index != old.index {
		t.Fatalf("the place was not used again: %d, %d", old.index, fresh.index)
	}
	w.tell(old) // the late event
	if first.rings.Load()+second.rings.Load() != 0 {
		t.Error("a stale event reached somebody")
	}
	w.Remove(old) // a late Remove
	w.tell(fresh)
	if second.rings.Load() != 1 || w.Len() != 1 {
		t.Errorf("%d rings, %d watched", second.rings.Load(), w.Len())
	}
	w.tell(Ticket{index: 1 << 30, gen: 1})
	w.Remove(Ticket{})
	w.Remove(fresh)
}

// TestWatchRefusesWhatCannotBeWatched, and says so.
func TestWatchRefusesWhatCannotBeWatched(t *testing.T) {
	t.Parallel()
	w := newTestWatch(t)
	f, err := os.CreateTemp(t.TempDir(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Add(raw, &bell{}); err == nil || w.Len() != 0 {
		t.Errorf("a file is watched: %v, %d", err, w.Len())
	}
}

// TestWatchManyConnections: the table does not grow beyond those that were
// there at once, and descriptors come back.
func TestWatchManyConnections(t *testing.T) {
	t.Parallel()
	w := newTestWatch(t)
	const at, rounds = 100, 10
	var rung atomic.Int32
	for range rounds {
		p := newPeer(t)
		var wg sync.WaitGroup
		for i := range at {
			client, err := net.Dial("tcp", p.ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			server := p.conn(t, i)
			b := &bell{}
			ticket, err := w.Add(rawOf(t, server), b)
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				_ = client.Close()
				for b.rings.Load() == 0 {
					time.Sleep(time.Millisecond)
				}
				rung.Add(1)
				w.Remove(ticket)
				_ = server.Close()
			})
		}
		wg.Wait()
	}
	if rung.Load() != at*rounds || w.Len() != 0 {
		t.Errorf("%d told, %d left", rung.Load(), w.Len())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.table) > at {
		t.Errorf("the table has %d places for %d connections", len(w.table), at)
	}
}

// TestWatchedReaderSeesTheFIN has a reader that stops at a short read, as the
// relay does, while data and FIN come in one packet: it must be woken again.
func TestWatchedReaderSeesTheFIN(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	e := p.engine(t, watched(t))
	for i := range 50 {
		c := dial(t, e)
		other := p.conn(t, i)
		got, ended := 0, make(chan struct{})
		buf := make([]byte, 100)
		go func() {
			defer close(ended)
			_ = c.Socket.Raw().Read(func(fd uintptr) bool {
				for {
					n, again, err := RawRead(fd, buf)
					if n == 0 && !again || err != nil {
						return true
					}
					if again {
						return false
					}
					got += n
					if n < len(buf) && c.Watched() {
						return false
					}
				}
			})
		}()
		if i%2 == 0 {
			time.Sleep(time.Millisecond) // the reader waits already
		}
		_, _ = other.Write([]byte("hello"))
		_ = other.Close()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatal("the FIN was not seen")
		}
		if got != 5 {
			t.Errorf("read %d bytes", got)
		}
		_ = c.Close()
	}
}
