package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// client is one raw connection to Ramjet. One goroutine uses it at a time.
type client struct {
	t      testing.TB
	conn   *net.TCPConn
	raw    []byte // received and not yet consumed as an answer
	method string // of the request whose answer is next
	closed bool
	reset  bool // the end was a reset, not a FIN
}

// dial connects to the public port of r; the connection ends with the test.
func (r *ramjet) dial(t testing.TB) *client {
	t.Helper()
	c, err := dialAddr(t, r.public)
	if err != nil {
		t.Fatalf("cannot connect to ramjet: %v", err)
	}
	return c
}

func dialAddr(t testing.TB, addr string) (*client, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	c := &client{t: t, conn: conn.(*net.TCPConn), method: "POST"}
	t.Cleanup(c.close)
	return c, nil
}

func (c *client) close() { _ = c.conn.Close() }

// abort ends the connection with a reset instead of a FIN.
func (c *client) abort() {
	_ = c.conn.SetLinger(0)
	c.close()
}

func (c *client) closeWrite() { _ = c.conn.CloseWrite() }

// send writes all pieces one after another, each in a write (and, with
// TCP_NODELAY as Go sets it, a packet) of its own.
func (c *client) send(pieces ...string) {
	c.t.Helper()
	for i, p := range pieces {
		if i > 0 {
			time.Sleep(2 * time.Millisecond) // so that the peer reads them apart
		}
		_ = c.conn.SetWriteDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(c.conn, p); err != nil {
			c.t.Logf("cannot send: %v", err) // a peer that refuses early is no failure in itself
			return
		}
	}
}

var errWait = errors.New("timed out")

// fill reads once; it returns errWait at the deadline and io.EOF at the end.
func (c *client) fill(deadline time.Time) error {
	if c.closed {
		return io.EOF
	}
	_ = c.conn.SetReadDeadline(deadline)
	buf := make([]byte, 64<<10)
	n, err := c.conn.Read(buf)
	c.raw = append(c.raw, buf[:n]...)
	var timeout net.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &timeout) && timeout.Timeout():
		return errWait
	}
	c.closed, c.reset = true, !errors.Is(err, io.EOF)
	return io.EOF
}

// until reads until ok is satisfied with the answer so far (nil while there is
// no head), the connection ends or the limit passes. The answer is not
// consumed.
func (c *client) until(limit time.Duration, ok func(*response) bool) (*response, error) {
	deadline := time.Now().Add(limit)
	for {
		r, _, err := parseResponse(c.raw, c.method, c.closed)
		if err != nil {
			return r, fmt.Errorf("malformed answer: %w", err)
		}
		if ok(r) {
			return r, nil
		}
		if err := c.fill(deadline); err != nil {
			r, _, _ := parseResponse(c.raw, c.method, c.closed)
			if ok(r) {
				return r, nil
			}
			return r, err
		}
	}
}

// response reads and consumes one answer up to its end, however it ends, and
// fails the test when there is none.
func (c *client) response(limit time.Duration) *response {
	c.t.Helper()
	r, err := c.until(limit, func(r *response) bool { return r != nil && (r.complete || r.closed) })
	if err != nil || r == nil {
		c.t.Fatalf("no whole answer within %v: %v; received %.600q", limit, err, c.raw)
	}
	_, used, _ := parseResponse(c.raw, c.method, c.closed)
	c.raw = c.raw[used:]
	return r
}

// head waits for the head of the answer.
func (c *client) head(limit time.Duration) *response {
	c.t.Helper()
	r, err := c.until(limit, func(r *response) bool { return r != nil })
	if err != nil {
		c.t.Fatalf("no head within %v: %v; received %.300q", limit, err, c.raw)
	}
	return r
}

// eventCount waits until n whole events of a stream are there.
func (c *client) eventCount(limit time.Duration, n int) *response {
	c.t.Helper()
	r, err := c.until(limit, func(r *response) bool {
		if r == nil {
			return false
		}
		events, _ := r.events()
		return len(events) >= n
	})
	if err != nil {
		c.t.Fatalf("no %d events within %v: %v; received %.600q", n, limit, err, c.raw)
	}
	return r
}

// gone waits until the peer has closed and reports whether it did.
func (c *client) gone(limit time.Duration) bool {
	for deadline := time.Now().Add(limit); ; {
		switch c.fill(deadline) {
		case io.EOF:
			return true
		case errWait:
			return false
		}
	}
}
