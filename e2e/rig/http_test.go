package rig

import (
	"testing"
)

func TestParseHead(t *testing.T) {
	good := "POST /x HTTP/1.1\r\nHost: a\r\nX-Y:\t b \r\n\r\n"
	m, ok, err := parseHead([]byte(good + "rest"))
	if err != nil || !ok || m.size != len(good) || m.fields.Get("x-y") != "b" || m.start != "POST /x HTTP/1.1" {
		t.Errorf("good head: %+v %v %v", m, ok, err)
	}
	for cut := range good {
		if _, ok, err := parseHead([]byte(good[:cut])); ok || err != nil {
			t.Fatalf("cut at %d: ok %v, error %v", cut, ok, err)
		}
	}
	for _, bad := range []string{"A / HTTP/1.1\nHost: a\r\n\r\n", "A / HTTP/1.1\r\nHost : a\r\n\r\n",
		"A / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", "A / HTTP/1.1\r\nX: a\x00\r\n\r\n", "A / HTTP/1.1\r\n: a\r\n\r\n",
		"A / HTTP/1.1\r\nX: a\rb\r\n\r\n"} {
		if _, _, err := parseHead([]byte(bad)); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
	for _, bad := range []Fields{{{"Content-Length", "+3"}}, {{"Content-Length", "3"}, {"content-length", "3"}},
		{{"Content-Length", "3"}, {"Transfer-Encoding", "chunked"}}, {{"Transfer-Encoding", "xchunked"}}, {{"Content-Length", ""}}} {
		if kind, n, err := bad.framing(); err == nil {
			t.Errorf("framing of %q accepted as %s %d", bad, kind, n)
		}
	}
}
