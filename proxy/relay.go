package proxy

import (
	"errors"
	"io"
	"time"

	"ramjet/telemetry"
	"ramjet/wire"
)

// framing is how the end of an engine's body is known.
type framing uint8

const (
	framedByLength framing = iota
	framedByChunks
	framedByClose
)

// relay brings one answer's body from an engine to the client. Bytes go out
// as they came, chunk framing included, and are watched on the way. Only for
// clients that cannot read the framing (HTTP/1.0), for bodies without any, and
// where an event must be taken out, the body is framed anew.
//
// What was read stands in in.b: [lo:mid) may go out, [mid:hi) is held back.
// Held are the bytes of an event that is not whole, so that a client never
// gets half an event followed by an error, and the end of the body, which may
// carry trailers.
type relay struct {
	f *flight

	in          *buffer
	lo, mid, hi int

	framing  framing
	left     int64 // of a body framed by length
	chunks   wire.ChunkScanner
	events   wire.EventScanner
	sse      bool
	keep     bool          // the answer is JSON that tells usage
	answer   wire.Abridger // what is kept of it
	answered bool          // and was read

	// Framing anew: decoded bytes collect in dec, of which [:safe) may go
	// out; what is framed stands in out.b[olo:ohi).
	reframe   bool
	plain     bool // no framing at all towards the client
	dropUsage bool // take out the usage event that the client did not ask for
	dec       []byte
	safe      int
	event0    int // where the present event begins in dec
	decBuf    *buffer
	outBuf    *buffer
	olo       int
	ohi       int

	atSafe  wire.ChunkScanner // the framing where what may go out ends
	trapped bool              // a whole event lies behind that place

	suffix  string // what completes the framing of all that went out
	torn    bool   // half an event went out, because it was too long to hold
	done    bool   // the body is whole
	said    bool   // the dialect's own end went out: only the framing's can be missing
	trailed bool   // trailers, which end here, stand behind the body
	junk    bool   // the engine sent more than the body
	broken  error  // the body's framing is wrong
	readErr error
	sendErr error

	seen     seen
	told     bool // the first token was told
	primed   bool // what came with the head was scanned
	sendFD   uintptr
	blocked  bool // the client takes nothing at present
	held     bool // or took nothing for a while, so that the engine was not read
	limited  bool // a write deadline is set on the client
	unsent   int  // bytes that the client had not taken when it was set
	lastTime time.Time

	takes func() []byte
	gives func()
	ready func(fd uintptr) bool // bound once: the engine can be read
	room  func(fd uintptr) bool // bound once: the client can be written
}

// seen is what the events, or the answer, told.
type seen struct {
	events   int // other than comments
	tokens   int64
	first    bool // a generated token
	delta    bool // generated content
	failed   bool // an error event
	done     bool // the dialect's own end
	aborted  bool // ended by the engine, not by client or limit
	usage    wire.Usage
	hasUsage bool
}

// errMove ends a relay before anything was sent: the answer is an abort
// without a token, which another engine may do better.
var errMove = errors.New("the engine aborted before the first token")

func (r *relay) bind(f *flight) {
	r.f = f
	r.takes, r.gives = r.space, r.giveSpace
	r.bindRaw()
}

// begin prepares for another answer.
func (r *relay) begin() {
	r.giveAll()
	r.lo, r.mid, r.hi = 0, 0, 0
	r.dec, r.safe, r.event0, r.olo, r.ohi = nil, 0, 0, 0, 0
	r.chunks.Reset()
	r.events = wire.EventScanner{}
	r.suffix, r.atSafe, r.trapped = "", wire.ChunkScanner{}, false
	r.reframe, r.plain, r.dropUsage, r.keep, r.sse, r.answered = false, false, false, false, false, false
	r.torn, r.done, r.said, r.trailed, r.junk, r.blocked, r.held = false, false, false, false, false, false, false
	r.broken, r.readErr, r.sendErr = nil, nil, nil
	r.seen, r.told, r.primed = seen{}, false, false
}

// giveAll returns every buffer.
func (r *relay) giveAll() {
	putBuffer(r.in)
	putBuffer(r.decBuf)
	putBuffer(r.outBuf)
	r.in, r.decBuf, r.outBuf = nil, nil, nil
	r.events.Release()
	r.answer.Release()
}

// space returns room to read into, taking or growing a buffer as needed.
func (r *relay) space() []byte {
	if r.in == nil {
		r.in = getBuffer(sizeRelay)
	}
	if r.lo == r.hi {
		r.lo, r.mid, r.hi = 0, 0, 0
	}
	if len(r.in.b)-r.hi < sizeHead {
		r.shift()
	}
	return r.in.b[r.hi:]
}

