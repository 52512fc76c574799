package proxy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ramjet/engine"
	"ramjet/route"
	"ramjet/telemetry"
)

// TestC11Keys is the table of credentials: any valid one admits, whatever else
// stands beside it, and none of them reaches the engine.
func TestC11Keys(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(name, []byte("# ours\r\n\r\n  first-key \r\nsecond-key\n#third-key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := LoadKeys(name)
	if err != nil {
		t.Fatal(err)
	}
	f := start(t, []script{func(x *exchange) { x.write(sized("200 OK", "text/plain", string(x.head))) }}, func(s *setup) { s.Keys = keys })
	for _, c := range []struct {
		fields []string
		ok     bool
	}{
		{nil, false},
		{[]string{"Authorization: Bearer first-key"}, true},
		{[]string{"authorization: bearer second-key"}, true},
		{[]string{"Authorization: BEARER   first-key"}, true},
		{[]string{"x-api-key: first-key"}, true},
		{[]string{"X-Api-Key: second-key"}, true},
		{[]string{"x-api-key: ", "Authorization: Bearer first-key"}, true},
		{[]string{"x-api-key: first-key", "Authorization: Bearer wrong"}, true},
		{[]string{"Authorization: Bearer wrong", "Authorization: Bearer first-key"}, true},
		{[]string{"Authorization: first-key"}, false},
		{[]string{"Authorization: Basic first-key"}, false},
		{[]string{"Authorization: Bearer"}, false},
		{[]string{"Authorization: Bearer "}, false},
		{[]string{"x-api-key: "}, false},
		{[]string{"x-api-key: first-ke"}, false},
		{[]string{"x-api-key: first-keyy"}, false},
		{[]string{"x-api-key: third-key"}, false},
		{[]string{"x-api-key: #third-key"}, false},
		{[]string{"x-api-key: # ours"}, false},
	} {
		for _, path := range []string{chatPath, "/v1/messages"} {
			a := f.ask(post(path, chatBody, c.fields...))
			if !c.ok {
				a.wantError(t, 401, "invalid_api_key")
				continue
			}
			if a.StatusCode != 200 || strings.Contains(strings.ToLower(string(a.body)), "-key") {
				t.Errorf("%q: %d, the engine got %q", c.fields, a.StatusCode, a.body)
			}
		}
	}
	for path, want := range map[string]int{"/health": 200, "/": 401, "/v1/models": 401, "/nothing": 404, "/v1/../x": 400} {
		if a := f.ask(get(path)); a.StatusCode != want {
			t.Errorf("GET %s without a key: %d, want %d", path, a.StatusCode, want)
		}
	}
	if strings.Contains(string(f.access.bytes())+string(f.log.bytes()), "first-key") {
		t.Error("a key is in the log")
	}
}

func TestLoadKeysRefusesAnEmptyList(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(name, []byte("# none\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadKeys(name); err == nil {
		t.Error("a file without keys would lock everybody out")
	}
	if _, err := LoadKeys(name + ".missing"); err == nil {
		t.Error("no error for a missing file")
	}
}

// TestEngineKey replaces the client's credential.
func TestEngineKey(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) {
		x.write(sized("200 OK", "text/plain", fmt.Sprint(x.req.Header["Authorization"], x.req.Header["X-Api-Key"])))
	}},
		func(s *setup) { s.engine = func(_ int, o *engine.Options) { o.APIKey = "engine-key" } })
	f.ask(post(chatPath, chatBody, "Authorization: Bearer client", "x-api-key: client")).want(t, 200, "[Bearer engine-key] []")
	open := start(t, []script{func(x *exchange) { x.write(sized("200 OK", "text/plain", fmt.Sprint(x.req.Header["Authorization"]))) }})
	open.ask(post(chatPath, chatBody, "Authorization: Bearer client")).want(t, 200, "[Bearer client]")
}

