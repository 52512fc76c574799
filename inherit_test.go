package main

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"ramjet/telemetry"
)

func TestSameAddress(t *testing.T) {
	t.Parallel()
	tcp := func(ip string, port int) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }
	for _, c := range []struct {
		configured string
		bound      net.Addr
		want       bool
	}{
		{"127.0.0.1:8000", tcp("127.0.0.1", 8000), true},
		{"localhost:8000", tcp("127.0.0.1", 8000), true},
		{":8000", tcp("::", 8000), true},
		{"0.0.0.0:8000", tcp("::", 8000), true},
		{"[::]:8000", tcp("0.0.0.0", 8000), true},
		{"127.0.0.1:8000", tcp("127.0.0.1", 8001), false},
		{"127.0.0.1:8000", tcp("::", 8000), false},
		{":8000", tcp("127.0.0.1", 8000), false},
		{"unix:///run/ramjet.sock", &net.UnixAddr{Name: "/run/ramjet.sock", Net: "unix"}, true},
		{"unix:///run/ramjet.sock", &net.UnixAddr{Name: "/run/other.sock", Net: "unix"}, false},
		{"unix:///run/ramjet.sock", tcp("::", 8000), false},
		{"127.0.0.1:8000", &net.UnixAddr{Name: "127.0.0.1:8000", Net: "unix"}, false},
	} {
		if got := sameAddress(c.configured, c.bound); got != c.want {
			t.Errorf("%s is %v: %v", c.configured, c.bound, got)
		}
	}
}

func TestInheritedTake(t *testing.T) {
	t.Parallel()
	a, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	in := inherited{a}
	if in.take("127.0.0.1:1") != nil || in.take(a.Addr().String()) != a || in.take(a.Addr().String()) != nil || len(in) != 0 {
		t.Error("not taken once")
	}
	_ = a.Close()
}

// TestInheritedUnnamed: a socket that the configuration does not name is named
// in the log, one that was taken is not.
func TestInheritedUnnamed(t *testing.T) {
	t.Parallel()
	var in inherited
	for range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, ln)
	}
	taken, left := in[1], []string{in[0].Addr().String(), in[2].Addr().String()}
	if in.take(taken.Addr().String()) == nil {
		t.Fatal("not taken")
	}
	defer func() { _ = taken.Close() }()
	var out bytes.Buffer
	w := telemetry.NewLogWriter(&out)
	in.tell(telemetry.NewLog(w, telemetry.LevelInfo, telemetry.FormatJSON))
	in.close()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, address := range left {
		if strings.Count(out.String(), address) != 1 {
			t.Errorf("%s is not named once in %s", address, &out)
		}
	}
	if strings.Contains(out.String(), taken.Addr().String()) {
		t.Errorf("%s is named in %s", taken.Addr(), &out)
	}
}
