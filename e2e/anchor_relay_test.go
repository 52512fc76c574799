package e2e

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestAnchorBytesUnchanged: the stream is relayed byte for byte, chunk framing
// included; request body, headers and unknown fields reach the engine as sent.
func TestAnchorBytesUnchanged(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	framed := rig.Chunked(rig.ChatEvents(40))
	play := func(x *rig.Exchange) {
		x.StreamHead()
		x.Write(framed[:len(framed)/3])
		x.Pause(5 * time.Millisecond)
		x.Write(framed[len(framed)/3:])
	}
	a.On(play)
	b.On(play)
	body := " {\n\"stream\" : true , \"messages\":[ {\"content\":\"\\u00e9\\/ \xc3\xa9 \",\"role\":\"user\", \"odd\":1.0e0}],\t\"model\":\"m\",\"unknown_field\":{\"b\":1,\"a\":[]},\"temperature\":0.70,\"max_tokens\":5,\"stop\":null}\r\n"
	headers := []string{"X-Custom: a  b", "x-lower-CASE: 1", "X-Session-ID: s1", "Authorization: Bearer k", "Accept: text/event-stream", "Cookie: a=b; c=d", "traceparent: 00-1-2-01", "X-Stainless-OS: Linux", "X-Empty:"}
	id := r.ID("same")
	c := r.Dial(t)
	c.Send(rig.Request("POST", rig.ChatPath, id, body, headers...))
	resp := c.Response(rig.Patience)
	if string(resp.RawBody) != framed {
		t.Errorf("%d bytes of body, chunk framing included, want the engine's %d", len(resp.RawBody), len(framed))
	}
	if got := resp.Fields.Get("Content-Type"); got != "text/event-stream; charset=utf-8" {
		t.Errorf("content type %q", got)
	}
	x := rig.WaitFor(t, id, a, b)
	if string(x.Body) != body || x.Framing != "length" {
		t.Errorf("the engine's body, framed by %s: %q", x.Framing, x.Body)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		if got := x.Fields.All(name); len(got) != 1 || got[0] != strings.TrimSpace(value) {
			t.Errorf("%s at the engine: %q", h, got)
		}
	}
	for _, name := range []string{"X-Request-Id", "X-Ramjet-Engine", "X-Ramjet-Reason", "X-Ramjet-Match", "X-Ramjet-Attempts", "Server-Timing"} {
		if len(resp.Fields.All(name)) != 1 {
			t.Errorf("%d %s in the answer", len(resp.Fields.All(name)), name)
		}
	}
	if resp.Fields.Get("X-Request-Id") != id {
		t.Errorf("X-Request-Id %q, want %q", resp.Fields.Get("X-Request-Id"), id)
	}
}

// TestAnchorLongLine: an SSE line of 2 MB, and one of 16 MB, arrive exact.
func TestAnchorLongLine(t *testing.T) {
	t.Parallel()
	for _, size := range []int{2 << 20, 16 << 20} {
		if size > 4<<20 && testing.Short() {
			continue
		}
		a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
		r := rig.Start(t, a, b)
		line := rig.DeltaEvent(strings.Repeat("0123456789abcdef", size/16))
		play := func(x *rig.Exchange) {
			x.StreamHead()
			x.Events(rig.RoleEvent(), line, rig.DoneEvent)
			x.Write(rig.LastChunk)
		}
		a.On(play)
		b.On(play)
		c := r.Dial(t)
		c.Send(rig.Request("POST", rig.ChatPath, r.ID("long"), rig.ChatBody(true), "Connection: close"))
		if !c.Gone(6 * rig.Patience) {
			t.Fatalf("%d bytes: not whole in time, %d there", size, len(c.Raw))
		}
		resp := c.Response(rig.Patience)
		want := rig.RoleEvent() + line + rig.DoneEvent
		if !resp.Complete || sha256.Sum256(resp.Body) != sha256.Sum256([]byte(want)) {
			t.Errorf("%d bytes: %d arrived, want %d, properly ended %v", size, len(resp.Body), len(want), resp.Complete)
		}
	}
}

// TestAnchorReadsNothing: memory held for clients that read nothing of 100 MB
// each.
func TestAnchorReadsNothing(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	var taken rig.Counter
	a.On(rig.Flood(100<<20, &taken))
	b.On(rig.Flood(100<<20, &taken))
	before := r.RSS()
	var cs []*rig.Client
	for range 8 {
		cs = append(cs, rig.SlowReader(t, r, r.ID("slow")))
	}
	time.Sleep(1500 * time.Millisecond)
	grown := r.RSS() - before
	t.Logf("8 clients that read nothing: memory %+d KB, engines sent %d KB", grown>>10, taken.Get()>>10)
	if grown > 8*256<<10+6<<20 && !rig.RaceEnabled {
		t.Errorf("memory grew by %d bytes, want at most 256 KiB a stream", grown)
	}
	for _, c := range cs {
		c.Close()
	}
	rig.Eventually(t, rig.Patience, "engines free", func() string {
		if n := a.Busy() + b.Busy(); n != 0 {
			return fmt.Sprintf("%d streams still run", n)
		}
		return ""
	})
}

// TestAnchorTries: an engine's 429 and 500 are asked once, a 503 twice; a death
// before any byte at both is 502.
func TestAnchorTries(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--eject.after=1000000", "--health.interval=1h")
	for status, tries := range map[int]int{429: 1, 500: 1, 503: 2} {
		play := func(x *rig.Exchange) { x.Write(rig.JSONResponse(status, "{}")) }
		a.On(play)
		b.On(play)
		id := r.ID("tries")
		resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(false)))
		if n := len(a.ByID(id)) + len(b.ByID(id)); resp.Status != status || n != tries {
			t.Errorf("%d: answered %d after %d tries, want %d", status, resp.Status, n, tries)
		}
	}
	dies := func(x *rig.Exchange) { x.Reset() }
	a.On(dies)
	b.On(dies)
	id := r.ID("tries")
	resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true)))
	if resp.Status != 502 || resp.Code() != "engine_unreachable" && resp.Code() != "engine_bad_response" {
		t.Errorf("death before any byte at both: %d %.200q", resp.Status, resp.Body)
	}
	if n := len(a.ByID(id)) + len(b.ByID(id)); n < 2 || n > 6 {
		t.Errorf("%d tries", n)
	}
}

// TestAnchorStrictHTTP: what the other proxies let through.
func TestAnchorStrictHTTP(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a}})
	wanted := map[string]bool{}
	for _, name := range []string{"framing/cl-and-te", "framing/cl-two-different", "framing/te-space-colon", "framing/te-xchunked", "framing/te-twice", "heads/lf-line", "heads/lf-all"} {
		wanted[name] = true
	}
	for _, v := range rig.ReadVectors(t, "requests") {
		if wanted[v.Name] {
			delete(wanted, v.Name)
			rig.JudgeRequest(t, r, a, v)
		}
	}
	if len(wanted) > 0 {
		t.Errorf("vectors not found: %v", wanted)
	}
}
