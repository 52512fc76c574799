package web

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/probe"
	"ramjet/telemetry"
)

// rig is a server over two engines that nobody checks.
type rig struct {
	*Server
	engines []*engine.Engine
	monitor *probe.Monitor
}

func newRig(t *testing.T, change func(o *Options)) *rig {
	t.Helper()
	var engines []*engine.Engine
	for _, name := range []string{"a", "b"} {
		u, err := url.Parse("http://127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		engines = append(engines, engine.New(engine.Options{Name: name, URL: u, Profile: "mtp"}))
	}
	po := probe.Defaults()
	po.Metrics = telemetry.NewMetrics("1.0", "go")
	m := probe.New(po, engines)
	o := Options{Version: "1.0", Policy: "latency", Engines: engines, Monitor: m, Metrics: po.Metrics, Loopback: true}
	if change != nil {
		change(&o)
	}
	s := New(o)
	s.delay = 30 * time.Millisecond
	return &rig{Server: s, engines: engines, monitor: m}
}

// ask sends one request; headers are name, value pairs, Host among them.
func (r *rig) ask(method, path string, headers ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, "http://127.0.0.1:9900"+path, http.NoBody)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, req)
	return w
}

type errorBody struct {
	Error *struct {
		Message string
		Type    string
		Param   *string
		Code    string
	}
}

// typeOf is the type of an error by its status.
func typeOf(status int) string {
	words := map[int]string{401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
	switch {
	case words[status] != "":
		return words[status]
	case status >= 500:
		return "server_error"
	}
	return "invalid_request_error"
}

// wantError demands a status and an error in the OpenAI shape.
func wantError(t *testing.T, w *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	var e errorBody
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Error == nil {
		t.Fatalf("status %d, body %q: %v", w.Code, w.Body, err)
	}
	if w.Code != status || e.Error.Code != code || e.Error.Message == "" || e.Error.Type != typeOf(status) ||
		!strings.Contains(w.Body.String(), `"param":null`) || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("status %d %s, want %d %s", w.Code, w.Body, status, code)
	}
}

