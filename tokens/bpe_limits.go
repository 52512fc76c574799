package tokens

import (
	"errors"
	"math"
	"time"
)

// Limits bound the work of one call. The zero value bounds nothing.
type Limits struct {
	MaxBytes int           // of text
	MaxTime  time.Duration // of the call, on the wall clock
}

var (
	// ErrTooLong says that the text has more than MaxBytes, or one run without a split point is longer than maxPiece. It would
	// be so again.
	ErrTooLong = errors.New("text is too long to tokenize")
	// ErrTooSlow says that MaxTime passed. It need not be so again.
	ErrTooSlow = errors.New("tokenizing took too long")
)

// maxPiece is the longest run of letters, spaces or signs in bytes that is merged where work is bounded. One piece
// costs n log n time and 24 bytes of memory a byte; text that somebody wrote has none of a tenth of this.
const maxPiece = 128 << 10

const (
	// workStep is how many bytes are looked at between two looks at the clock: 50 ns in some 200 us.
	workStep = 4 << 10
	// heapStep is what one step of the heap costs in bytes of common text, heapStep and candidateStep by measurement.
	heapStep = 4
	// candidateStep is the same for a place where an added token might begin.
	candidateStep = 1
)

// work counts what a call has done and stops it.
type work struct {
	left     int // until the next look at the clock
	deadline time.Time
	maxPiece int
	err      error
}

// begin starts the count. A call without limits never looks at the clock.
func (w *work) begin(lim Limits) {
	*w = work{left: math.MaxInt, maxPiece: math.MaxInt}
	if lim.MaxTime > 0 {
		w.left, w.deadline = workStep, time.Now().Add(lim.MaxTime)
	}
	if lim != (Limits{}) {
		w.maxPiece = maxPiece
	}
}

// spend counts n bytes of work and says whether to go on.
func (w *work) spend(n int) bool {
	w.left -= n
	return w.left >= 0 || w.look()
}

// look is the slow part of spend.
func (w *work) look() bool {
	if w.err == nil && !w.deadline.IsZero() && time.Now().After(w.deadline) {
		w.err = ErrTooSlow
	}
	if w.err != nil {
		w.left = -1
		return false
	}
	w.left = workStep
	if w.deadline.IsZero() {
		w.left = math.MaxInt
	}
	return true
}

// stop ends the call with err.
func (w *work) stop(err error) {
	w.err, w.left = err, -1
}
