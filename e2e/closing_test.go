package e2e

import (
	"fmt"
	"testing"
)

// closing asserts, at the end of every test, that nothing of it is left behind:
// no lease, no request at an engine, goroutines and descriptors back to the
// base, one access line for each id that was sent, as many lines as counted
// requests, and the next request served.
func (r *ramjet) closing() {
	r.t.Helper()
	eventually(r.t, 2*patience, "leases back to 0", func() string {
		if n := r.metrics().leases(); n != 0 {
			return fmt.Sprintf("%v are held", n)
		}
		return ""
	})
	r.enginesAtRest()
	r.served(r.id(autoID+"next"), false)
	r.resourcesBack()
	r.oneLineEach()
}

// enginesAtRest resets the scripts and waits until no request runs.
func (r *ramjet) enginesAtRest() {
	r.t.Helper()
	for _, e := range r.setup.engines {
		e.on(nil)
		eventually(r.t, patience, "engine "+e.name+" at rest", func() string {
			if n := e.busy(); n != 0 {
				return fmt.Sprintf("%d requests still run there", n)
			}
			return ""
		})
	}
}

func (r *ramjet) resourcesBack() {
	r.t.Helper()
	idle := 2 * len(r.setup.engines) // a pooled and a probing connection each
	var now resources
	// The pool lets go of what idles before vLLM's 5 s.
	last := poll(4*patience, func() string {
		now = r.resources()
		switch {
		case now.goroutines > r.base.goroutines:
			return fmt.Sprintf("%d goroutines, base %d", now.goroutines, r.base.goroutines)
		case now.fds > r.base.fds:
			return fmt.Sprintf("%d descriptors, base %d", now.fds, r.base.fds)
		case now.upstream > max(idle, r.base.upstream) && len(r.setup.engines) > 0:
			return fmt.Sprintf("%d connections to engines, base %d", now.upstream, r.base.upstream)
		}
		return ""
	})
	if last != "" {
		r.t.Errorf("resources not back: %s (now %+v, base %+v)", last, now, r.base)
		_, stacks := r.adminGet("/debug/pprof/goroutine?debug=1")
		r.t.Logf("goroutines:\n%.8000s", stacks)
	}
}

// oneLineEach is the ledger: every request ends once, and in one line.
func (r *ramjet) oneLineEach() {
	r.t.Helper()
	r.mu.Lock()
	ids := append([]string(nil), r.ids...)
	r.mu.Unlock()
	last := poll(patience, func() string {
		got := map[string]int{}
		lines := r.accessLines()
		for _, a := range lines {
			got[a.str("id")]++
		}
		for _, id := range ids {
			if got[id] != 1 {
				return fmt.Sprintf("%d access lines for request %s", got[id], id)
			}
		}
		if n := r.metrics().sum("ramjet_requests_total"); int(n) != len(lines) {
			return fmt.Sprintf("%v requests counted, %d access lines", n, len(lines))
		}
		return ""
	})
	if last != "" {
		r.t.Errorf("ledger: %s", last)
	}
}

// TestClosingSeesWhatIsHeld proves that the closing assertions can fail: while a
// stream is open, everything they measure is above the base.
func TestClosingSeesWhatIsHeld(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	hold := func(x *exchange) { x.streamHead(); x.gone(0) }
	a.on(hold)
	b.on(hold)
	for range 3 {
		c := r.dial(t)
		c.send(request("POST", chatPath, r.id("held"), chatBody(true)))
		c.head(patience)
	}
	now := r.resources()
	if now.goroutines <= r.base.goroutines || now.fds < r.base.fds+3 || now.upstream <= 2 {
		t.Errorf("three open streams: %+v, base %+v", now, r.base)
	}
	if m := r.metrics(); m.leases() != 3 || m.sum("ramjet_lease_tokens") == 0 {
		t.Errorf("three open streams: %v leases of %v tokens", m.leases(), m.sum("ramjet_lease_tokens"))
	}
	if a.busy()+b.busy() != 3 {
		t.Errorf("three open streams: %d at the engines", a.busy()+b.busy())
	}
}
