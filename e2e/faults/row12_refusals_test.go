package faults

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// TestB7Row12Unknown: unknown model, path, method and type, each in the error
// shape of its dialect.
func TestB7Row12Unknown(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	other := strings.Replace(rig.ChatBody(false), `"m"`, `"nobody"`, 1)
	cases := []struct {
		name, method, path, body, contentType string
		status                                int
		code, allow                           string
	}{
		{"model", "POST", rig.ChatPath, other, "application/json", 404, "model_not_found", ""},
		{"model, completions", "POST", "/v1/completions", `{"model":"nobody","prompt":"x"}`, "application/json", 404, "model_not_found", ""},
		{"model, responses", "POST", rig.ResponsesPath, `{"model":"nobody","input":"x"}`, "application/json", 404, "model_not_found", ""},
		{"model, messages", "POST", rig.MessagesPath, other, "application/json", 404, "model_not_found", ""},
		{"model, embeddings", "POST", "/v1/embeddings", `{"model":"nobody","input":"x"}`, "application/json", 404, "model_not_found", ""},
		{"model by id", "GET", "/v1/models/nobody", "", "", 404, "model_not_found", ""},
		{"path", "POST", "/nothing", "{}", "application/json", 404, "path_not_found", ""},
		{"path, GET", "GET", "/nothing/at/all", "", "", 404, "path_not_found", ""},
		{"method", "GET", rig.ChatPath, "", "", 405, "method_not_allowed", "POST"},
		{"method, DELETE", "DELETE", rig.ChatPath, "", "", 405, "method_not_allowed", "POST"},
		{"method, messages", "PUT", rig.MessagesPath, "{}", "application/json", 405, "method_not_allowed", "POST"},
		{"type, text", "POST", rig.ChatPath, rig.ChatBody(false), "text/plain", 415, "unsupported_media_type", ""},
		{"type, form", "POST", rig.MessagesPath, "a=b", "application/x-www-form-urlencoded", 415, "unsupported_media_type", ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			id := r.ID("unknown")
			raw := rig.Request(tc.method, tc.path, id, tc.body)
			if tc.contentType != "" {
				raw = strings.Replace(raw, "application/json", tc.contentType, 1)
			}
			resp := r.Do(t, raw)
			if resp.Status != tc.status || resp.Code() != tc.code {
				t.Errorf("answered %d %q, want %d %s: %.300q", resp.Status, resp.Code(), tc.status, tc.code, resp.Body)
			}
			if tc.allow != "" && !strings.Contains(resp.Fields.Get("Allow"), tc.allow) {
				t.Errorf("Allow: %q, want %s in it", resp.Fields.Get("Allow"), tc.allow)
			}
			if got := resp.Fields.All("X-Request-Id"); len(got) != 1 || got[0] != id {
				t.Errorf("X-Request-Id %q, want %q", got, id)
			}
			r.Ended(t, id, "rejected")
			rig.DialectShape(t, tc.path, resp)
		})
	}
	xs, _ := a.Seen()
	ys, _ := b.Seen()
	if len(xs)+len(ys) != 0 {
		t.Errorf("%d requests reached an engine", len(xs)+len(ys))
	}
}

// TestB7Row13Keys: a missing or wrong key is 401, and no key, right or wrong,
// shows in any output.
func TestB7Row13Keys(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	const right, wrong = "sk-canary-right-1234567890", "sk-canary-wrong-0987654321"
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a}, Flags: []string{"--auth.keys-file", rig.KeysFile(t, right+"\n")}, NotReady: true})
	r.AwaitReady()
	for _, path := range []string{rig.ChatPath, rig.MessagesPath, rig.ResponsesPath} {
		for _, header := range []string{"", "Authorization: Bearer " + wrong, "Authorization: Basic " + right, "X-Api-Key: " + wrong, "Authorization: Bearer", "Authorization: Bearer " + right + "x"} {
			headers := []string{"X-Other: 1"}
			if header != "" {
				headers = append(headers, header)
			}
			resp := r.Post(t, path, rig.ChatBody(false), headers...)
			if resp.Status != 401 || resp.Code() != "invalid_api_key" {
				t.Errorf("%s with %q: %d %.200q, want 401 invalid_api_key", path, header, resp.Status, resp.Body)
			}
			rig.DialectShape(t, path, resp)
			if strings.Contains(string(resp.Head)+string(resp.Body), "canary") {
				t.Errorf("a key is in the answer: %.300q", resp.Body)
			}
		}
	}
	// A head that cannot be parsed, with a key and a prompt in it.
	for _, bad := range []string{"X-A: b\r\n folded", "X-B : c", "X-C"} {
		r.Do(t, rig.Request("POST", rig.ChatPath, "", rig.ChatBody(false), "Authorization: Bearer "+right, bad))
	}
	id := r.ID("right")
	secretive := strings.Replace(rig.ChatBody(false), "hello", "canary-prompt", 1)
	if resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, secretive, "Authorization: Bearer "+right)); resp.Status != 200 {
		t.Errorf("the right key is answered %d %.200q", resp.Status, resp.Body)
	}
	if x := rig.WaitFor(t, id, a); strings.Contains(string(x.Head), right) {
		t.Errorf("the client's key reached the engine: %.300q", x.Head)
	}
	r.Counted(t, 18, "401", "rejected")
	for _, path := range []string{"/metrics", "/readyz", "/api/v1/topology", "/api/v1/config", "/"} {
		if _, body := r.AdminGet(path); strings.Contains(body, "canary") {
			t.Errorf("a key is in %s", path)
		}
	}
	r.OneLineEach() // so that the log has all lines
	if strings.Contains(r.Out.String(), "canary") {
		t.Error("a key or a prompt is in the log")
	}
}

