package lease

import (
	"math"
	"testing"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func (b *Book) queue(a *Account, now float64) float64 {
	b.Lock()
	defer b.Unlock()
	return a.QueueLocked(now)
}

// TestQueueShrinksWithTime follows DESIGN section 6: the sum of what the
// requests without a first token brought, less the engine's rate times the
// seconds since the later of dispatch and its last first token; the oldest
// never below 5 % of its own.
func TestQueueShrinksWithTime(t *testing.T) {
	t.Parallel()
	b, a := NewBook(nil), NewAccount("")
	var first, second Lease
	b.Lock()
	near(t, "idle", a.QueueLocked(3), 0)
	b.AcquireLocked(&first, a, Claim{Prefill: 10_000}, 10)
	b.AcquireLocked(&second, a, Claim{Prefill: 4_000}, 10.2)
	b.Unlock()
	near(t, "at once", b.queue(a, 10), 14_000)
	near(t, "after 0.5 s at 10,000 tokens/s", b.queue(a, 10.5), 9_000)
	near(t, "the oldest does not vanish before its first token", b.queue(a, 20), 4_500)
	first.Decoding(11, true) // 10,000 tokens in 1 s: the rate stays
	near(t, "the second begins at the first token of the one before", b.queue(a, 11), 4_000)
	near(t, "and is computed from then on", b.queue(a, 11.3), 1_000)
	first.Release(12)
	second.Release(12)
	near(t, "all gone", b.queue(a, 12), 0)
}

// TestQueueForgetsWhoLeaves wherever it stands in the line.
func TestQueueForgetsWhoLeaves(t *testing.T) {
	t.Parallel()
	for leaves := range 3 {
		b, a := NewBook(nil), NewAccount("")
		var l [3]Lease
		for i := range l {
			acquire(b, &l[i], a, Claim{Prefill: int64(1000 * (i + 1))})
		}
		l[leaves].Release(0)
		near(t, "two are left", b.queue(a, 0), float64(6000-1000*(leaves+1)))
		for i := range l {
			l[i].Release(0)
		}
		if a.oldest != nil || a.newest != nil || b.queue(a, 0) != 0 {
			t.Errorf("with %d leaving first something is left", leaves)
		}
	}
}

// TestInFlight finds what of a prompt is being computed for others: the
// longest common beginning over all of them.
func TestInFlight(t *testing.T) {
	t.Parallel()
	b, a := NewBook(nil), NewAccount("")
	chain := func(n int, tail ...uint64) []uint64 {
		var keys []uint64
		for i := range n {
			keys = append(keys, uint64(i+1))
		}
		return append(keys, tail...)
	}
	var l [4]Lease
	for i, c := range []Claim{
		{Keys: chain(4, 90, 91)},
		{Keys: chain(100, 92)},
		{Keys: []uint64{1001, 1002}},
		{},
	} {
		acquire(b, &l[i], a, c)
	}
	in := func(keys []uint64, tokens int) int64 {
		b.Lock()
		defer b.Unlock()
		return a.InFlightLocked(keys, tokens)
	}
	for _, c := range []struct {
		keys []uint64
		want int64
	}{
		{nil, 0},
		{[]uint64{7}, 0},
		{chain(1), 16},
		{chain(4), 64},
		{chain(4, 90), 80},
		{chain(4, 90, 91, 5), 96},
		{chain(100, 93), 1600},
		{chain(300), 1600},
	} {
		if got := in(c.keys, 16); got != c.want {
			t.Errorf("%d keys: %d tokens, want %d", len(c.keys), got, c.want)
		}
	}
	l[1].Decoding(1, true)
	if got := in(chain(300), 16); got != 64 {
		t.Errorf("after its first token: %d tokens, want 64", got)
	}
	l[0].Release(1) // the leader failed
	if got := in(chain(300), 16); got != 0 {
		t.Errorf("after the leader failed: %d tokens", got)
	}
}

func TestRatesAreLearnt(t *testing.T) {
	t.Parallel()
	b, plain, mtp := NewBook(nil), NewAccount("standard"), NewAccount("mtp")
	near(t, "prior of plain decoding at 32", func() float64 { r := b.Rates(plain); return r.SecondsPerToken(32) }(), 9.5e-3+0.24e-3*32)
	for batch, faster := range map[float64]float64{1: 1.791, 8: 1.350, 16: 1.270, 32: 1.075} {
		r := b.Rates(mtp)
		near(t, "prior of mtp", r.SecondsPerToken(batch), (9.5e-3+0.24e-3*batch)/faster)
	}
	// One answer alone: 0.5 s for 2,000 prompt tokens, then 101 tokens in 2 s.
	var l Lease
	acquire(b, &l, plain, Claim{Prefill: 2000, Decode: 100})
	l.Decoding(0.5, true)
	l.Measured(101, 2.5)
	l.Release(2.5)
	r := b.Rates(plain)
	near(t, "prefill rate", r.Prefill(), 4000)
	near(t, "time per token", r.SecondsPerToken(1), 0.02)
	near(t, "and at other batches in proportion", r.SecondsPerToken(16), (9.5e-3+0.24e-3*16)*0.02/(9.5e-3+0.24e-3))
	var mean Mean
	mean.Add(&r)
	other := b.Rates(mtp)
	mean.Add(&other)
	for _, batch := range []float64{1, 3, 8, 50, 400} {
		near(t, "mean", mean.SecondsPerToken(batch), (r.SecondsPerToken(batch)+other.SecondsPerToken(batch))/2)
	}
}

// TestWhatTeachesNothing: short prompts, answers that came whole, short
// answers.
func TestWhatTeachesNothing(t *testing.T) {
	t.Parallel()
	b, a := NewBook(nil), NewAccount("")
	for _, c := range []struct {
		prompt int64
		seen   bool
		tokens int64
	}{{1000, true, 5}, {5000, false, 500}} {
		var l Lease
		acquire(b, &l, a, Claim{Prefill: c.prompt})
		l.Decoding(3, c.seen)
		l.Measured(c.tokens, 4)
		l.Release(4)
	}
	if got := b.Rates(a); got != (Rates{}) {
		t.Errorf("learnt %+v", got)
	}
}

// TestBatchIsAveraged over the time of an answer: one of two that is joined
// half-way was decoded among one and a half.
func TestBatchIsAveraged(t *testing.T) {
	t.Parallel()
	b, a := NewBook(nil), NewAccount("")
	var l, joins Lease
	acquire(b, &l, a, Claim{})
	l.Decoding(0, true)
	acquire(b, &joins, a, Claim{})
	joins.Decoding(5, true)
	b.Lock()
	a.passLocked(10)
	near(t, "integral", a.batchTime, 15)
	b.Unlock()
	l.Release(10)
	joins.Release(10)
}

// TestSmallBatchesAreNoSlowerThanLarge: what a bad moment taught a batch that
// is no longer seen is bounded by what larger ones take.
func TestSmallBatchesAreNoSlowerThanLarge(t *testing.T) {
	t.Parallel()
	var r Rates
	r.decoded(100, 50, 4) // half a second a token, beside a prefill
	r.decoded(100, 5, 64)
	last := 0.0
	for _, batch := range []float64{1, 2, 3, 4, 6, 8, 16, 40, 64, 100, 128} {
		got := r.SecondsPerToken(batch)
		// Between two buckets the interpolation may give up to a hundredth less.
		if got < 0.99*last || got > 0.05+1e-12 && batch <= 64 {
			t.Errorf("%v at a batch of %v, %v at a smaller one", got, batch, last)
		}
		last = got
	}
}
