//go:build panicpoints

package proxy

import (
	"strings"
	"testing"
)

// TestPanicCostsItsOwnRequest only, wherever it happens.
func TestPanicCostsItsOwnRequest(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) {
		x.write(streamHead, chunk(roleEvent), chunk(tokenEvent))
		if x.n == 1 {
			x.gone()
			return
		}
		x.write(chunk(doneEvent), endOfBody)
	}})
	f.ask(post(chatPath, chatSBody, "X-Ramjet-Panic: handler")).wantError(t, 500, "internal_error")
	f.ask(post(chatPath, chatSBody)).want(t, 200, roleEvent+tokenEvent+doneEvent)
	c := f.dial()
	c.send(post(chatPath, chatSBody, "X-Ramjet-Panic: relay"))
	a := c.receive()
	if a.StatusCode != 200 || !strings.Contains(string(a.body), "internal_error") || a.err != nil {
		t.Errorf("got %d %q, %v", a.StatusCode, a.body, a.err)
	}
	c.closed()
	ends := map[string]int{}
	for _, r := range f.records(3) {
		ends[r.End]++
		if r.End == "internal" && r.Status == 200 && (r.Attempts != 1 || len(r.Engines) != 1) {
			t.Errorf("record %+v", r)
		}
	}
	if ends["internal"] != 2 || ends["done"] != 1 {
		t.Errorf("ends %v", ends)
	}
	eventually(t, "the stack in the log", func() bool { return strings.Count(string(f.log.bytes()), "a request panicked") == 2 })
}
