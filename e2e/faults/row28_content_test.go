package faults

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// oddStreams are bodies that an SSE reader must take and a relay must not touch
// (WHATWG event stream rules).
var oddStreams = map[string]string{
	"crlf":               "data: {\"a\":1}\r\n\r\ndata: [DONE]\r\n\r\n",
	"cr":                 "data: {\"a\":1}\r\rdata: [DONE]\r\r",
	"mixed ends":         "data: 1\r\n\ndata: 2\r\rdata: 3\n\r\ndata: [DONE]\n\n",
	"bom":                "\xef\xbb\xbfdata: 1\n\ndata: \xef\xbb\xbf\n\n" + rig.DoneEvent,
	"comments":           ": hello\n\n:\n\n:x\ndata: 1\n\n: unterminated",
	"many data lines":    "data: 1\ndata\ndata:\ndata:  2\n\n" + rig.DoneEvent,
	"odd fields":         "Data: 1\n data: 2\nid: \x00\nretry: 1000x\nevent\nevent:\nfoo: bar\n\n" + rig.DoneEvent,
	"no last blank line": "data: 1\n\ndata: 2\n",
	"bad utf8":           "data: \xff\xfe\xc3\n\n" + rig.DoneEvent,
	"split character":    "data: \xe2\x82\xac\n\n" + rig.DoneEvent,
	"sentinel in text":   "data: {\"content\":\"data: [DONE]\\n\\n\"}\n\ndata:  [DONE] \n\ndata: [DONE]\n\n",
	"empty events":       "\n\n\n\ndata: 1\n\n\n\n" + rig.DoneEvent,
	"nothing at all":     "",
	"no sse":             "{\"choices\":[]}",
}

// TestB7Row28OddStreams: exact forwarding, in whole writes, cut inside events
// and byte by byte.
func TestB7Row28OddStreams(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	for name, body := range oddStreams {
		for _, size := range []int{1, 3, 1 << 20} {
			t.Run(fmt.Sprintf("%s by %d", name, size), func(t *testing.T) {
				framed := rig.ChunkEach(body, size) + rig.LastChunk
				play := func(x *rig.Exchange) {
					x.StreamHead()
					x.Write(framed)
				}
				a.On(play)
				b.On(play)
				resp := r.Do(t, rig.Request("POST", rig.ChatPath, r.ID("odd"), rig.ChatBody(true)))
				if resp.Status != 200 || !resp.Complete || string(resp.Body) != body {
					t.Errorf("body %.300q (whole %v), want %.300q", resp.Body, resp.Complete, body)
				}
			})
		}
	}
}

// TestB7Row28EndlessLine: an event beyond 64 KiB goes out as it comes, and if
// its engine dies inside it, the connection ends without the last chunk.
func TestB7Row28EndlessLine(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	go1 := make(chan struct{})
	play := func(x *rig.Exchange) {
		x.StreamHead()
		x.Write(rig.Chunk("data: " + strings.Repeat("x", 200<<10)))
		if x.Hold(go1) {
			x.Reset()
		}
	}
	a.On(play)
	b.On(play)
	id := r.ID("endless")
	c := r.Dial(t)
	c.Send(rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true)))
	if _, err := c.Until(rig.Patience, func(resp *rig.Response) bool { return resp != nil && len(resp.Body) >= 150<<10 }); err != nil {
		t.Errorf("a long event is held back: %v, %d bytes there", err, len(c.Raw))
	}
	close(go1)
	resp := c.Response(rig.Patience)
	if resp.Complete || len(resp.ErrorEvents()) > 0 || strings.Contains(string(resp.Body), `"error"`) {
		t.Errorf("after half an event came %.200q (properly ended %v)", resp.Body[max(0, len(resp.Body)-150):], resp.Complete)
	}
	r.Ended(t, id, "engine-died")
}

// TestB7Row28HalfEvents: an incomplete event is held until it is whole, so that
// no client gets half a data line followed by an error event; whole events in
// front of it are not.
func TestB7Row28HalfEvents(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	whole, half, rest := rig.DeltaEvent("one"), `data: {"choices":[{"index":0,"delta":{"content":"t`, `wo"}}]}`+"\n\n"
	for name, pieces := range map[string][2]string{
		"chunk by chunk": {rig.Chunk(whole) + rig.Chunk(half), rig.Chunk(rest) + rig.Chunk(rig.DoneEvent)},
		"one chunk":      {rig.Chunk(whole + half), rig.Chunk(rest + rig.DoneEvent)},
		"inside a chunk": {rig.Chunk(whole) + fmt.Sprintf("%x\r\n", len(half+rest)) + half, rest + "\r\n" + rig.Chunk(rig.DoneEvent)},
	} {
		t.Run(name, func(t *testing.T) {
			more := make(chan struct{})
			play := func(x *rig.Exchange) {
				x.StreamHead()
				x.Write(pieces[0])
				if x.Hold(more) {
					x.Write(pieces[1] + rig.LastChunk)
				}
			}
			a.On(play)
			b.On(play)
			c := r.Dial(t)
			c.Send(rig.Request("POST", rig.ChatPath, r.ID("half"), rig.ChatBody(true)))
			c.EventCount(rig.Patience, 1)
			_, _ = c.Until(200*time.Millisecond, func(*rig.Response) bool { return false })
			if resp := c.Head(rig.Patience); string(resp.Body) != whole {
				t.Errorf("received %.300q, want the whole event and no half", resp.Body)
			}
			close(more)
			if resp := c.Response(rig.Patience); !resp.Complete || string(resp.Body) != whole+half+rest+rig.DoneEvent {
				t.Errorf("in the end: %.300q", resp.Body)
			}
		})
	}
}

