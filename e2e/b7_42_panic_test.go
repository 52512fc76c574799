package e2e

import (
	"strings"
	"testing"
	"time"
)

// TestB7Row42Panic: a panic in the handler or in the relay costs its own
// request: 500 or an error event, the lease released, the process alive. The
// binary is built with the tag panicpoints, in which the request field
// X-Ramjet-Panic names the place.
func TestB7Row42Panic(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := startWith(t, setup{engines: []*engine{a, b}, tags: "panicpoints"})
	id := r.id("handler")
	resp := r.do(t, request("POST", chatPath, id, chatBody(true), "X-Ramjet-Panic: handler"))
	if resp.status == 200 {
		t.Skip("the binary has no panic points: build tag panicpoints is not honoured")
	}
	if resp.status != 500 || resp.code() != "internal_error" {
		t.Errorf("a panic in the handler is answered %d %.200q, want 500 internal_error", resp.status, resp.body)
	}
	if strings.Contains(string(resp.body), "goroutine") || strings.Contains(string(resp.body), ".go:") {
		t.Errorf("the stack is in the answer: %.300q", resp.body)
	}
	r.ended(t, id, "internal")
	r.counted(t, 1, "500", "internal")
	a.on(tokensFor(time.Second)) // the answer is not over when the relay panics
	b.on(tokensFor(time.Second))
	id = r.id("relay")
	c := r.dial(t)
	c.send(request("POST", chatPath, id, chatBody(true), "X-Ramjet-Panic: relay"))
	resp = c.response(patience)
	if codes := resp.errorEvents(); !resp.complete || len(codes) != 1 || codes[0] != "internal_error" || strings.Contains(string(resp.body), "[DONE]") {
		t.Errorf("a panic in the relay: %d, error events %v, properly ended %v, %.200q", resp.status, codes, resp.complete, resp.body)
	}
	r.ended(t, id, "internal")
	if r.hasExited() {
		t.Fatal("the process died")
	}
}
