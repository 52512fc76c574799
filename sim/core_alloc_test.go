//go:build !race

package sim

import "testing"

// TestStepsAllocateNothing: decoding sequences, their readers included, once their buffers have grown; the race
// detector allocates on its own.
func TestStepsAllocateNothing(t *testing.T) {
	for _, profile := range []string{ProfileStandard, ProfileMTP} {
		c := NewCore(CoreOptions{Profile: profile})
		var all []*Sequence
		for i := range 8 {
			all = append(all, c.Submit(Job{Prompt: promptOf(i, 100), MaxTokens: 4000}))
		}
		step := func() {
			c.schedule()
			c.complete()
			c.publish()
			for _, s := range all {
				s.poll()
			}
		}
		for range 50 {
			step()
		}
		for _, s := range all { // hashes and blocks grow with the sequence, by doubling
			s.hashes, s.blocks[0] = append(make([]uint64, 0, 400), s.hashes...), append(make([]int32, 0, 400), s.blocks[0]...)
		}
		c.cache.byKey = grown(c.cache.byKey)
		if n := testing.AllocsPerRun(300, step); n > 0 {
			t.Errorf("%s: %v allocations a step", profile, n)
		}
	}
}

// grown copies a map into one with room, which otherwise allocates as it fills.
func grown(m map[blockKey]int32) map[blockKey]int32 {
	out := make(map[blockKey]int32, 10_000)
	for k, v := range m {
		out[k] = v
	}
	return out
}
