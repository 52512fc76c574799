package engine

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// Conn is one connection to an engine. It belongs to one attempt at a time;
// Close alone may be called from anywhere.
type Conn struct {
	net.Conn

	// Socket reads and writes the connection. Its Raw is nil for TLS.
	Socket Socket
	// Reused is true when an earlier request already ran on the connection:
	// only then may a failure without a response byte be blamed on the idle
	// time-out of the other side.
	Reused bool

	pool      *Pool
	raw       syscall.RawConn // nil for TLS
	under     syscall.RawConn // the socket, be there TLS on it or not
	closed    atomic.Bool
	idleSince time.Time

	ticket   Ticket
	finished atomic.Bool // the engine ended its sending

	look  func(fd uintptr) // peek, bound once so that a look allocates nothing
	alive bool             // what the last look saw

	asks  func(fd uintptr) bool // onAsk, bound once
	more  []byte                // of the present Ask, and
	sent  func()
	asked bool // and it was called
}

func newConn(p *Pool, nc net.Conn) (*Conn, error) {
	c := &Conn{Conn: nc, pool: p}
	c.look, c.asks = c.peek, c.onAsk
	raw, err := RawConn(nc)
	if err != nil {
		return nil, err
	}
	c.raw, c.under = raw, raw
	if tc, secure := nc.(*tls.Conn); secure {
		if c.under, err = RawConn(tc.NetConn()); err != nil {
			return nil, err
		}
	}
	if c.under == nil {
		return nil, errors.New("a connection without a socket")
	}
	c.Socket.Init(nc, raw)
	if w := p.engine.watch; w != nil && raw != nil {
		if c.ticket, err = w.Add(raw, c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Watched reports whether the end of the engine's sending wakes a reader by
// itself. A relay may then stop reading at a short read: without it, data and
// FIN that arrive in one wake-up would leave the FIN unseen for good, since
// the poller tells of both only once.
func (c *Conn) Watched() bool { return c.ticket.Valid() && !c.finished.Load() }

// HungUp implements Watched: it wakes whoever reads, and drops the connection
// if it is idle.
func (c *Conn) HungUp() {
	if c.finished.Swap(true) {
		return // what follows is itself told as a hang-up: once is enough, twice is for ever
	}
	c.Socket.WakeReader()
	c.pool.evict(c)
}

// RawConn returns what gives access to nc's descriptor, nil if nc's bytes are
// not those of its socket (TLS).
func RawConn(nc net.Conn) (syscall.RawConn, error) {
	if _, secure := nc.(*tls.Conn); secure {
		return nil, nil
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil, nil
	}
	return sc.SyscallConn()
}

// Close ends the connection. On a connection with an answer under way this is
// what tells vLLM to abort (vLLM 0.32 frees the request within 16 ms). A
// second call does nothing.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	c.pool.open.Add(-1)
	if w := c.pool.engine.watch; w != nil {
		w.Remove(c.ticket)
	}
	return c.Conn.Close()
}

// quiet reports whether an idle connection is still open and silent. Anything
// to read on it is either the engine's FIN or bytes that belong to no request:
// both make it useless.
func (c *Conn) quiet() bool {
	if tc, secure := c.Conn.(*tls.Conn); secure && !quietTLS(tc) {
		return false
	}
	c.alive = false
	return c.under.Control(c.look) == nil && c.alive
}

// quietTLS reads under a deadline that has passed: that takes what the TLS
// layer already holds, or its word that nothing is there, without waiting for
// the network. Anything else belongs to no request.
func quietTLS(tc *tls.Conn) bool {
	if tc.SetReadDeadline(time.Unix(1, 0)) != nil {
		return false
	}
	var b [1]byte
	n, err := tc.Read(b[:])
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && tc.SetReadDeadline(time.Time{}) == nil
}
