package engine

import (
	"net"
	"strings"
	"testing"
	"time"
)

// served returns a connection to a TLS engine and the engine's end of it, with
// the first answer read, so that the handshake has nothing left to say.
func served(t *testing.T) (e *Engine, c *Conn, other net.Conn) {
	t.Helper()
	e, ln := secure(t)
	got := make(chan net.Conn, 1)
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			close(got)
			return
		}
		_ = nc.SetDeadline(time.Now().Add(patience))
		_, _ = nc.Write([]byte("hello"))
		got <- nc
	}()
	c = dial(t, e)
	t.Cleanup(func() { _ = c.Close() })
	buf := make([]byte, 64)
	if n, err := c.Socket.Read(buf); string(buf[:n]) != "hello" {
		t.Fatalf("got %q, %v", buf[:n], err)
	}
	other, ok := <-got
	if !ok {
		t.Fatal("the engine accepted nothing")
	}
	t.Cleanup(func() { _ = other.Close() })
	return e, c, other
}

// TestTLSLeftoversAreNotPooled: bytes behind an answer must never answer the
// next request, wherever they wait: decrypted in the TLS layer, as a record
// that it read together with the one before, in the socket, or not sent yet.
func TestTLSLeftoversAreNotPooled(t *testing.T) {
	t.Parallel()
	const answer, extra = "the answer", "FORGED"
	write := func(t *testing.T, nc net.Conn, s string) {
		t.Helper()
		if _, err := nc.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	take := func(t *testing.T, c *Conn) {
		t.Helper()
		buf := make([]byte, len(answer))
		if n, err := c.Socket.Read(buf); string(buf[:n]) != answer {
			t.Fatalf("got %q, %v", buf[:n], err)
		}
	}
	for name, play := range map[string]func(t *testing.T, e *Engine, c *Conn, other net.Conn){
		"in the same record": func(t *testing.T, e *Engine, c *Conn, other net.Conn) {
			write(t, other, answer+extra)
			take(t, c)
			e.Pool().Put(c, time.Now())
		},
		"in a record read with it": func(t *testing.T, e *Engine, c *Conn, other net.Conn) {
			write(t, other, answer)
			write(t, other, extra) // loopback: both lie in the socket
			take(t, c)
			e.Pool().Put(c, time.Now())
		},
		"in a record too long to be read with it": func(t *testing.T, e *Engine, c *Conn, other net.Conn) {
			write(t, other, answer)
			write(t, other, strings.Repeat(extra, 1000))
			take(t, c)
			e.Pool().Put(c, time.Now())
		},
		"while it is idle": func(t *testing.T, e *Engine, c *Conn, other net.Conn) {
			write(t, other, answer)
			take(t, c)
			e.Pool().Put(c, time.Now())
			if !c.quiet() {
				t.Error("a connection with nothing to read is not quiet")
			}
			write(t, other, extra)
		},
		"an alert": func(t *testing.T, e *Engine, c *Conn, other net.Conn) {
			write(t, other, answer)
			take(t, c)
			e.Pool().Put(c, time.Now())
			_ = other.(interface{ CloseWrite() error }).CloseWrite()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, c, other := served(t)
			play(t, e, c, other)
			if got := e.Pool().Reuse(time.Now()); got != nil {
				buf := make([]byte, 64)
				_ = got.SetReadDeadline(time.Now().Add(patience))
				n, err := got.Socket.Read(buf)
				t.Errorf("the connection was used again; its next request reads %q, %v", buf[:n], err)
			}
			if n := e.Pool().Open(); n != 0 {
				t.Errorf("%d connections are open", n)
			}
		})
	}
}

// TestTLSQuietCanBeUsedOn: the look takes nothing and leaves no deadline, so a
// connection may be looked at any number of times.
func TestTLSQuietCanBeUsedOn(t *testing.T) {
	t.Parallel()
	e, c, other := served(t)
	for range 20 {
		e.Pool().Put(c, time.Now())
		if e.Pool().Reuse(time.Now()) != c {
			t.Fatal("a quiet connection was not used again")
		}
		answered := make(chan error, 1)
		go func() {
			time.Sleep(time.Millisecond) // longer than a deadline in the past
			_, err := other.Write([]byte("later"))
			answered <- err
		}()
		buf := make([]byte, 64)
		if n, err := c.Socket.Read(buf); string(buf[:n]) != "later" || err != nil {
			t.Fatalf("got %q, %v", buf[:n], err)
		}
		if err := <-answered; err != nil {
			t.Fatal(err)
		}
	}
}
