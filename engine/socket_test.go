package engine

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// pair returns a Socket and the other end of its connection.
func pair(t testing.TB, plain bool) (*Conn, *net.TCPConn) {
	t.Helper()
	p := newPeer(t)
	c := dial(t, p.engine(t))
	t.Cleanup(func() { _ = c.Close() })
	if plain {
		c.Socket = Socket{}
		c.Socket.Init(c.Conn, nil)
	}
	return c, p.conn(t, 0)
}

// both runs a test with raw access to the socket and without.
func both(t *testing.T, test func(t *testing.T, plain bool)) {
	for name, plain := range map[string]bool{"raw": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, plain)
		})
	}
}

func TestSocketRead(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, plain bool) {
		c, other := pair(t, plain)
		buf := make([]byte, 10)
		_, _ = other.Write([]byte("hello"))
		if n, err := c.Socket.Read(buf); string(buf[:n]) != "hello" || err != nil {
			t.Errorf("got %q, %v", buf[:n], err)
		}
		go func() {
			time.Sleep(10 * time.Millisecond)
			_, _ = other.Write([]byte("later"))
			_ = other.Close()
		}()
		if n, err := c.Socket.Read(buf); string(buf[:n]) != "later" || err != nil {
			t.Errorf("got %q, %v", buf[:n], err)
		}
		for range 2 {
			if n, err := c.Socket.Read(buf); n != 0 || err != io.EOF {
				t.Errorf("at the end: %d, %v", n, err)
			}
		}
	})
}

func TestSocketReset(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, plain bool) {
		c, other := pair(t, plain)
		_ = other.SetLinger(0)
		_ = other.Close()
		if _, err := c.Socket.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: %v", err)
		}
		eventually(t, "a write to fail", func() bool {
			_, err := c.Socket.Write([]byte("x"))
			return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
		})
	})
}

// TestSocketAwaitHoldsNoBuffer while there is nothing to read.
func TestSocketAwaitHoldsNoBuffer(t *testing.T) {
	t.Parallel()
	c, other := pair(t, false)
	if c.Socket.Raw() == nil {
		t.Skip("without raw access the buffer is held")
	}
	var out atomic.Int32
	waits := make(chan struct{}, 10)
	buf := make([]byte, 10)
	get := func() []byte { out.Add(1); return buf }
	put := func() { out.Add(-1); waits <- struct{}{} }
	done := make(chan int)
	go func() {
		n, _ := c.Socket.Await(get, put)
		done <- n
	}()
	<-waits
	if out.Load() != 0 {
		t.Error("a buffer is held while waiting")
	}
	_, _ = other.Write([]byte("hello"))
	if n := <-done; string(buf[:n]) != "hello" || out.Load() != 1 {
		t.Errorf("got %q, %d buffers out", buf[:n], out.Load())
	}
}

func TestSocketAwait(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, plain bool) {
		c, other := pair(t, plain)
		buf := make([]byte, 10)
		get, put := func() []byte { return buf }, func() {}
		_, _ = other.Write([]byte("hello"))
		if n, err := c.Socket.Await(get, put); string(buf[:n]) != "hello" || err != nil {
			t.Errorf("got %q, %v", buf[:n], err)
		}
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if n, err := c.Socket.Await(get, put); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("late: %d, %v", n, err)
		}
		_ = c.SetReadDeadline(time.Time{})
		_ = other.CloseWrite()
		if n, err := c.Socket.Await(get, put); n != 0 || err != io.EOF {
			t.Errorf("at the end: %d, %v", n, err)
		}
	})
}

// TestSocketWriteWaits: a full buffer is waited for, the hook hears of it, and
// every byte arrives.
func TestSocketWriteWaits(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, plain bool) {
		c, other := pair(t, plain)
		var blocked atomic.Int32
		c.Socket.Blocked = func() { blocked.Add(1) }
		big := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
		got := make(chan []byte)
		go func() {
			eventually(t, "a full buffer", func() bool { return blocked.Load() > 0 })
			b, _ := io.ReadAll(other)
			got <- b
		}()
		if n, err := c.Socket.Write(big); n != len(big) || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
		_ = c.Close()
		if b := <-got; !bytes.Equal(b, big) {
			t.Errorf("%d bytes arrived changed", len(b))
		}
		if blocked.Load() == 0 {
			t.Error("the hook was not called")
		}
	})
}

func TestSocketDeadlines(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, plain bool) {
		c, _ := pair(t, plain)
		c.Socket.Blocked = func() { _ = c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond)) }
		n, err := c.Socket.Write(make([]byte, 64<<20))
		if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == 64<<20 {
			t.Errorf("wrote %d, %v", n, err)
		}
		_ = c.SetReadDeadline(time.Unix(1, 0))
		if _, err := c.Socket.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
	})
}

// TestSocketCloseEndsAWait: closing is how work is aborted, from anywhere.
func TestSocketCloseEndsAWait(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, plain bool) {
		c, _ := pair(t, plain)
		done := make(chan error)
		go func() {
			_, err := c.Socket.Read(make([]byte, 1))
			done <- err
		}()
		time.Sleep(5 * time.Millisecond)
		_ = c.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("read: %v", err)
		}
		if _, err := c.Socket.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write: %v", err)
		}
	})
}

// TestWriteToAClosedPeerRaisesNoSignal: a write to a file descriptor 1 or 2
// with a closed peer would kill a Go program by SIGPIPE; ours goes by send.
func TestWriteToAClosedPeerRaisesNoSignal(t *testing.T) {
	t.Parallel()
	c, other := pair(t, false)
	_ = other.Close()
	eventually(t, "EPIPE", func() bool {
		_, err := c.Socket.Write(make([]byte, 1000))
		return errors.Is(err, syscall.EPIPE)
	})
	if n, err := c.Socket.Write(nil); n != 0 || err != nil {
		t.Errorf("an empty write: %d, %v", n, err)
	}
}
