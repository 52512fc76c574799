package engine

import (
	"io"
	"os"
	"syscall"
	"unsafe"
)

func (s *Socket) bind() {
	if s.rc == nil {
		return
	}
	s.rd, s.wr, s.wait = s.onRead, s.onWrite, s.onAwait
}

// RawRead reads from a socket, without waiting, and without telling the scheduler.
// recv spares the way through the file layer that read takes.
// again is true when nothing is there yet; n = 0 with neither again nor err is
// the end of the stream. The descriptor must be held by a RawConn callback.
func RawRead(fd uintptr, p []byte) (n int, again bool, err error) {
	for {
		r, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)),
			syscall.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(r), false, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, true, nil
		default:
			return 0, false, os.NewSyscallError("read", errno)
		}
	}
}

// RawWrite writes to a non-blocking descriptor without telling the scheduler.
// again is true when the socket's buffer is full. A closed peer gives EPIPE
// and no signal.
func RawWrite(fd uintptr, p []byte) (n int, again bool, err error) {
	for {
		r, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)),
			syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(r), false, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, true, nil
		default:
			return 0, false, os.NewSyscallError("write", errno)
		}
	}
}

// Unsent returns how many bytes of what was written the peer has not taken.
func Unsent(fd uintptr) int {
	var n int32
	_, _, errno := syscall.RawSyscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&n)))
	if errno != 0 {
		return 0
	}
	return int(n)
}

// Read reads what is there, or waits for it. It returns io.EOF at the end.
func (s *Socket) Read(p []byte) (int, error) {
	if s.rc == nil {
		return s.nc.Read(p)
	}
	s.p, s.n, s.err = p, 0, nil
	err := s.rc.Read(s.rd)
	s.p = nil
	return s.result(err)
}

// Await waits until there is something to read and only then takes a buffer
// from get, reads into it, and keeps it; put takes it back when nothing was
// there after all. So a connection that waits holds no buffer.
func (s *Socket) Await(get func() []byte, put func()) (int, error) {
	if s.rc == nil {
		return s.nc.Read(get())
	}
	s.get, s.put, s.n, s.err = get, put, 0, nil
	err := s.rc.Read(s.wait)
	s.get, s.put = nil, nil
	return s.result(err)
}

func (s *Socket) result(err error) (int, error) {
	switch {
	case s.err != nil:
		return s.n, s.err
	case err != nil:
		return s.n, err
	case s.n == 0:
		return 0, io.EOF
	}
	return s.n, nil
}

// Write writes all of p, waiting while the socket's buffer is full.
func (s *Socket) Write(p []byte) (int, error) {
	if s.rc == nil {
		if s.Blocked != nil {
			s.Blocked()
		}
		return s.nc.Write(p)
	}
	if len(p) == 0 {
		return 0, nil
	}
	s.p, s.n, s.err = p, 0, nil
	err := s.rc.Write(s.wr)
	s.p = nil
	if s.err != nil {
		err = s.err
	}
	return s.n, err
}

func (s *Socket) onRead(fd uintptr) bool {
	n, again, err := RawRead(fd, s.p)
	if again {
		return false
	}
	s.n, s.err = n, err
	return true
}

func (s *Socket) onAwait(fd uintptr) bool {
	n, again, err := RawRead(fd, s.get())
	if again {
		s.put()
		return false
	}
	s.n, s.err = n, err
	return true
}

func (s *Socket) onWrite(fd uintptr) bool {
	for s.n < len(s.p) {
		n, again, err := RawWrite(fd, s.p[s.n:])
		s.n += n
		if again {
			if s.Blocked != nil {
				s.Blocked()
			}
			return false
		}
		if err != nil {
			s.err = err
			return true
		}
	}
	return true
}
