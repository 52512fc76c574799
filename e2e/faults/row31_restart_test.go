package faults

import (
	"fmt"
	"testing"

	"ramjet/e2e/rig"
)

// TestB7Row31EngineRestart restarts an engine under load: its part of the index
// goes at once, it gets no request before its time, and is exact again. The time
// that it takes to load is the sim's refusal of connections.
func TestB7Row31EngineRestart(t *testing.T) {
	t.Parallel()
	sims := rig.Pair(t)
	r := rig.InFrontOf(t, sims, "exact", "--health.interval=100ms", "--health.successes=3", "--health.stable=10s", "--health.slow-start=500ms")
	load := rig.NewTalkLoad(8, 60)
	rig.EqualRun(t, r, sims, load, 30)
	if n := r.EngineView("a").Blocks(); n < 20 {
		t.Fatalf("only %d blocks of a are known before the restart", n)
	}
	stop := rig.Background(t, r.Asker(t), r.ID, rig.NewTalkLoad(9, 60), 4)
	before := sims[0].Cache(t).Requests
	rig.Eventually(t, 2*rig.Patience, "load on both", func() string {
		if sims[0].Cache(t).Requests < before+5 {
			return "too little"
		}
		return ""
	})
	sims[0].Control(t, "/sim/restart", `{"seconds":3}`)
	rig.Eventually(t, 2*rig.Patience, "a down", func() string {
		if e := r.EngineView("a"); e.State != "down" || e.Trust == "exact" {
			return e.State + ", " + e.Trust
		}
		return ""
	})
	rig.Eventually(t, 2*rig.Patience, "a warming, and its index cleared", func() string {
		// Its new process has published nothing yet.
		if e := r.EngineView("a"); e.State != "warming" || e.Trust != "exact" || e.Blocks() != 0 {
			return fmt.Sprintf("%s, %s, %d blocks", e.State, e.Trust, e.Blocks())
		}
		return ""
	})
	var during rig.CacheState
	rig.Eventually(t, 4*rig.Patience, "a in use again", func() string {
		st := sims[0].Cache(t) // before the state: it is of a time when a was still warming
		e := r.EngineView("a")
		if e.State == "warming" {
			during = st
		}
		if e.State != "ready" && e.State != "slow-start" {
			return "it is " + e.State
		}
		return ""
	})
	if during.Blocks != 0 {
		t.Errorf("a computed %d blocks while it was warming", during.Blocks)
	}
	at := sims[0].Cache(t).Requests
	rig.Eventually(t, 2*rig.Patience, "requests come to a again", func() string {
		if sims[0].Cache(t).Requests <= at {
			return "none"
		}
		return ""
	})
	r.TrustIs(t, 2*rig.Patience, "a", "exact")
	answered, failed := stop()
	t.Logf("%d requests answered, %d failed", answered, len(failed))
	// What ran there ends with it, unless nothing had reached the client.
	if len(failed) > 4 {
		t.Errorf("%d requests failed: %v", len(failed), &failed[0])
	}
	for i := range failed {
		if failed[i].Status != 200 && failed[i].Status != 0 {
			t.Errorf("a request was refused: %v", &failed[i])
		}
	}
	for _, s := range sims {
		rig.Eventually(t, rig.Patience, "rest", func() string {
			if r.Metrics().Leases() != 0 {
				return "leases are held"
			}
			return ""
		})
		r.TrustIs(t, rig.Patience, s.Name, "exact")
	}
	if cached := rig.EqualRun(t, r, sims, load, 30); cached == 0 {
		t.Error("no request found its prefix")
	}
}
