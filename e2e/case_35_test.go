package e2e

import (
	"net"
	"strings"
	"testing"
)

// TestCaseC35AmbientProxy: no call to an engine uses a proxy that the
// environment names.
func TestCaseC35AmbientProxy(t *testing.T) {
	t.Parallel()
	proxy := newEngine(t, "proxy")
	proxy.on(func(x *exchange) { x.write(jsonResponse(503, "{}")) })
	a, b := newEngine(t, "a"), newEngine(t, "b")
	var env []string
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		env = append(env, name+"="+proxy.url())
	}
	env = append(env, "NO_PROXY=", "no_proxy=")
	r := startWith(t, setup{engines: []*engine{a, b}, env: env, flags: []string{"--health.interval=100ms"}})
	for i := range 10 {
		if resp := r.post(t, chatPath, chatBody(i%2 == 0)); resp.status != 200 {
			t.Errorf("answered %d %.200q", resp.status, resp.body)
		}
	}
	if n := proxy.acceptedConns(); n != 0 {
		t.Errorf("%d connections to the ambient proxy", n)
	}
	neverMoved(t, r, a, b)
}

// TestCaseC35Loopback: `localhost` may mean ::1 first while the engine listens
// on 127.0.0.1 only, or the reverse; probe and traffic find it either way.
func TestCaseC35Loopback(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"127.0.0.1", "::1"} {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Logf("no %s on this machine: %v", host, err)
			continue
		}
		_ = ln.Close()
		if ips, err := net.LookupHost("localhost"); err != nil || !strings.Contains(strings.Join(ips, " "), host) {
			t.Logf("localhost is %v (%v) here: %s cannot be reached by name", ips, err, host)
			continue
		}
		t.Run(host, func(t *testing.T) {
			e := newEngineAt(t, "a", net.JoinHostPort(host, "0"), 0)
			_, port, _ := net.SplitHostPort(e.addr)
			r := startWith(t, setup{urls: []string{"a=http://localhost:" + port}})
			if s := r.engineState("a"); s != "ready" {
				t.Errorf("the engine is %q", s)
			}
			for i := range 4 {
				if resp := r.post(t, chatPath, chatBody(i%2 == 0)); resp.status != 200 || resp.fields.get("X-Ramjet-Attempts") != "1" {
					t.Errorf("answered %d in %q attempts %.200q", resp.status, resp.fields.get("X-Ramjet-Attempts"), resp.body)
				}
			}
		})
	}
}
