package faults

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// adminAsk sends a request to the admin port; headers are name, value pairs, Host
// among them.
func adminAsk(r *rig.Ramjet, method, path string, headers ...string) (status int, body string) {
	r.T.Helper()
	req, err := http.NewRequest(method, "http://"+r.Admin+path, http.NoBody)
	if err != nil {
		r.T.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := rig.AdminClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	var b strings.Builder
	_, _ = fmt.Fprint(&b, resp.Header.Get("Allow"), " ")
	buf := make([]byte, 64<<10)
	n, _ := resp.Body.Read(buf)
	b.Write(buf[:n])
	return resp.StatusCode, b.String()
}

// adminPaths change something or show what only an operator may see.
var adminPaths = []string{"POST /api/v1/engines/a/drain", "POST /api/v1/engines/a/ready", "POST /api/v1/engines/a/eject", "POST /-/reload",
	"GET /debug/pprof/", "GET /debug/pprof/heap", "GET /debug/pprof/cmdline", "POST /debug/pprof/symbol"}

// TestB7Row44AdminOnLoopback: pages of other origins, names of other hosts and
// readers' methods change nothing, and the public port has nothing of it.
func TestB7Row44AdminOnLoopback(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	for _, c := range []struct {
		method, path string
		headers      []string
		status       int
		says         string
	}{
		{"POST", "/api/v1/engines/a/drain", []string{"Origin", "http://evil.example"}, 403, "another origin"},
		{"POST", "/api/v1/engines/a/drain", []string{"Origin", "null"}, 403, "another origin"},
		{"POST", "/api/v1/engines/a/drain", []string{"Sec-Fetch-Site", "cross-site"}, 403, "another origin"},
		{"POST", "/api/v1/engines/a/drain", []string{"Host", "evil.example"}, 421, "does not answer for host"},
		{"GET", "/api/v1/topology", []string{"Host", "evil.example:" + port(r.Admin)}, 421, "does not answer for host"},
		{"GET", "/api/v1/config", []string{"Origin", "http://evil.example"}, 403, "another origin"},
		{"GET", "/api/v1/engines/a/drain", nil, 405, "POST"},
		{"GET", "/-/reload", nil, 405, "POST"},
		{"PUT", "/-/reload", nil, 405, "POST"},
		{"DELETE", "/metrics", nil, 405, "GET"},
		{"POST", "/api/v1/engines/zz/drain", nil, 404, "no engine"},
	} {
		if status, body := adminAsk(r, c.method, c.path, c.headers...); status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s %s %q: %d %.300s, want %d", c.method, c.path, c.headers, status, body, c.status)
		}
	}
	if state := r.EngineState("a"); state != "ready" {
		t.Errorf("a refused order left a %s", state)
	}
	for _, p := range append([]string{"GET /api/v1/topology", "GET /api/v1/config", "GET /api/v1/stream", "GET /metrics", "GET /readyz"}, adminPaths...) {
		method, path, _ := strings.Cut(p, " ")
		if answer := r.Do(t, rig.Request(method, path, r.ID("public"), "")); answer.Status != 404 && answer.Status != 405 {
			t.Errorf("%s on the public port: %d %.200q", p, answer.Status, answer.Body)
		}
	}
	for _, e := range []*rig.Engine{a, b} {
		for _, x := range e.ByIDPrefix("public") {
			t.Errorf("engine %s got %s", e.Name, x.Target)
		}
	}
}

// startClosed runs Ramjet with an admin port that other machines reach. The
// harness does not count its goroutines: that is among what is closed.
func startClosed(t *testing.T, a, b *rig.Engine, flags ...string) *rig.Ramjet {
	t.Helper()
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Flags: append(flags, "--admin=0.0.0.0:0"), NotReady: true})
	r.AwaitReady()
	return r
}

// TestB7Row44AdminOffLoopback: on an address that others reach, what changes
// something is closed until a token is set.
func TestB7Row44AdminOffLoopback(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := startClosed(t, a, b)
	for _, p := range adminPaths {
		method, path, _ := strings.Cut(p, " ")
		for _, headers := range [][]string{nil, {"Authorization", "Bearer x"}, {"Authorization", "Bearer "}} {
			if status, body := adminAsk(r, method, path, headers...); status != 403 || !strings.Contains(body, "admin.token_file") {
				t.Errorf("%s %q: %d %.200s", p, headers, status, body)
			}
		}
	}
	for _, path := range []string{"/", "/livez", "/readyz", "/metrics", "/api/v1/topology", "/api/v1/config", "/api/v1/requests"} {
		if status, body := adminAsk(r, "GET", path); status != 200 {
			t.Errorf("%s: %d %.200s", path, status, body)
		}
	}
	if state := r.EngineState("a"); state != "ready" {
		t.Errorf("a refused order left a %s", state)
	}
}

// TestB7Row44AdminToken: the token admits, guessing it is slow and holds
// nothing up, and it is shown nowhere.
func TestB7Row44AdminToken(t *testing.T) {
	t.Parallel()
	const token = "canary-5e2d-token"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := startClosed(t, a, b, "--admin.token-file="+file)
	right := []string{"Authorization", "Bearer " + token}
	for _, p := range adminPaths {
		method, path, _ := strings.Cut(p, " ")
		if status, body := adminAsk(r, method, path); status != 401 {
			t.Errorf("%s without a token: %d %.200s", p, status, body)
		}
	}
	if state := r.EngineState("a"); state != "ready" {
		t.Errorf("a refused order left a %s", state)
	}
	if status, body := adminAsk(r, "POST", "/api/v1/engines/a/drain", right...); status != 200 || !strings.Contains(body, "draining") {
		t.Errorf("the right token: %d %s", status, body)
	}
	if status, body := adminAsk(r, "POST", "/api/v1/engines/a/ready", right...); status != 200 {
		t.Errorf("the right token: %d %s", status, body)
	}
	if status, _ := adminAsk(r, "GET", "/debug/pprof/cmdline", right...); status != 200 {
		t.Errorf("profiles with the right token: %d", status)
	}
	if status, _ := adminAsk(r, "POST", "/api/v1/engines/a/drain", append(right, "Origin", "http://evil.example")...); status != 403 {
		t.Errorf("the right token from a foreign page: %d", status)
	}

	// A hundred guesses at once: late or refused, and the right one is not kept.
	from := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	count := map[int]int{}
	for i := range 100 {
		wg.Go(func() {
			status, _ := adminAsk(r, "POST", "/api/v1/engines/a/drain", "Authorization", fmt.Sprint("Bearer guess-", i))
			if d := time.Since(from); status == 401 && d < 400*time.Millisecond {
				t.Errorf("a wrong token was answered after %s", d)
			}
			mu.Lock()
			defer mu.Unlock()
			count[status]++
		})
	}
	wg.Go(func() {
		if status, body := adminAsk(r, "POST", "/api/v1/engines/a/ready", right...); status != 200 {
			t.Errorf("the right token among guesses: %d %s", status, body)
		}
	})
	wg.Wait()
	if count[401] == 0 || count[401]+count[429] != 100 {
		t.Errorf("guesses were answered %v", count)
	}

	for _, path := range []string{"/api/v1/config", "/api/v1/topology", "/metrics", "/"} {
		if _, body := r.AdminGet(path); strings.Contains(body, token) {
			t.Errorf("%s shows the token", path)
		}
	}
	r.Stop() // so that the log has all lines
	if strings.Contains(r.Out.String(), token) || strings.Contains(r.Out.String(), "guess-") {
		t.Error("the log shows a token")
	}
}

func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }
