package e2e

import (
	"sync"
	"testing"

	"ramjet/e2e/rig"
)

// TestTwoRamjets: two processes in front of one pair of engines know the same blocks under the same keys, whoever's
// requests filled them, and do not herd: requests through both at once are shared out between the engines by each.
func TestTwoRamjets(t *testing.T) {
	t.Parallel()
	sims := rig.Pair(t, "--kv-blocks=20000", "--speed=1")
	ramjets := []*rig.Ramjet{rig.InFrontOf(t, sims, "exact"), rig.InFrontOf(t, sims, "exact")}
	load := rig.NewTalkLoad(30, 60)
	cached := 0
	for turn := range 20 { // each request through the other one than the request before
		r := ramjets[turn%2]
		ramjets[0].InStep(t, sims...)
		ramjets[1].InStep(t, sims...)
		body, tell := load.Next()
		a := r.Asker(t)
		p := a.Chat(r.ID("two"), body)
		a.Close()
		if !p.Ok() || p.Match != p.Cached {
			t.Errorf("request %d: %v", turn, &p)
		}
		cached += p.Cached
		tell(p.Text)
	}
	if cached == 0 {
		t.Error("nothing was cached of twenty requests of conversations")
	}
	const clients, each = 10, 10 // of each Ramjet
	var mu sync.Mutex            // guards shares
	shares := [2]map[string]int{{}, {}}
	var wg sync.WaitGroup
	for i, r := range ramjets {
		for c := range clients {
			wg.Go(func() {
				mine := rig.NewTalkLoad(uint64(100*i+c), 150)
				a := r.Asker(t)
				defer a.Close()
				for range each {
					p := a.Chat(r.ID("herd"), mine.Body([]rig.TalkMessage{{Role: "user", Content: mine.Text(200)}}))
					if !p.Ok() {
						t.Errorf("a request failed: %v", &p)
					}
					mu.Lock()
					shares[i][p.Engine]++
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	t.Logf("shares %v", shares)
	for i := range ramjets {
		for _, s := range sims {
			if n := shares[i][s.Name]; n < clients*each/5 {
				t.Errorf("the Ramjet %d sent %d of %d requests to %s", i, n, clients*each, s.Name)
			}
		}
	}
	ramjets[0].InStep(t, sims...)
	ramjets[1].InStep(t, sims...)
	for _, s := range sims {
		one, two := ramjets[0].EngineView(s.Name), ramjets[1].EngineView(s.Name)
		if one.Blocks() != two.Blocks() || one.Blocks() <= 0 || one.Trust != "exact" || two.Trust != "exact" {
			t.Errorf("engine %s: %d blocks (%s) and %d blocks (%s)", s.Name, one.Blocks(), one.Trust, two.Blocks(), two.Trust)
		}
	}
}