// TestWithheldFields: what concerns the connection, what Ramjet answers for,
// and what would steer an engine stays here; all else arrives as sent.
func TestWithheldFields(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) { x.write(sized("200 OK", "text/plain", string(x.head))) }})
	gone := []string{
		"Connection: keep-alive, X-Listed", "X-Listed: v", "Keep-Alive: timeout=5", "Proxy-Connection: close", "TE: trailers", "Trailer: X",
		"Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__", "Proxy-Authorization: x", "Accept-Encoding: gzip, br", "X-Request-Id: bad id",
		"X-Data-Parallel-Rank: 1", "Expect: 100-continue",
	}
	for _, n := range []string{"a", "ab", "abcd", "abcde", "match", "engine", "reason", "attempts", "data-parallel", "0123456789ab"} {
		gone = append(gone, "X-Ramjet-"+n+": forged", "x-rAMJET-"+n+": forged")
	}
	kept := []string{"X-Custom: a", "x-custom: b", "Traceparent: 00-1", "Accept: */*", "User-Agent: u", "X-Ramje: 1", "X-Forwarded-For: 1.2.3.4", "Authorization: Bearer k", "X-Api-Key: k"}
	a := f.ask(post(chatPath, chatBody, append(append([]string{}, gone...), kept...)...))
	head := string(a.body)
	for _, field := range kept {
		if strings.Count(head, "\r\n"+field+"\r\n") != 1 {
			t.Errorf("%q did not arrive in %q", field, head)
		}
	}
	for _, field := range gone {
		if strings.Contains(head, "\r\n"+field+"\r\n") {
			t.Errorf("%q reached the engine", field)
		}
	}
	for _, want := range []string{"\r\nAccept-Encoding: identity\r\n", "\r\nHost: " + f.engines[0].addr + "\r\n", fmt.Sprintf("\r\nContent-Length: %d\r\n", len(chatBody))} {
		if strings.Count(head, want) != 1 {
			t.Errorf("want one %q in %q", want, head)
		}
	}
}

// TestResponseFields: the engine's own stay, those of its connection and those
// that only Ramjet may set go.
func TestResponseFields(t *testing.T) {
	t.Parallel()
	f := start(t, []script{answering("HTTP/1.1 200 Fine\r\nServer: uvicorn\r\nX-A: 1\r\nX-A: 2\r\nConnection: keep-alive, X-Hop\r\nX-Hop: v\r\nKeep-Alive: timeout=5\r\n" +
		"X-Request-Id: engine\r\nX-Ramjet-Engine: forged\r\nX-Ramjet-Other: forged\r\nTrailer: T\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")},
		func(s *setup) { s.ServerTiming = true })
	a := f.ask(post(chatPath, chatBody, "X-Request-Id: mine"))
	a.want(t, 200, "ok")
	if a.Status != "200 Fine" {
		t.Errorf("status line %q", a.Status)
	}
	for name, want := range map[string]string{
		"Server": "[uvicorn]", "X-A": "[1 2]", "X-Hop": "[]", "Keep-Alive": "[]", "Trailer": "[]", "X-Request-Id": "[mine]", "X-Ramjet-Engine": "[a]",
		"X-Ramjet-Other": "[]", "X-Ramjet-Reason": "[only-one]", "X-Ramjet-Match": "[0]", "X-Ramjet-Attempts": "[1]", "Connection": "[]",
	} {
		if got := fmt.Sprint(a.Header[name]); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := a.Header.Get("Server-Timing"); !regexp.MustCompile(`^route;dur=\d+\.\d{3},queue;dur=0\.000,ttfb;dur=\d+\.\d{3}$`).MatchString(got) {
		t.Errorf("Server-Timing: %s", got)
	}
	plain := start(t, []script{streaming}, func(s *setup) { s.XRamjet, s.ServerTiming = false, false })
	for name := range plain.ask(post(chatPath, chatSBody)).Header {
		if strings.HasPrefix(name, "X-Ramjet-") || name == "Server-Timing" {
			t.Errorf("%s although it is off", name)
		}
	}
}

// TestRequestIDs: a harmless one is kept, any other replaced, never refused.
func TestRequestIDs(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) { x.write(sized("200 OK", "text/plain", fmt.Sprint(x.req.Header["X-Request-Id"]))) }})
	made := regexp.MustCompile(`^[0-9a-f]{32}$`)
	for _, c := range []struct {
		sent string
		kept bool
	}{
		{"abc-123._~:XYZ", true}, {strings.Repeat("x", 128), true}, {"a", true},
		{strings.Repeat("x", 129), false}, {"", false}, {"a b", false}, {"a/b", false}, {"a%0a", false}, {"<script>", false}, {"é", false}, {"a\tb", false},
	} {
		a := f.ask(post(chatPath, chatBody, "X-Request-Id: "+c.sent))
		id := a.Header.Get("X-Request-Id")
		if (id == c.sent) != c.kept || !c.kept && !made.MatchString(id) {
			t.Errorf("%q became %q", c.sent, id)
		}
		a.want(t, 200, "["+id+"]")
	}
	if a, b := f.ask(get("/health")), f.ask(get("/health")); a.Header.Get("X-Request-Id") == b.Header.Get("X-Request-Id") {
		t.Error("two requests have one id")
	}
	records := f.records(13)
	if records[0].ID != "abc-123._~:XYZ" || !made.MatchString(records[5].ID) {
		t.Errorf("ids in the log: %q %q", records[0].ID, records[5].ID)
	}
}

