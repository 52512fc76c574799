package e2e

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestAnchorBytesUnchanged: the stream is relayed byte for byte, chunk framing
// included; request body, headers and unknown fields reach the engine as sent.
func TestAnchorBytesUnchanged(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	framed := chunked(chatEvents(40))
	play := func(x *exchange) {
		x.streamHead()
		x.write(framed[:len(framed)/3])
		x.pause(5 * time.Millisecond)
		x.write(framed[len(framed)/3:])
	}
	a.on(play)
	b.on(play)
	body := " {\n\"stream\" : true , \"messages\":[ {\"content\":\"\\u00e9\\/ \xc3\xa9 \",\"role\":\"user\", \"odd\":1.0e0}],\t\"model\":\"m\",\"unknown_field\":{\"b\":1,\"a\":[]},\"temperature\":0.70,\"max_tokens\":5,\"stop\":null}\r\n"
	headers := []string{"X-Custom: a  b", "x-lower-CASE: 1", "X-Session-ID: s1", "Authorization: Bearer k", "Accept: text/event-stream", "Cookie: a=b; c=d", "traceparent: 00-1-2-01", "X-Stainless-OS: Linux", "X-Empty:"}
	id := r.id("same")
	c := r.dial(t)
	c.send(request("POST", chatPath, id, body, headers...))
	resp := c.response(patience)
	if string(resp.rawBody) != framed {
		t.Errorf("%d bytes of body, chunk framing included, want the engine's %d", len(resp.rawBody), len(framed))
	}
	if got := resp.fields.get("Content-Type"); got != "text/event-stream; charset=utf-8" {
		t.Errorf("content type %q", got)
	}
	x := waitFor(t, id, a, b)
	if string(x.body) != body || x.framing != "length" {
		t.Errorf("the engine's body, framed by %s: %q", x.framing, x.body)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		if got := x.fields.all(name); len(got) != 1 || got[0] != strings.TrimSpace(value) {
			t.Errorf("%s at the engine: %q", h, got)
		}
	}
	for _, name := range []string{"X-Request-Id", "X-Ramjet-Engine", "X-Ramjet-Reason", "X-Ramjet-Match", "X-Ramjet-Attempts", "Server-Timing"} {
		if len(resp.fields.all(name)) != 1 {
			t.Errorf("%d %s in the answer", len(resp.fields.all(name)), name)
		}
	}
	if resp.fields.get("X-Request-Id") != id {
		t.Errorf("X-Request-Id %q, want %q", resp.fields.get("X-Request-Id"), id)
	}
}

// TestAnchorLongLine: an SSE line of 2 MB, and one of 16 MB, arrive exact.
func TestAnchorLongLine(t *testing.T) {
	t.Parallel()
	for _, size := range []int{2 << 20, 16 << 20} {
		if size > 4<<20 && testing.Short() {
			continue
		}
		a, b := newEngine(t, "a"), newEngine(t, "b")
		r := start(t, a, b)
		line := deltaEvent(strings.Repeat("0123456789abcdef", size/16))
		play := func(x *exchange) {
			x.streamHead()
			x.events(roleEvent(), line, doneEvent)
			x.write(lastChunk)
		}
		a.on(play)
		b.on(play)
		c := r.dial(t)
		c.send(request("POST", chatPath, r.id("long"), chatBody(true), "Connection: close"))
		if !c.gone(6 * patience) {
			t.Fatalf("%d bytes: not whole in time, %d there", size, len(c.raw))
		}
		resp := c.response(patience)
		want := roleEvent() + line + doneEvent
		if !resp.complete || sha256.Sum256(resp.body) != sha256.Sum256([]byte(want)) {
			t.Errorf("%d bytes: %d arrived, want %d, properly ended %v", size, len(resp.body), len(want), resp.complete)
		}
	}
}

// TestAnchorReadsNothing: memory held for clients that read nothing of 100 MB
// each.
func TestAnchorReadsNothing(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	var taken counter
	a.on(flood(100<<20, &taken))
	b.on(flood(100<<20, &taken))
	before := r.rss()
	var cs []*client
	for range 8 {
		cs = append(cs, slowReader(t, r, r.id("slow")))
	}
	time.Sleep(1500 * time.Millisecond)
	grown := r.rss() - before
	t.Logf("8 clients that read nothing: memory %+d KB, engines sent %d KB", grown>>10, taken.get()>>10)
	if grown > 8*256<<10+6<<20 && !raceEnabled {
		t.Errorf("memory grew by %d bytes, want at most 256 KiB a stream", grown)
	}
	for _, c := range cs {
		c.close()
	}
	eventually(t, patience, "engines free", func() string {
		if n := a.busy() + b.busy(); n != 0 {
			return fmt.Sprintf("%d streams still run", n)
		}
		return ""
	})
}

// TestAnchorTries: an engine's 429 and 500 are asked once, a 503 twice; a death
// before any byte at both is 502.
func TestAnchorTries(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--eject.after=1000000", "--health.interval=1h")
	for status, tries := range map[int]int{429: 1, 500: 1, 503: 2} {
		play := func(x *exchange) { x.write(jsonResponse(status, "{}")) }
		a.on(play)
		b.on(play)
		id := r.id("tries")
		resp := r.do(t, request("POST", chatPath, id, chatBody(false)))
		if n := len(a.byID(id)) + len(b.byID(id)); resp.status != status || n != tries {
			t.Errorf("%d: answered %d after %d tries, want %d", status, resp.status, n, tries)
		}
	}
	dies := func(x *exchange) { x.reset() }
	a.on(dies)
	b.on(dies)
	id := r.id("tries")
	resp := r.do(t, request("POST", chatPath, id, chatBody(true)))
	if resp.status != 502 || resp.code() != "engine_unreachable" && resp.code() != "engine_bad_response" {
		t.Errorf("death before any byte at both: %d %.200q", resp.status, resp.body)
	}
	if n := len(a.byID(id)) + len(b.byID(id)); n < 2 || n > 6 {
		t.Errorf("%d tries", n)
	}
}

// TestAnchorStrictHTTP: what the other proxies let through.
func TestAnchorStrictHTTP(t *testing.T) {
	t.Parallel()
	a := newEngine(t, "a")
	r := startWith(t, setup{engines: []*engine{a}})
	wanted := map[string]bool{}
	for _, name := range []string{"framing/cl-and-te", "framing/cl-two-different", "framing/te-space-colon", "framing/te-xchunked", "framing/te-twice", "heads/lf-line", "heads/lf-all"} {
		wanted[name] = true
	}
	for _, v := range readVectors(t, "requests") {
		if wanted[v.name] {
			delete(wanted, v.name)
			judgeRequest(t, r, a, v)
		}
	}
	if len(wanted) > 0 {
		t.Errorf("vectors not found: %v", wanted)
	}
}
