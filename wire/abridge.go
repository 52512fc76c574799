package wire

import "sync"

const (
	// AbridgeLimit is the size up to which a block or an answer is kept
	// whole. Ordinary events are below 1 KiB; what is larger (prompt token
	// ids, top-20 logprobs, a repeated whole output) has what we look for near
	// its ends.
	AbridgeLimit = 64 << 10
	// AbridgeEnd is how much of either end is kept of anything larger.
	AbridgeEnd = 4 << 10
)

// Abridger keeps a text whole up to AbridgeLimit, and of a longer one the
// first and last AbridgeEnd bytes, joined: bounded memory and linear work
// whatever the pieces. The zero value is empty and holds no memory; its buffer
// comes from a pool and goes back by Release. It belongs to one goroutine.
type Abridger struct {
	buf   *abridgeBuffer
	total int64
}

type abridgeBuffer struct{ b []byte }

var abridgePool = sync.Pool{New: func() any { return &abridgeBuffer{b: make([]byte, 0, 2<<10)} }}

// Add appends p, which is copied.
func (a *Abridger) Add(p []byte) {
	if len(p) == 0 {
		return
	}
	if a.buf == nil {
		a.buf = abridgePool.Get().(*abridgeBuffer)
		a.buf.b = a.buf.b[:0]
	}
	a.total += int64(len(p))
	b := a.buf.b
	if len(b)+len(p) <= AbridgeLimit {
		a.buf.b = append(b, p...)
		return
	}
	// From here on b is head and tail: fill the head, then keep the newest.
	if n := AbridgeEnd - len(b); n > 0 {
		b = append(b, p[:n]...)
		p = p[n:]
	}
	if len(p) >= AbridgeEnd {
		a.buf.b = append(b[:AbridgeEnd], p[len(p)-AbridgeEnd:]...)
		return
	}
	b = slideTail(b)
	a.buf.b = append(b, p...)
}

// slideTail drops all between the head and the last AbridgeEnd bytes.
func slideTail(b []byte) []byte {
	if len(b) <= 2*AbridgeEnd {
		return b
	}
	copy(b[AbridgeEnd:], b[len(b)-AbridgeEnd:])
	return b[:2*AbridgeEnd]
}

// Bytes returns what is kept, valid until the next call of Add or Release, and
// whether something was left out.
func (a *Abridger) Bytes() (b []byte, abbreviated bool) {
	if a.buf == nil {
		return nil, false
	}
	if a.total > AbridgeLimit {
		a.buf.b = slideTail(a.buf.b)
	}
	return a.buf.b, a.total > AbridgeLimit
}

// Len is the number of bytes added.
func (a *Abridger) Len() int64 { return a.total }

// Release empties a and gives its buffer back.
func (a *Abridger) Release() {
	a.total = 0
	if a.buf != nil {
		abridgePool.Put(a.buf)
		a.buf = nil
	}
}
