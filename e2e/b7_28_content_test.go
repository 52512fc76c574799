package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// oddStreams are bodies that an SSE reader must take and a relay must not touch
// (WHATWG event stream rules).
var oddStreams = map[string]string{
	"crlf":               "data: {\"a\":1}\r\n\r\ndata: [DONE]\r\n\r\n",
	"cr":                 "data: {\"a\":1}\r\rdata: [DONE]\r\r",
	"mixed ends":         "data: 1\r\n\ndata: 2\r\rdata: 3\n\r\ndata: [DONE]\n\n",
	"bom":                "\xef\xbb\xbfdata: 1\n\ndata: \xef\xbb\xbf\n\n" + doneEvent,
	"comments":           ": hello\n\n:\n\n:x\ndata: 1\n\n: unterminated",
	"many data lines":    "data: 1\ndata\ndata:\ndata:  2\n\n" + doneEvent,
	"odd fields":         "Data: 1\n data: 2\nid: \x00\nretry: 1000x\nevent\nevent:\nfoo: bar\n\n" + doneEvent,
	"no last blank line": "data: 1\n\ndata: 2\n",
	"bad utf8":           "data: \xff\xfe\xc3\n\n" + doneEvent,
	"split character":    "data: \xe2\x82\xac\n\n" + doneEvent,
	"sentinel in text":   "data: {\"content\":\"data: [DONE]\\n\\n\"}\n\ndata:  [DONE] \n\ndata: [DONE]\n\n",
	"empty events":       "\n\n\n\ndata: 1\n\n\n\n" + doneEvent,
	"nothing at all":     "",
	"no sse":             "{\"choices\":[]}",
}

// TestB7Row28OddStreams: exact forwarding, in whole writes, cut inside events
// and byte by byte.
func TestB7Row28OddStreams(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	for name, body := range oddStreams {
		for _, size := range []int{1, 3, 1 << 20} {
			t.Run(fmt.Sprintf("%s by %d", name, size), func(t *testing.T) {
				framed := chunkEach(body, size) + lastChunk
				play := func(x *exchange) {
					x.streamHead()
					x.write(framed)
				}
				a.on(play)
				b.on(play)
				resp := r.do(t, request("POST", chatPath, r.id("odd"), chatBody(true)))
				if resp.status != 200 || !resp.complete || string(resp.body) != body {
					t.Errorf("body %.300q (whole %v), want %.300q", resp.body, resp.complete, body)
				}
			})
		}
	}
}

// TestB7Row28EndlessLine: an event beyond 64 KiB goes out as it comes, and if
// its engine dies inside it, the connection ends without the last chunk.
func TestB7Row28EndlessLine(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	go1 := make(chan struct{})
	play := func(x *exchange) {
		x.streamHead()
		x.write(chunk("data: " + strings.Repeat("x", 200<<10)))
		if x.hold(go1) {
			x.reset()
		}
	}
	a.on(play)
	b.on(play)
	id := r.id("endless")
	c := r.dial(t)
	c.send(request("POST", chatPath, id, chatBody(true)))
	if _, err := c.until(patience, func(resp *response) bool { return resp != nil && len(resp.body) >= 150<<10 }); err != nil {
		t.Errorf("a long event is held back: %v, %d bytes there", err, len(c.raw))
	}
	close(go1)
	resp := c.response(patience)
	if resp.complete || len(resp.errorEvents()) > 0 || strings.Contains(string(resp.body), `"error"`) {
		t.Errorf("after half an event came %.200q (properly ended %v)", resp.body[max(0, len(resp.body)-150):], resp.complete)
	}
	r.ended(t, id, "engine-died")
}

// TestB7Row28HalfEvents: an incomplete event is held until it is whole, so that
// no client gets half a data line followed by an error event; whole events in
// front of it are not.
func TestB7Row28HalfEvents(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	whole, half, rest := deltaEvent("one"), `data: {"choices":[{"index":0,"delta":{"content":"t`, `wo"}}]}`+"\n\n"
	for name, pieces := range map[string][2]string{
		"chunk by chunk": {chunk(whole) + chunk(half), chunk(rest) + chunk(doneEvent)},
		"one chunk":      {chunk(whole + half), chunk(rest + doneEvent)},
		"inside a chunk": {chunk(whole) + fmt.Sprintf("%x\r\n", len(half+rest)) + half, rest + "\r\n" + chunk(doneEvent)},
	} {
		t.Run(name, func(t *testing.T) {
			more := make(chan struct{})
			play := func(x *exchange) {
				x.streamHead()
				x.write(pieces[0])
				if x.hold(more) {
					x.write(pieces[1] + lastChunk)
				}
			}
			a.on(play)
			b.on(play)
			c := r.dial(t)
			c.send(request("POST", chatPath, r.id("half"), chatBody(true)))
			_, _ = c.until(200*time.Millisecond, func(*response) bool { return false })
			if resp := c.head(patience); string(resp.body) != whole {
				t.Errorf("received %.300q, want the whole event and no half", resp.body)
			}
			close(more)
			if resp := c.response(patience); !resp.complete || string(resp.body) != whole+half+rest+doneEvent {
				t.Errorf("in the end: %.300q", resp.body)
			}
		})
	}
}

