// Package ports keeps TCP ports of this machine for processes that tests start.
//
// A port that nobody listens on belongs to whoever binds next, and dozens of
// processes do. What is bound here and does not listen keeps it: whoever connects
// is refused, and a listener that sets SO_REUSEADDR too, as Go's, libzmq's and
// uvicorn's do, is not hindered. Only Linux allows both at once.
package ports

import (
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"syscall"
	"testing"
)

// Kept is an address of this machine for a process that is still to come, or
// that will end and come back: nobody else is given its port until the test ends.
func Kept(t testing.TB) string {
	t.Helper()
	port, free, err := Hold(netip.AddrPortFrom(netip.IPv4Unspecified(), 0))
	if err != nil {
		t.Fatalf("cannot find a free port: %v", err)
	}
	if runtime.GOOS == "linux" {
		t.Cleanup(free)
	} else {
		free()
	}
	return fmt.Sprint("127.0.0.1:", port)
}

// Hold binds a socket of at that does not listen, to any port if that is 0, and
// returns the port. It is held until free is called.
func Hold(at netip.AddrPort) (port string, free func(), err error) {
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return "", nil, fmt.Errorf("cannot make a socket: %w", err)
	}
	free = func() { _ = syscall.Close(fd) }
	defer func() {
		if err != nil {
			free()
		}
	}()
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return "", nil, fmt.Errorf("cannot share an address: %w", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		return "", nil, fmt.Errorf("cannot bind %s: %w", at, err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return "", nil, fmt.Errorf("cannot read an address: %w", err)
	}
	return strconv.Itoa(name.(*syscall.SockaddrInet4).Port), free, nil
}
