package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
	"ramjet/wire"
)

// conn is one client connection. Everything but its gate belongs to the one
// goroutine that serves it.
type conn struct {
	srv        *Server
	socketConn net.Conn // as accepted
	nc         net.Conn // the same, or TLS over it
	sock       engine.Socket
	ticket     engine.Ticket

	gate gate
	f    flight

	in    *buffer // what was read and not yet consumed stands in in.b[r:w]
	r, w  int
	head  wire.RequestHead
	takes func() []byte // bound once: where Await reads into
	gives func()
	turns func(fd uintptr) bool // bound once: the client may have sent something

	limited bool        // a write deadline is set
	mute    bool        // nothing more is written: the client left
	headed  bool        // the head of the next request was taken
	spare   []*buffer   // former in buffers that the present head still lies in
	left    atomic.Bool // the client ended its side
	inside  bool        // a request is served inside turns, where nothing may be read
	over    bool        // the connection ends when turns returns
	owed    bool        // and only after linger
}

func (c *conn) init() error {
	raw, err := engine.RawConn(c.nc)
	if err != nil {
		return err
	}
	c.sock.Init(c.nc, raw)
	c.takes, c.gives, c.turns = c.space, c.giveSpace, c.onTurn
	c.gate.stop = c.interrupt
	c.sock.Blocked = c.limitWrite
	c.f.init(c)
	raw, err = engine.RawConn(c.socketConn)
	if err != nil {
		return err
	}
	if raw == nil {
		return errors.New("a connection without a socket cannot be watched")
	}
	c.ticket, err = c.srv.watch.Add(raw, c)
	return err
}

// HungUp implements engine.Watched: the client ended its side. The next read
// has to see it, even if the poller told of it together with the bytes before.
func (c *conn) HungUp() {
	c.gate.hangup()
	if !c.left.Swap(true) {
		c.sock.WakeReader()
	}
}

// interrupt ends a wait for the client. The gate calls it once a request.
func (c *conn) interrupt() { _ = c.nc.SetDeadline(time.Unix(1, 0)) }

// space returns room behind what was read. It grows the buffer up to the
// limit of a head; readHead sees to it that there is room.
func (c *conn) space() []byte {
	if c.in == nil {
		c.in = getBuffer(sizeHead)
		c.r, c.w = 0, 0
	}
	return c.in.b[c.w:]
}

func (c *conn) giveSpace() {
	if c.r == c.w {
		putBuffer(c.in)
		c.in = nil
		c.r, c.w = 0, 0
	}
}

// serve answers requests until the connection ends.
func (c *conn) serve() {
	defer func() {
		c.srv.watch.Remove(c.ticket)
		_ = c.nc.Close()
		putBuffer(c.in)
		c.in = nil
		c.srv.drop(c)
	}()
	if !c.handshake() {
		return
	}
	for c.listen() && c.next() {
		continue
	}
}

// handshake agrees on TLS within the time that a request head may take, so
// that a client cannot hold a connection by saying nothing.
func (c *conn) handshake() bool {
	tc, secure := c.nc.(*tls.Conn)
	if !secure {
		return true
	}
	if d := c.srv.settings().Timeouts.ClientHeader; d > 0 {
		_ = tc.SetDeadline(time.Now().Add(d))
		defer func() { _ = tc.SetDeadline(time.Time{}) }()
	}
	if err := tc.Handshake(); err != nil {
		c.srv.Log.Throttled("tls", telemetry.LevelDebug, "cannot agree on TLS with a client", "error", err.Error())
		return false
	}
	return true
}

// next serves one request and reports whether another may follow.
func (c *conn) next() bool {
	if c.headed {
		c.headed = false
		return c.f.run()
	}
	c.head.Reset()
	n, err := c.readHead()
	if err != nil {
		c.refuseHead(err)
		return false
	}
	if n == 0 {
		return false
	}
	c.r += n
	return c.f.run()
}

var (
	errHeaderTimeout = &wire.HeadError{Status: 408, Code: wire.CodeRequestTimeout.String(),
		Message: "the request head did not arrive in time"}
	errHeaderTooLarge = &wire.HeadError{Status: 431, Code: wire.CodeHeaderTooLarge.String(),
		Message: "the request head is larger than the limit"}
)

// readHead reads until the head is whole and returns its length. 0 without an
// error is a connection that ended between requests.
func (c *conn) readHead() (int, error) {
	limited := false
	for {
		if c.w > c.r {
			n, err := c.head.Parse(c.in.b[c.r:c.w])
			if n > 0 || err != nil {
				if limited {
					_ = c.nc.SetReadDeadline(time.Time{})
				}
				if n > c.srv.Limits.Header {
					return 0, errHeaderTooLarge
				}
				return n, err
			}
			if c.w-c.r >= c.srv.Limits.Header {
				return 0, errHeaderTooLarge
			}
			c.makeRoom()
			if d := c.srv.settings().Timeouts.ClientHeader; d > 0 && !limited {
				limited = true
				_ = c.nc.SetReadDeadline(time.Now().Add(d))
			}
		}
		n, err := c.sock.Await(c.takes, c.gives)
		c.w += n
		if err != nil {
			if c.w > c.r && errors.Is(err, os.ErrDeadlineExceeded) {
				return 0, errHeaderTimeout
			}
			return 0, nil
		}
	}
}

// makeRoom moves what was read to the front, or into a larger buffer.
func (c *conn) makeRoom() {
	if c.w < len(c.in.b) {
		return
	}
	c.head.Moved()
	unread := c.in.b[c.r:c.w]
	if c.r > 0 {
		copy(c.in.b, unread)
	} else {
		larger := getBuffer(min(2*len(c.in.b), max(c.srv.Limits.Header, sizeHead)) + 1)
		copy(larger.b, unread)
		putBuffer(c.in)
		c.in = larger
	}
	c.r, c.w = 0, len(unread)
}

// refuseHead answers a head that cannot be a request. Nobody knows where the
// next message starts, so the connection ends.
func (c *conn) refuseHead(err error) {
	var bad *wire.HeadError
	if !errors.As(err, &bad) {
		bad = &wire.HeadError{Status: 400, Code: wire.CodeMalformedHTTP.String(), Message: err.Error()}
	}
	c.f.refuse(bad)
}

// linger lets a client read an answer that was sent before its request was
// read whole: closing at once would make the kernel answer the rest of the
// request with a reset, which can destroy the answer in flight.
func (c *conn) linger() {
	if c.inside {
		c.owed = true // listen pays
		return
	}
	if cw, ok := c.nc.(interface{ CloseWrite() error }); ok {
		_ = cw.CloseWrite()
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerTime))
	b := getBuffer(sizeRelay)
	defer putBuffer(b)
	_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(struct{ io.Reader }{c.nc}, lingerBytes), b.b)
}

// What linger spends on a client whose request is refused.
const (
	lingerTime  = time.Second
	lingerBytes = 1 << 20
)
