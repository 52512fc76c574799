package e2e

import (
	"fmt"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestAnchorClientLeaves: the client leaves in each of five situations, by FIN
// and by RST; the engine's connection is closed long before it speaks again.
// Other proxies were measured at 0.4 ms to never.
func TestAnchorClientLeaves(t *testing.T) {
	t.Parallel()
	silentAfterHead := func(x *rig.Exchange) { x.StreamHead(); x.Gone(0) }
	silent := func(x *rig.Exchange) { x.Gone(0) }
	paced := func(x *rig.Exchange) {
		x.StreamHead()
		x.Events(rig.DeltaEvent("x"))
		for x.Events(rig.DeltaEvent("x")) && x.Pause(30*time.Second) {
		}
	}
	situations := []struct {
		name   string
		play   rig.Script
		body   string
		seen   func(*rig.Client)
		behind string // sent behind the request
	}{
		{"silence after the head", silentAfterHead, rig.ChatBody(true), func(c *rig.Client) { c.Head(rig.Patience) }, ""},
		{"silence before the head", silent, rig.ChatBody(true), func(*rig.Client) {}, ""},
		{"between tokens", paced, rig.ChatBody(true), func(c *rig.Client) { c.EventCount(rig.Patience, 2) }, ""},
		{"no stream", silent, rig.ChatBody(false), func(*rig.Client) {}, ""},
		{"a request behind it", silentAfterHead, rig.ChatBody(true), func(c *rig.Client) { c.Head(rig.Patience) }, "POST /v1/chat"},
	}
	for _, s := range situations {
		for _, way := range []string{"fin", "rst"} {
			t.Run(s.name+" "+way, func(t *testing.T) {
				t.Parallel()
				a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
				r := rig.Start(t, a, b)
				a.On(s.play)
				b.On(s.play)
				for range 3 {
					id := r.ID("leaver")
					c := r.Dial(t)
					c.Send(rig.Request("POST", rig.ChatPath, id, s.body))
					x := rig.WaitFor(t, id, a, b)
					s.seen(c)
					if s.behind != "" {
						c.Send(s.behind)
						time.Sleep(20 * time.Millisecond)
					}
					left := time.Now()
					rig.LeaveWays[way](c)
					if !x.Gone(rig.LeaveLimit) { // before the next token after 30 s
						t.Fatalf("still open %v after the client left", time.Since(left))
					}
					t.Logf("closed after %v", x.GoneAt().Sub(left))
					r.Ended(t, id, "client-gone-waiting", "client-gone-streaming")
				}
				rig.NeverMoved(t, r, a, b)
			})
		}
	}
}

// TestAnchorAbortedStreams: 40 streams are open, the gauges say so; all are
// aborted and the gauges are 0 and the engines free long before the streams' end.
func TestAnchorAbortedStreams(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	a.On(rig.TokensFor(time.Minute))
	b.On(rig.TokensFor(time.Minute))
	cs := rig.Streams(t, r, 40)
	if m := r.Metrics(); m.Leases() != 40 || m.Sum("ramjet_leases", "phase", "decode") != 40 {
		t.Errorf("%v leases, %v of them decoding, want 40", m.Leases(), m.Sum("ramjet_leases", "phase", "decode"))
	}
	if na, nb := len(a.ByIDPrefix("stream")), len(b.ByIDPrefix("stream")); na < 15 || nb < 15 {
		t.Errorf("40 streams are spread %d to %d", na, nb)
	}
	for i, c := range cs {
		if i%2 == 0 {
			c.Abort()
		} else {
			c.Close()
		}
	}
	rig.Eventually(t, 2*rig.Patience, "gauges at 0", func() string {
		if m := r.Metrics(); m.Leases() != 0 || m.Sum("ramjet_lease_tokens") != 0 {
			return fmt.Sprintf("%v leases of %v tokens", m.Leases(), m.Sum("ramjet_lease_tokens"))
		}
		if n := a.Busy() + b.Busy(); n != 0 {
			return fmt.Sprintf("%d still run at the engines", n)
		}
		return ""
	})
	r.Counted(t, 40, "499", "client-gone-streaming")
}
