package e2e

import (
	"strings"
	"testing"
)

// TestResponseHeaders: fields of the engine's answer reach the client as often
// as they were there; those of the engine's own hop do not, and none that says
// it is ours.
func TestResponseHeaders(t *testing.T) {
	t.Parallel()
	a := newEngine(t, "a")
	r := startWith(t, setup{engines: []*engine{a}})
	head := "HTTP/1.1 200 OK\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nx-empty:\r\nX-Mixed-CASE: v  w\r\nx-request-id: other\r\nx-ramjet-engine: evil\r\nx-ramjet-forged: 1\r\n" +
		"connection: keep-alive, x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\nproxy-authenticate: Basic\r\nendpoint-load-metrics: JSON {}\r\n"
	for name, rest := range map[string]string{
		"length": "content-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
		"stream": "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(chatEvents(1)),
	} {
		a.on(func(x *exchange) { x.write(head + rest) })
		id := r.id("headers")
		resp := r.do(t, request("POST", chatPath, id, chatBody(name == "stream")))
		for field, want := range map[string][]string{
			"Set-Cookie": {"a=1", "b=2"}, "X-Empty": {""}, "X-Mixed-Case": {"v  w"}, "X-Request-Id": {id}, "X-Ramjet-Engine": {"a"},
			"X-Ramjet-Forged": nil, "X-Hop": nil, "Keep-Alive": nil, "Endpoint-Load-Metrics": {"JSON {}"},
		} {
			if got := resp.fields.all(field); strings.Join(got, "|") != strings.Join(want, "|") || len(got) != len(want) {
				t.Errorf("%s: %s is %q, want %q", name, field, got, want)
			}
		}
		for _, v := range resp.fields.all("Connection") {
			if strings.Contains(v, "hop") {
				t.Errorf("%s: Connection: %s", name, v)
			}
		}
	}
}

// TestHeadersOff: the added fields can be switched off.
func TestHeadersOff(t *testing.T) {
	t.Parallel()
	a := newEngine(t, "a")
	r := startWith(t, setup{engines: []*engine{a}, flags: []string{"--headers.x-ramjet=false", "--headers.server-timing=false"}})
	for _, resp := range []*response{r.post(t, chatPath, chatBody(true)), r.post(t, chatPath, chatBody(false)), r.post(t, "/nothing", "{}"), r.post(t, chatPath, "{")} {
		for _, f := range resp.fields {
			if lower := strings.ToLower(f.name); strings.HasPrefix(lower, "x-ramjet") || lower == "server-timing" {
				t.Errorf("%d has %s: %s", resp.status, f.name, f.value)
			}
		}
		if len(resp.fields.all("X-Request-Id")) != 1 {
			t.Errorf("%d has %d X-Request-Id", resp.status, len(resp.fields.all("X-Request-Id")))
		}
	}
}

// TestConnectionClose: what the client says about its connection is kept.
func TestConnectionClose(t *testing.T) {
	t.Parallel()
	a := newEngine(t, "a")
	r := startWith(t, setup{engines: []*engine{a}})
	for _, stream := range []bool{true, false} {
		c := r.dial(t)
		c.send(request("POST", chatPath, r.id("close"), chatBody(stream), "Connection: close"))
		resp := c.response(patience)
		if resp.status != 200 || !resp.complete || !strings.EqualFold(resp.fields.get("Connection"), "close") || !c.gone(patience) {
			t.Errorf("stream %v: %d, Connection: %q, closed %v", stream, resp.status, resp.fields.get("Connection"), c.closed)
		}
	}
	c := r.dial(t) // HTTP/1.0 keeps the connection only when asked and when the length is known
	for range 2 {
		c.send(http10(request("POST", chatPath, r.id("close"), chatBody(false), "Connection: keep-alive")))
		if resp := c.response(patience); resp.status != 200 || !resp.complete && !resp.closed {
			t.Errorf("HTTP/1.0: %d %.200q", resp.status, resp.body)
		}
		if c.closed {
			c = r.dial(t)
		}
	}
}
