package radix

import "testing"

// TestMatchBothTellsWhatTheOtherDropWouldGive, for plain attention and where a hit must end at a checkpoint.
func TestMatchBothTellsWhatTheOtherDropWouldGive(t *testing.T) {
	t.Parallel()
	const size = 16
	ids := make([]uint32, 6*size+1)
	for i := range ids {
		ids[i] = uint32(i + 1)
	}
	keys := AppendKeys(nil, Root("", "", ""), ids, size)
	for name, c := range map[string]struct {
		checkpoints []int // blocks in front of each
		hit, less   int32 // blocks, without and with a block dropped
	}{
		"attention":                   {nil, 6, 5},
		"a checkpoint at the end":     {[]int{2, 6}, 6, 2},
		"a checkpoint in between":     {[]int{4}, 4, 4},
		"no checkpoint near the root": {[]int{6}, 6, 0},
	} {
		x := NewIndex()
		r := x.Engine(3)
		hashes := []uint64{11, 12, 13, 14, 15, 16}
		r.Store(&Store{BlockTokens: size, Root: Root("", "", ""), Hashes: hashes, IDs: ids[:6*size]})
		for i, blocks := range c.checkpoints {
			r.Store(&Store{Group: 1, Kind: GroupMamba, BlockTokens: size, Root: Root("", "", ""), Hashes: []uint64{uint64(100 + i)}, IDs: ids[:blocks*size]})
		}
		for _, drop := range []int{0, 1} {
			r.SetDrop(drop)
			var tokens, other [MaxEngines]int32
			x.MatchBoth(&Prompt{Keys: keys, BlockTokens: size, Tokens: len(ids), IDs: ids}, &tokens, &other)
			want, against := c.hit*size, c.less*size
			if drop == 1 {
				want, against = against, want
			}
			if tokens[3] != want || other[3] != against {
				t.Errorf("%s, drop %d: %d tokens, else %d; want %d, else %d", name, drop, tokens[3], other[3], want, against)
			}
		}
	}
}
