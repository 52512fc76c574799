package main

import (
	"net"
	"syscall"
	"testing"
)

// TestListenTCPFindsVanishedClients: accepted connections send keep-alives
// although nobody asked for them there.
func TestListenTCPFindsVanishedClients(t *testing.T) {
	t.Parallel()
	ln, err := listenTCP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	raw, err := s.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range [...]struct{ level, name, want int }{
		{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
		{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 60},
		{syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 15},
		{syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 4},
		{syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1},
	} {
		var got int
		if cerr := raw.Control(func(fd uintptr) { got, err = syscall.GetsockoptInt(int(fd), o.level, o.name) }); cerr != nil || err != nil || got != o.want {
			t.Errorf("option %d of level %d is %d, want %d (%v, %v)", o.name, o.level, got, o.want, cerr, err)
		}
	}
}
