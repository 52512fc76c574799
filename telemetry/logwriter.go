package telemetry

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// maxPending bounds the bytes that wait for a slow reader of the log: about ten
// thousand access lines, as many as streams that may end at one moment (DESIGN
// section 9).
const maxPending = 4 << 20

// hurryAt is how much ends the pause between two writes, and keptBuffer how
// large a buffer is kept when a burst is over.
const hurryAt, keptBuffer = 256 << 10, 512 << 10

// closeWait is how long Close waits for a reader that takes nothing.
const closeWait = 2 * time.Second

// LogWriter passes whole lines to a writer without ever blocking the caller: a
// blocked stderr (a full pipe, a stopped terminal) must not block a request.
// Lines collect in one buffer while another is being written, so nothing is
// allocated per line and a burst costs one write. A line that finds the
// buffer full is dropped and counted. zerolog's diode does the same with four
// allocations a line, against a budget of one for a whole request.
type LogWriter struct {
	w       io.Writer
	dropped atomic.Uint64
	wake    chan struct{} // capacity 1: something is pending or closed is set
	hurry   chan struct{} // capacity 1: much is pending
	done    chan struct{}

	mu      sync.Mutex // guards the following
	pending []byte
	closed  bool
}

// NewLogWriter returns a LogWriter over w, or w itself if it is one already.
// Close must follow.
func NewLogWriter(w io.Writer) *LogWriter {
	if l, ok := w.(*LogWriter); ok {
		return l
	}
	l := &LogWriter{w: w, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), done: make(chan struct{}), pending: make([]byte, 0, 64<<10)}
	go l.run()
	return l
}

// Write queues one or more whole lines. It never blocks on the reader and
// never fails; p may be reused when it returns.
func (l *LogWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	if l.closed || len(l.pending)+len(p) > maxPending {
		l.mu.Unlock()
		l.dropped.Add(1)
		return len(p), nil
	}
	l.pending = append(l.pending, p...)
	much := len(l.pending) >= hurryAt
	l.mu.Unlock()
	signal(l.wake)
	if much {
		signal(l.hurry)
	}
	return len(p), nil
}

// Dropped returns the number of writes dropped so far.
func (l *LogWriter) Dropped() uint64 { return l.dropped.Load() }

// Close writes what is pending, waiting at most two seconds for a reader that
// takes nothing, and drops every later line. It does not close the writer
// beneath and may be called more than once.
func (l *LogWriter) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	signal(l.wake)
	t := time.NewTimer(closeWait)
	defer t.Stop()
	select {
	case <-l.done:
	case <-t.C:
	}
	return nil
}

func (l *LogWriter) run() {
	defer close(l.done)
	spare := make([]byte, 0, 64<<10)
	pause := time.NewTimer(burstPause)
	defer pause.Stop()
	var last time.Time // of a write
	for range l.wake {
		if rest := burstPause - time.Since(last); rest > 0 {
			pause.Reset(rest)
			select {
			case <-pause.C:
			case <-l.hurry:
			}
		}
		l.mu.Lock()
		out, closed := l.pending, l.closed
		l.pending = spare[:0]
		l.mu.Unlock()
		if len(out) > 0 {
			if n, err := l.w.Write(out); err != nil {
				l.dropped.Add(uint64(bytes.Count(out[n:], []byte{'\n'}))) // there is nowhere else to report it
			}
		}
		if spare = out; cap(spare) > keptBuffer {
			spare = make([]byte, 0, 64<<10)
		}
		if closed {
			return
		}
		last = time.Now()
	}
}

// signal tells whoever waits for c, whose capacity is 1, and waits for nobody.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// burstPause lets the lines of a burst collect behind the first of them; a line
// that comes alone is written at once and sets no timer. Each write, and each
// end of a pause, wakes the runtime's monitor thread, which then looks around
// every 20 us until the process is idle: at 2,000 requests a second and a pause
// of 2 ms that was a seventh of a request's CPU.
const burstPause = 20 * time.Millisecond