// TestErrorBodies have the shape of the dialect that was spoken.
func TestErrorBodies(t *testing.T) {
	t.Parallel()
	f := start(t, []script{streaming})
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"} {
		a := f.ask(post(path, `{"model":"other"}`, "Origin: http://page"))
		var got struct {
			Error struct{ Message, Type, Param, Code string }
		}
		if err := json.Unmarshal(a.body, &got); err != nil || got.Error.Code != "model_not_found" || got.Error.Type != "not_found_error" || got.Error.Param != "model" || got.Error.Message == "" {
			t.Errorf("%s: %q, %v", path, a.body, err)
		}
		if a.StatusCode != 404 || a.Header.Get("x-should-retry") != "false" || a.Header.Get("Access-Control-Allow-Origin") != "*" ||
			a.Header.Get("Content-Type") != "application/json" || a.Header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %d %v", path, a.StatusCode, a.Header)
		}
	}
	a := f.ask(post("/v1/messages", `{"model":"other"}`))
	var got struct {
		Type      string
		RequestID string `json:"request_id"`
		Error     struct{ Type, Message string }
	}
	if err := json.Unmarshal(a.body, &got); err != nil || got.Type != "error" || got.Error.Type != "not_found_error" || got.RequestID != a.Header.Get("X-Request-Id") {
		t.Errorf("messages: %q, %v", a.body, err)
	}
	if a.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("a CORS field without an Origin")
	}
}

