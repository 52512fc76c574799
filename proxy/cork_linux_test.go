package proxy

import (
	"net"
	"syscall"
	"testing"
)

// cork keeps what is written back until the socket is shut.
func cork(t *testing.T, nc *net.TCPConn) {
	t.Helper()
	raw, err := nc.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var set error
	if err := raw.Control(func(fd uintptr) { set = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK, 1) }); err != nil || set != nil {
		t.Fatal(err, set)
	}
}
