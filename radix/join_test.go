package radix

import (
	"math/rand/v2"
	"testing"
)

// TestJoinIsAMap puts, finds and removes, from none to many parts and back, also where many names have one home.
func TestJoinIsAMap(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		names int
		each  func(r *rand.Rand) uint64
	}{
		"any names":         {3 * partsFrom, (*rand.Rand).Uint64},
		"numbers in order":  {partsFrom, func(r *rand.Rand) uint64 { return nameOf(r.Uint64N(1 << 18)) }},
		"one home for many": {600, func(r *rand.Rand) uint64 { return r.Uint64N(300) }},
		"the last home":     {600, func(r *rand.Rand) uint64 { return ^r.Uint64N(300) }},
	} {
		r := rand.New(rand.NewPCG(1, 5))
		var j join
		want := map[uint64]uint16{}
		check := func() {
			t.Helper()
			seen, lines := 0, 0
			for i := range j.parts {
				lines += len(j.parts[i].lines)
				for k := range j.parts[i].lines {
					for _, e := range j.parts[i].lines[k] {
						if e.copies == 0 {
							continue
						}
						seen++
						if f := j.find(e.name); f == nil || f.copies != want[e.name] {
							t.Fatalf("%s: %x is not found as it was put", name, e.name)
						}
					}
				}
			}
			if seen != len(want) || j.used != seen || j.room != lines {
				t.Fatalf("%s: %d entries in %d lines, counted %d in %d, wanted %d", name, seen, lines, j.used, j.room, len(want))
			}
		}
		var names []uint64
		for len(names) < c.names {
			n := c.each(r)
			j.put(n).copies = uint16(1 + len(names)%9)
			want[n] = uint16(1 + len(names)%9)
			names = append(names, n)
			if r.IntN(4) == 0 {
				gone := names[r.IntN(len(names))]
				if f := j.find(gone); (f != nil) != (want[gone] != 0) {
					t.Fatalf("%s: %x is found as if it were put or removed", name, gone)
				} else if f != nil {
					j.remove(gone)
					delete(want, gone)
				}
			}
		}
		check()
		if each := float64(lineBytes) * float64(j.room) / float64(len(want)); len(want) >= partsFrom && each > 27 {
			t.Errorf("%s: an entry takes %.1f bytes", name, each)
		}
		for i, n := range names {
			if want[n] != 0 {
				j.remove(n)
				delete(want, n)
			}
			if i%(len(names)/4) == 0 {
				check()
			}
		}
		check()
		if j.room > 1000 {
			t.Errorf("%s: %d lines hold nothing", name, j.room)
		}
	}
}
