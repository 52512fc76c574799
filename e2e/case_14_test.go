package e2e

import (
	"strings"
	"testing"
)

// TestCaseC14CodingClientStart: what a coding client opens with, all three
// requests pipelined on one connection: HEAD /, a beta query with roles and
// members that only the engine judges, a list with a limit.
func TestCaseC14CodingClientStart(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	body := `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"system","content":"b"},{"role":"user","content":"c"}],"thinking":{"type":"enabled","budget_tokens":0},"new_member":[1]}`
	head, post, list := r.id("c14"), r.id("c14"), r.id("c14")
	c := r.dial(t)
	c.method = "HEAD"
	c.send("HEAD / HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + head + "\r\n\r\n" +
		request("POST", "/v1/messages?beta=true", post, body, "anthropic-beta: a-1,b-2", "anthropic-version: 2023-06-01") +
		request("GET", "/v1/models?limit=1000", list, ""))
	if resp := c.response(patience); resp.status >= 400 {
		t.Errorf("HEAD / is answered %d", resp.status)
	}
	c.method = "POST"
	if resp := c.response(patience); resp.status != 200 || !strings.Contains(string(resp.body), "hello world") {
		t.Errorf("the message is answered %d %.200q", resp.status, resp.body)
	}
	c.method = "GET"
	if resp := c.response(patience); resp.status != 200 || !strings.Contains(string(resp.body), `"m"`) {
		t.Errorf("the list is answered %d %.200q", resp.status, resp.body)
	}
	x := waitFor(t, post, a, b)
	if x.target != "/v1/messages?beta=true" || string(x.body) != body || x.fields.get("anthropic-beta") != "a-1,b-2" || x.fields.get("anthropic-version") != "2023-06-01" {
		t.Errorf("the engine got %s, %q, body equal %v", x.target, x.head, string(x.body) == body)
	}
	if line := r.line(t, post); line.str("path") != messagesPath && line.str("path") != "/v1/messages?beta=true" {
		t.Errorf("path in the access line: %q", line.str("path"))
	}
}

// TestCaseC14Kind: unknown roles, members, queries and content types with
// parameters are the engine's business on every path.
func TestCaseC14Kind(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	for _, path := range []string{chatPath, messagesPath, responsesPath, "/v1/completions", "/v1/embeddings", "/v1/messages/count_tokens", "/tokenize", "/detokenize"} {
		for _, body := range []string{`{"model":"m"}`, `{"model":"m","messages":[{"role":"critic","content":{"odd":[]}}]}`, `{"model":"m","input":{"a":1},"tools":"none","max_tokens":"x"}`, `{}`} {
			id := r.id("c14")
			raw := strings.Replace(request("POST", path+"?a=1&b=%20", id, body), "application/json", `application/json; charset="utf-8"`, 1)
			if resp := r.do(t, raw); resp.status != 200 {
				t.Errorf("%s with %s: %d %.200q", path, body, resp.status, resp.body)
				continue
			}
			if x := waitFor(t, id, a, b); x.target != path+"?a=1&b=%20" || string(x.body) != body {
				t.Errorf("%s with %s: the engine got %s %q", path, body, x.target, x.body)
			}
		}
	}
	for _, raw := range []string{"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET /version HTTP/1.1\r\nHost: x\r\n\r\n"} {
		if resp := r.do(t, raw); resp.status >= 500 || resp.status == 405 {
			t.Errorf("%.20q: %d %.100q", raw, resp.status, resp.body)
		}
	}
}