// shift moves what is still needed to the front, of a larger buffer if this
// one is full of held bytes.
func (r *relay) shift() {
	kept := r.in.b[r.lo:r.hi]
	if len(kept)+sizeHead > len(r.in.b) {
		larger := getBuffer(4 * len(r.in.b))
		copy(larger.b, kept)
		putBuffer(r.in)
		r.in = larger
	} else {
		copy(r.in.b, kept)
	}
	r.mid -= r.lo
	r.hi -= r.lo
	r.lo = 0
}

// giveSpace returns the buffer while nothing is in it, so that a stream that
// waits for its next token holds none.
func (r *relay) giveSpace() {
	if r.lo == r.hi && r.in != nil {
		putBuffer(r.in)
		r.in = nil
		r.lo, r.mid, r.hi = 0, 0, 0
	}
}

// took accounts for n bytes that were read into space.
func (r *relay) took(n int) {
	from := r.hi
	r.hi += n
	r.f.member().AddBytesIn(n)
	r.consume(from)
	r.tellFirst()
}

// tellFirst ends the prefill at the first generated token, unless the answer
// is one that the request moves away from.
func (r *relay) tellFirst() {
	if r.seen.first && !r.told && !r.vain() {
		r.told = true
		r.f.firstToken(r.lastTime)
	}
}

// consume scans what was read from position from on.
func (r *relay) consume(from int) {
	b := r.in.b[from:r.hi]
	safe := r.scan(b)
	switch {
	case r.reframe:
		r.lo, r.mid, r.hi = 0, 0, 0 // all of it was decoded
		r.emit()
		return
	case safe >= 0:
		r.mid = from + safe
		r.torn = false
	}
	if r.broken != nil || r.done && !r.trailed {
		r.hi = r.mid // what is held now is junk
		return
	}
	if r.trailed || r.trapped && !r.torn {
		r.rechunk()
		return
	}
	if r.torn || r.sse && r.hi-r.mid > sizeHold {
		r.mid = r.hi
		r.torn = true
	}
}

// scan follows the framing and the events in b. It returns how much of b, from
// its start, may go out, -1 if nothing of it.
func (r *relay) scan(b []byte) int {
	switch r.framing {
	case framedByLength:
		return r.scanLength(b)
	case framedByClose:
		r.data(b)
		return len(b)
	case framedByChunks:
		return r.scanChunks(b)
	}
	panic("BUG: unknown framing")
}

func (r *relay) scanLength(b []byte) int {
	if int64(len(b)) > r.left {
		r.junk = true
		b = b[:r.left]
	}
	r.left -= int64(len(b))
	whole := r.data(b)
	r.done = r.left == 0
	if !r.sse || r.done {
		return len(b)
	}
	return whole
}

func (r *relay) scanChunks(b []byte) int {
	safe, used := -1, 0
	for used < len(b) && !r.chunks.Done() {
		n, data, err := r.chunks.Next(b[used:])
		if err != nil {
			r.broken = err
			return safe
		}
		span := b[used : used+n]
		used += n
		if data && r.data(span) >= 0 && r.sse {
			r.trapped = true // unless the chunk ends with the event
		}
		switch {
		case r.chunks.Done():
			r.done = true
			if r.trailed = r.chunks.HasTrailers() && !r.torn; !r.trailed {
				safe = used
			}
		case r.chunks.InLastChunk():
		case !r.sse:
			safe = used
		default:
			if suffix, ok := r.chunks.Completion(); ok && r.events.Pending() == 0 {
				safe, r.suffix, r.atSafe, r.trapped = used, suffix, r.chunks, false
			}
		}
	}
	if used < len(b) {
		r.junk = true
		r.hi -= len(b) - used
	}
	return safe
}

// data looks at body bytes. For an event stream it returns the end of the last
// whole event in b, -1 if none ends there.
func (r *relay) data(b []byte) int {
	if !r.sse {
		if r.keep {
			r.answer.Add(b)
		}
		if r.reframe {
			r.decoded(b)
			r.safe = len(r.dec)
		}
		return len(b)
	}
	whole := -1
	for used := 0; used < len(b); {
		n, event, complete, _ := r.events.Next(b[used:])
		if r.reframe {
			r.decoded(b[used : used+n])
		}
		used += n
		if !complete {
			break
		}
		whole = used
		drop := r.event(event)
		if r.reframe {
			if drop {
				r.dec = r.dec[:r.event0]
			}
			r.event0 = len(r.dec)
			r.safe, r.torn = len(r.dec), false
		}
	}
	return whole
}

