package radix

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestKeyIsFixed: keys must stay the same from one release to the next, as replicas of different versions compare them.
func TestKeyIsFixed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		parent uint64
		ids    []uint32
		want   uint64
	}{
		{0, nil, 0x2d06800538d394c2}, // XXH3 of nothing, as its specification has it
		{1, []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 1 << 31}, 0xc0495748b0fc4d73},
	} {
		if got := Key(c.parent, c.ids); got != c.want {
			t.Errorf("Key(%x, %v) = %#x, wanted %#x", c.parent, c.ids, got, c.want)
		}
	}
}

// TestKeyHashesLittleEndian: hashing in place and encoding first are the same, at any length and alignment.
func TestKeyHashesLittleEndian(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	ids := make([]uint32, 900)
	for i := range ids {
		ids[i] = r.Uint32()
	}
	for n := range 850 {
		parent, at := r.Uint64(), r.IntN(8)
		if got, want := Key(parent, ids[at:at+n]), keyEncoded(parent, ids[at:at+n]); got != want {
			t.Fatalf("%d ids from %d: %x, encoded %x", n, at, got, want)
		}
	}
}

func TestKeysChain(t *testing.T) {
	t.Parallel()
	root := Root("m", "", "")
	ids := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	keys := AppendKeys([]uint64{9}, root, ids, 4)
	a := Key(root, ids[:4])
	if want := []uint64{9, a, Key(a, ids[4:8])}; !slices.Equal(keys, want) {
		t.Fatalf("keys %x, wanted %x", keys, want)
	}
	for i := range ids {
		other := slices.Clone(ids)
		other[i]++
		got := AppendKeys(nil, root, other, 4)
		for b := range got {
			if changed := i < 4*(b+1); changed == (got[b] == keys[b+1]) {
				t.Errorf("id %d differs: block %d has key %x, before %x", i, b, got[b], keys[b+1])
			}
		}
	}
}

func TestRootsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[uint64][3]string{}
	for _, m := range []string{"", "a", "b", "ab"} {
		for _, l := range []string{"", "a", "b", "ab"} {
			for _, s := range []string{"", "a", "b", "ab"} {
				root := Root(m, l, s)
				if other, ok := seen[root]; ok {
					t.Errorf("%q and %q have the same root", other, [3]string{m, l, s})
				}
				seen[root] = [3]string{m, l, s}
			}
		}
	}
}

func TestNoBlockIsABug(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a block of no token passed")
		}
	}()
	AppendKeys(nil, 1, []uint32{1}, 0)
}

func BenchmarkAppendKeys(b *testing.B) {
	ids := make([]uint32, 100_000)
	var keys []uint64
	b.ReportAllocs()
	for b.Loop() {
		keys = AppendKeys(keys[:0], 7, ids, 16)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(keys)), "ns/block")
}