// TestRefusals: one row for each refusal that needs no engine.
func TestRefusals(t *testing.T) {
	t.Parallel()
	f := start(t, []script{streaming}, func(s *setup) { s.Allow = []string{"/extra"} })
	for _, c := range []struct {
		name, request string
		status        int
		code          string
		field         string // a response field that must be there
	}{
		{"no path", get("/nothing"), 404, "path_not_found", ""},
		{"guarded", post("/sleep", ""), 404, "path_not_found", ""},
		{"guarded under v1", post("/v1/load_lora_adapter", "{}"), 404, "path_not_found", ""},
		{"method", get(chatPath), 405, "method_not_allowed", "Allow: POST"},
		{"method of models", post("/v1/models", ""), 405, "method_not_allowed", "Allow: GET"},
		{"options", "OPTIONS " + chatPath + " HTTP/1.1\r\nHost: x\r\n\r\n", 405, "method_not_allowed", "Allow: POST"},
		{"trace", "TRACE /v1/x HTTP/1.1\r\nHost: x\r\n\r\n", 405, "method_not_allowed", ""},
		{"unknown method", "BREW " + chatPath + " HTTP/1.1\r\nHost: x\r\n\r\n", 501, "not_implemented", ""},
		{"connect", "CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 501, "not_implemented", ""},
		{"gzip body", post(chatPath, chatBody, "Content-Encoding: gzip"), 415, "unsupported_encoding", "x-should-retry: false"},
		{"form body", strings.Replace(post(chatPath, chatBody), "application/json", "text/plain", 1), 415, "unsupported_media_type", ""},
		{"not JSON", post(chatPath, `{"model":`), 400, "invalid_request", ""},
		{"empty", post(chatPath, ``), 400, "invalid_request", ""},
		{"too deep", post(chatPath, `{"a":`+strings.Repeat("[", 200)+strings.Repeat("]", 200)+`}`), 400, "invalid_request", ""},
		{"websocket", get("/v1/chat/completions", "Connection: Upgrade", "Upgrade: websocket"), 426, "websocket_unsupported", ""},
		{"no upgrade", get("/v1/realtime"), 400, "invalid_request", ""},
		{"two hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400, "malformed_http", ""},
		{"bare LF", "GET / HTTP/1.1\nHost: x\n\n", 400, "malformed_http", ""},
		{"model not served", post(chatPath, `{"model":"x"}`), 404, "model_not_found", ""},
		{"allowed path is no prefix", get("/extra/more"), 404, "path_not_found", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := f.ask(c.request)
			a.wantError(t, c.status, c.code)
			if name, value, ok := strings.Cut(c.field, ": "); ok && a.Header.Get(name) != value {
				t.Errorf("%s: %q, want %q", name, a.Header.Get(name), value)
			}
		})
	}
	if n := len(f.engines[0].got()); n != 0 {
		t.Errorf("%d refused requests reached the engine", n)
	}
	for _, r := range f.records(20) {
		if r.End != "rejected" || r.Attempts != 0 {
			t.Errorf("record %+v", r)
		}
	}
	f.ask(get("/extra")).want(t, 200, wholeStream)
}

// TestPreflight: a browser asks without a key, and the engine answers without
// a lease.
func TestPreflight(t *testing.T) {
	t.Parallel()
	loaded := false
	var f *fixture
	f = start(t, []script{func(x *exchange) {
		loaded = loaded || f.book.Load(f.set.Members[0].Account).Requests() > 0
		x.write("HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: 2\r\n\r\nOK")
	}}, func(s *setup) { s.Keys = &Keys{hashes: make([][32]byte, 1)} })
	ask := func(path string, fields ...string) answer {
		return f.ask("OPTIONS " + path + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n")
	}
	full := []string{"Origin: http://page", "Access-Control-Request-Method: POST"}
	for _, path := range []string{chatPath, "/v1/models", "/v1/anything"} {
		a := ask(path, full...)
		a.want(t, 200, "OK")
		if a.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %v", path, a.Header)
		}
	}
	if loaded {
		t.Error("a preflight held a lease")
	}
	ask("/nothing", full...).wantError(t, 404, "path_not_found")
	ask(chatPath, full[0]).wantError(t, 401, "invalid_api_key")
}

func TestAliases(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) { x.write(sized("200 OK", "application/json", string(x.body))) }}, func(s *setup) {
		s.Aliases = map[string]string{"gpt-4o": "m", "ghost": "none"}
	})
	for sent, want := range map[string]string{
		`{"model":"gpt-4o","messages":[ 1 ]}`:          `{"model":"m","messages":[ 1 ]}`,
		`{"a": {"model":"gpt-4o"}, "model" :"gpt-4o"}`: `{"a": {"model":"gpt-4o"}, "model" :"m"}`,
		`{"model":"x","model":"gpt-4o"}`:               `{"model":"x","model":"m"}`,
		`{"model":"m","user":"gpt-4o"}`:                `{"model":"m","user":"gpt-4o"}`,
		`{"messages":[]}`:                              `{"messages":[]}`,
	} {
		f.ask(post(chatPath, sent)).want(t, 200, want)
	}
	f.ask(post(chatPath, `{"model":"ghost"}`)).wantError(t, 404, "model_not_found")
	f.checkIdle() // an answer is counted behind its last byte
	if !f.metric(`ramjet_requests_total{model="m",code="200",end="done"} 5`) {
		t.Error("an alias is not counted under the served name")
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	f := start(t, []script{streaming, streaming}, func(s *setup) { s.Aliases = map[string]string{"zz": "org/lora", "aa": "m", "ghost": "none"} })
	f.members[0].SetModels(engine.NewModels([]string{"m"}, [][]byte{[]byte(`{"id":"m","object":"model","max_model_len":1e4,"x":{"id":"y"}}`)}, nil))
	f.members[1].SetModels(engine.NewModels([]string{"m", "org/lora"}, [][]byte{[]byte(`{"id":"m","of":"b"}`), []byte(`{"object":"model","id" : "org/lora"}`)}, nil))
	first, lora := `{"id":"m","object":"model","max_model_len":1e4,"x":{"id":"y"}}`, `{"object":"model","id" : "org/lora"}`
	f.ask(get("/v1/models")).want(t, 200, `{"object":"list","data":[`+first+`,`+lora+`,`+strings.Replace(first, `"m"`, `"aa"`, 1)+`,`+strings.Replace(lora, "org/lora", "zz", 1)+`]}`)
	f.ask(get("/v1/models/m")).want(t, 200, first)
	f.ask(get("/v1/models/org/lora")).want(t, 200, lora)
	f.ask(get("/v1/models/org%2Flora")).want(t, 200, lora)
	f.ask(get("/v1/models/aa")).want(t, 200, strings.Replace(first, `"m"`, `"aa"`, 1))
	f.ask(get("/v1/models/ghost")).wantError(t, 404, "model_not_found")
	f.ask(get("/v1/models/nope")).wantError(t, 404, "model_not_found")
	// A request goes only where its model is.
	for range 4 {
		f.ask(post(chatPath, `{"model":"org/lora","stream":true}`)).want(t, 200, wholeStream)
	}
	if n := len(f.engines[0].got()); n != 0 {
		t.Errorf("%d requests for the LoRA reached the engine without it", n)
	}
	f.members[0].SetModels(nil)
	f.members[1].SetModels(nil)
	f.ask(get("/v1/models")).wantError(t, 503, "no_engine")
	f.ask(post(chatPath, `{"model":"anything"}`)).want(t, 200, wholeStream) // lists not read yet: the engine judges
}

