package lease

import "testing"

// TestSetProfile gives the priors of the other profile and keeps the load.
func TestSetProfile(t *testing.T) {
	t.Parallel()
	b, a := NewBook(nil), NewAccount("mtp")
	var l Lease
	b.Lock()
	b.AcquireLocked(&l, a, Claim{Prefill: 100, Decode: 10}, 0)
	b.Unlock()
	held := b.Load(a)
	b.SetProfile(a, "standard")
	if got, want := b.Rates(a), NewAccount("standard").rates; got != want {
		t.Errorf("rates %+v, want %+v", got, want)
	}
	if b.Load(a) != held {
		t.Errorf("the load is %+v, was %+v", b.Load(a), held)
	}
	l.Release(1)
	if b.Load(a) != (Load{}) {
		t.Errorf("%+v is left", b.Load(a))
	}
}