// TestWhoMayAsk is row 44 of the fault table.
func TestWhoMayAsk(t *testing.T) {
	t.Parallel()
	const drain, reload, pprof = "/api/v1/engines/a/drain", "/-/reload", "/debug/pprof/"
	local := func(*Options) {}
	open := func(o *Options) { o.Loopback = false }
	token := func(o *Options) { o.Loopback = false; o.Token = "s3cret" }
	localToken := func(o *Options) { o.Token = "s3cret" }
	for _, c := range []struct {
		name         string
		options      func(o *Options)
		method, path string
		headers      []string
		status       int
		code         string
	}{
		{"own address", local, "GET", "/livez", nil, 200, ""},
		{"localhost", local, "GET", "/livez", []string{"Host", "localhost:9900"}, 200, ""},
		{"LOCALHOST.", local, "GET", "/livez", []string{"Host", "LOCALHOST.:9900"}, 200, ""},
		{"v6 loopback", local, "GET", "/livez", []string{"Host", "[::1]:9900"}, 200, ""},
		{"v6 loopback, no port", local, "GET", "/livez", []string{"Host", "[::1]"}, 200, ""},
		{"foreign host", local, "GET", "/livez", []string{"Host", "evil.example"}, 421, "invalid_request"},
		{"foreign host that begins well", local, "GET", "/metrics", []string{"Host", "localhost.evil.example"}, 421, "invalid_request"},
		{"foreign single name", local, "GET", "/metrics", []string{"Host", "evil"}, 421, "invalid_request"},
		{"foreign address", local, "GET", "/metrics", []string{"Host", "192.0.2.1:9900"}, 421, "invalid_request"},
		{"no host", local, "GET", "/metrics", []string{"Host", ""}, 421, "invalid_request"},
		{"foreign host, mutation", local, "POST", drain, []string{"Host", "evil.example"}, 421, "invalid_request"},
		{"container's name", open, "GET", "/metrics", []string{"Host", "ramjet:9900"}, 200, ""},
		{"address", open, "GET", "/metrics", []string{"Host", "192.0.2.1:9900"}, 200, ""},
		{"other name", open, "GET", "/metrics", []string{"Host", "evil.example"}, 421, "invalid_request"},
		{"other name with the token", token, "GET", "/metrics", []string{"Host", "ramjet.svc.local", "Authorization", "Bearer s3cret"}, 200, ""},

		{"own origin", local, "POST", drain, []string{"Origin", "http://127.0.0.1:9900"}, 200, ""},
		{"foreign origin", local, "POST", drain, []string{"Origin", "http://evil.example"}, 403, "invalid_request"},
		{"foreign port", local, "POST", drain, []string{"Origin", "http://127.0.0.1:9901"}, 403, "invalid_request"},
		{"null origin", local, "POST", drain, []string{"Origin", "null"}, 403, "invalid_request"},
		{"empty origin", local, "POST", drain, []string{"Origin", ""}, 403, "invalid_request"},
		{"two origins", local, "POST", drain, []string{"Origin", "http://127.0.0.1:9900", "Origin", "http://evil.example"}, 403, "invalid_request"},
		{"foreign origin reads", local, "GET", "/metrics", []string{"Origin", "http://evil.example"}, 403, "invalid_request"},
		{"foreign origin with the token", token, "POST", drain, []string{"Origin", "http://evil.example", "Authorization", "Bearer s3cret"}, 403, "invalid_request"},
		{"cross-site without origin", local, "POST", drain, []string{"Sec-Fetch-Site", "cross-site"}, 403, "invalid_request"},
		{"another port's page", local, "POST", drain, []string{"Sec-Fetch-Site", "same-site"}, 403, "invalid_request"},
		{"foreign page's picture is a profile", local, "GET", pprof + "profile?seconds=1", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403, "invalid_request"},
		{"another port's picture is a profile", local, "GET", pprof, []string{"Sec-Fetch-Site", "same-site"}, 403, "invalid_request"},
		{"foreign page's picture with the token", token, "GET", pprof, []string{"Sec-Fetch-Site", "cross-site", "Authorization", "Bearer s3cret"}, 403, "invalid_request"},
		{"link of the page to a profile", local, "GET", pprof, []string{"Sec-Fetch-Site", "same-origin"}, 200, ""},
		{"typed address of a profile", local, "GET", pprof, []string{"Sec-Fetch-Site", "none"}, 200, ""},
		{"foreign link to the page", local, "GET", "/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200, ""},

		{"GET on a mutation", local, "GET", drain, nil, 405, "method_not_allowed"},
		{"HEAD on a mutation", local, "HEAD", drain, nil, 405, ""},
		{"PUT on a mutation", local, "PUT", reload, nil, 405, "method_not_allowed"},
		{"GET on reload", open, "GET", reload, nil, 405, "method_not_allowed"},
		{"POST on a page", local, "POST", "/metrics", nil, 405, "method_not_allowed"},
		{"DELETE on a page", local, "DELETE", "/", nil, 405, "method_not_allowed"},

		{"open, mutation", open, "POST", drain, nil, 403, "invalid_request"},
		{"open, reload", open, "POST", reload, nil, 403, "invalid_request"},
		{"open, profile", open, "GET", pprof, nil, 403, "invalid_request"},
		{"open, profile beneath", open, "GET", "/debug/pprof/heap", nil, 403, "invalid_request"},
		{"open, page", open, "GET", "/api/v1/topology", nil, 200, ""},
		{"open, any token", open, "POST", drain, []string{"Authorization", "Bearer x"}, 403, "invalid_request"},
		{"local, profile", local, "GET", pprof, nil, 200, ""},
		{"local, goroutines", local, "GET", "/debug/pprof/goroutine?debug=1", nil, 200, ""},

		{"token, right", token, "POST", drain, []string{"Authorization", "Bearer s3cret"}, 200, ""},
		{"token, right, other case", token, "POST", drain, []string{"Authorization", "bearer  s3cret"}, 200, ""},
		{"token, missing", token, "POST", drain, nil, 401, "invalid_api_key"},
		{"token, basic", token, "POST", drain, []string{"Authorization", "Basic czNjcmV0"}, 401, "invalid_api_key"},
		{"token, wrong", token, "POST", drain, []string{"Authorization", "Bearer s3cre"}, 401, "invalid_api_key"},
		{"token, profile", token, "GET", pprof, []string{"Authorization", "Bearer s3cret"}, 200, ""},
		{"token, profile without", token, "GET", pprof, nil, 401, "invalid_api_key"},
		{"token set, local", localToken, "POST", drain, nil, 401, "invalid_api_key"},

		{"unknown path", local, "GET", "/api/v1/nothing", nil, 404, "path_not_found"},
		{"unknown verb", local, "POST", "/api/v1/engines/a/kill", nil, 404, "path_not_found"},
		{"unknown engine", local, "POST", "/api/v1/engines/zz/drain", nil, 404, "path_not_found"},
		{"no reload", local, "POST", reload, nil, 501, "not_implemented"},
		{"no config", local, "GET", "/api/v1/config", nil, 501, "not_implemented"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.options)
			w := r.ask(c.method, c.path, c.headers...)
			if c.code != "" {
				wantError(t, w, c.status, c.code)
			} else if w.Code != c.status {
				t.Errorf("status %d %s, want %d", w.Code, w.Body, c.status)
			}
			if c.status == 405 && w.Header().Get("Allow") == "" {
				t.Error("405 without Allow")
			}
			if c.status == 401 && w.Header().Get("WWW-Authenticate") != "Bearer" {
				t.Error("401 without WWW-Authenticate")
			}
			if c.status >= 400 && r.engines[0].State() != telemetry.StateDown {
				t.Errorf("a refused request changed the state to %s", r.engines[0].State())
			}
			if strings.Contains(w.Body.String(), "s3cret") {
				t.Error("the token is in the answer")
			}
			if h := w.Header(); h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" || h.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("headers %v", h)
			}
		})
	}
}