// TestStoredResponses go to the engine that made them.
func TestStoredResponses(t *testing.T) {
	t.Parallel()
	engineOf := func(id string) script {
		return func(x *exchange) {
			switch {
			case x.req.Method == "GET" && strings.Contains(x.req.URL.Path, "/"+id):
				x.write(sized("200 OK", "application/json", `{"id":"`+id+`"}`))
			case x.req.Method == "GET":
				x.write(sized("404 Not Found", "application/json", `{"error":"`+id+` knows nothing"}`))
			case strings.Contains(string(x.body), `"stream":true`):
				x.write(streamHead, chunk(strings.ReplaceAll(dialectBodies[2].events[0], "resp_1", id)), endOfBody)
			default:
				x.write(sized("200 OK", "application/json", `{"id":"`+id+`","object":"response","status":"completed","output":[{"type":"message"}]}`))
			}
		}
	}
	f := start(t, []script{engineOf("resp_a"), engineOf("resp_b"), engineOf("resp_c")})
	for _, stream := range []string{"false", "true"} {
		for range 3 {
			f.ask(post("/v1/responses", `{"model":"m","input":"x","stream":`+stream+`}`))
		}
	}
	before := [3]int{len(f.engines[0].got()), len(f.engines[1].got()), len(f.engines[2].got())}
	for range 3 {
		f.ask(get("/v1/responses/resp_b")).want(t, 200, `{"id":"resp_b"}`)
		a := f.ask(post("/v1/responses", `{"model":"m","input":"x","previous_response_id":"resp_c"}`))
		if a.Header.Get("X-Ramjet-Engine") != "c" || a.Header.Get("X-Ramjet-Reason") != "stored-response" {
			t.Errorf("continued at %v", a.Header)
		}
	}
	if a := len(f.engines[0].got()); a != before[0] {
		t.Errorf("engine a was asked %d times for what others made", a-before[0])
	}
	// Nobody remembers: every engine is asked before 404.
	f.srv.Forget("a")
	f.ask(get("/v1/responses/resp_a")).want(t, 200, `{"id":"resp_a"}`)
	a := f.ask(get("/v1/responses/resp_x"))
	if a.StatusCode != 404 || !strings.Contains(string(a.body), "knows nothing") {
		t.Errorf("got %d %q", a.StatusCode, a.body)
	}
	records := f.records(14)
	if r := records[13]; r.Attempts != 3 || r.End != "done" || r.Status != 404 {
		t.Errorf("record %+v", r)
	}
}

func TestStoredMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var s stored
	for i := range 3 * storedLimit {
		s.note(fmt.Appendf(nil, "resp_%d", i), "a")
	}
	if n := len(s.young) + len(s.previous); n > 2*storedLimit {
		t.Errorf("%d responses are remembered", n)
	}
	if s.engine([]byte("resp_149999")) != "a" || s.engine([]byte("resp_1")) != "" {
		t.Error("the newest must be remembered and the oldest forgotten")
	}
	s.forget("a")
	if s.engine([]byte("resp_149999")) != "" || s.engine(nil) != "" {
		t.Error("a forgotten response is remembered")
	}
}

