//go:build !race

package route

import (
	"fmt"
	"testing"

	"ramjet/lease"
)

func TestPickAllocatesNothing(t *testing.T) {
	for _, p := range []Policy{PolicyLatency, PolicyLeastTokens, PolicyRoundRobin, PolicySession} {
		for _, n := range []int{2, 64} {
			b := newBench(t, defaults(), make([]string, n)...)
			s := defaults()
			s.Policy = p
			b.SetSettings(s)
			prompt := ids(1, 2000)
			b.resident(0, prompt)
			q := request(prompt, 100)
			q.Model, q.Session = []byte("m"), 7
			b.memory.Learn(1, q.Prompt.Chain, blockTokens)
			var l lease.Lease
			ring := NewRing(4)
			step := func() {
				if _, err := b.Pick(q, &l, &b.x); err != nil {
					t.Fatal(err)
				}
				l.Decoding(0, true)
				l.Generated(5)
				l.Release(0)
				ring.Put(&b.x)
			}
			for range 8 {
				step() // room for the candidates
			}
			if got := testing.AllocsPerRun(100, step); got != 0 {
				t.Errorf("%s, %d engines: %v allocations a pick", p, n, got)
			}
		}
	}
}

// BenchmarkPick is the whole decision about a prompt of 100,000 tokens that
// every engine holds, index and memory included: at most 20 us among 2 engines
// and 100 us among 40.
func BenchmarkPick(b *testing.B) {
	for _, n := range []int{2, 8, 40} {
		b.Run(fmt.Sprintf("engines=%d", n), func(b *testing.B) {
			t := &testing.T{}
			r := newBench(t, defaults(), make([]string, n)...)
			prompt := ids(1, 100_000)
			q := request(prompt, 100)
			for i := range n {
				r.resident(i, prompt)
				r.memory.Learn(i, q.Prompt.Chain, blockTokens)
			}
			var l lease.Lease
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Pick(q, &l, &r.x); err != nil {
					b.Fatal(err)
				}
				l.Release(0)
			}
		})
	}
}

func TestRecordAllocatesNothing(t *testing.T) {
	b := newBench(t, defaults(), make([]string, 8)...)
	if _, err := b.Explain(request(ids(1, 2000), 100), &b.x); err != nil {
		t.Fatal(err)
	}
	var line []byte
	if got := testing.AllocsPerRun(100, func() { line = b.x.AppendRecord(line[:0]) }); got != 0 {
		t.Errorf("%v allocations a record", got)
	}
}

func TestSessionsAllocateNothing(t *testing.T) {
	var s sessions
	s.put(1, 1, 1)
	if n := testing.AllocsPerRun(1000, func() {
		s.put(s.turn, 1, 1)
		s.get(s.turn)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
