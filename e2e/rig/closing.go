package rig

import (
	"fmt"
)

// Closing asserts, at the end of every test, that nothing of it is left behind:
// no lease, no request at an engine, goroutines and descriptors back to the
// base, one access line for each id that was sent, as many lines as counted
// requests, and the next request served.
func (r *Ramjet) Closing() {
	r.T.Helper()
	Eventually(r.T, 2*Patience, "leases back to 0", func() string {
		if n := r.Metrics().Leases(); n != 0 {
			return fmt.Sprintf("%v are held", n)
		}
		return ""
	})
	r.enginesAtRest()
	r.Served(r.ID(AutoID+"next"), false)
	r.resourcesBack()
	r.OneLineEach()
}

// enginesAtRest resets the scripts and waits until no request runs.
func (r *Ramjet) enginesAtRest() {
	r.T.Helper()
	for _, e := range r.Setup.Engines {
		e.On(nil)
		Eventually(r.T, Patience, "engine "+e.Name+" at rest", func() string {
			if n := e.Busy(); n != 0 {
				return fmt.Sprintf("%d requests still run there", n)
			}
			return ""
		})
	}
}

func (r *Ramjet) resourcesBack() {
	r.T.Helper()
	idle := 2 * len(r.Setup.Engines) // a pooled and a probing connection each
	var now Resources
	// The pool lets go of what idles before vLLM's 5 s.
	last := Poll(4*Patience, func() string {
		now = r.resources()
		switch {
		case now.goroutines > r.base.goroutines:
			return fmt.Sprintf("%d goroutines, base %d", now.goroutines, r.base.goroutines)
		case now.fds > r.base.fds:
			return fmt.Sprintf("%d descriptors, base %d", now.fds, r.base.fds)
		case now.upstream > max(idle, r.base.upstream) && len(r.Setup.Engines) > 0:
			return fmt.Sprintf("%d connections to engines, base %d", now.upstream, r.base.upstream)
		}
		return ""
	})
	if last != "" {
		r.T.Errorf("resources not back: %s (now %+v, base %+v)", last, now, r.base)
		_, stacks := r.AdminGet("/debug/pprof/goroutine?debug=1")
		r.T.Logf("goroutines:\n%.8000s", stacks)
	}
}

// OneLineEach is the ledger: every request ends once, and in one line.
func (r *Ramjet) OneLineEach() {
	r.T.Helper()
	r.mu.Lock()
	ids := append([]string(nil), r.ids...)
	r.mu.Unlock()
	last := Poll(Patience, func() string {
		got := map[string]int{}
		lines := r.AccessLines()
		for _, a := range lines {
			got[a.Str("id")]++
		}
		for _, id := range ids {
			if got[id] != 1 {
				return fmt.Sprintf("%d access lines for request %s", got[id], id)
			}
		}
		if n := r.Metrics().Sum("ramjet_requests_total"); int(n) != len(lines) {
			return fmt.Sprintf("%v requests counted, %d access lines", n, len(lines))
		}
		return ""
	})
	if last != "" {
		r.T.Errorf("ledger: %s", last)
	}
}
