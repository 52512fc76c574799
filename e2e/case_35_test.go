package e2e

import (
	"net"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// TestCaseC35AmbientProxy: no call to an engine uses a proxy that the
// environment names.
func TestCaseC35AmbientProxy(t *testing.T) {
	t.Parallel()
	proxy := rig.NewEngine(t, "proxy")
	proxy.On(func(x *rig.Exchange) { x.Write(rig.JSONResponse(503, "{}")) })
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	var env []string
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		env = append(env, name+"="+proxy.URL())
	}
	env = append(env, "NO_PROXY=", "no_proxy=")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Env: env, Flags: []string{"--health.interval=100ms"}})
	for i := range 10 {
		if resp := r.Post(t, rig.ChatPath, rig.ChatBody(i%2 == 0)); resp.Status != 200 {
			t.Errorf("answered %d %.200q", resp.Status, resp.Body)
		}
	}
	if n := proxy.AcceptedConns(); n != 0 {
		t.Errorf("%d connections to the ambient proxy", n)
	}
	rig.NeverMoved(t, r, a, b)
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
			e := rig.NewEngineAt(t, "a", net.JoinHostPort(host, "0"), 0)
			_, port, _ := net.SplitHostPort(e.Addr)
			r := rig.StartWith(t, rig.Setup{URLs: []string{"a=http://localhost:" + port}})
			if s := r.EngineState("a"); s != "ready" {
				t.Errorf("the engine is %q", s)
			}
			for i := range 4 {
				if resp := r.Post(t, rig.ChatPath, rig.ChatBody(i%2 == 0)); resp.Status != 200 || resp.Fields.Get("X-Ramjet-Attempts") != "1" {
					t.Errorf("answered %d in %q attempts %.200q", resp.Status, resp.Fields.Get("X-Ramjet-Attempts"), resp.Body)
				}
			}
		})
	}
}
