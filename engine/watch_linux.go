package engine

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// Watch learns at once that the other side of a connection left, whatever
// unread bytes stand before its FIN. It is one epoll set with EPOLLRDHUP in
// which each connection is registered once for its life; their bytes are never
// touched. The set itself sits in the runtime's poller, so no thread waits for
// it. A Watch is safe for concurrent use.
type Watch struct {
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
	h   Watched
	gen uint32
}

// NewWatch starts a watch. Close must follow.
func NewWatch() (*Watch, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot make an epoll set: %w", err)
	}
	// Marked non-blocking, the set is itself taken into the runtime's poller.
	if err := syscall.SetNonblock(fd, true); err != nil {
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("cannot make the epoll set non-blocking: %w", err)
	}
	w := &Watch{file: os.NewFile(uintptr(fd), "departures"), done: make(chan struct{})}
	if w.raw, err = w.file.SyscallConn(); err != nil {
		_ = w.file.Close()
		return nil, fmt.Errorf("cannot poll the epoll set: %w", err)
	}
	go w.run()
	return w, nil
}

func (w *Watch) run() {
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
			w.tell(Ticket{index: uint32(e.Fd), gen: uint32(e.Pad)}) //nolint:gosec // the two halves of what Add stored
		}
	}
}

func (w *Watch) tell(t Ticket) {
	w.mu.Lock()
	var h Watched
	if int(t.index) < len(w.table) && w.table[t.index].gen == t.gen {
		h = w.table[t.index].h
	}
	w.mu.Unlock()
	if h != nil {
		h.HungUp()
	}
}

// Add registers a connection until Remove, which must come before the
// connection is closed. A side that left already is told of at once.
func (w *Watch) Add(rc syscall.RawConn, h Watched) (Ticket, error) {
	t := w.take(h)
	var ctl, refused error
	err := rc.Control(func(fd uintptr) {
		ctl = w.raw.Control(func(set uintptr) {
			// The two words of the event's data hold index and generation;
			// EPOLLET is bit 31.
			e := syscall.EpollEvent{Events: syscall.EPOLLRDHUP | 1<<31, Fd: int32(t.index), Pad: int32(t.gen)} //nolint:gosec // taken apart again by run
			refused = syscall.EpollCtl(int(set), syscall.EPOLL_CTL_ADD, int(fd), &e)
		})
	})
	if err = errors.Join(err, ctl, refused); err != nil {
		w.Remove(t)
		return Ticket{}, fmt.Errorf("cannot watch a connection: %w", err)
	}
	return t, nil
}

func (w *Watch) take(h Watched) Ticket {
	w.mu.Lock()
	defer w.mu.Unlock()
	index := uint32(len(w.table)) //nolint:gosec // bounded by descriptors
	if n := len(w.free); n > 0 {
		index = w.free[n-1]
		w.free = w.free[:n-1]
	} else {
		w.table = append(w.table, watchEntry{})
	}
	e := &w.table[index]
	if e.gen++; e.gen == 0 {
		e.gen = 1 // 0 is no ticket
	}
	e.h = h
	return Ticket{index: index, gen: e.gen}
}

// Remove forgets a connection. Closing it takes its descriptor out of the set.
// A ticket that was removed before, or is none, is ignored.
func (w *Watch) Remove(t Ticket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !t.Valid() || w.table[t.index].gen != t.gen {
		return
	}
	w.table[t.index].h = nil
	if w.table[t.index].gen++; w.table[t.index].gen == 0 {
		w.table[t.index].gen = 1
	}
	w.free = append(w.free, t.index)
}

// Len returns the connections under watch.
func (w *Watch) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.table) - len(w.free)
}

// Close ends the watch; no call to HungUp comes after it.
func (w *Watch) Close() {
	_ = w.file.Close()
	<-w.done
}
