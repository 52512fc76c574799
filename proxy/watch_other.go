//go:build unix && !linux

package proxy

import (
	"sync"
	"syscall"
	"time"

	"ramjet/engine"
)

// watchSlot is unused where connections are looked up by address.
type watchSlot struct{}

// watcher looks at every connection four times a second for a FIN at the front
// of its unread bytes. It cannot see one behind a pipelined request.
type watcher struct {
	stop chan struct{}
	done chan struct{}

	mu    sync.Mutex // guards conns
	conns map[*conn]syscall.RawConn
}

func newWatcher() (*watcher, error) {
	w := &watcher{stop: make(chan struct{}), done: make(chan struct{}), conns: make(map[*conn]syscall.RawConn)}
	go w.run()
	return w, nil
}

func (w *watcher) run() {
	defer close(w.done)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
			w.sweep()
		}
	}
}

func (w *watcher) sweep() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, raw := range w.conns {
		gone := false
		err := raw.Control(func(fd uintptr) {
			var b [1]byte
			n, _, rerr := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			gone = rerr == nil && n == 0 || rerr == syscall.ECONNRESET
		})
		if err != nil || gone {
			c.gate.hangup()
		}
	}
}

func (w *watcher) add(c *conn) error {
	raw, err := engine.RawConn(c.socketConn)
	if err != nil || raw == nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[c] = raw
	return nil
}

func (w *watcher) remove(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
}

func (w *watcher) close() {
	close(w.stop)
	<-w.done
}
