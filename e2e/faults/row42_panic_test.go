package faults

import (
	"os"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestB7Row42Panic: a panic in the handler or in the relay costs its own
// request: 500 or an error event, the lease released, the process alive. The
// binary is built with the tag panicpoints, in which the request field
// X-Ramjet-Panic names the place.
func TestB7Row42Panic(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Tags: "panicpoints"})
	id := r.ID("handler")
	resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true), "X-Ramjet-Panic: handler"))
	if resp.Status == 200 && os.Getenv("RAMJET_BINARY") != "" {
		t.Skip("the binary in RAMJET_BINARY was not built here, so that it has no panic points")
	}
	if resp.Status != 500 || resp.Code() != "internal_error" {
		t.Errorf("a panic in the handler is answered %d %.200q, want 500 internal_error", resp.Status, resp.Body)
	}
	if strings.Contains(string(resp.Body), "goroutine") || strings.Contains(string(resp.Body), ".go:") {
		t.Errorf("the stack is in the answer: %.300q", resp.Body)
	}
	r.Ended(t, id, "internal")
	r.Counted(t, 1, "500", "internal")
	a.On(rig.TokensFor(time.Second)) // the answer is not over when the relay panics
	b.On(rig.TokensFor(time.Second))
	id = r.ID("relay")
	c := r.Dial(t)
	c.Send(rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true), "X-Ramjet-Panic: relay"))
	resp = c.Response(rig.Patience)
	if codes := resp.ErrorEvents(); !resp.Complete || len(codes) != 1 || codes[0] != "internal_error" || strings.Contains(string(resp.Body), "[DONE]") {
		t.Errorf("a panic in the relay: %d, error events %v, properly ended %v, %.200q", resp.Status, codes, resp.Complete, resp.Body)
	}
	line := r.Ended(t, id, "internal")
	if line.Num("attempts") != 1 || line.Str("engine") != "a" && line.Str("engine") != "b" || line.Num("status") != 200 {
		t.Errorf("the access line tells attempts %v, engine %v, status %v", line["attempts"], line["engine"], line["status"])
	}
	if r.HasExited() {
		t.Fatal("the process died")
	}
}
