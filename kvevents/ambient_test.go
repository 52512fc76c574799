package kvevents

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// machineAddress is an address of this machine that is not a loopback one if there is any: clients of HTTP use no proxy
// for loopback addresses, whatever the environment says, so that these alone would show little.
func machineAddress() string {
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}

// listenUntilEnd accepts connections until the test ends and hands them to serve, which owns them.
func listenUntilEnd(t *testing.T, host string, serve func(net.Conn)) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			serve(conn)
		}
	})
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return ln.Addr().String()
}

// Case C35: the connections for events and for replays go straight to the engine, whatever proxy the environment names.
// Not parallel: the environment belongs to the process.
func TestCaseC35FeedsIgnoreProxies(t *testing.T) {
	var proxied atomic.Int64
	proxy := "http://" + listenUntilEnd(t, "127.0.0.1", func(c net.Conn) {
		proxied.Add(1)
		_ = c.Close()
	})
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "SOCKS_PROXY", "socks_proxy"} {
		t.Setenv(name, proxy)
	}
	t.Setenv("NO_PROXY", "")
	t.Setenv("no_proxy", "")
	e := &fakeEngine{topic: "kv"}
	e.publish(stored(0)) // before anybody listens: only the replay knows it
	host := machineAddress()
	events := listenUntilEnd(t, host, func(c net.Conn) {
		e.set(func() { e.subs = append(e.subs, newPeer(c, "PUB", 1, e.subscribed)) })
	})
	replays := listenUntilEnd(t, host, func(c net.Conn) {
		e.set(func() { e.routers = append(e.routers, newPeer(c, "ROUTER", 1, e.replay)) })
	})
	r := follow(t, e, func(o *Options) {
		o.Dial = nil // the feed's own
		o.Events, o.Replay = Endpoint{Network: "tcp", Address: events}, Endpoint{Network: "tcp", Address: replays}
	})
	for until := time.Now().Add(time.Minute); time.Now().Before(until) && r.store.equal([]uint64{0}) != ""; {
		time.Sleep(5 * time.Millisecond)
	}
	e.publish(stored(1))
	for until := time.Now().Add(time.Minute); time.Now().Before(until) && r.store.equal([]uint64{0, 1}) != ""; {
		time.Sleep(5 * time.Millisecond)
	}
	r.holds(0, 1)
	r.is(exact, "")
	if s := r.Stats(); s.Replayed != 1 || s.Batches != 1 {
		t.Errorf("%d replayed, %d live", s.Replayed, s.Batches)
	}
	if n := proxied.Load(); n != 0 {
		t.Errorf("%d connections to the proxy of the environment", n)
	}
}
