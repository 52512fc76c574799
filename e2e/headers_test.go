package e2e

import (
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// TestResponseHeaders: fields of the engine's answer reach the client as often
// as they were there; those of the engine's own hop do not, and none that says
// it is ours.
func TestResponseHeaders(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a}})
	head := "HTTP/1.1 200 OK\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nx-empty:\r\nX-Mixed-CASE: v  w\r\nx-request-id: other\r\nx-ramjet-engine: evil\r\nx-ramjet-forged: 1\r\n" +
		"connection: keep-alive, x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\nproxy-authenticate: Basic\r\nendpoint-load-metrics: JSON {}\r\n"
	for name, rest := range map[string]string{
		"length": "content-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
		"stream": "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" + rig.Chunked(rig.ChatEvents(1)),
	} {
		a.On(func(x *rig.Exchange) { x.Write(head + rest) })
		id := r.ID("headers")
		resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(name == "stream")))
		for field, want := range map[string][]string{
			"Set-Cookie": {"a=1", "b=2"}, "X-Empty": {""}, "X-Mixed-Case": {"v  w"}, "X-Request-Id": {id}, "X-Ramjet-Engine": {"a"},
			"X-Ramjet-Forged": nil, "X-Hop": nil, "Keep-Alive": nil, "Endpoint-Load-Metrics": {"JSON {}"},
		} {
			if got := resp.Fields.All(field); strings.Join(got, "|") != strings.Join(want, "|") || len(got) != len(want) {
				t.Errorf("%s: %s is %q, want %q", name, field, got, want)
			}
		}
		for _, v := range resp.Fields.All("Connection") {
			if strings.Contains(v, "hop") {
				t.Errorf("%s: Connection: %s", name, v)
			}
		}
	}
}

// TestHeadersOff: the added fields can be switched off.
func TestHeadersOff(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a}, Flags: []string{"--headers.x-ramjet=false", "--headers.server-timing=false"}})
	for _, resp := range []*rig.Response{r.Post(t, rig.ChatPath, rig.ChatBody(true)), r.Post(t, rig.ChatPath, rig.ChatBody(false)), r.Post(t, "/nothing", "{}"), r.Post(t, rig.ChatPath, "{")} {
		for _, f := range resp.Fields {
			if lower := strings.ToLower(f.Name); strings.HasPrefix(lower, "x-ramjet") || lower == "server-timing" {
				t.Errorf("%d has %s: %s", resp.Status, f.Name, f.Value)
			}
		}
		if len(resp.Fields.All("X-Request-Id")) != 1 {
			t.Errorf("%d has %d X-Request-Id", resp.Status, len(resp.Fields.All("X-Request-Id")))
		}
	}
}

// TestConnectionClose: what the client says about its connection is kept.
func TestConnectionClose(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a}})
	for _, stream := range []bool{true, false} {
		c := r.Dial(t)
		c.Send(rig.Request("POST", rig.ChatPath, r.ID("close"), rig.ChatBody(stream), "Connection: close"))
		resp := c.Response(rig.Patience)
		if resp.Status != 200 || !resp.Complete || !strings.EqualFold(resp.Fields.Get("Connection"), "close") || !c.Gone(rig.Patience) {
			t.Errorf("stream %v: %d, Connection: %q, closed %v", stream, resp.Status, resp.Fields.Get("Connection"), c.Closed)
		}
	}
	c := r.Dial(t) // HTTP/1.0 keeps the connection only when asked and when the length is known
	for range 2 {
		c.Send(http10(rig.Request("POST", rig.ChatPath, r.ID("close"), rig.ChatBody(false), "Connection: keep-alive")))
		if resp := c.Response(rig.Patience); resp.Status != 200 || !resp.Complete && !resp.Closed {
			t.Errorf("HTTP/1.0: %d %.200q", resp.Status, resp.Body)
		}
		if c.Closed {
			c = r.Dial(t)
		}
	}
}