func TestWrongTokenIsAnsweredLate(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.Token = "x" })
	from := time.Now()
	wantError(t, r.ask("POST", "/-/reload", "Authorization", "Bearer y"), 401, "invalid_api_key")
	if d := time.Since(from); d < r.delay {
		t.Errorf("answered after %s", d)
	}
	for range cap(r.wrong) {
		r.wrong <- struct{}{}
	}
	w := r.ask("POST", "/-/reload", "Authorization", "Bearer y")
	wantError(t, w, 429, "queue_full")
	if w.Header().Get("Retry-After") != "1" {
		t.Error("429 without Retry-After")
	}
	wantError(t, r.ask("POST", "/-/reload", "Authorization", "Bearer x"), 501, "not_implemented") // the right one still passes
}

func TestOrders(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for verb, want := range map[string]telemetry.State{"drain": telemetry.StateDraining, "ready": telemetry.StateSlowStart, "eject": telemetry.StateEjected} {
		w := r.ask("POST", "/api/v1/engines/b/"+verb)
		var got map[string]string
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || got["state"] != want.String() || got["engine"] != "b" || got["reason"] == "" {
			t.Errorf("%s: %d %s", verb, w.Code, w.Body)
		}
		if s := r.engines[1].State(); s != want {
			t.Errorf("%s: %s", verb, s)
		}
	}
	if r.engines[0].State() != telemetry.StateDown {
		t.Error("the other engine changed too")
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if w := r.ask("GET", "/readyz"); w.Code != 200 || w.Body.String() != `{"ready":true,"reasons":[]}`+"\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	r = newRig(t, func(o *Options) { o.Ready = func() (bool, []string) { return false, []string{"draining"} } })
	if w := r.ask("GET", "/readyz"); w.Code != 503 || w.Body.String() != `{"ready":false,"reasons":["draining"]}`+"\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := r.ask("HEAD", "/livez"); w.Code != 200 {
		t.Errorf("livez %d", w.Code)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	w := r.ask("GET", "/health")
	if w.Code != 503 || strings.TrimSpace(w.Body.String()) != string(r.monitor.AppendHealthJSON(nil)) || !strings.Contains(w.Body.String(), `"status":"unhealthy"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if err := r.monitor.Ready("a"); err != nil {
		t.Fatal(err)
	}
	if w := r.ask("GET", "/health"); w.Code != 200 || !strings.Contains(w.Body.String(), `"status":"degraded"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestConfigIsShown(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.Config = func() any { return map[string]string{"listen": "<:8000>"} } })
	if w := r.ask("GET", "/api/v1/config"); w.Code != 200 || w.Body.String() != `{"listen":"<:8000>"}`+"\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	r = newRig(t, func(o *Options) { o.Config = func() any { return func() {} } })
	wantError(t, r.ask("GET", "/api/v1/config"), 500, "internal_error")
}

func TestMetricsPage(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.o.Metrics.Request("a\"b\u2028\n", 200, telemetry.EndDone) // C34
	w := r.ask("GET", "/metrics")
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	for _, line := range []string{"# TYPE ramjet_requests_total counter", `ramjet_requests_total{model="a\"b\\u2028\n",code="200",end="done"} 1`,
		`ramjet_engine_state{engine="a",state="down"} 1`, "# TYPE process_open_fds gauge"} {
		if !slices.Contains(strings.Split(w.Body.String(), "\n"), line) {
			t.Errorf("the page lacks %q", line)
		}
	}
}

func TestIndexListsWhatThereIs(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	w := r.ask("GET", "/")
	for _, path := range []string{"/health", "/readyz", "/livez", "/metrics", "/api/v1/topology", "/debug/pprof/"} {
		if !strings.Contains(w.Body.String(), `href="`+path+`"`) {
			t.Errorf("the index does not link to %s", path)
		}
		if got := r.ask("GET", path); got.Code == 404 {
			t.Errorf("%s is not there", path)
		}
	}
	if p := r.ask("GET", "/nope"); p.Code != 404 {
		t.Errorf("%d", p.Code)
	}
}

// What is refused for its host says what is admitted, which is true.
func TestForeignHostIsToldWhatToUse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		loopback bool
		says     string
		instead  []string
	}{
		{true, "127.0.0.1 or localhost", []string{"127.0.0.1:9900", "localhost"}},
		{false, "its address or a name without dots", []string{"192.0.2.1", "ramjet:9900"}},
	} {
		r := newRig(t, func(o *Options) { o.Loopback, o.Token = c.loopback, "s3cret" })
		w := r.ask("GET", "/livez", "Host", "evil.example")
		if wantError(t, w, 421, "invalid_request"); !strings.Contains(w.Body.String(), "(use "+c.says+", or send the admin token)") {
			t.Errorf("%s", w.Body)
		}
		for _, host := range c.instead {
			if w := r.ask("GET", "/livez", "Host", host); w.Code != 200 {
				t.Errorf("%s: %d %s", host, w.Code, w.Body)
			}
		}
		if w := r.ask("GET", "/livez", "Host", "evil.example", "Authorization", "Bearer s3cret"); w.Code != 200 {
			t.Errorf("with the token: %d %s", w.Code, w.Body)
		}
	}
}

