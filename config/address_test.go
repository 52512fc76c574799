package config

import (
	"net/netip"
	"strings"
	"testing"
)

func TestForbiddenHosts(t *testing.T) {
	t.Parallel()
	for _, host := range []string{
		"169.254.0.0", "169.254.169.254", "169.254.255.255", "169.254.169.254.", "2852039166", "0xa9fea9fe", "0XA9FEA9FE", "0251.0376.0251.0376", "025177524776",
		"169.0xfe.0251.254", "169.16689662", "169.254.43518", "0x000000a9.0xfe.0xa9.0xfe",
		"::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "::169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "fe80::1", "febf::1", "fe80::1%eth0", "FE80::1",
		"fd00:ec2::254", "fd00:0ec2:0:0:0:0:0:254", "metadata.google.internal", "Metadata.Google.Internal.", "metadata", "100.100.100.200", "168.63.129.16", "224.0.0.1", "ff02::1",
	} {
		if forbiddenHost(host) == "" {
			t.Errorf("%s is let through", host)
		}
	}
	for _, host := range []string{
		"127.0.0.1", "localhost", "::1", "10.0.0.1", "169.253.255.255", "169.255.0.0", "192.168.1.1", "2852039165.example", "gpu-1", "a9fea9fe", "0xgg", "fec0::1", "fd00:ec2::253",
		"::ffff:10.0.0.1", "2001:db8::1", "metadata.example", "1.2.3.4.5", "4294967296", "256.1.1.1", "2130706433", "",
	} {
		if why := forbiddenHost(host); why != "" {
			t.Errorf("%s is refused: %s", host, why)
		}
	}
}

func TestLooseIPv4(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"1.2.3.4": "1.2.3.4", "1.2.772": "1.2.3.4", "1.131844": "1.2.3.4", "16909060": "1.2.3.4", "0x01020304": "1.2.3.4", "0100.2.3.4": "64.2.3.4", "0": "0.0.0.0", "4294967295": "255.255.255.255",
	} {
		if got, ok := looseIPv4(in); !ok || got != netip.MustParseAddr(want) {
			t.Errorf("%s: got %s, %v, want %s", in, got, ok, want)
		}
	}
	for _, in := range []string{"", ".", "1.", "1..2", "1.2.3.256", "1.2.65536", "4294967296", "08", "0x", "1.2.3.4.5", "-1", "a"} {
		if got, ok := looseIPv4(in); ok {
			t.Errorf("%q: got %s", in, got)
		}
	}
}

func TestListenAddresses(t *testing.T) {
	t.Parallel()
	for _, in := range []string{":8000", ":0", "127.0.0.1:8000", "localhost:8000", "[::1]:8000", "[::]:80", "[fe80::1%eth0]:80", "unix:///run/r.sock", "host-1.example:65535"} {
		if v, f := parseListen(nil, word(in)); f != nil || v != in {
			t.Errorf("%s: got %v (%v)", in, v, f)
		}
	}
	for _, in := range []string{"", ":", "8000", "h", "h:", "h:-1", "h:65536", "::1:80", "[::1]", "[h]:80", "[::1:80", "[127.0.0.1]:80", "unix://", "unix://x", "unix:///", "unix:///a\n", "tcp://h:1", "a/b:1", "h:1:2", "h :1", ":+1"} {
		if v, f := parseListen(nil, word(in)); f == nil {
			t.Errorf("%q: got %v, want a fault", in, v)
		}
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	for pair, want := range map[string]bool{
		":1 :1": true, ":1 127.0.0.1:1": true, "0.0.0.0:1 [::]:1": true, "localhost:1 127.0.0.1:01": true, "[::1]:1 0.0.0.0:1": true, "unix:///a unix:///a": true,
		":1 :2": false, ":0 :0": false, "10.0.0.1:1 10.0.0.2:1": false, "unix:///a unix:///b": false, "unix:///a :1": false,
	} {
		a, b, _ := strings.Cut(pair, " ")
		if overlap(a, b) != want || overlap(b, a) != want {
			t.Errorf("%s: want %v", pair, want)
		}
	}
}

func TestSameEndpoint(t *testing.T) {
	t.Parallel()
	for pair, want := range map[string]bool{
		"tcp://h:1 tcp://H.:01": true, "tcp://localhost:1 tcp://127.0.0.1:1": true, "tcp://[::1]:1 tcp://127.0.0.2:1": true, "tcp://*:1 tcp://*:1": true, "tcp://[::ffff:10.0.0.1]:1 tcp://10.0.0.1:1": true,
		"tcp://h:1 tcp://h:2": false, "tcp://h:1 tcp://i:1": false, "tcp://*:1 tcp://h:1": false,
	} {
		a, b, _ := strings.Cut(pair, " ")
		if got := sameEndpoint(a) == sameEndpoint(b); got != want || sameEndpoint(a) == "" {
			t.Errorf("%s: got %v", pair, got)
		}
	}
	for _, w := range []string{"auto", "off", ""} {
		if sameEndpoint(w) != "" {
			t.Errorf("%q is no endpoint", w)
		}
	}
}

// Whatever is accepted as an engine's URL has a host that was judged, nothing
// but scheme and host, and reads back unchanged.
func FuzzEngineURL(f *testing.F) {
	for _, s := range []string{"http://h:1", "https://[::1]:8001/", "HTTP://A.b:80", "http://2852039166", "http://h/%2e", "http://a@b", "http:\\\\h", "http://[fe80::1%25lo]:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, fault := parseEngineURL(nil, word(s))
		if fault != nil {
			return
		}
		u := v.(string)
		if again, fault := parseEngineURL(nil, word(u)); fault != nil || again != u {
			t.Fatalf("%q became %q, which becomes %v (%v)", s, u, again, fault)
		}
		_, rest, _ := strings.Cut(u, "://")
		if rest == "" || strings.ContainsAny(rest, "/?#@\\ ") {
			t.Fatalf("%q became %q", s, u)
		}
	})
}