// TestB7Row29OddSuccess: 200 with an error inside, a bare sentinel, no tokens:
// forwarded as they are. An error event of the engine counts against it.
func TestB7Row29OddSuccess(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--eject.after=1000000")
	cases := []struct {
		name, raw string
		stream    bool
		ends      []string
	}{
		{"error object", rig.JSONResponse(200, `{"error":{"message":"x","type":"InternalServerError","code":500}}`), false, []string{"done", "engine-error"}},
		{"error event first", rig.StreamHead + rig.Chunk(`data: {"error":{"message":"x","type":"InternalServerError","code":500}}`+"\n\n") + rig.Chunk(rig.DoneEvent) + rig.LastChunk, true, []string{"engine-error"}},
		{"error event later", rig.StreamHead + rig.Chunk(rig.RoleEvent()) + rig.Chunk(rig.DeltaEvent("x")) + rig.Chunk(`data: {"error":{"message":"x","type":"InternalServerError","code":500}}`+"\n\n") + rig.Chunk(rig.DoneEvent) + rig.LastChunk, true, []string{"engine-error"}},
		{"bare sentinel", rig.StreamHead + rig.Chunk(rig.DoneEvent) + rig.LastChunk, true, []string{"done"}},
		{"no tokens", rig.StreamHead + rig.Chunk(rig.RoleEvent()) + rig.Chunk(rig.FinishEvent("stop")) + rig.Chunk(rig.DoneEvent) + rig.LastChunk, true, []string{"done"}},
		{"empty stream", rig.StreamHead + rig.LastChunk, true, []string{"done", "engine-died", "engine-bad-response"}},
		{"empty body", rig.JSONResponse(200, ""), false, []string{"done", "engine-bad-response"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			play := func(x *rig.Exchange) { x.Write(tc.raw) }
			a.On(play)
			b.On(play)
			id := r.ID("odd")
			resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(tc.stream)))
			want, _, _ := rig.ParseResponse([]byte(tc.raw), "POST", false)
			if resp.Status != 200 || !resp.Whole() || !bytes.Equal(resp.Body, want.Body) {
				t.Errorf("answered %d %.300q, want the engine's %.300q", resp.Status, resp.Body, want.Body)
			}
			r.Ended(t, id, tc.ends...)
		})
	}
}

// TestB7Row30EngineErrors: status, type and body of an engine's error pass
// untouched; a 503 tries the other engine first, and when both say so the last
// answer passes.
func TestB7Row30EngineErrors(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--eject.after=1000000")
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
				play := func(x *rig.Exchange) { x.Write(rig.FullResponse(tc.status, tc.kind, tc.body)) }
				a.On(play)
				b.On(play)
				id := r.ID("error")
				resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(stream)))
				if resp.Status != tc.status || string(resp.Body) != tc.body || resp.Fields.Get("Content-Type") != tc.kind {
					t.Errorf("answered %d %q %.300q", resp.Status, resp.Fields.Get("Content-Type"), resp.Body)
				}
				if got := resp.Fields.Get("X-Ramjet-Attempts"); got != fmt.Sprint(tc.attempts) || len(a.ByID(id))+len(b.ByID(id)) != tc.attempts {
					t.Errorf("%q attempts, %d at the engines, want %d", got, len(a.ByID(id))+len(b.ByID(id)), tc.attempts)
				}
			})
		}
	}
	var first rig.Counter
	a.On(func(x *rig.Exchange) { busyOnce(x, &first) })
	b.On(func(x *rig.Exchange) { busyOnce(x, &first) })
	if resp := r.Post(t, rig.ChatPath, rig.ChatBody(false)); resp.Status != 200 {
		t.Errorf("503 at one engine only: answered %d %.200q", resp.Status, resp.Body)
	}
}

func busyOnce(x *rig.Exchange, n *rig.Counter) {
	if n.Add(1); n.Get() == 1 {
		x.Write(rig.JSONResponse(503, "{}"))
		return
	}
	x.Plain()
}

// TestB7Row28ByteByByte: an answer whose every byte comes in a packet of its
// own, head and framing included, is relayed exact.
func TestB7Row28ByteByByte(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a}})
	events := []string{rig.RoleEvent(), "event: x\r\ndata: {\"a\":\"\xe2\x82\xac\"}\r\n\r\n", ": c\n\n", rig.DoneEvent}
	framed := rig.ChunkEach(strings.Join(events, ""), 37) + rig.LastChunk
	a.On(func(x *rig.Exchange) {
		for _, b := range []byte(rig.StreamHead + framed) {
			x.Write(string([]byte{b}))
			if b == '\r' || b == '\n' || b == ':' {
				time.Sleep(200 * time.Microsecond) // so that reads end at the odd places
			}
		}
	})
	for range 2 {
		resp := r.Do(t, rig.Request("POST", rig.ChatPath, r.ID("bytes"), rig.ChatBody(true)))
		if resp.Status != 200 || !resp.Complete || string(resp.Body) != strings.Join(events, "") {
			t.Errorf("answered %d %.600q", resp.Status, resp.Body)
		}
	}
}
