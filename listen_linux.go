package main

import (
	"context"
	"net"
	"syscall"
)

// listenTCP listens for clients. One that vanished without a word is found
// after two minutes. The options for that are set on the listener, from which
// its connections inherit them (tcp(7)): set on each, they cost a new
// connection four system calls before its request is read.
func listenTCP(address string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, rc syscall.RawConn) error { return setKeepAlive(rc) }}
	return lc.Listen(context.Background(), "tcp", address)
}
