package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestB7Row12Unknown: unknown model, path, method and type, each in the error
// shape of its dialect.
func TestB7Row12Unknown(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	other := strings.Replace(chatBody(false), `"m"`, `"nobody"`, 1)
	cases := []struct {
		name, method, path, body, contentType string
		status                                int
		code, allow                           string
	}{
		{"model", "POST", chatPath, other, "application/json", 404, "model_not_found", ""},
		{"model, completions", "POST", "/v1/completions", `{"model":"nobody","prompt":"x"}`, "application/json", 404, "model_not_found", ""},
		{"model, responses", "POST", responsesPath, `{"model":"nobody","input":"x"}`, "application/json", 404, "model_not_found", ""},
		{"model, messages", "POST", messagesPath, other, "application/json", 404, "model_not_found", ""},
		{"model, embeddings", "POST", "/v1/embeddings", `{"model":"nobody","input":"x"}`, "application/json", 404, "model_not_found", ""},
		{"model by id", "GET", "/v1/models/nobody", "", "", 404, "model_not_found", ""},
		{"path", "POST", "/nothing", "{}", "application/json", 404, "path_not_found", ""},
		{"path, GET", "GET", "/nothing/at/all", "", "", 404, "path_not_found", ""},
		{"method", "GET", chatPath, "", "", 405, "method_not_allowed", "POST"},
		{"method, DELETE", "DELETE", chatPath, "", "", 405, "method_not_allowed", "POST"},
		{"method, messages", "PUT", messagesPath, "{}", "application/json", 405, "method_not_allowed", "POST"},
		{"type, text", "POST", chatPath, chatBody(false), "text/plain", 415, "unsupported_media_type", ""},
		{"type, form", "POST", messagesPath, "a=b", "application/x-www-form-urlencoded", 415, "unsupported_media_type", ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			id := r.id("unknown")
			raw := request(tc.method, tc.path, id, tc.body)
			if tc.contentType != "" {
				raw = strings.Replace(raw, "application/json", tc.contentType, 1)
			}
			resp := r.do(t, raw)
			if resp.status != tc.status || resp.code() != tc.code {
				t.Errorf("answered %d %q, want %d %s: %.300q", resp.status, resp.code(), tc.status, tc.code, resp.body)
			}
			if tc.allow != "" && !strings.Contains(resp.fields.get("Allow"), tc.allow) {
				t.Errorf("Allow: %q, want %s in it", resp.fields.get("Allow"), tc.allow)
			}
			if got := resp.fields.all("X-Request-Id"); len(got) != 1 || got[0] != id {
				t.Errorf("X-Request-Id %q, want %q", got, id)
			}
			r.ended(t, id, "rejected")
			dialectShape(t, tc.path, resp)
		})
	}
	xs, _ := a.seen()
	ys, _ := b.seen()
	if len(xs)+len(ys) != 0 {
		t.Errorf("%d requests reached an engine", len(xs)+len(ys))
	}
}

// dialectShape checks the error object of a path: Anthropic's has an outer type
// "error", OpenAI's has message, type, param and code and no outer type.
func dialectShape(t *testing.T, path string, resp *response) {
	t.Helper()
	outer, e, ok := parseAPIError(string(resp.body))
	if !ok || e.Message == "" || e.Type == "" {
		t.Errorf("no error object: %.300q", resp.body)
		return
	}
	if anthropic := strings.HasPrefix(path, messagesPath); anthropic != (outer == "error") {
		t.Errorf("outer type %q on %s: %.300q", outer, path, resp.body)
	}
	if !strings.HasPrefix(path, messagesPath) && !strings.Contains(string(resp.body), `"param"`) {
		t.Errorf("no param: %.300q", resp.body)
	}
}

// keysFile writes a file of keys, one a line.
func keysFile(t *testing.T, keys string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(keys), 0o600); err != nil {
		t.Fatalf("cannot write keys: %v", err)
	}
	return path
}

// TestB7Row13Keys: a missing or wrong key is 401, and no key, right or wrong,
// shows in any output.
func TestB7Row13Keys(t *testing.T) {
	t.Parallel()
	a := newEngine(t, "a")
	const right, wrong = "sk-canary-right-1234567890", "sk-canary-wrong-0987654321"
	r := startWith(t, setup{engines: []*engine{a}, flags: []string{"--auth.keys-file", keysFile(t, right+"\n")}, notReady: true})
	r.awaitReady()
	for _, path := range []string{chatPath, messagesPath, responsesPath} {
		for _, header := range []string{"", "Authorization: Bearer " + wrong, "Authorization: Basic " + right, "X-Api-Key: " + wrong, "Authorization: Bearer", "Authorization: Bearer " + right + "x"} {
			headers := []string{"X-Other: 1"}
			if header != "" {
				headers = append(headers, header)
			}
			resp := r.post(t, path, chatBody(false), headers...)
			if resp.status != 401 || resp.code() != "invalid_api_key" {
				t.Errorf("%s with %q: %d %.200q, want 401 invalid_api_key", path, header, resp.status, resp.body)
			}
			dialectShape(t, path, resp)
			if strings.Contains(string(resp.head)+string(resp.body), "canary") {
				t.Errorf("a key is in the answer: %.300q", resp.body)
			}
		}
	}
	// A head that cannot be parsed, with a key and a prompt in it.
	for _, bad := range []string{"X-A: b\r\n folded", "X-B : c", "X-C"} {
		r.do(t, request("POST", chatPath, "", chatBody(false), "Authorization: Bearer "+right, bad))
	}
	id := r.id("right")
	secretive := strings.Replace(chatBody(false), "hello", "canary-prompt", 1)
	if resp := r.do(t, request("POST", chatPath, id, secretive, "Authorization: Bearer "+right)); resp.status != 200 {
		t.Errorf("the right key is answered %d %.200q", resp.status, resp.body)
	}
	if x := waitFor(t, id, a); strings.Contains(string(x.head), right) {
		t.Errorf("the client's key reached the engine: %.300q", x.head)
	}
	r.counted(t, 18, "401", "rejected")
	for _, path := range []string{"/metrics", "/readyz", "/api/v1/topology", "/api/v1/config", "/"} {
		if _, body := r.adminGet(path); strings.Contains(body, "canary") {
			t.Errorf("a key is in %s", path)
		}
	}
	if strings.Contains(r.out.String(), "canary") {
		t.Error("a key or a prompt is in the log")
	}
	r.oneLineEach()
}

