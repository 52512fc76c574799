package rig

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// Client is one raw connection to Ramjet. One goroutine uses it at a time.
type Client struct {
	t      testing.TB
	Conn   *net.TCPConn
	Raw    []byte // received and not yet consumed as an answer
	Method string // of the request whose answer is next
	Closed bool
	Reset  bool // the end was a reset, not a FIN
}

// Dial connects to the public port of r; the connection ends with the test.
func (r *Ramjet) Dial(t testing.TB) *Client {
	t.Helper()
	c, err := DialAddr(t, r.Public)
	if err != nil {
		t.Fatalf("cannot connect to ramjet: %v", err)
	}
	return c
}

// DialAddr connects to an address; the connection ends with the test.
func DialAddr(t testing.TB, addr string) (*Client, error) {
	conn, err := net.DialTimeout("tcp", addr, Patience)
	if err != nil {
		return nil, err
	}
	c := &Client{t: t, Conn: conn.(*net.TCPConn), Method: "POST"}
	t.Cleanup(c.Close)
	return c, nil
}

// Close ends the connection with a FIN.
func (c *Client) Close() { _ = c.Conn.Close() }

// Abort ends the connection with a reset instead of a FIN.
func (c *Client) Abort() {
	_ = c.Conn.SetLinger(0)
	c.Close()
}

// CloseWrite ends the sending half alone.
func (c *Client) CloseWrite() { _ = c.Conn.CloseWrite() }

// Send writes all pieces one after another, each in a write (and, with
// TCP_NODELAY as Go sets it, a packet) of its own.
func (c *Client) Send(pieces ...string) {
	c.t.Helper()
	for i, p := range pieces {
		if i > 0 {
			time.Sleep(2 * time.Millisecond) // so that the peer reads them apart
		}
		_ = c.Conn.SetWriteDeadline(time.Now().Add(Patience))
		if _, err := io.WriteString(c.Conn, p); err != nil {
			c.t.Logf("cannot send: %v", err) // a peer that refuses early is no failure in itself
			return
		}
	}
}

// ErrWait says that nothing came within the limit.
var ErrWait = errors.New("timed out")

// fill reads once; it returns ErrWait at the deadline and io.EOF at the end.
func (c *Client) fill(deadline time.Time) error {
	if c.Closed {
		return io.EOF
	}
	_ = c.Conn.SetReadDeadline(deadline)
	buf := make([]byte, 64<<10)
	n, err := c.Conn.Read(buf)
	c.Raw = append(c.Raw, buf[:n]...)
	var timeout net.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &timeout) && timeout.Timeout():
		return ErrWait
	}
	c.Closed, c.Reset = true, !errors.Is(err, io.EOF)
	return io.EOF
}

// Until reads until ok is satisfied with the answer so far (nil while there is
// no head), the connection ends or the limit passes. The answer is not
// consumed.
func (c *Client) Until(limit time.Duration, ok func(*Response) bool) (*Response, error) {
	deadline := time.Now().Add(limit)
	for {
		r, _, err := ParseResponse(c.Raw, c.Method, c.Closed)
		if err != nil {
			return r, fmt.Errorf("malformed answer: %w", err)
		}
		if ok(r) {
			return r, nil
		}
		if err := c.fill(deadline); err != nil {
			r, _, _ := ParseResponse(c.Raw, c.Method, c.Closed)
			if ok(r) {
				return r, nil
			}
			return r, err
		}
	}
}

// Response reads and consumes one answer up to its end, however it ends, and
// fails the test when there is none.
func (c *Client) Response(limit time.Duration) *Response {
	c.t.Helper()
	r, err := c.Until(limit, func(r *Response) bool { return r != nil && (r.Complete || r.Closed) })
	if err != nil || r == nil {
		c.t.Fatalf("no whole answer within %v: %v; received %.600q", limit, err, c.Raw)
	}
	_, used, _ := ParseResponse(c.Raw, c.Method, c.Closed)
	c.Raw = c.Raw[used:]
	return r
}

// Head waits for the head of the answer.
func (c *Client) Head(limit time.Duration) *Response {
	c.t.Helper()
	r, err := c.Until(limit, func(r *Response) bool { return r != nil })
	if err != nil {
		c.t.Fatalf("no head within %v: %v; received %.300q", limit, err, c.Raw)
	}
	return r
}

// EventCount waits until n whole events of a stream are there.
func (c *Client) EventCount(limit time.Duration, n int) *Response {
	c.t.Helper()
	r, err := c.Until(limit, func(r *Response) bool {
		if r == nil {
			return false
		}
		events, _ := r.Events()
		return len(events) >= n
	})
	if err != nil {
		c.t.Fatalf("no %d events within %v: %v; received %.600q", n, limit, err, c.Raw)
	}
	return r
}

// Gone waits until the peer has closed and reports whether it did.
func (c *Client) Gone(limit time.Duration) bool {
	for deadline := time.Now().Add(limit); ; {
		switch err := c.fill(deadline); {
		case errors.Is(err, io.EOF):
			return true
		case errors.Is(err, ErrWait):
			return false
		}
	}
}