// TestSessions: the first of the hints counts; it is shown hashed.
func TestSessions(t *testing.T) {
	t.Parallel()
	f := start(t, []script{streaming, streaming}, func(s *setup) { s.policy = route.PolicySession })
	two := `"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}`
	groups := [][]string{ // requests of one session
		{post(chatPath, `{"user":"u2"}`, "X-Session-Id: s1"), post(chatPath, `{"session_id":"other"}`, "x-session-id: s1", "session-id: s9")},
		{post(chatPath, `{}`, "x-claude-code-session-id: s2"), post(chatPath, `{}`, "X-Claude-Code-Session-Id: s2", "thread-id: t")},
		{post(chatPath, `{"session_id":"s3","user":"u"}`), post(chatPath, `{"user":"v","session_id":"s3"}`)},
		{post(chatPath, `{"prompt_cache_key":"s4"}`), post("/v1/completions", `{"prompt_cache_key":"s4","user":"w"}`)},
		{post(chatPath, `{`+two+` ]}`), post(chatPath, `{`+two+`]}`), post(chatPath, `{`+two+`,{"role":"assistant","content":"a"}]}`)},
		{post(chatPath, `{"messages":[{"role":"user","content":"other"}]}`)},
	}
	var want [][]int
	n := 0
	for _, g := range groups {
		var ids []int
		for _, request := range g {
			f.ask(request)
			ids = append(ids, n)
			n++
		}
		want = append(want, ids)
	}
	f.ask(get("/v1/thing"))
	records := f.records(n + 1)
	seen := map[string]bool{}
	for _, ids := range want {
		first := records[ids[0]].Session
		if len(first) != 16 || seen[first] {
			t.Errorf("session %q is missing or that of another group", first)
		}
		seen[first] = true
		for _, i := range ids {
			if records[i].Session != first || records[i].Engine != records[ids[0]].Engine {
				t.Errorf("requests %v are sessions %q and %q at %s and %s", ids, first, records[i].Session, records[ids[0]].Engine, records[i].Engine)
			}
		}
	}
	if records[n].Session != "" {
		t.Errorf("a request without a session has %q", records[n].Session)
	}
}

// TestAccessRecord has what the answer told.
func TestAccessRecord(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) {
		if x.n == 0 {
			x.write(plainAnswer)
			return
		}
		x.write(streamHead, chunk(roleEvent), chunk(tokenEvent), chunk(usageEvent), chunk(doneEvent), endOfBody)
	}})
	f.ask(post(chatPath+"?api-version=1&key=secret", chatBody))
	f.ask(post(chatPath, chatSBody))
	records := f.ends(telemetry.EndDone, telemetry.EndDone)
	for i, r := range records { // the second is of the same session, which is all that is known of it
		if r.Method != "POST" || r.Path != chatPath || r.Model != "m" || r.Engine != "a" || r.Reason != "only-one" || r.Keys != []string{"none", "approximate"}[i] || r.Status != 200 ||
			r.Attempts != 1 || *r.PromptTokens != 9 || *r.OutputTokens != 3 || r.Route == nil || *r.Duration <= 0 || r.Error != "" || r.Queue != nil {
			t.Errorf("record %+v", r)
		}
		if want := int64(len([]string{chatBody, chatSBody}[i])); r.BytesIn != want {
			t.Errorf("%d bytes in, want %d", r.BytesIn, want)
		}
	}
	if records[1].TTFT == nil || *records[1].TTFT <= 0 || *records[1].TTFT > *records[1].Duration {
		t.Errorf("ttft %v of %v", records[1].TTFT, *records[1].Duration)
	}
	if strings.Contains(string(f.access.bytes()), "secret") {
		t.Error("the query is in the log")
	}
}

// TestAliasesAfterAReload: the list, each name and the way of a request go by
// the aliases in force.
func TestAliasesAfterAReload(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) { x.write(sized("200 OK", "application/json", string(x.body))) }}, func(s *setup) {
		s.Aliases = map[string]string{"before": "m", "both": "m"}
	})
	next := f.srv.Settings
	next.Aliases = map[string]string{"after": "m", "both": "none"}
	f.srv.SetSettings(next)
	object := `{"id":"m","object":"model"}`
	renamed := func(name string) string { return strings.Replace(object, `"m"`, `"`+name+`"`, 1) }
	f.ask(get("/v1/models")).want(t, 200, `{"object":"list","data":[`+object+`,`+renamed("after")+`]}`)
	f.ask(get("/v1/models/after")).want(t, 200, renamed("after"))
	f.ask(post(chatPath, `{"model":"after"}`)).want(t, 200, `{"model":"m"}`)
	for _, gone := range []string{"before", "both"} {
		f.ask(get("/v1/models/"+gone)).wantError(t, 404, "model_not_found")
		f.ask(post(chatPath, `{"model":"`+gone+`"}`)).wantError(t, 404, "model_not_found")
	}
}
