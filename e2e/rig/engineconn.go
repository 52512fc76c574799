package rig

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// EngineConn is one connection at an engine. receive owns the reading side and
// records, serve parses the record and plays scripts.
type EngineConn struct {
	e    *Engine
	conn *net.TCPConn

	mu      sync.Mutex // guards the following
	raw     []byte     // every byte ever received
	ended   time.Time  // when the peer closed or reset; zero while open
	reset   bool
	changed chan struct{} // closed and renewed at every change
}

func (c *EngineConn) receive() {
	buf := make([]byte, 256<<10)
	for {
		n, err := c.conn.Read(buf)
		c.mu.Lock()
		c.raw = append(c.raw, buf[:n]...)
		if err != nil {
			c.ended, c.reset = time.Now(), !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed)
		}
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			c.e.mu.Lock()
			delete(c.e.conns, c)
			c.e.mu.Unlock()
			return
		}
	}
}

// wait blocks until the record from an offset satisfies ok, the peer leaves or
// the limit passes (0 = none). It returns the bytes from the offset on.
func (c *EngineConn) wait(from int, limit time.Duration, ok func([]byte) bool) (b []byte, ended, timedOut bool) {
	var timer <-chan time.Time
	if limit > 0 {
		timer = time.After(limit)
	}
	for {
		c.mu.Lock()
		b, ended = c.raw[from:len(c.raw):len(c.raw)], !c.ended.IsZero()
		changed := c.changed
		c.mu.Unlock()
		if ok(b) || ended {
			return b, ended, false
		}
		select {
		case <-changed:
		case <-timer:
			// A goroutine that slept past both wakes by either.
			c.mu.Lock()
			b, ended = c.raw[from:len(c.raw):len(c.raw)], !c.ended.IsZero()
			c.mu.Unlock()
			return b, ended, !ok(b) && !ended
		}
	}
}

func (c *EngineConn) serve() {
	defer func() { _ = c.conn.Close() }()
	for at := 0; ; {
		idle := time.Duration(0)
		if at > 0 { // as uvicorn: a connection that never carried a byte is not timed out
			c.e.mu.Lock()
			idle = c.e.idleClose
			c.e.mu.Unlock()
		}
		if _, ended, timedOut := c.wait(at, idle, func(b []byte) bool { return len(b) > 0 }); timedOut || ended && c.received() == at {
			return
		}
		x := &Exchange{conn: c, E: c.e}
		next, ok := x.read(at)
		if !ok {
			return
		}
		at, x.end = next, next
		c.e.record(x)
		x.answer()
		x.Finish()
		if x.isShut() {
			return
		}
	}
}

func (c *EngineConn) received() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.raw)
}

// read parses one request that begins at an offset of the record. Bytes that a
// strict reader refuses are noted as an anomaly: they are what smuggling is
// made of.
func (x *Exchange) read(at int) (next int, ok bool) {
	c := x.conn
	var m message
	var headErr error
	whole := false
	b, _, _ := c.wait(at, 0, func(b []byte) bool {
		m, whole, headErr = parseHead(b)
		return whole || headErr != nil
	})
	if headErr != nil {
		c.e.anomaly("malformed head: %v in %.300q", headErr, b)
		return 0, false
	}
	if !whole {
		c.e.anomaly("connection ended inside a head: %.300q", b)
		return 0, false
	}
	if !x.startLine(m) {
		return 0, false
	}
	x.At, x.Fields, x.Head = time.Now(), m.fields, b[:m.size]
	size, ok := x.readBody(at + m.size)
	return at + m.size + size, ok
}

func (x *Exchange) startLine(m message) bool {
	parts := strings.Split(m.start, " ")
	if len(parts) != 3 || !isToken(parts[0]) || parts[2] != "HTTP/1.1" || !strings.HasPrefix(parts[1], "/") {
		x.E.anomaly("request line %q", m.start)
		return false
	}
	if hosts := m.fields.All("Host"); len(hosts) != 1 {
		x.E.anomaly("%d Host fields for %s", len(hosts), m.start)
	}
	x.Method, x.Target = parts[0], parts[1]
	return true
}

func (x *Exchange) readBody(at int) (size int, ok bool) {
	kind, length, err := x.Fields.framing()
	if err != nil {
		x.E.anomaly("framing of %s %s: %v", x.Method, x.Target, err)
		return 0, false
	}
	x.Framing = kind
	switch kind {
	case "length":
		b, _, _ := x.conn.wait(at, 0, func(b []byte) bool { return len(b) >= length })
		if len(b) < length {
			x.partial()
			return 0, false
		}
		x.Body = b[:length]
		return length, true
	case "chunked":
		var d Dechunked
		x.conn.wait(at, 0, func(b []byte) bool {
			d, err = Dechunk(b)
			return d.done || err != nil
		})
		x.Body = d.Body
		if err != nil {
			x.E.anomaly("chunked body of %s: %v", x.Target, err)
		} else if !d.done {
			x.partial()
		}
		return d.read, err == nil && d.done
	}
	return 0, true
}

// partial notes a request whose body stopped: legal when its client left in the
// middle of an upload, so no anomaly, but a request that reached the engine.
func (x *Exchange) partial() {
	x.Cut = true
	x.E.record(x)
	x.Finish()
}
