package lease

import "testing"

// TestOneStepIsNoRate: prompts that are computed in one step have their first
// tokens a moment apart. Together they took what the first one took.
func TestOneStepIsNoRate(t *testing.T) {
	t.Parallel()
	b, a := NewBook(nil), NewAccount("")
	now := 0.0
	for range 50 {
		var x, y Lease
		b.Lock()
		b.AcquireLocked(&x, a, Claim{Prefill: 4000}, now)
		b.AcquireLocked(&y, a, Claim{Prefill: 4000}, now)
		b.Unlock()
		x.Decoding(now+0.8, true)
		y.Decoding(now+0.8001, true)
		now += 2
		x.Release(now)
		y.Release(now)
	}
	r := b.Rates(a)
	if got := r.Prefill(); got < 7_000 || got > 13_000 {
		t.Errorf("8,000 tokens in 0.8 s taught %.0f tokens/s", got)
	}
}

// TestOneAbsurdAnswer among many good ones changes little: a prompt that was
// cached after all, a client that took nothing for a minute.
func TestOneAbsurdAnswer(t *testing.T) {
	t.Parallel()
	b, a := NewBook(nil), NewAccount("")
	now := 0.0
	answer := func(prefill, decode float64) {
		var l Lease
		b.Lock()
		b.AcquireLocked(&l, a, Claim{Prefill: 100_000, Decode: 100}, now)
		b.Unlock()
		l.Decoding(now+prefill, true)
		now += prefill + decode
		l.Measured(101, now)
		l.Release(now)
		now++
	}
	for range 20 {
		answer(10, 1)
	}
	before := b.Rates(a)
	answer(0.001, 600)
	after := b.Rates(a)
	if p := after.Prefill() / before.Prefill(); p > 1.2 {
		t.Errorf("a cached prompt makes the engine %.1f times as fast", p)
	}
	if s := after.SecondsPerToken(1) / before.SecondsPerToken(1); s > 1.3 {
		t.Errorf("a stalled client makes the engine %.1f times as slow", s)
	}
}

// TestWholeAnswersTellNoStart: an answer that came whole a moment before a
// stream's first token does not make that prefill a matter of a moment.
func TestWholeAnswersTellNoStart(t *testing.T) {
	t.Parallel()
	b, a := NewBook(nil), NewAccount("")
	var plain, stream Lease
	b.Lock()
	b.AcquireLocked(&plain, a, Claim{Prefill: 10}, 0)
	b.AcquireLocked(&stream, a, Claim{Prefill: 10_000}, 5)
	b.Unlock()
	plain.Decoding(5.99, false)
	plain.Release(5.99)
	stream.Decoding(6, true)
	stream.Release(7)
	r := b.Rates(a)
	near(t, "prefill rate", r.Prefill(), 10_000)
}

// TestFollowerOvertakes: a request that follows another one's prompt has its
// first token a moment before it. The leader's tokens were computed since they
// were sent, not since that moment.
func TestFollowerOvertakes(t *testing.T) {
	b := NewBook(nil)
	a := new(Account)
	var leader, follower, next Lease
	acquire := func(l *Lease, tokens int64, now float64) {
		b.Lock()
		b.AcquireLocked(l, a, Claim{Prefill: tokens, Decode: 4}, now)
		b.Unlock()
	}
	for i := range 20 {
		at := float64(10 * i)
		acquire(&leader, 10_000, at)
		acquire(&follower, 2_000, at+0.005)
		follower.Decoding(at+2.9999, true)
		leader.Decoding(at+3, true)
		leader.Release(at + 4)
		follower.Release(at + 4)
	}
	if p := a.RatesLocked().Prefill(); p < 3990 || p > 4010 {
		t.Errorf("%.0f tokens a second; 12,000 took 3 s", p)
	}
	// One whose leader fails owes nothing to those that come later.
	acquire(&leader, 10_000, 300)
	acquire(&follower, 50_000, 300)
	follower.Decoding(301, true)
	leader.Release(302)
	follower.Release(303)
	acquire(&next, 4_000, 310)
	next.Decoding(311, true)
	next.Release(312)
	if p := a.RatesLocked().Prefill(); p < 3990 || p > 4010 {
		t.Errorf("%.0f tokens a second after a leader that failed", p)
	}
	// An answer that comes whole is no leader: nobody sees its first token.
	b.Lock()
	b.AcquireLocked(&leader, a, Claim{Prefill: 10, Decode: 4, Whole: true}, 320)
	b.Unlock()
	acquire(&next, 40_000, 320)
	next.Decoding(322, true)
	if p := a.RatesLocked().Prefill(); p < 4100 {
		t.Errorf("%.0f tokens a second: the one beside a whole answer taught nothing", p)
	}
}
