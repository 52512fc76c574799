//go:build unix && !linux

package engine

import (
	"sync"
	"syscall"
	"time"
)

// Watch looks at every connection four times a second for a FIN at the front
// of its unread bytes. It cannot see one behind bytes that nobody read. A
// Watch is safe for concurrent use.
type Watch struct {
	stop chan struct{}
	done chan struct{}

	mu    sync.Mutex // guards what follows
	next  uint32
	conns map[Ticket]watchEntry
}

type watchEntry struct {
	h  Watched
	rc syscall.RawConn
}

// NewWatch starts a watch. Close must follow.
func NewWatch() (*Watch, error) {
	w := &Watch{stop: make(chan struct{}), done: make(chan struct{}), conns: make(map[Ticket]watchEntry)}
	go w.run()
	return w, nil
}

func (w *Watch) run() {
	defer close(w.done)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
			for _, h := range w.gone() {
				h.HungUp()
			}
		}
	}
}

// gone returns those whose other side left.
func (w *Watch) gone() []Watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Watched
	for _, e := range w.conns {
		left := false
		err := e.rc.Control(func(fd uintptr) {
			var b [1]byte
			n, _, rerr := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			left = rerr == nil && n == 0 || rerr == syscall.ECONNRESET
		})
		if err != nil || left {
			out = append(out, e.h)
		}
	}
	return out
}

// Add registers a connection until Remove.
func (w *Watch) Add(rc syscall.RawConn, h Watched) (Ticket, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	t := Ticket{index: w.next, gen: 1}
	w.conns[t] = watchEntry{h: h, rc: rc}
	return t, nil
}

// Remove forgets a connection. Later calls do nothing.
func (w *Watch) Remove(t Ticket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, t)
}

// Len returns the connections under watch.
func (w *Watch) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.conns)
}

// Close ends the watch; no call to HungUp comes after it.
func (w *Watch) Close() {
	close(w.stop)
	<-w.done
}
