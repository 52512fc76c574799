//go:build !race

package radix

import "testing"

func TestMatchAllocatesNothing(t *testing.T) {
	x, p, keys := warm(40)
	m, chain := warmMemory()
	e := tell(t)
	for g := range 3 {
		e.group(g, GroupMamba, "abc", 3)
	}
	e.group(3, GroupAttention, "abc", 3)
	e.group(4, GroupSliding, "abc", 3)
	hybrid := AppendKeys(nil, 9, letters("abcd"), 2)
	var tokens [MaxEngines]int32
	fork := AppendKeys(nil, 1, p.ids[9], 16)
	sizes := make([]int, 0, 4)
	for name, f := range map[string]func(){
		"a warm prompt":       func() { x.Match(keys, 16, &tokens) },
		"a fork":              func() { x.Match(fork, 16, &tokens) },
		"a hybrid engine":     func() { e.x.Match(hybrid, 2, &tokens) },
		"memory":              func() { m.Match(chain, &tokens) },
		"memory learnt again": func() { m.Learn(1, chain, 16) },
		"block sizes":         func() { sizes = x.BlockSizes(sizes[:0]) },
		"a removal":           func() { x.Engine(0).Remove(0, p.hashes[0][:0]) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %.1f times", name, n)
		}
	}
}
