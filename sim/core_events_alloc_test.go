//go:build !race

package sim

import "testing"

// TestEventsAllocateNothing: what the writer adds to a step, once its buffers have grown.
func TestEventsAllocateNothing(t *testing.T) {
	w := newKVWriter(sinkEvents(func([]kvEvent) {}), 2, true)
	stored := StoredBlocks{
		Kind: kindAttention, BlockTokens: 2, Hashes: []uint64{1, 2}, Tokens: []uint32{1, 2, 3, 4}, Parent: 3, HasParent: true,
		Lookahead: 1, Behind: []uint32{3, 4, 5},
	}
	step := func() {
		w.Removed(1, 7)
		w.Stored(stored)
		w.StepEnd()
	}
	step()
	if n := testing.AllocsPerRun(100, step); n > 0 {
		t.Errorf("%v allocations a step", n)
	}
}
