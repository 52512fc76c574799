package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"github.com/valyala/fasthttp"

	"ramjet/engine"
	"ramjet/telemetry"
)

// deliverTwin relays an event stream through fasthttp's reading of it and
// frames it anew. It shares neither head parser nor chunk scanner with the
// verbatim relay, so comparing the two finds the faults of either. It is also
// what runs outside Linux.
func (f *flight) deliverTwin(e *engine.Engine, sent sendResult) verdict {
	r := &f.relay
	f.wait1 = waitFirst
	f.headAt = f.now
	r.lastTime = f.headAt
	front := bytes.Clone(r.in.b[r.lo-f.headLen : r.hi])
	r.lo, r.mid, r.hi = 0, 0, 0
	r.giveSpace()
	if !f.sent.head && !f.sendHead() {
		return f.unsendable()
	}
	src := &twinReader{f: f}
	br := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(front), src), sizeHead)
	resp := fasthttp.AcquireResponse()
	defer fasthttp.ReleaseResponse(resp)
	resp.StreamBody = true
	if err := resp.ReadLimitBody(br, 0); err != nil {
		r.broken = err
		return f.conclude(e, sent)
	}
	f.pumpTwin(resp.BodyStream(), src)
	f.now = time.Now()
	r.junk = br.Buffered() > 0
	if !r.done || r.junk || !f.resp.KeepAlive {
		// fasthttp keeps hold of a reader that it did not see the end of.
		sent.whole = false
	}
	return f.conclude(e, sent)
}

func (f *flight) pumpTwin(body io.Reader, src *twinReader) {
	r := &f.relay
	defer r.releaseClientLimit()
	buf := getBuffer(sizeRelay)
	defer putBuffer(buf)
	for !r.over() {
		f.limitEngine()
		panicPoint(f, "relay")
		n, err := body.Read(buf.b)
		if n > 0 {
			r.data(buf.b[:n])
		}
		switch {
		case errors.Is(err, io.EOF):
			r.done = true
		case err != nil && src.err != nil:
			r.readErr = src.err
		case err != nil:
			r.broken = err
		}
		r.emit()
		if r.vain() {
			r.readErr = errMove
			return
		}
		r.tellFirst()
		if !r.flushPlain() {
			return
		}
	}
}

// twinReader reads the engine's connection for fasthttp and remembers how it
// failed, since fasthttp does not tell.
type twinReader struct {
	f   *flight
	err error
}

// Read implements io.Reader.
func (t *twinReader) Read(p []byte) (int, error) {
	for {
		n, err := t.f.up.Socket.Read(p)
		if n > 0 {
			t.f.member().AddBytesIn(n)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && !t.f.overdue() && t.f.c.gate.aborted() == telemetry.EndNone {
			t.f.limitEngine()
			continue
		}
		if err != nil {
			t.err = err
			if errors.Is(err, io.EOF) {
				t.err = io.ErrUnexpectedEOF
			}
		}
		return n, err
	}
}