// TestB7Row29OddSuccess: 200 with an error inside, a bare sentinel, no tokens:
// forwarded as they are. An error event of the engine counts against it.
func TestB7Row29OddSuccess(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--eject.after=1000000")
	cases := []struct {
		name, raw string
		stream    bool
		ends      []string
	}{
		{"error object", jsonResponse(200, `{"error":{"message":"x","type":"InternalServerError","code":500}}`), false, []string{"done", "engine-error"}},
		{"error event first", streamHead + chunk(`data: {"error":{"message":"x","type":"InternalServerError","code":500}}`+"\n\n") + chunk(doneEvent) + lastChunk, true, []string{"engine-error"}},
		{"error event later", streamHead + chunk(roleEvent()) + chunk(deltaEvent("x")) + chunk(`data: {"error":{"message":"x","type":"InternalServerError","code":500}}`+"\n\n") + chunk(doneEvent) + lastChunk, true, []string{"engine-error"}},
		{"bare sentinel", streamHead + chunk(doneEvent) + lastChunk, true, []string{"done"}},
		{"no tokens", streamHead + chunk(roleEvent()) + chunk(finishEvent("stop")) + chunk(doneEvent) + lastChunk, true, []string{"done"}},
		{"empty stream", streamHead + lastChunk, true, []string{"done", "engine-died", "engine-bad-response"}},
		{"empty body", jsonResponse(200, ""), false, []string{"done", "engine-bad-response"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			play := func(x *exchange) { x.write(tc.raw) }
			a.on(play)
			b.on(play)
			id := r.id("odd")
			resp := r.do(t, request("POST", chatPath, id, chatBody(tc.stream)))
			want, _, _ := parseResponse([]byte(tc.raw), "POST", false)
			if resp.status != 200 || !resp.whole() || !bytes.Equal(resp.body, want.body) {
				t.Errorf("answered %d %.300q, want the engine's %.300q", resp.status, resp.body, want.body)
			}
			r.ended(t, id, tc.ends...)
		})
	}
}

// TestB7Row30EngineErrors: status, type and body of an engine's error pass
// untouched; a 503 tries the other engine first, and when both say so the last
// answer passes.
func TestB7Row30EngineErrors(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--eject.after=1000000")
	vllm := `{"error":{"message":"too long","type":"BadRequestError","param":"max_tokens","code":400}}`
	cases := []struct {
		status     int
		kind, body string
		attempts   int
	}{
		{400, "application/json", vllm, 1}, {404, "application/json", vllm, 1}, {422, "application/json", `{"detail":[{"loc":["body"]}]}`, 1},
		{401, "application/json", `{"error":"Unauthorized"}`, 1}, {429, "application/json", vllm, 1}, {500, "application/json", vllm, 1},
		{500, "text/plain; charset=utf-8", "Internal Server Error", 1}, {502, "text/html", "<html><body>Bad gateway</body></html>", 1},
		{400, "text/plain", "Invalid HTTP request received.", 1}, {418, "application/json", `"just a string"`, 1}, {400, "application/json", "", 1},
		{503, "application/json", `{"error":{"message":"The engine is currently busy","type":"Service Unavailable","param":null,"code":503}}`, 2},
	}
	for _, stream := range []bool{false, true} {
		for _, tc := range cases {
			t.Run(fmt.Sprintf("%d %s %.20s stream %v", tc.status, tc.kind, tc.body, stream), func(t *testing.T) {
				play := func(x *exchange) { x.write(fullResponse(tc.status, tc.kind, tc.body)) }
				a.on(play)
				b.on(play)
				id := r.id("error")
				resp := r.do(t, request("POST", chatPath, id, chatBody(stream)))
				if resp.status != tc.status || string(resp.body) != tc.body || resp.fields.get("Content-Type") != tc.kind {
					t.Errorf("answered %d %q %.300q", resp.status, resp.fields.get("Content-Type"), resp.body)
				}
				if got := resp.fields.get("X-Ramjet-Attempts"); got != fmt.Sprint(tc.attempts) || len(a.byID(id))+len(b.byID(id)) != tc.attempts {
					t.Errorf("%q attempts, %d at the engines, want %d", got, len(a.byID(id))+len(b.byID(id)), tc.attempts)
				}
			})
		}
	}
	var first counter
	a.on(func(x *exchange) { busyOnce(x, &first) })
	b.on(func(x *exchange) { busyOnce(x, &first) })
	if resp := r.post(t, chatPath, chatBody(false)); resp.status != 200 {
		t.Errorf("503 at one engine only: answered %d %.200q", resp.status, resp.body)
	}
}

func busyOnce(x *exchange, n *counter) {
	if n.add(1); n.get() == 1 {
		x.write(jsonResponse(503, "{}"))
		return
	}
	x.plain()
}
