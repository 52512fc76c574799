package rig

import (
	"testing"
)

// TestClosingSeesWhatIsHeld proves that the closing assertions can fail: while a
// stream is open, everything they measure is above the base.
func TestClosingSeesWhatIsHeld(t *testing.T) {
	t.Parallel()
	a, b := NewEngine(t, "a"), NewEngine(t, "b")
	r := Start(t, a, b)
	hold := func(x *Exchange) { x.StreamHead(); x.Gone(0) }
	a.On(hold)
	b.On(hold)
	for range 3 {
		c := r.Dial(t)
		c.Send(Request("POST", ChatPath, r.ID("held"), ChatBody(true)))
		c.Head(Patience)
	}
	now := r.resources()
	if now.goroutines <= r.base.goroutines || now.fds < r.base.fds+3 || now.upstream <= 2 {
		t.Errorf("three open streams: %+v, base %+v", now, r.base)
	}
	if m := r.Metrics(); m.Leases() != 3 || m.Sum("ramjet_lease_tokens") == 0 {
		t.Errorf("three open streams: %v leases of %v tokens", m.Leases(), m.Sum("ramjet_lease_tokens"))
	}
	if a.Busy()+b.Busy() != 3 {
		t.Errorf("three open streams: %d at the engines", a.Busy()+b.Busy())
	}
}
