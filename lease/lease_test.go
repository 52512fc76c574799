package lease

import (
	"math/rand/v2"
	"sync"
	"testing"
)

func acquire(b *Book, l *Lease, a *Account, w Claim) {
	b.Lock()
	defer b.Unlock()
	b.AcquireLocked(l, a, w, 0)
}

func TestLeaseShrinksWithItsAnswer(t *testing.T) {
	b, a := NewBook(nil), &Account{}
	var l Lease
	acquire(b, &l, a, Claim{Prefill: 1000, Decode: 300})
	want := func(step string, load Load) {
		t.Helper()
		if got := b.Load(a); got != load {
			t.Fatalf("%s: load %+v, want %+v", step, got, load)
		}
	}
	want("acquired", Load{Prefill: 1, Tokens: 1300, Uncached: 1000, Sequences: 1})
	l.Generated(5)
	want("tokens before the phase change count for nothing", Load{Prefill: 1, Tokens: 1300, Uncached: 1000, Sequences: 1})
	l.Decoding(0, true)
	want("decoding", Load{Decode: 1, Tokens: 300, Remaining: 300, Sequences: 1, Decoding: 1})
	l.Decoding(0, true)
	want("decoding twice", Load{Decode: 1, Tokens: 300, Remaining: 300, Sequences: 1, Decoding: 1})
	l.Generated(100)
	want("100 generated", Load{Decode: 1, Tokens: 200, Remaining: 200, Sequences: 1, Decoding: 1})
	l.Generated(50)
	want("never grows", Load{Decode: 1, Tokens: 200, Remaining: 200, Sequences: 1, Decoding: 1})
	l.Generated(10_000)
	want("longer than expected", Load{Decode: 1, Tokens: 1, Remaining: 1, Sequences: 1, Decoding: 1})
	l.Release(0)
	want("released", Load{})
	l.Release(0)
	want("released twice", Load{})
}

func TestLeaseMoves(t *testing.T) {
	b, x, y := NewBook(nil), &Account{}, &Account{}
	var l Lease
	acquire(b, &l, x, Claim{Prefill: 10, Decode: 5, Sequences: 2})
	acquire(b, &l, y, Claim{Prefill: 20, Decode: 5, Sequences: 2})
	if got := b.Load(x); got != (Load{}) {
		t.Fatalf("old engine keeps %+v", got)
	}
	if got := b.Load(y); got != (Load{Prefill: 1, Tokens: 25, Uncached: 20, Sequences: 2}) {
		t.Fatalf("new engine has %+v", got)
	}
	l.Release(0)
	if got := b.Load(y); got != (Load{}) {
		t.Fatalf("left over: %+v", got)
	}
}

func TestZeroLeaseHoldsNothing(t *testing.T) {
	var l Lease
	l.Decoding(0, true)
	l.Generated(3)
	l.Release(0)
	if l.Phase() != PhaseNone {
		t.Fatal("a zero lease has a phase")
	}
}

// TestLedger lives 10,000 random lives at once and looks at every step whether
// the accounts add up to the leases held.
func TestLedger(t *testing.T) {
	releases := 0
	var mu sync.Mutex
	b := NewBook(func() { mu.Lock(); releases++; mu.Unlock() })
	accounts := []*Account{{}, {}, {}}
	const workers, lives = 8, 1250
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(w)))
			for range lives {
				live(b, accounts, rnd)
				b.Lock()
				n := 0
				for _, a := range accounts {
					load := a.LoadLocked()
					n += load.Requests()
					if load.Prefill < 0 || load.Decode < 0 || load.Tokens < int64(load.Requests()) {
						t.Errorf("impossible load %+v", load)
					}
				}
				b.Unlock()
				if n > workers {
					t.Errorf("%d requests booked by %d workers", n, workers)
				}
			}
		})
	}
	wg.Wait()
	for i, a := range accounts {
		if got := b.Load(a); got != (Load{}) {
			t.Errorf("account %d ends with %+v", i, got)
		}
	}
	if releases != workers*lives {
		t.Errorf("%d releases for %d lives", releases, workers*lives)
	}
}

func live(b *Book, accounts []*Account, rnd *rand.Rand) {
	var l Lease
	defer l.Release(0)
	w := Claim{Prefill: rnd.Int64N(5000), Decode: rnd.Int64N(500), Sequences: rnd.Int64N(4)}
	for range 1 + rnd.IntN(3) {
		acquire(b, &l, accounts[rnd.IntN(len(accounts))], w)
		if rnd.IntN(4) == 0 {
			return // gone before the first token
		}
	}
	l.Decoding(0, true)
	for i := range rnd.Int64N(20) {
		l.Generated(i * 30)
	}
	if rnd.IntN(5) == 0 {
		l.Release(0) // an early way out that also runs the deferred one
	}
}
