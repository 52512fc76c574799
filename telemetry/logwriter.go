package telemetry

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// maxPending bounds the bytes that wait for a slow reader of the log, about
// two thousand access lines.
const maxPending = 1 << 20

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
	l := &LogWriter{w: w, wake: make(chan struct{}, 1), done: make(chan struct{}), pending: make([]byte, 0, 64<<10)}
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
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
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
	select {
	case l.wake <- struct{}{}:
	default:
	}
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
	for range l.wake {
		l.mu.Lock()
		out, closed := l.pending, l.closed
		l.pending = spare[:0]
		l.mu.Unlock()
		if len(out) > 0 {
			// There is nowhere to report a log that cannot be written.
			_, _ = l.w.Write(out)
		}
		spare = out
		if closed {
			return
		}
		time.Sleep(burstPause)
	}
}

// burstPause lets the lines of a burst collect behind the first of them: a
// write and a wake-up for every line cost a tenth of a short request.
const burstPause = 2 * time.Millisecond
