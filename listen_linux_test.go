package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
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

// TestListenOnLeavesLiveSockets: only a refusal tells that a socket file was
// left behind. One whose backlog is full has somebody behind it.
func TestListenOnLeavesLiveSockets(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "socket")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		var c net.Conn
		if c, err = net.Dial("unix", path); err == nil {
			defer func() { _ = c.Close() }()
		}
	}
	if !errors.Is(err, syscall.EAGAIN) {
		t.Fatalf("the backlog is not full: %v", err)
	}
	if ln, err := listenOn("unix://" + path); err == nil || !errors.Is(err, syscall.EADDRINUSE) {
		if ln != nil {
			_ = ln.Close()
		}
		t.Errorf("%v, want that the address is in use", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket of another is gone: %v", err)
	}

	left := filepath.Join(t.TempDir(), "left")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: left, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	_ = ln.Close()
	again, err := listenOn("unix://" + left)
	if err != nil {
		t.Fatalf("a file left behind: %v", err)
	}
	_ = again.Close()
}
