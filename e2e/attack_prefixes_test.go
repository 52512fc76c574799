package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestAttackPrefixes: thousands of long prompts that share a beginning and then
// fork, each at another place and never twice, so that nothing that is
// remembered of one helps another. Index, memory and token cache keep their
// bounds, and ordinary requests are decided as before.
func TestAttackPrefixes(t *testing.T) {
	rig.Slow(t, "3,000 prompts of 4,000 tokens")
	const prompts, words = 3000, 4000
	flags := append([]string{"--speed=1000", "--kv-blocks=2000"}, rig.Publishing...)
	sims := []*rig.SimEngine{rig.StartSim(t, "a", flags...), rig.StartSim(t, "b", flags...)}
	r := rig.StartSims(t, rig.SimSetup{Sims: sims, Events: "auto", Model: rig.SimModelFolder(t), Settled: rig.Both(rig.Said("token ids compared"), rig.Trusted),
		Flags: []string{"--tokens.cache=16MiB"}})
	shared := strings.Repeat("river ", words)
	ask := func(i int) string {
		fork := i * 7919 % words // a prime: all places, in no order
		text := shared[:fork*len("river ")] + fmt.Sprintf("fork %d ", i) + strings.Repeat("night ", words-fork)
		body, err := json.Marshal(map[string]any{"model": "m", "max_tokens": 1, "messages": []map[string]string{{"role": "user", "content": text}}})
		if err != nil {
			panic("BUG: cannot render a request: " + err.Error())
		}
		return shortPost(rig.ChatPath, string(body))
	}
	base, began := r.RSS(), time.Now()
	peak := watchPeak(r)
	got := pour(t, r, prompts, ask)
	most := peak.end()
	m := r.Metrics()
	t.Logf("%d prompts of %d tokens in %v: %d MiB resident at most, %d before; index %d KiB, blocks %v", prompts, words, time.Since(began).Round(10*time.Millisecond),
		most>>20, base>>20, int(m.Sum("ramjet_index_bytes"))>>10, m.Sum("ramjet_index_blocks"))
	if got[200].Load() != prompts {
		t.Errorf("%d of %d were served", got[200].Load(), prompts)
	}
	if blocks := m.Sum("ramjet_index_blocks"); blocks > 2*2000 {
		t.Errorf("the index holds %v blocks, the engines 4,000 at most", blocks)
	}
	if most > base+192<<20 {
		t.Errorf("%d MiB resident, %d before: beyond the bounds of the token cache (16 MiB), the memory and the index", most>>20, base>>20)
	}
	began = time.Now()
	r.Served(r.ID(rig.AutoID+"after"), false)
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("afterwards an ordinary request takes %v", took)
	}
}
