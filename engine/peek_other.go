//go:build unix && !linux

package engine

import "syscall"

const errRefused = syscall.ECONNREFUSED

// wakeReaders does nothing: relays here read until there is nothing left.
func wakeReaders(uintptr) {}

// peek looks at the socket without taking a byte from it.
func (c *Conn) peek(fd uintptr) {
	var b [1]byte
	_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	c.alive = err == syscall.EAGAIN || err == syscall.EINTR
}
