package e2e

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// http10 turns a request into HTTP/1.0.
func http10(raw string) string { return strings.Replace(raw, " HTTP/1.1\r\n", " HTTP/1.0\r\n", 1) }

// TestCaseC04HTTP10: a client that speaks HTTP/1.0 gets events as they come, no
// chunk sizes, and close as the end; if the engine dies, one error event, since
// nothing else could tell it.
func TestCaseC04HTTP10(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--eject.after=1000000")
	for _, keep := range []string{"X-None: 1", "Connection: keep-alive"} {
		t.Run(keep, func(t *testing.T) {
			step := make(chan struct{})
			play := func(x *rig.Exchange) {
				x.StreamHead()
				x.Events(rig.ChatEvents(2)[:2]...)
				if x.Hold(step) {
					x.Events(rig.ChatEvents(2)[2:]...)
					x.Write(rig.LastChunk)
				}
			}
			a.On(play)
			b.On(play)
			c := r.Dial(t)
			c.Send(http10(rig.Request("POST", rig.ChatPath, r.ID("c04"), rig.ChatBody(true), keep)))
			c.EventCount(rig.Patience, 2) // the events come before the end
			close(step)
			resp := c.Response(rig.Patience)
			if resp.Framing != "close" || resp.Fields.Get("Transfer-Encoding") != "" || !resp.Closed || c.Reset {
				t.Errorf("framing %q, head %q", resp.Framing, resp.Head)
			}
			if want := strings.Join(rig.ChatEvents(2), ""); string(resp.Body) != want {
				t.Errorf("body %.400q, want %.400q", resp.Body, want)
			}
		})
	}
	died := func(x *rig.Exchange) {
		x.StreamHead()
		x.Events(rig.ChatEvents(3)[:3]...)
		x.Pause(10 * time.Millisecond)
		x.Reset()
	}
	a.On(died)
	b.On(died)
	resp := r.Do(t, http10(rig.Request("POST", rig.ChatPath, r.ID("c04"), rig.ChatBody(true))))
	events, rest := resp.Events()
	if codes := resp.ErrorEvents(); len(codes) != 1 || codes[0] != "engine_died" || len(events) != 4 || rest != "" || bytes.Contains(resp.Body, []byte("[DONE]")) {
		t.Errorf("codes %v, %d events, rest %q: %.500q", codes, len(events), rest, resp.Body)
	}
}

// TestCaseC04Kind: other answers to HTTP/1.0 are framed by length or close too.
func TestCaseC04Kind(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	chunkedPlain := func(x *rig.Exchange) {
		x.Write("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n" + rig.ChunkEach(rig.ChatAnswer("x"), 7) + rig.LastChunk)
	}
	for name, play := range map[string]rig.Script{"length": nil, "chunks": chunkedPlain} {
		a.On(play)
		b.On(play)
		resp := r.Do(t, http10(rig.Request("POST", rig.ChatPath, r.ID("c04"), rig.ChatBody(false))))
		if resp.Status != 200 || resp.Framing == "chunked" || !resp.Whole() || !strings.HasPrefix(string(resp.Body), `{"id"`) {
			t.Errorf("%s: %d framed by %s: %.200q", name, resp.Status, resp.Framing, resp.Body)
		}
	}
	for _, raw := range []string{rig.Request("GET", "/v1/models", r.ID("c04"), ""), rig.Request("POST", "/nothing", r.ID("c04"), "{}")} {
		if resp := r.Do(t, http10(raw)); resp.Framing == "chunked" || !resp.Whole() {
			t.Errorf("%.30q: framed by %s", raw, resp.Framing)
		}
	}
	// A cut answer without a length must not end by a clean close.
	cut := func(x *rig.Exchange) {
		x.Write("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n" + rig.Chunk(`{"choices":[`))
		x.Pause(10 * time.Millisecond)
		x.Reset()
	}
	a.On(cut)
	b.On(cut)
	c := r.Dial(t)
	c.Send(http10(rig.Request("POST", rig.ChatPath, r.ID("c04"), rig.ChatBody(false))))
	if resp, _ := c.Until(rig.Patience, func(resp *rig.Response) bool { return resp != nil && resp.Closed }); resp != nil && resp.Status == 200 && !c.Reset && resp.Framing == "close" {
		t.Errorf("a cut plain answer ended by a clean close: %.200q", resp.Body)
	}
}
