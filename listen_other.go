//go:build !linux

package main

import (
	"context"
	"net"
	"time"
)

// listenTCP listens for clients. One that vanished without a word is found
// after two minutes.
func listenTCP(address string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4,
	}}
	return lc.Listen(context.Background(), "tcp", address)
}
