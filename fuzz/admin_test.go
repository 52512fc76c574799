package fuzz

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"ramjet/engine"
	"ramjet/lease"
	"ramjet/probe"
	"ramjet/proxy"
	"ramjet/radix"
	"ramjet/route"
	"ramjet/telemetry"
	"ramjet/web"
)

const adminToken = "the-canary-token"

// adminPort is a whole admin port with the dry run behind it, over two engines
// that nobody checks and nobody asks.
func adminPort(tb testing.TB) (http.Handler, *probe.Monitor) {
	tb.Helper()
	metrics := telemetry.NewMetrics("1", "go")
	set := &route.Set{}
	var engines []*engine.Engine
	for i, name := range []string{"a", "b"} {
		e := engine.New(engine.Options{Name: name, URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Profile: "mtp", Metrics: metrics.Engine(name)})
		tb.Cleanup(e.Close)
		engines = append(engines, e)
		set.Members = append(set.Members, route.Member{Engine: e, Account: lease.NewAccount("mtp"), Slot: i})
	}
	po := probe.Defaults()
	po.Metrics = metrics
	monitor := probe.New(po, engines)
	ring := route.NewRing(10)
	server, err := proxy.New(proxy.Options{
		Router:    route.New(lease.NewBook(func() {}), radix.NewIndex(), radix.NewMemory(), route.Settings{Policy: route.PolicyLatency, Profile: route.ProfileRule}, set),
		Decisions: ring, Metrics: metrics, Outcomes: monitor,
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(server.Close)
	s := web.New(web.Options{
		Version: "1", Engines: engines, Monitor: monitor, Metrics: metrics, Decisions: ring, Explain: server.Explain,
		Config: func() any { return map[string]any{"admin": "set"} }, Token: adminToken, Loopback: true,
	})
	return s.Handler(), monitor
}

// mutates says which paths change something: they need POST and the token.
func mutates(path string) bool {
	return strings.HasPrefix(path, "/api/v1/engines/") || path == "/-/reload"
}

// FuzzAdmin: whatever comes to the admin port is answered, in JSON where it is
// an error of ours; nothing changes without POST, the token, this listener's
// name and no foreign origin; the token never comes back.
func FuzzAdmin(f *testing.F) {
	type seed struct{ method, target, host, origin, auth, body string }
	for _, s := range []seed{
		{"GET", "/", "127.0.0.1:9900", "", "", ""}, {"GET", "/api/v1/topology", "localhost", "", "", ""}, {"GET", "/api/v1/requests?limit=3&engine=a&reason=x&end=done", "[::1]:1", "", "", ""},
		{"GET", "/api/v1/requests?limit=-1", "127.0.0.1", "", "", ""}, {"GET", "/api/v1/explain/abc", "127.0.0.1", "http://127.0.0.1", "", ""},
		{"POST", "/api/v1/explain?path=/v1/completions", "127.0.0.1", "", "", `{"prompt":"x","max_tokens":3}`}, {"POST", "/api/v1/explain", "127.0.0.1", "", "", `{"messages":[`},
		{"POST", "/api/v1/explain?path=/sleep", "127.0.0.1", "", "", "{}"}, {"POST", "/api/v1/engines/a/drain", "127.0.0.1", "", "Bearer " + adminToken, ""},
		{"GET", "/api/v1/engines/a/drain", "127.0.0.1", "", "Bearer " + adminToken, ""}, {"POST", "/api/v1/engines/a/eject", "127.0.0.1", "http://evil.example", "Bearer " + adminToken, ""},
		{"POST", "/api/v1/engines/%00/ready", "127.0.0.1", "", "Bearer " + adminToken, ""}, {"POST", "/api/v1/engines/b/drain", "127.0.0.1", "", "Bearer", ""}, {"POST", "/-/reload", "evil.example", "", "", ""},
		{"GET", "/metrics", "127.0.0.1", "", "", ""}, {"OPTIONS", "/readyz", "127.0.0.1", "null", "", ""}, {"GET", "/debug/pprof/cmdline", "127.0.0.1", "", "", ""}, {"HEAD", "/../livez", "a.b", "", "", ""},
	} {
		f.Add(s.method, s.target, s.host, s.origin, s.auth, []byte(s.body))
	}
	handler, monitor := adminPort(f)
	f.Fuzz(func(t *testing.T, method, target, host, origin, auth string, body []byte) {
		u, err := url.ParseRequestURI(target)
		if err != nil || strings.Contains(target, "pprof") { // a profile takes as long as it is asked to
			return
		}
		if auth != "" && auth != "Bearer "+adminToken {
			auth = "Bearer" // a wrong token is answered late; its delay is tested in web
		}
		r := &http.Request{Method: method, URL: u, RequestURI: target, Host: host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{}, Body: http.NoBody, RemoteAddr: "127.0.0.1:1"}
		if len(body) > 0 {
			r = r.Clone(t.Context())
			r.Body = readCloser{bytes.NewReader(body)}
		}
		for name, value := range map[string]string{"Origin": origin, "Authorization": auth} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		before := len(monitor.Transitions())
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		judgeAdmin(t, r, w, len(monitor.Transitions()) != before, body)
	})
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

func judgeAdmin(t *testing.T, r *http.Request, w *httptest.ResponseRecorder, changed bool, body []byte) {
	t.Helper()
	answer := w.Body.Bytes()
	given := r.Header.Get("Authorization") == "Bearer "+adminToken
	foreign := r.Header.Get("Origin") != "" && !strings.EqualFold(strings.TrimPrefix(strings.TrimPrefix(r.Header.Get("Origin"), "http://"), "https://"), r.Host)
	switch {
	case changed && (r.Method != http.MethodPost || !given || foreign || !mutates(r.URL.Path)):
		t.Fatalf("%s %q from %q with %q changed something", r.Method, r.RequestURI, r.Header.Get("Origin"), r.Header.Get("Authorization"))
	case bytes.Contains(answer, []byte(adminToken)) && !strings.Contains(r.RequestURI+r.Host+string(body), adminToken):
		t.Fatalf("the token is in the answer: %q", answer)
	case slices.ContainsFunc(w.Header()["Location"], func(l string) bool { return strings.HasPrefix(l, "//") || strings.Contains(l, "://") }):
		t.Fatalf("%q redirects to %q", r.RequestURI, w.Header()["Location"])
	case w.Code < 400 || r.Method == http.MethodHead || w.Code == http.StatusServiceUnavailable:
		return
	}
	var e struct {
		Error *struct{ Message, Type, Code string }
	}
	if err := json.Unmarshal(answer, &e); err != nil || e.Error == nil || e.Error.Message == "" || e.Error.Code == "" {
		t.Fatalf("%s %q: status %d with %q", r.Method, r.RequestURI, w.Code, answer)
	}
}
