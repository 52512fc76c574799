package e2e

import (
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// TestCaseC14CodingClientStart: what a coding client opens with, all three
// requests pipelined on one connection: HEAD /, a beta query with roles and
// members that only the engine judges, a list with a limit.
func TestCaseC14CodingClientStart(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	body := `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"system","content":"b"},{"role":"user","content":"c"}],"thinking":{"type":"enabled","budget_tokens":0},"new_member":[1]}`
	head, post, list := r.ID("c14"), r.ID("c14"), r.ID("c14")
	c := r.Dial(t)
	c.Method = "HEAD"
	c.Send("HEAD / HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + head + "\r\n\r\n" +
		rig.Request("POST", "/v1/messages?beta=true", post, body, "anthropic-beta: a-1,b-2", "anthropic-version: 2023-06-01") +
		rig.Request("GET", "/v1/models?limit=1000", list, ""))
	if resp := c.Response(rig.Patience); resp.Status >= 400 {
		t.Errorf("HEAD / is answered %d", resp.Status)
	}
	c.Method = "POST"
	if resp := c.Response(rig.Patience); resp.Status != 200 || !strings.Contains(string(resp.Body), "hello world") {
		t.Errorf("the message is answered %d %.200q", resp.Status, resp.Body)
	}
	c.Method = "GET"
	if resp := c.Response(rig.Patience); resp.Status != 200 || !strings.Contains(string(resp.Body), `"m"`) {
		t.Errorf("the list is answered %d %.200q", resp.Status, resp.Body)
	}
	x := rig.WaitFor(t, post, a, b)
	if x.Target != "/v1/messages?beta=true" || string(x.Body) != body || x.Fields.Get("anthropic-beta") != "a-1,b-2" || x.Fields.Get("anthropic-version") != "2023-06-01" {
		t.Errorf("the engine got %s, %q, body equal %v", x.Target, x.Head, string(x.Body) == body)
	}
	if line := r.Line(t, post); line.Str("path") != rig.MessagesPath && line.Str("path") != "/v1/messages?beta=true" {
		t.Errorf("path in the access line: %q", line.Str("path"))
	}
}

// TestCaseC14Kind: unknown roles, members, queries and content types with
// parameters are the engine's business on every path.
func TestCaseC14Kind(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	for _, path := range []string{rig.ChatPath, rig.MessagesPath, rig.ResponsesPath, "/v1/completions", "/v1/embeddings", "/v1/messages/count_tokens", "/tokenize", "/detokenize"} {
		for _, body := range []string{`{"model":"m"}`, `{"model":"m","messages":[{"role":"critic","content":{"odd":[]}}]}`, `{"model":"m","input":{"a":1},"tools":"none","max_tokens":"x"}`, `{}`} {
			id := r.ID("c14")
			raw := strings.Replace(rig.Request("POST", path+"?a=1&b=%20", id, body), "application/json", `application/json; charset="utf-8"`, 1)
			if resp := r.Do(t, raw); resp.Status != 200 {
				t.Errorf("%s with %s: %d %.200q", path, body, resp.Status, resp.Body)
				continue
			}
			if x := rig.WaitFor(t, id, a, b); x.Target != path+"?a=1&b=%20" || string(x.Body) != body {
				t.Errorf("%s with %s: the engine got %s %q", path, body, x.Target, x.Body)
			}
		}
	}
	for _, raw := range []string{"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET /version HTTP/1.1\r\nHost: x\r\n\r\n"} {
		if resp := r.Do(t, raw); resp.Status >= 500 || resp.Status == 405 {
			t.Errorf("%.20q: %d %.100q", raw, resp.Status, resp.Body)
		}
	}
}
