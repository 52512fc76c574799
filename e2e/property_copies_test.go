package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	"ramjet/e2e/rig"
)

// TestLastCopyAloneIsFoundOut: an engine that announces the removal of a block's last copy alone (vLLM pull request
// 55092) has too many copies counted. Two answers show it, and what is doubtful is not believed any more: the engine
// stays exact, and is.
func TestLastCopyAloneIsFoundOut(t *testing.T) {
	t.Parallel()
	const talks = 8
	one := rig.Pair(t)[:1]
	sim := one[0]
	r := rig.InFrontOf(t, one, "exact")
	direct, a := rig.NewAsker(t, sim.URL()), r.Asker(t)
	load := rig.NewTalkLoad(55, 60)
	load.Cap = 120
	var history [talks][]rig.TalkMessage
	full := 0 // blocks of the prompts
	for i := range talks {
		history[i] = []rig.TalkMessage{{Role: "user", Content: fmt.Sprint(i, " ") + load.Text(60)}}
		body := load.Body(history[i])
		twins := make(chan rig.Reply, 2)
		for range 2 { // one answer twice, at once: its blocks are there twice
			go func() { twins <- direct.Chat("twin", body) }()
		}
		p, q := <-twins, <-twins
		if !p.Ok() || !q.Ok() || p.Text != q.Text {
			t.Fatalf("talk %d: %v; %v", i, &p, &q)
		}
		history[i] = append(history[i], rig.TalkMessage{Role: "assistant", Content: p.Text}, rig.TalkMessage{Role: "user", Content: load.Text(10)})
		full += p.Prompt / 16
	}
	load.Cap = 1
	for i := range talks { // the prompts are used again, so that the answers are evicted first
		if p := direct.Chat("again", load.Body(history[i][:1])); !p.Ok() || p.Cached == 0 {
			t.Fatalf("talk %d: %v", i, &p)
		}
	}
	r.InStep(t, sim)
	copies := sim.Cache(t).Blocks - r.EngineView("a").Blocks()
	fault(t, sim, "event-last-copy", 0)
	var gone struct{ Evicted int }
	if err := json.Unmarshal([]byte(sim.Control(t, "/sim/evict", fmt.Sprintf(`{"blocks":%d}`, sim.Cache(t).Blocks-full))), &gone); err != nil || copies < talks {
		t.Fatalf("%d copies, %v", copies, err)
	}
	if p := direct.Chat("step", load.Body([]rig.TalkMessage{{Role: "user", Content: load.Text(60)}})); !p.Ok() { // evictions are announced with a step
		t.Fatal(&p)
	}
	r.InStep(t, sim)
	var wrong []int
	for i := range talks {
		p := a.Chat(r.ID("copies"), load.Body(history[i]))
		if !p.Ok() || p.Match < p.Cached {
			t.Errorf("talk %d: %v", i, &p)
		}
		if p.Match != p.Cached {
			wrong = append(wrong, i)
		}
		r.InStep(t, sim)
	}
	e := r.EngineView("a")
	t.Logf("%d copies, %d evicted; predictions were wrong at %v; %s: %s", copies, gone.Evicted, wrong, e.Trust, e.TrustReason)
	if len(wrong) == 0 || len(wrong) > 2 || e.Trust != "exact" {
		t.Errorf("predictions were wrong at %v, want one or two; %s: %s", wrong, e.Trust, e.TrustReason)
	}
	rig.EqualRun(t, r, one, rig.NewTalkLoad(56, 60), 10)
}
