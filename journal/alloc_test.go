//go:build !race

package journal

import (
	"testing"

	"ramjet/route"
)

// TestRecordAllocatesNothing: neither for the request nor, on average, for the
// writer, once the queue was filled and the file is open.
func TestRecordAllocatesNothing(t *testing.T) {
	j := &Journal{
		o: Options{Dir: t.TempDir(), MaxBytes: 1 << 30, Files: 1}, queue: make([]route.Explanation, queueSize),
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1),
	}
	j.out = output{dir: j.o.Dir, max: j.o.MaxBytes, keep: 1}
	x := newDecider(t, 8).next(t)
	for range 2 * queueSize {
		j.Record(x)
		j.drain()
	}
	j.flush()
	defer func() { _ = j.out.close() }()
	if got := testing.AllocsPerRun(300, func() { j.Record(x) }); got != 0 {
		t.Errorf("%v allocations a record in the request", got)
	}
	if got := testing.AllocsPerRun(2000, func() {
		j.drain()
		j.Record(x)
	}); got != 0 {
		t.Errorf("%v allocations a record in the writer", got)
	}
	if got := testing.AllocsPerRun(50, func() {
		j.Record(x)
		j.drain()
		j.flush()
	}); got != 0 {
		t.Errorf("%v allocations a flush", got)
	}
	if j.Dropped() != 0 {
		t.Errorf("%d dropped", j.Dropped())
	}
}

func BenchmarkWrite(b *testing.B) {
	j := &Journal{o: Options{Dir: b.TempDir()}, queue: make([]route.Explanation, queueSize), wake: make(chan struct{}, 1), full: make(chan struct{}, 1)}
	j.out = output{dir: j.o.Dir, max: 1 << 30, keep: 1}
	d := newDecider(b, 2)
	b.ReportAllocs()
	for b.Loop() {
		j.Record(d.next(b))
		j.drain()
	}
	j.flush()
	b.ReportMetric(float64(j.out.size)/float64(b.N), "bytes/record")
	_ = j.out.close()
}
