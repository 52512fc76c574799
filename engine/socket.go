package engine

import (
	"net"
	"syscall"
)

// Socket reads and writes a connection for one goroutine at a time. On Linux
// it makes non-blocking system calls inside the runtime's poller callbacks:
// a process that streams tokens is idle most of the time, and an ordinary Go
// system call then wakes the scheduler's monitor thread each time, which costs
// more than the call itself. Elsewhere, and for TLS, it uses the connection's
// own methods. Deadlines set on the connection apply either way.
type Socket struct {
	// Blocked, if set, is called when a write has to wait for its peer.
	Blocked func()

	nc net.Conn
	rc syscall.RawConn // nil: use nc

	p    []byte // what the present call reads into or writes from
	n    int    // bytes done in the present call
	err  error
	get  func() []byte
	put  func()
	rd   func(fd uintptr) bool // bound once, so that calls allocate nothing
	wr   func(fd uintptr) bool
	wait func(fd uintptr) bool
}

// Init binds the socket to its connection. rc is nil for connections whose
// bytes are not those of their socket.
func (s *Socket) Init(nc net.Conn, rc syscall.RawConn) {
	s.nc, s.rc = nc, rc
	s.bind()
}

// Raw returns what gives access to the descriptor, nil when only plain reads
// and writes are possible.
func (s *Socket) Raw() syscall.RawConn { return s.rc }

// WakeReader wakes whoever waits to read, now that the other side has ended its
// sending: it takes nothing from what is unread, and makes the kernel wake every
// poller of the socket, even one that was told of the end together with the data
// before it.
func (s *Socket) WakeReader() {
	if s.rc != nil {
		_ = s.rc.Control(wakeReaders)
	}
}
