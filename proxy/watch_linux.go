package proxy

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"ramjet/engine"
)

// watchSlot is a connection's place in the watcher's table.
type watchSlot struct {
	index uint32
	used  bool
}

// watcher learns that clients leave while their engines are still silent. It
// is one epoll set with EPOLLRDHUP: each connection is registered once, and
// its bytes are never touched, so pipelined requests stay intact and a FIN
// behind them is seen all the same. The set itself sits in the runtime's
// poller, so no thread waits for it.
type watcher struct {
	file *os.File
	raw  syscall.RawConn
	done chan struct{}

	mu    sync.Mutex // guards what follows
	table []watchEntry
	free  []uint32
}

// watchEntry carries a generation, because an event that was under way when
// its connection ended must not reach the next one in the same place.
type watchEntry struct {
	c   *conn
	gen uint32
}

func newWatcher() (*watcher, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot make an epoll set: %w", err)
	}
	// Marked non-blocking, the set is itself taken into the runtime's poller.
	if err := syscall.SetNonblock(fd, true); err != nil {
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("cannot make the epoll set non-blocking: %w", err)
	}
	w := &watcher{file: os.NewFile(uintptr(fd), "departures"), done: make(chan struct{})}
	if w.raw, err = w.file.SyscallConn(); err != nil {
		_ = w.file.Close()
		return nil, fmt.Errorf("cannot poll the epoll set: %w", err)
	}
	go w.run()
	return w, nil
}

func (w *watcher) run() {
	defer close(w.done)
	var events [64]syscall.EpollEvent
	n := 0
	wait := func(fd uintptr) bool {
		for {
			r, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(&events[0])),
				uintptr(len(events)), 0, 0, 0)
			if errno == syscall.EINTR {
				continue
			}
			n = int(r)
			return errno != 0 || n > 0
		}
	}
	for {
		if err := w.raw.Read(wait); err != nil || n < 0 {
			return
		}
		for _, e := range events[:n] {
			w.hangup(uint32(e.Fd), uint32(e.Pad)) //nolint:gosec // the two halves of what add stored
		}
	}
}

func (w *watcher) hangup(index, gen uint32) {
	w.mu.Lock()
	var c *conn
	if int(index) < len(w.table) && w.table[index].gen == gen {
		c = w.table[index].c
	}
	w.mu.Unlock()
	if c != nil {
		c.gate.hangup()
	}
}

// add registers a connection for its whole life. remove must follow.
func (w *watcher) add(c *conn) error {
	raw, err := engine.RawConn(c.socketConn)
	if err != nil || raw == nil {
		return errors.Join(err, errors.New("cannot watch a connection without a socket"))
	}
	w.mu.Lock()
	index := uint32(len(w.table)) //nolint:gosec // bounded by descriptors
	if n := len(w.free); n > 0 {
		index = w.free[n-1]
		w.free = w.free[:n-1]
	} else {
		w.table = append(w.table, watchEntry{})
	}
	w.table[index].gen++
	w.table[index].c = c
	gen := w.table[index].gen
	w.mu.Unlock()
	c.slot = watchSlot{index: index, used: true}

	var ctl error
	err = raw.Control(func(fd uintptr) {
		ctl = w.raw.Control(func(set uintptr) {
			// The two words of the event's data hold index and generation.
			e := syscall.EpollEvent{Events: syscall.EPOLLRDHUP | uint32(1)<<31, Fd: int32(index), Pad: int32(gen)} //nolint:gosec // reinterpreted by run; 1<<31 is EPOLLET
			if cerr := syscall.EpollCtl(int(set), syscall.EPOLL_CTL_ADD, int(fd), &e); cerr != nil {
				err = cerr
			}
		})
	})
	if err = errors.Join(err, ctl); err != nil {
		w.remove(c)
		return fmt.Errorf("cannot watch a connection: %w", err)
	}
	return nil
}

// remove forgets a connection. Closing it takes its descriptor out of the set.
func (w *watcher) remove(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !c.slot.used {
		return
	}
	w.table[c.slot.index].c = nil
	w.table[c.slot.index].gen++
	w.free = append(w.free, c.slot.index)
	c.slot.used = false
}

func (w *watcher) close() {
	_ = w.file.Close()
	<-w.done
}
