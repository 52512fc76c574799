package rig

import (
	"net"
	"strings"
	"testing"

	"ramjet/e2e/ports"
)

// A kept port refuses until somebody listens there, and is given to nobody.
func TestKeptPorts(t *testing.T) {
	t.Parallel()
	addr := ports.Kept(t)
	for range 2 {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			t.Fatal("nobody listens, yet one connects")
		}
		for _, at := range []string{addr, strings.TrimPrefix(addr, "127.0.0.1")} { // an engine's events are bound to any address
			ln, err := net.Listen("tcp", at)
			if err != nil {
				t.Fatalf("the port cannot be used: %v", err)
			}
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Close(), ln.Close()
		}
	}
	flags := keepPorts(t, []string{"--events", "tcp://*:0", "--replay=tcp://127.0.0.1:0", "--speed=0", "tcp://*:55"})
	if strings.HasSuffix(flags[1], ":0") || !strings.HasPrefix(flags[1], "tcp://*:") || strings.HasSuffix(flags[2], ":0") || flags[3] != "--speed=0" || flags[4] != "tcp://*:55" {
		t.Errorf("the flags are %q", flags)
	}
}
