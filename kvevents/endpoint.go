package kvevents

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Endpoint is where a publisher or its replay socket is met.
type Endpoint struct {
	Network string // tcp or unix
	Address string // host:port, or a path
	// Bind says that we listen and the engine connects: vLLM's publisher connects out when its endpoint names no `*`
	// (vllm/distributed/kv_events.py).
	Bind bool
}

// ParseEndpoint reads a ZeroMQ endpoint: tcp://host:port, tcp://[::1]:port, ipc:///path, or tcp://*:port, which means
// that we bind.
func ParseEndpoint(s string) (Endpoint, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	switch {
	case !ok:
		return Endpoint{}, fmt.Errorf("cannot use endpoint %q: it is not tcp://host:port or ipc:///path", s)
	case scheme == "ipc":
		if rest == "" || rest == "*" {
			return Endpoint{}, fmt.Errorf("cannot use endpoint %q: the path is missing", s)
		}
		return Endpoint{Network: "unix", Address: rest}, nil
	case scheme != "tcp":
		return Endpoint{}, fmt.Errorf("cannot use endpoint %q: %s is neither tcp nor ipc", s, scheme)
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		return Endpoint{}, fmt.Errorf("cannot use endpoint %q: %w", s, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return Endpoint{}, fmt.Errorf("cannot use endpoint %q: %q is no port", s, port)
	}
	switch host {
	case "":
		return Endpoint{}, fmt.Errorf("cannot use endpoint %q: the host is missing", s)
	case "*":
		return Endpoint{Network: "tcp", Address: net.JoinHostPort("", port), Bind: true}, nil
	case "0.0.0.0", "::":
		return Endpoint{Network: "tcp", Address: net.JoinHostPort(host, port), Bind: true}, nil
	}
	return Endpoint{Network: "tcp", Address: net.JoinHostPort(host, port)}, nil
}

// String returns the endpoint as ZeroMQ writes it.
func (e Endpoint) String() string {
	switch {
	case e.Network == "":
		return ""
	case e.Network == "unix":
		return "ipc://" + e.Address
	case strings.HasPrefix(e.Address, ":"):
		return "tcp://*" + e.Address
	}
	return "tcp://" + e.Address
}
