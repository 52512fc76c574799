package lease

import (
	"math"
	"math/rand/v2"
	"testing"
)

// pace is an engine whose answers all get a token each so many seconds.
type pace struct {
	*Book
	a   *Account
	now float64
}

// answers lets n requests decode for so many seconds, counted every two.
func (p *pace) answers(n int64, step, seconds float64, tokens *float64, running func(n int64) float64, whole bool) {
	var l Lease
	p.Lock()
	p.AcquireLocked(&l, p.a, Claim{Prefill: 10, Decode: 1 << 20, Sequences: n, Whole: whole}, p.now)
	p.Unlock()
	if !whole {
		l.Decoding(p.now, true)
	}
	for end := p.now + seconds; p.now < end; {
		p.now += 2
		*tokens += 2 / step * float64(n)
		p.Counted(p.a, *tokens, running(n), p.now)
	}
	l.Release(p.now)
}

// TestCountedTeachesTheTimeOfAToken: where no answer brings usage, the engine's
// own total does it, for streams and for whole answers.
func TestCountedTeachesTheTimeOfAToken(t *testing.T) {
	t.Parallel()
	same := func(n int64) float64 { return float64(n) }
	for _, c := range []struct {
		what    string
		running func(int64) float64
		whole   bool
		want    float64 // seconds per token of a batch of 8
	}{
		{"streams", same, false, 0.05},
		{"whole answers", same, true, 0.05},
		{"an engine that says no batch", func(int64) float64 { return -1 }, false, 0.05},
		{"a batch that ends between two readings", func(n int64) float64 { return float64(n + 1) }, false, 0.05},
		{"an engine that serves others too", func(n int64) float64 { return float64(3 * n) }, false, priorStep + 8*priorPerAnswer},
	} {
		p := &pace{Book: NewBook(nil), a: NewAccount("")}
		tokens := 1e6 // from before there was anybody to count
		p.answers(8, 0.05, 60, &tokens, c.running, c.whole)
		r := p.Rates(p.a)
		near(t, c.what, r.SecondsPerToken(8), c.want)
		if got := p.Load(p.a); got != (Load{}) || p.a.decoding != 0 {
			t.Errorf("%s: left over: %+v, %d decoding", c.what, got, p.a.decoding)
		}
	}
}

// TestCountedIsSilentWhereAnswersTell, and over a restart, which makes the
// total smaller, and while nothing decodes.
func TestCountedIsSilentWhereAnswersTell(t *testing.T) {
	t.Parallel()
	b, a := NewBook(nil), NewAccount("")
	now := 0.0
	span := func(tokens float64) {
		now += 2
		b.Counted(a, tokens, 1, now)
	}
	learnt := func() (n int) {
		r := b.Rates(a)
		r.Learnt(func(int, float64) { n++ })
		return n
	}
	for range 1 + firstPause {
		span(5000)
	}
	span(9000) // somebody else's: no lease was there
	var l Lease
	acquire(b, &l, a, Claim{Decode: 100})
	l.Decoding(now, true)
	for range 1 + leastPause {
		span(100) // it began anew
	}
	if n := learnt(); n != 0 {
		t.Fatalf("%d buckets learnt from nothing", n)
	}
	l.Measured(21, now+1)
	if n := learnt(); n != 1 {
		t.Fatalf("%d buckets learnt from an answer", n)
	}
	r := b.Rates(a)
	before := r.SecondsPerToken(1)
	span(5000) // the answer told already, and better
	if r = b.Rates(a); r.SecondsPerToken(1) != before {
		t.Error("the total counts beside an answer's own count")
	}
	span(5040)
	if r = b.Rates(a); r.SecondsPerToken(1) >= before {
		t.Error("the total does not count after answers stopped telling")
	}
	l.Release(now)
}

