package e2e

import "ramjet/e2e/rig"

import "testing"

// TestMemoryBelievesDenials: an engine that reports again and again that nothing
// of a prompt was cached is no longer expected to hold it, and is again when it
// reports that it does.
func TestMemoryBelievesDenials(t *testing.T) {
	t.Parallel()
	sims := rig.Pair(t)
	r := rig.InFrontOf(t, sims, "exact", "--route.exact=off")
	load := rig.NewTalkLoad(29, 60)
	body := load.Body([]rig.TalkMessage{{Role: "user", Content: load.Text(400)}})
	a := r.Asker(t)
	defer a.Close()
	for _, s := range sims {
		fault(t, s, "event-lie", 0)
	}
	wrong, right := 0, 0
	for i := range 60 {
		p := a.Chat(r.ID("denied"), body)
		if !p.Ok() {
			t.Fatalf("request %d: %v", i, &p)
		}
		switch {
		case p.Cached != 0:
			t.Fatalf("request %d: the sims should have lost it: %v", i, &p)
		case p.Match != 0:
			wrong, right = wrong+1, 0
		default:
			right++
		}
	}
	t.Logf("%d of 60 claims were wrong, the last %d were right", wrong, right)
	if wrong == 0 || wrong > 4 { // two at each engine
		t.Errorf("%d of 60 claims were wrong, want two at an engine that is asked", wrong)
	}
	for _, s := range sims {
		s.Control(t, "/sim/clear", "")
	}
	for range 8 {
		if p := a.Chat(r.ID("again"), body); !p.Ok() {
			t.Fatalf("%v", &p)
		}
	}
	if p := a.Chat(r.ID("again"), body); p.Match == 0 || p.Cached == 0 {
		t.Errorf("what both hold again is not claimed: %v", &p)
	}
}