// TestB7Row14HostileText: ids, agents and model names that try to break a line,
// a terminal or a page are replaced or escaped.
func TestB7Row14HostileText(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	series := len(r.Metrics().Samples)
	for i, id := range []string{"a b", "<script>alert(1)</script>", "a\x1b[31mred", "a;b", strings.Repeat("x", 129), strings.Repeat("y", 20_000), "\"}{\"id\":\"fake", "../../etc", "é", ""} {
		if strings.ContainsAny(id, "\x1b") {
			continue // a control character in a value is refused with the head (row 8)
		}
		resp := r.Do(t, rig.Request("POST", rig.ChatPath, "", rig.ChatBody(false), "X-Request-Id: "+id, fmt.Sprintf("User-Agent: <script>%d", i)))
		if resp.Status != 200 {
			t.Errorf("id %.40q: answered %d %.200q, want it replaced", id, resp.Status, resp.Body)
			continue
		}
		given := resp.Fields.Get("X-Request-Id")
		if given == "" || given == id {
			t.Errorf("id %.40q: the answer's id is %.40q, want another", id, given)
		}
		r.Line(t, given)
		if x := rig.WaitFor(t, given, a, b); len(x.Fields.All("X-Request-Id")) != 1 {
			t.Errorf("id %.40q: the engine got %q", id, x.Fields.All("X-Request-Id"))
		}
	}
	for _, model := range []string{"a\"b\\c", "new\nline", "sep\u2028arator", "\x1b[2J", "<img src=x onerror=alert(1)>", strings.Repeat("m", 64<<10)} {
		resp := r.Post(t, rig.ChatPath, `{"model":`+rig.JSONString(model)+`,"messages":[]}`)
		if resp.Status != 404 || resp.Code() != "model_not_found" {
			t.Errorf("model %.20q: answered %d %.200q", model, resp.Status, resp.Body)
		}
		if len(resp.Body) > 8<<10 {
			t.Errorf("model %.20q: the error repeats it in %d bytes", model, len(resp.Body))
		}
	}
	hostileTraces(t, r, series)
}

func hostileTraces(t *testing.T, r *rig.Ramjet, series int) {
	t.Helper()
	r.OneLineEach()  // so that the log has all lines
	m := r.Metrics() // fails on a page that cannot be read
	if n := len(m.Samples) - series; n > 60 {
		t.Errorf("%d new series", n)
	}
	if m.Count("ramjet_requests_total", "model", "unknown") == 0 {
		t.Error(`unknown models do not count as model="unknown"`)
	}
	for _, line := range strings.Split(strings.TrimSpace(r.Out.String()), "\n") {
		if !json.Valid([]byte(line)) {
			t.Errorf("log line is no JSON: %.200q", line)
		}
		if strings.ContainsAny(line, "\x1b\u2028") {
			t.Errorf("log line holds raw control characters: %.200q", line)
		}
	}
	if strings.Contains(r.Out.String(), `"id":"fake`) {
		t.Error("a client wrote its own log field")
	}
}

// TestB7Row15SpoofedHeaders: what routes, or belongs to one hop, is taken off.
func TestB7Row15SpoofedHeaders(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	id := r.ID("spoof")
	resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(false),
		"X-Ramjet-Engine: b", "x-ramjet-reason: exact", "X-RAMJET-ANYTHING: 1", "X-data-parallel-rank: 7",
		"Connection: X-Hop, x-secret", "X-Hop: 1", "X-Secret: 1", "Keep-Alive: 5", "TE: trailers", "Upgrade: h2c", "HTTP2-Settings: AAA",
		"Proxy-Authorization: Basic x", "Proxy-Connection: keep-alive", "X-Custom: kept", "Authorization: Bearer kept", "X-Session-Id: kept"))
	if resp.Status != 200 {
		t.Fatalf("answered %d %.200q", resp.Status, resp.Body)
	}
	x := rig.WaitFor(t, id, a, b)
	rig.HopFieldsStripped(t, x)
	for _, f := range x.Fields {
		lower := strings.ToLower(f.Name)
		if strings.HasPrefix(lower, "x-ramjet-") || lower == "x-data-parallel-rank" || lower == "x-secret" {
			t.Errorf("%s: %s reached the engine", f.Name, f.Value)
		}
	}
	for name, want := range map[string]string{"X-Custom": "kept", "Authorization": "Bearer kept", "X-Session-Id": "kept", "X-Request-Id": id} {
		if got := x.Fields.All(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s at the engine: %q, want %q once", name, got, want)
		}
	}
	if n := len(resp.Fields.All("X-Ramjet-Engine")); n != 1 {
		t.Errorf("%d X-Ramjet-Engine in the answer", n)
	}
}
