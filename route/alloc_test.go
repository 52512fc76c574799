//go:build !race

package route

import (
	"testing"

	"ramjet/lease"
)

func TestPickAllocatesNothing(t *testing.T) {
	for _, p := range []Policy{PolicyLatency, PolicyRoundRobin, PolicySession} {
		r, _ := fixture(t, p, ready, ready, slow, suspect)
		q := Request{Model: []byte("m"), Session: 7, Weight: lease.Weight{Prefill: 100, Decode: 10}}
		var l lease.Lease
		n := testing.AllocsPerRun(100, func() {
			if _, err := r.Pick(&q, &l); err != nil {
				t.Fatal(err)
			}
			l.Release()
		})
		if n != 0 {
			t.Errorf("%s: %v allocations a pick", p, n)
		}
	}
}