// TestCountedBehindSeveralProcesses: an address that leads to one of two
// processes at each reading teaches nothing, however far their totals are apart;
// when one of them is left it does.
func TestCountedBehindSeveralProcesses(t *testing.T) {
	t.Parallel()
	const step = 0.05
	for _, apart := range []float64{1e9, 1e5, 3000, 300} {
		p := &pace{Book: NewBook(nil), a: NewAccount("")}
		random := rand.New(rand.NewPCG(1, uint64(apart)))
		totals := [2]float64{1e6, 1e6 + apart}
		var l Lease
		acquire(p.Book, &l, p.a, Claim{Decode: 1 << 30, Sequences: 8})
		l.Decoding(0, true)
		prior := p.Rates(p.a)
		for range 1000 {
			p.now += 2
			totals[0] += 4 * 2 / step // half of the answers each
			totals[1] += 4 * 2 / step
			p.Counted(p.a, totals[random.IntN(2)], 8, p.now)
			r := p.Rates(p.a)
			if got := r.SecondsPerToken(8); got != prior.SecondsPerToken(8) {
				t.Fatalf("totals %v apart: %v seconds a token after %v s, want %v, which was taken at first", apart, got, p.now, prior.SecondsPerToken(8))
			}
		}
		l.Release(p.now)
		tokens := 0.0 // one process, begun anew
		p.answers(8, step, 2*(mostPause+100), &tokens, func(n int64) float64 { return float64(n) }, false)
		r := p.Rates(p.a)
		if got := r.SecondsPerToken(8); math.Abs(got-step) > step/50 {
			t.Errorf("one process again: %v seconds a token, want %v", got, step)
		}
	}
}

// TestWholeAnswersAreInTheBatch: a stream among seven whole answers decodes in
// a batch of eight, whatever is seen of the seven.
func TestWholeAnswersAreInTheBatch(t *testing.T) {
	t.Parallel()
	b, a := NewBook(nil), NewAccount("")
	var whole, stream Lease
	b.Lock()
	b.AcquireLocked(&whole, a, Claim{Sequences: 7, Whole: true}, 0)
	b.AcquireLocked(&stream, a, Claim{Sequences: 1}, 1)
	b.Unlock()
	stream.Decoding(2, true)
	stream.Measured(101, 6)
	stream.Release(6)
	r := b.Rates(a)
	at := 0
	r.Learnt(func(batch int, _ float64) { at = batch })
	if at != 8 {
		t.Errorf("learnt for a batch of %d, want 8", at)
	}
	// A whole answer that moves takes its share of the batch along.
	other := NewAccount("")
	b.Lock()
	b.AcquireLocked(&whole, other, Claim{Sequences: 7, Whole: true}, 7)
	b.Unlock()
	if a.decoding != 0 || other.decoding != 7 {
		t.Errorf("%d and %d decoding after a move", a.decoding, other.decoding)
	}
	whole.Decoding(8, false)
	whole.Release(9)
	if other.decoding != 0 {
		t.Errorf("%d decoding after the end", other.decoding)
	}
}

// TestCountedTakesNoInfinity: totals of an engine may overflow; a time that is
// no number would stay for ever, in every engine's cost.
func TestCountedTakesNoInfinity(t *testing.T) {
	t.Parallel()
	p := &pace{Book: NewBook(nil), a: NewAccount("")}
	var l Lease
	p.Lock()
	p.AcquireLocked(&l, p.a, Claim{Prefill: 10, Decode: 1 << 20}, 0)
	p.Unlock()
	l.Decoding(0, true)
	for i, total := range []float64{1, math.Inf(1), math.Inf(1), math.NaN(), 5, math.Inf(-1), 9} {
		p.Counted(p.a, total, 1, float64(2*i+2))
	}
	r := p.Rates(p.a)
	if s := r.SecondsPerToken(1); math.IsNaN(s) || math.IsInf(s, 0) || s <= 0 {
		t.Errorf("%v seconds a token", s)
	}
}
