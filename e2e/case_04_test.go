package e2e

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// http10 turns a request into HTTP/1.0.
func http10(raw string) string { return strings.Replace(raw, " HTTP/1.1\r\n", " HTTP/1.0\r\n", 1) }

// TestCaseC04HTTP10: a client that speaks HTTP/1.0 gets events as they come, no
// chunk sizes, and close as the end; if the engine dies, one error event, since
// nothing else could tell it.
func TestCaseC04HTTP10(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--eject.after=1000000")
	for _, keep := range []string{"X-None: 1", "Connection: keep-alive"} {
		t.Run(keep, func(t *testing.T) {
			step := make(chan struct{})
			play := func(x *exchange) {
				x.streamHead()
				x.events(chatEvents(2)[:2]...)
				if x.hold(step) {
					x.events(chatEvents(2)[2:]...)
					x.write(lastChunk)
				}
			}
			a.on(play)
			b.on(play)
			c := r.dial(t)
			c.send(http10(request("POST", chatPath, r.id("c04"), chatBody(true), keep)))
			c.eventCount(patience, 2) // the events come before the end
			close(step)
			resp := c.response(patience)
			if resp.framing != "close" || resp.fields.get("Transfer-Encoding") != "" || !resp.closed || c.reset {
				t.Errorf("framing %q, head %q", resp.framing, resp.head)
			}
			if want := strings.Join(chatEvents(2), ""); string(resp.body) != want {
				t.Errorf("body %.400q, want %.400q", resp.body, want)
			}
		})
	}
	died := func(x *exchange) {
		x.streamHead()
		x.events(chatEvents(3)[:3]...)
		x.pause(10 * time.Millisecond)
		x.reset()
	}
	a.on(died)
	b.on(died)
	resp := r.do(t, http10(request("POST", chatPath, r.id("c04"), chatBody(true))))
	events, rest := resp.events()
	if codes := resp.errorEvents(); len(codes) != 1 || codes[0] != "engine_died" || len(events) != 4 || rest != "" || bytes.Contains(resp.body, []byte("[DONE]")) {
		t.Errorf("codes %v, %d events, rest %q: %.500q", codes, len(events), rest, resp.body)
	}
}

// TestCaseC04Kind: other answers to HTTP/1.0 are framed by length or close too.
func TestCaseC04Kind(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	chunkedPlain := func(x *exchange) {
		x.write("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n" + chunkEach(chatAnswer("x"), 7) + lastChunk)
	}
	for name, play := range map[string]script{"length": nil, "chunks": chunkedPlain} {
		a.on(play)
		b.on(play)
		resp := r.do(t, http10(request("POST", chatPath, r.id("c04"), chatBody(false))))
		if resp.status != 200 || resp.framing == "chunked" || !resp.whole() || !strings.HasPrefix(string(resp.body), `{"id"`) {
			t.Errorf("%s: %d framed by %s: %.200q", name, resp.status, resp.framing, resp.body)
		}
	}
	for _, raw := range []string{request("GET", "/v1/models", r.id("c04"), ""), request("POST", "/nothing", r.id("c04"), "{}")} {
		if resp := r.do(t, http10(raw)); resp.framing == "chunked" || !resp.whole() {
			t.Errorf("%.30q: framed by %s", raw, resp.framing)
		}
	}
	// A cut answer without a length must not end by a clean close.
	cut := func(x *exchange) {
		x.write("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(`{"choices":[`))
		x.pause(10 * time.Millisecond)
		x.reset()
	}
	a.on(cut)
	b.on(cut)
	c := r.dial(t)
	c.send(http10(request("POST", chatPath, r.id("c04"), chatBody(false))))
	if resp, _ := c.until(patience, func(resp *response) bool { return resp != nil && resp.closed }); resp != nil && resp.status == 200 && !c.reset && resp.framing == "close" {
		t.Errorf("a cut plain answer ended by a clean close: %.200q", resp.body)
	}
}