// TestB7Row14HostileText: ids, agents and model names that try to break a line,
// a terminal or a page are replaced or escaped.
func TestB7Row14HostileText(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	series := len(r.metrics().samples)
	for i, id := range []string{"a b", "<script>alert(1)</script>", "a\x1b[31mred", "a;b", strings.Repeat("x", 129), strings.Repeat("y", 20_000), "\"}{\"id\":\"fake", "../../etc", "é", ""} {
		if strings.ContainsAny(id, "\x1b") {
			continue // a control character in a value is refused with the head (row 8)
		}
		resp := r.do(t, request("POST", chatPath, "", chatBody(false), "X-Request-Id: "+id, fmt.Sprintf("User-Agent: <script>%d", i)))
		if resp.status != 200 {
			t.Errorf("id %.40q: answered %d %.200q, want it replaced", id, resp.status, resp.body)
			continue
		}
		given := resp.fields.get("X-Request-Id")
		if given == "" || given == id {
			t.Errorf("id %.40q: the answer's id is %.40q, want another", id, given)
		}
		r.line(t, given)
		if x := waitFor(t, given, a, b); len(x.fields.all("X-Request-Id")) != 1 {
			t.Errorf("id %.40q: the engine got %q", id, x.fields.all("X-Request-Id"))
		}
	}
	for _, model := range []string{"a\"b\\c", "new\nline", "sep\u2028arator", "\x1b[2J", "<img src=x onerror=alert(1)>", strings.Repeat("m", 64<<10)} {
		resp := r.post(t, chatPath, `{"model":`+jsonString(model)+`,"messages":[]}`)
		if resp.status != 404 || resp.code() != "model_not_found" {
			t.Errorf("model %.20q: answered %d %.200q", model, resp.status, resp.body)
		}
		if len(resp.body) > 8<<10 {
			t.Errorf("model %.20q: the error repeats it in %d bytes", model, len(resp.body))
		}
	}
	hostileTraces(t, r, series)
}

func hostileTraces(t *testing.T, r *ramjet, series int) {
	t.Helper()
	m := r.metrics() // fails on a page that cannot be read
	if n := len(m.samples) - series; n > 60 {
		t.Errorf("%d new series", n)
	}
	if m.count("ramjet_requests_total", "model", "unknown") == 0 {
		t.Error(`unknown models do not count as model="unknown"`)
	}
	for _, line := range strings.Split(strings.TrimSpace(r.out.String()), "\n") {
		if !json.Valid([]byte(line)) {
			t.Errorf("log line is no JSON: %.200q", line)
		}
		if strings.ContainsAny(line, "\x1b\u2028") {
			t.Errorf("log line holds raw control characters: %.200q", line)
		}
	}
	if strings.Contains(r.out.String(), `"id":"fake`) {
		t.Error("a client wrote its own log field")
	}
}

// TestB7Row15SpoofedHeaders: what routes, or belongs to one hop, is taken off.
func TestB7Row15SpoofedHeaders(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	id := r.id("spoof")
	resp := r.do(t, request("POST", chatPath, id, chatBody(false),
		"X-Ramjet-Engine: b", "x-ramjet-reason: exact", "X-RAMJET-ANYTHING: 1", "X-data-parallel-rank: 7",
		"Connection: X-Hop, x-secret", "X-Hop: 1", "X-Secret: 1", "Keep-Alive: 5", "TE: trailers", "Upgrade: h2c", "HTTP2-Settings: AAA",
		"Proxy-Authorization: Basic x", "Proxy-Connection: keep-alive", "X-Custom: kept", "Authorization: Bearer kept", "X-Session-Id: kept"))
	if resp.status != 200 {
		t.Fatalf("answered %d %.200q", resp.status, resp.body)
	}
	x := waitFor(t, id, a, b)
	hopFieldsStripped(t, x)
	for _, f := range x.fields {
		lower := strings.ToLower(f.name)
		if strings.HasPrefix(lower, "x-ramjet-") || lower == "x-data-parallel-rank" || lower == "x-secret" {
			t.Errorf("%s: %s reached the engine", f.name, f.value)
		}
	}
	for name, want := range map[string]string{"X-Custom": "kept", "Authorization": "Bearer kept", "X-Session-Id": "kept", "X-Request-Id": id} {
		if got := x.fields.all(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s at the engine: %q, want %q once", name, got, want)
		}
	}
	if n := len(resp.fields.all("X-Ramjet-Engine")); n != 1 {
		t.Errorf("%d X-Ramjet-Engine in the answer", n)
	}
}