// What net/http complains of goes where everything goes, with its stack.
func TestPanicsAreLogged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := telemetry.NewLog(&out, telemetry.LevelWarn, telemetry.FormatJSON)
	r := newRig(t, func(o *Options) {
		o.Log = log
		o.Config = func() any { panic("a request of the test") }
	})
	url, srv := r.listener(t, nil)
	if res, err := http.Get(url + "/api/v1/config"); err == nil {
		_ = res.Body.Close()
		t.Errorf("a handler that panics answers %d", res.StatusCode)
	}
	srv.ErrorLog.Print("http: Accept error: too many open files")
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	var line map[string]string
	for i, want := range []map[string]string{
		{"level": "error", "message": "a request to the admin port panicked", "panic": "a request of the test", "stack": "goroutine "},
		{"level": "warn", "message": "the admin port's server complains", "what": "too many open files"},
	} {
		text, _ := out.ReadBytes('\n')
		line = nil
		if err := json.Unmarshal(text, &line); err != nil {
			t.Fatalf("line %d: %q: %v", i, text, err)
		}
		for key, part := range want {
			if !strings.Contains(line[key], part) {
				t.Errorf("line %d: %s is %q, want %q", i, key, line[key], part)
			}
		}
	}
}

func TestServerHasLimits(t *testing.T) {
	t.Parallel()
	s := newRig(t, nil).HTTPServer()
	if s.ReadHeaderTimeout <= 0 || s.MaxHeaderBytes <= 0 || s.IdleTimeout <= 0 || s.WriteTimeout != 0 {
		t.Errorf("%+v", s)
	}
}
