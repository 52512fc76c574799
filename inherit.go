package main

import (
	"net"
	"slices"
	"strings"

	"ramjet/telemetry"
)

// inherited are listening sockets that somebody else opened and keeps open.
type inherited []net.Listener

// take removes and returns the socket that is bound to address, nil if none is.
func (in *inherited) take(address string) net.Listener {
	for i, ln := range *in {
		if sameAddress(address, ln.Addr()) {
			*in = slices.Delete(*in, i, i+1)
			return ln
		}
	}
	return nil
}

// tell names the sockets that nobody took: who configured a supervisor with an
// address, and Ramjet with another, must find out why nobody answers there.
func (in inherited) tell(log *telemetry.Log) {
	for _, ln := range in {
		log.Warn("an inherited socket is closed, as neither listen nor admin.listen names its address", "address", ln.Addr().String())
	}
}

func (in inherited) close() {
	for _, ln := range in {
		_ = ln.Close()
	}
}

// sameAddress reports whether a configured address names what a socket is
// bound to. Every way to write "all addresses" is the same.
func sameAddress(configured string, bound net.Addr) bool {
	if path, isUnix := strings.CutPrefix(configured, "unix://"); isUnix {
		return bound.Network() == "unix" && bound.String() == path
	}
	tcp, ok := bound.(*net.TCPAddr)
	if !ok {
		return false
	}
	want, err := net.ResolveTCPAddr("tcp", configured)
	if err != nil || want.Port != tcp.Port {
		return false
	}
	everywhere := func(ip net.IP) bool { return len(ip) == 0 || ip.IsUnspecified() }
	return want.IP.Equal(tcp.IP) || everywhere(want.IP) && everywhere(tcp.IP)
}