// event takes note of one whole event. It reports whether the client should
// not get it.
func (r *relay) event(event []byte) (drop bool) {
	var info wire.EventInfo
	wire.ClassifyEvent(r.f.dialect, event, &info)
	if info.Comment {
		return false
	}
	s := &r.seen
	s.events++
	if info.Generated {
		r.f.c.gate.progress.Add(1)
		if r.f.live.Timeouts.EventGap > 0 || !s.first {
			r.lastTime = time.Now()
		}
		s.first = true
	}
	if info.Delta {
		s.delta = true
		s.tokens++
		if s.tokens%leaseStep == 0 {
			r.f.lease.Generated(s.tokens)
		}
		if s.tokens%tickStep == 0 && r.f.s.Tick != nil {
			r.f.s.Tick(time.Now())
		}
	}
	s.failed = s.failed || info.Error
	s.done = s.done || info.Done
	s.aborted = s.aborted || info.Abort && r.f.ep.kind.generates()
	if info.HasUsage {
		s.hasUsage, s.usage = true, info.Usage
	}
	if len(info.ResponseID) > 0 {
		r.f.s.stored.note(info.ResponseID, r.f.member().Name)
	}
	return r.dropUsage && info.HasUsage && !info.Generated && !info.Done
}

// tickStep is after how many events a stream calls Tick: often enough that one
// stream of some fifty tokens a second takes the page's samples by itself.
const tickStep = 16

// leaseStep is after how many events a lease shrinks again: often enough for
// routing, seldom enough to cost nothing per token.
const leaseStep = 16

// decoded appends to what is to be framed anew.
func (r *relay) decoded(b []byte) {
	if r.decBuf == nil {
		r.decBuf = getBuffer(sizeRelay)
		r.dec = r.decBuf.b[:0]
	}
	r.dec = append(r.dec, b...)
}

// emit frames what may go out and leaves the rest.
func (r *relay) emit() {
	if r.done {
		r.safe = len(r.dec)
	}
	if r.sse && (r.torn || len(r.dec)-r.safe > sizeHold) {
		r.safe, r.event0, r.torn = len(r.dec), len(r.dec), true
	}
	if r.outBuf == nil {
		r.outBuf = getBuffer(sizeRelay)
	}
	if r.olo == r.ohi {
		r.olo, r.ohi = 0, 0
	}
	out := r.outBuf.b[:r.ohi]
	if r.safe > 0 {
		if r.plain {
			out = append(out, r.dec[:r.safe]...)
		} else {
			out = appendChunk(out, r.dec[:r.safe])
		}
		n := copy(r.dec, r.dec[r.safe:])
		r.dec = r.dec[:n]
		r.event0 = max(r.event0-r.safe, 0)
		r.safe = 0
	}
	if r.done && !r.plain {
		out = append(out, lastChunk...)
	}
	if cap(out) > len(r.outBuf.b) {
		r.outBuf = &buffer{b: out[:cap(out)], class: -1}
	}
	r.ohi = len(out)
}

const lastChunk = "0\r\n\r\n"

// pending returns what may go out now.
func (r *relay) pending() []byte {
	if r.reframe {
		if r.outBuf == nil {
			return nil
		}
		return r.outBuf.b[r.olo:r.ohi]
	}
	if r.in == nil {
		return nil
	}
	return r.in.b[r.lo:r.mid]
}

// wrote accounts for n bytes of pending that went out.
func (r *relay) wrote(n int) {
	if n == 0 {
		return
	}
	r.f.sent.body = true
	if !r.f.settled {
		r.f.settle()
	}
	r.f.sent.bytes += int64(n)
	if r.reframe {
		r.olo += n
	} else {
		r.lo += n
	}
	r.said = r.said || r.seen.done && len(r.pending()) == 0
}

// over reports whether nothing more can come of reading.
func (r *relay) over() bool {
	return r.done || r.broken != nil || r.readErr != nil || r.sendErr != nil
}

// vain reports whether the answer is not worth sending: the engine aborted it
// before its first token, nothing of it is out, and another engine may do
// better.
func (r *relay) vain() bool {
	return r.seen.aborted && !r.seen.delta && !r.f.sent.body && r.f.othersLeft()
}

// moving reports whether vain ended the relay.
func (r *relay) moving() bool { return errors.Is(r.readErr, errMove) }

// ended takes note of the end of the engine's stream.
func (r *relay) ended() {
	if r.framing == framedByClose {
		r.done = true
		if r.reframe {
			r.emit()
		}
		return
	}
	r.readErr = io.ErrUnexpectedEOF
}

// firstToken is the moment that ends a request's prefill.
func (f *flight) firstToken(now time.Time) {
	f.lease.Decoding(f.s.at(now), true)
	f.learn()
	f.c.gate.streaming.Store(true)
	f.rec.TTFT = now.Sub(f.began).Seconds()
	if m := f.member().Metrics; m != nil {
		m.TTFT.Update(now.Sub(f.dispatched).Seconds())
	}
}

// releaseClientLimit takes the write deadline off the client's connection.
func (r *relay) releaseClientLimit() {
	if r.limited && r.f.c.gate.aborted() == telemetry.EndNone {
		_ = r.f.c.nc.SetWriteDeadline(time.Time{})
	}
	r.limited = false
}
