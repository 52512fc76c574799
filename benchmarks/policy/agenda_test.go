package policy

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestAgendaKeepsOrder: by time, and what falls on one time by entry, as a stable sort has it.
func TestAgendaKeepsOrder(t *testing.T) {
	t.Parallel()
	type item struct {
		at    float64
		label int
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var a agenda
	var want, got []item
	for i := range 2000 {
		it := item{float64(rng.IntN(50)), i}
		want = append(want, it)
		a.add(it.at, func() { got = append(got, it) })
	}
	slices.SortStableFunc(want, func(x, y item) int { return int(x.at - y.at) })
	for e, ok := a.next(); ok; e, ok = a.next() {
		e.do()
		if got[len(got)-1].at != e.at {
			t.Fatalf("an entry of %v was told to be of %v", got[len(got)-1].at, e.at)
		}
	}
	if !slices.Equal(got, want) {
		t.Error("the order differs from a stable sort's")
	}
	if _, ok := a.next(); ok {
		t.Error("an empty agenda has an entry")
	}
}
