package engine

import (
	"syscall"
	"unsafe"
)

const errRefused = syscall.ECONNREFUSED

// wakeReaders wakes everybody who waits for the socket.
func wakeReaders(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RD) }

// peek looks at the socket without taking a byte from it. The raw system call
// cannot block (MSG_DONTWAIT) and spares the scheduler's bookkeeping.
func (c *Conn) peek(fd uintptr) {
	var b [1]byte
	_, _, err := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b)), 1,
		syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	c.alive = err == syscall.EAGAIN || err == syscall.EINTR
}
