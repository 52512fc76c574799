package proxy

import (
	"errors"
	"os"
	"time"

	"ramjet/telemetry"
	"ramjet/wire"
)

// body is a request body held in memory, under the server's budget.
type body struct {
	buf    *buffer
	n      int
	booked int64
}

func (b *body) bytes() []byte {
	if b.buf == nil {
		return nil
	}
	return b.buf.b[:b.n]
}

// release gives the memory back. Later calls do nothing.
func (b *body) release(s *Server) {
	putBuffer(b.buf)
	s.bodies.give(b.booked)
	*b = body{}
}

// reserve makes room for n bytes in all, keeping what is there.
func (b *body) reserve(s *Server, n int64, g *gate) bool {
	if b.buf != nil && n <= int64(len(b.buf.b)) {
		return true
	}
	need := capacity(n)
	if b.buf != nil {
		// A body of unknown length doubles, or growing would copy it again
		// and again.
		need = max(need, min(2*int64(len(b.buf.b)), s.settings().Limits.Body))
	}
	wait := s.settings().Limits.QueueWait
	if !s.bodies.take(need-b.booked, wait, g) {
		return false
	}
	b.booked = need
	larger := getBuffer(int(need))
	copy(larger.b, b.bytes())
	putBuffer(b.buf)
	b.buf = larger
	return true
}

// bodyReader reads the body that follows a head.
type bodyReader struct {
	c     *conn
	start time.Time // of the judged average; moved on by pauses of our own
	got   int64     // bytes received since start
	slow  bool      // a read deadline is set
}

// rateGrace is how long a body is not judged by its average rate.
const rateGrace = 2 * time.Second

var (
	errBodyTooLarge = &wire.Error{Code: wire.CodeBodyTooLarge}
	errBodySlow     = &wire.Error{Code: wire.CodeRequestTimeout, Message: "the request body arrived too slowly; send it faster or raise timeouts.client_body_rate"}
	errBodyCut      = &wire.Error{Code: wire.CodeMalformedHTTP, Message: "the connection ended inside the request body"}
	errBodyMemory   = &wire.Error{Code: wire.CodeOverloaded, Message: "too many request bodies are held at once; try again later"}
	errDraining     = &wire.Error{Code: wire.CodeDraining}
)

// readBody reads the whole body into f.body. After an error the connection
// cannot be used again.
func (f *flight) readBody() *wire.Error {
	h := &f.c.head
	if h.ContentLength > f.live.Limits.Body {
		return errBodyTooLarge
	}
	if !h.Chunked && h.ContentLength <= 0 {
		return nil
	}
	r := bodyReader{c: f.c, start: f.began}
	defer r.done()
	if h.ExpectContinue && f.c.r == f.c.w {
		if _, err := f.c.write([]byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
			return errBodyCut
		}
	}
	if h.Chunked {
		return f.readChunked(&r)
	}
	return f.readFixed(&r, h.ContentLength)
}

// noMemory says why there is no room for a body.
func (f *flight) noMemory() *wire.Error {
	switch f.c.gate.aborted() {
	case telemetry.EndNone:
		return errBodyMemory
	case telemetry.EndDrained:
		return errDraining
	default:
		return errBodyCut
	}
}

func (f *flight) readFixed(r *bodyReader, length int64) *wire.Error {
	if !f.body.reserve(f.s, length, &f.c.gate) {
		return f.noMemory()
	}
	b := f.body.buf.b
	f.body.n = copy(b[:length], f.c.in.b[f.c.r:f.c.w])
	f.c.r += f.body.n
	if int64(f.body.n) < length {
		r.start = time.Now() // its pace is judged from here on: the wait for memory was ours
	}
	for int64(f.body.n) < length {
		n, err := r.read(b[f.body.n:length])
		f.body.n += n
		if err != nil {
			return err
		}
	}
	return nil
}

// readChunked decodes a chunked body. The limit counts decoded bytes; trailers
// are dropped.
func (f *flight) readChunked(r *bodyReader) *wire.Error {
	f.chunks.Reset()
	raw := f.c.in.b[f.c.r:f.c.w]
	scratch := (*buffer)(nil)
	defer func() { putBuffer(scratch) }()
	for {
		n, err := f.decode(raw)
		if err != nil {
			return err
		}
		if f.chunks.Done() {
			f.c.keep(raw[n:], scratch)
			return nil
		}
		if scratch == nil {
			scratch = getBuffer(sizeRelay)
			f.c.r = f.c.w
		}
		got, err := r.read(scratch.b)
		if err != nil {
			return err
		}
		raw = scratch.b[:got]
	}
}

// decode appends the data in raw to the body and returns what was consumed.
func (f *flight) decode(raw []byte) (int, *wire.Error) {
	used := 0
	for used < len(raw) && !f.chunks.Done() {
		n, data, err := f.chunks.Next(raw[used:])
		if err != nil {
			return 0, &wire.Error{Code: wire.CodeMalformedHTTP, Message: "the request body's chunking is broken: " + err.Error()}
		}
		if data {
			if int64(f.body.n+n) > f.live.Limits.Body {
				return 0, errBodyTooLarge
			}
			if !f.body.reserve(f.s, int64(f.body.n+n), &f.c.gate) {
				return 0, f.noMemory()
			}
			f.body.n += copy(f.body.buf.b[f.body.n:], raw[used:used+n])
		}
		used += n
	}
	return used, nil
}

// keep makes rest, which lies in the connection's own buffer or in scratch,
// the bytes that come next on the connection.
func (c *conn) keep(rest []byte, scratch *buffer) {
	if scratch == nil {
		c.r = c.w - len(rest)
		return
	}
	if len(rest) == 0 {
		c.r = c.w
		return
	}
	// The head still lies in the buffer, so the rest goes behind it.
	if len(c.in.b)-c.w < len(rest) {
		larger := getBuffer(c.w + len(rest))
		copy(larger.b, c.in.b[:c.w])
		c.spare = append(c.spare, c.in) // the head's slices point into it
		c.in = larger
	}
	copy(c.in.b[c.w:], rest)
	c.r, c.w = c.w, c.w+len(rest)
}

// read reads more of the body, judging the client's rate.
func (r *bodyReader) read(p []byte) (int, *wire.Error) {
	if r.c.inside {
		panic("BUG: a read of the client inside the wait for it")
	}
	rate := r.c.srv.settings().Timeouts.ClientBodyRate
	if rate > 0 {
		allowed := max(rateGrace, time.Duration(float64(r.got)/float64(rate)*float64(time.Second)))
		_ = r.c.nc.SetReadDeadline(r.start.Add(allowed))
		r.slow = true
		switch r.c.gate.aborted() {
		case telemetry.EndNone:
		case telemetry.EndClientGoneWaiting: // what it sent is there, and its FIN behind it
		default:
			r.c.interrupt() // the deadline above may have undone it
		}
	}
	n, err := r.c.sock.Read(p)
	r.got += int64(n)
	if err == nil {
		return n, nil
	}
	switch cause := r.c.gate.aborted(); {
	case cause == telemetry.EndDrained:
		return n, errDraining
	case cause == telemetry.EndNone && errors.Is(err, os.ErrDeadlineExceeded):
		return n, errBodySlow
	}
	return n, errBodyCut
}

func (r *bodyReader) done() {
	if r.slow {
		_ = r.c.nc.SetReadDeadline(time.Time{})
	}
}
