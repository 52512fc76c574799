package proxy

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// departures are the ways in which a client leaves.
var departures = []struct {
	name  string
	leave func(nc net.Conn)
	also  []telemetry.End // of requests that it sent before
}{
	{"FIN", func(nc net.Conn) { _ = nc.Close() }, nil},
	{"RST", func(nc net.Conn) {
		nc = socketOf(nc)
		if tc, ok := nc.(*net.TCPConn); ok {
			_ = tc.SetLinger(0)
		}
		_ = nc.Close()
	}, nil},
	{"half-close", func(nc net.Conn) {
		_ = socketOf(nc).(interface{ CloseWrite() error }).CloseWrite()
	}, nil},
	{"pipelined requests, then FIN", func(nc net.Conn) {
		_, _ = nc.Write([]byte(post(chatPath, chatBody) + post(chatPath, chatSBody) + post(chatPath, chatBody)[:20]))
		_ = nc.Close()
	}, []telemetry.End{telemetry.EndClientGoneWaiting, telemetry.EndClientGoneWaiting}},
}

// socketOf returns what lies under TLS: its own half-close, an alert without a
// FIN, is a byte like others and cannot be told from a pipelined request.
func socketOf(nc net.Conn) net.Conn {
	if tc, ok := nc.(*tls.Conn); ok {
		return tc.NetConn()
	}
	return nc
}

// situations are what a request may wait for when its client leaves. The
// engine says on reached that it came so far.
var situations = []struct {
	name   string
	body   string
	script func(reached chan<- struct{}) script
	end    telemetry.End
}{
	{"head", chatBody, func(reached chan<- struct{}) script {
		return func(x *exchange) {
			reached <- struct{}{}
			x.gone()
		}
	}, telemetry.EndClientGoneWaiting},
	{"first event", chatSBody, func(reached chan<- struct{}) script {
		return func(x *exchange) {
			x.write(streamHead)
			reached <- struct{}{}
			x.gone()
		}
	}, telemetry.EndClientGoneWaiting},
	{"next event", chatSBody, func(reached chan<- struct{}) script {
		return func(x *exchange) {
			x.write(streamHead, chunk(roleEvent), chunk(tokenEvent))
			reached <- struct{}{}
			x.gone()
		}
	}, telemetry.EndClientGoneStreaming},
	{"rest of a plain answer", chatBody, func(reached chan<- struct{}) script {
		return func(x *exchange) {
			x.write(plainAnswer[:len(plainAnswer)-10])
			reached <- struct{}{}
			x.gone()
		}
	}, telemetry.EndClientGoneWaiting},
}

// TestDeparture: a client that leaves ends its engine's work at once, whatever
// the request waits for, however the client leaves and is connected.
func TestDeparture(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"tcp", "tls", "unix"} {
		for _, s := range situations {
			for _, d := range departures {
				t.Run(transport+"/"+s.name+"/"+d.name, func(t *testing.T) {
					t.Parallel()
					reached := make(chan struct{}, 2)
					f, dial := startOn(t, transport, []script{s.script(reached)})
					nc := dial()
					c := newClient(t, nc)
					c.send(post(chatPath, s.body))
					<-reached
					if s.end == telemetry.EndClientGoneStreaming {
						resp := c.head("POST")
						c.event(resp)
						c.event(resp)
					} else if s.name == "first event" {
						c.head("POST")
					}
					d.leave(nc)
					r := f.ends(append([]telemetry.End{s.end}, d.also...)...)[0]
					if r.Status != 499 {
						t.Errorf("status %d, want 499", r.Status)
					}
					f.outcomes(verdictOn{"a", engine.OutcomeNeutral})
				})
			}
		}
	}
}

// startOn starts a server on a kind of transport and returns how to reach it.
func startOn(t *testing.T, transport string, scripts []script, tweaks ...func(*setup)) (*fixture, func() net.Conn) {
	t.Helper()
	network := "tcp"
	var client *tls.Config
	switch transport {
	case "unix":
		network = "unix"
		ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		tweaks = append(tweaks, func(s *setup) { s.listener = ln })
	case "tls":
		cert := makeCert(t, "first")
		client = &tls.Config{RootCAs: cert.pool, ServerName: "localhost"}
		tweaks = append(tweaks, func(s *setup) { s.TLS = &tls.Config{Certificates: []tls.Certificate{cert.pair}} })
	}
	f := start(t, scripts, tweaks...)
	return f, func() net.Conn {
		nc, err := net.Dial(network, f.addr)
		if err == nil && client != nil {
			nc = tls.Client(nc, client)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		return nc
	}
}

// TestDepartureWhileDialling: the dial is given up too.
func TestDepartureWhileDialling(t *testing.T) {
	t.Parallel()
	hole := blackHole(t)
	f := start(t, []script{streaming}, func(s *setup) {
		s.engine = func(_ int, o *engine.Options) { o.URL.Host, o.Dial = hole, time.Minute }
	})
	for range 3 {
		c := f.dial()
		c.send(post(chatPath, chatBody))
		eventually(t, "the dial", func() bool { return f.members[0].Flights() == 1 })
		c.close()
		f.checkIdle()
	}
	for _, r := range f.ends(telemetry.EndClientGoneWaiting, telemetry.EndClientGoneWaiting, telemetry.EndClientGoneWaiting) {
		if r.Status != 499 {
			t.Errorf("status %d, want 499", r.Status)
		}
	}
}

// TestLeavingBetweenRequests is no event: no record, no attempt.
func TestLeavingBetweenRequests(t *testing.T) {
	t.Parallel()
	f := start(t, []script{streaming})
	for _, d := range departures[:3] {
		for _, sent := range []string{"", post(chatPath, chatSBody)} {
			c := f.dial()
			if sent != "" {
				c.send(sent)
				c.receive()
			}
			d.leave(c.nc)
			if d.name == "half-close" {
				c.closed()
			}
		}
	}
	f.ends(telemetry.EndDone, telemetry.EndDone, telemetry.EndDone)
	eventually(t, "connections to end", func() bool { return f.srv.connections() == 0 })
}

// TestDepartureInsideTheBody is a request that never was.
func TestDepartureInsideTheBody(t *testing.T) {
	t.Parallel()
	f := start(t, []script{streaming})
	for _, request := range []string{
		strings.TrimSuffix(post(chatPath, chatBody), "hi\"}]}"),
		"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
	} {
		c := f.dial()
		c.send(request)
		time.Sleep(5 * time.Millisecond)
		c.close()
	}
	for _, r := range f.ends(telemetry.EndClientGoneWaiting, telemetry.EndClientGoneWaiting) {
		if r.Status != 499 || r.Attempts != 0 {
			t.Errorf("status %d, %d attempts", r.Status, r.Attempts)
		}
	}
	if n := len(f.engines[0].got()); n != 0 {
		t.Errorf("%d requests reached the engine", n)
	}
}
