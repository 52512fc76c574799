package proxy

import (
	"fmt"
	"syscall"
	"testing"
)

// blackHole returns an address at which nobody answers, not even with a
// refusal: a listener whose backlog is full drops what asks for more.
func blackHole(t testing.TB) string {
	t.Helper()
	fd, sa := bound(t)
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		c, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Close(c) })
		_ = syscall.SetNonblock(c, true)
		_ = syscall.Connect(c, sa)
	}
	return hostOf(sa)
}

// closedPort returns an address that refuses, and goes on to: its port is held
// by a socket that does not listen, so that no other test gets it.
func closedPort(t testing.TB) string {
	t.Helper()
	_, sa := bound(t)
	return hostOf(sa)
}

// bound is a socket that holds a port of the loopback address until the end.
func bound(t testing.TB) (fd int, at syscall.Sockaddr) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if at, err = syscall.Getsockname(fd); err != nil {
		t.Fatal(err)
	}
	return fd, at
}

func hostOf(sa syscall.Sockaddr) string {
	return fmt.Sprintf("127.0.0.1:%d", sa.(*syscall.SockaddrInet4).Port)
}
