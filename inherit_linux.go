package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
)

// firstInherited is the first descriptor that a supervisor hands over
// (sd_listen_fds(3)).
const firstInherited = 3

// inheritSockets takes the listening sockets that a supervisor such as systemd
// has opened for this process: LISTEN_FDS of them, meant for the process
// LISTEN_PID. They outlive this process, so that an upgrade refuses nobody: who
// connects between two processes waits in the socket's queue.
func inheritSockets() (inherited, error) {
	pid, n := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		_ = os.Unsetenv(name) // not for our children
	}
	count, _ := strconv.Atoi(n)
	if pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	var all inherited
	for fd := firstInherited; fd < firstInherited+count; fd++ {
		f := os.NewFile(uintptr(fd), "LISTEN_FD_"+strconv.Itoa(fd))
		ln, err := net.FileListener(f)
		_ = f.Close()
		if err == nil {
			err = keepAlive(ln)
		}
		if err != nil {
			all.close()
			return nil, fmt.Errorf("cannot use the inherited socket %d: %w", fd, err)
		}
		all = append(all, ln)
	}
	return all, nil
}

// keepAlive sets on an inherited socket what listenTCP sets on its own.
func keepAlive(ln net.Listener) error {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return nil
	}
	rc, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	return setKeepAlive(rc)
}

func setKeepAlive(rc syscall.RawConn) error {
	var set error
	err := rc.Control(func(fd uintptr) {
		for _, o := range [...]struct{ level, name, value int }{
			{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 60},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 15},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 4},
		} {
			set = errors.Join(set, syscall.SetsockoptInt(int(fd), o.level, o.name, o.value))
		}
	})
	return errors.Join(err, set)
}
