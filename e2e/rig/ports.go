package rig

import (
	"net/netip"
	"strings"
	"testing"

	"ramjet/e2e/ports"
)

// keepPorts puts kept ports where ZMQ endpoints among flags leave the choice.
func keepPorts(t testing.TB, flags []string) []string {
	t.Helper()
	out := append([]string(nil), flags...)
	for i, f := range out {
		if any, ok := strings.CutSuffix(f, ":0"); ok && strings.Contains(f, "tcp://") {
			out[i] = any + strings.TrimPrefix(ports.Kept(t), "127.0.0.1")
		}
	}
	return out
}

// reserve keeps a port until free is called; where it cannot, it does nothing.
func reserve(addr string) (free func()) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil || !at.Addr().Is4() {
		return func() {}
	}
	_, free, err = ports.Hold(at)
	if err != nil {
		return func() {}
	}
	return free
}
