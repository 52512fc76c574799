package e2e

import (
	"fmt"
	"testing"
	"time"
)

// TestAnchorClientLeaves: the client leaves in each of five situations, by FIN
// and by RST; the engine's connection is closed long before it speaks again.
// Other proxies were measured at 0.4 ms to never.
func TestAnchorClientLeaves(t *testing.T) {
	t.Parallel()
	silentAfterHead := func(x *exchange) { x.streamHead(); x.gone(0) }
	silent := func(x *exchange) { x.gone(0) }
	paced := func(x *exchange) {
		x.streamHead()
		for x.events(deltaEvent("x")) && x.pause(2*time.Second) {
		}
	}
	situations := []struct {
		name   string
		play   script
		body   string
		seen   func(*client)
		behind string // sent behind the request
	}{
		{"silence after the head", silentAfterHead, chatBody(true), func(c *client) { c.head(patience) }, ""},
		{"silence before the head", silent, chatBody(true), func(*client) {}, ""},
		{"between tokens", paced, chatBody(true), func(c *client) { c.eventCount(patience, 2) }, ""},
		{"no stream", silent, chatBody(false), func(*client) {}, ""},
		{"a request behind it", silentAfterHead, chatBody(true), func(c *client) { c.head(patience) }, "POST /v1/chat"},
	}
	for _, s := range situations {
		for _, way := range []string{"fin", "rst"} {
			t.Run(s.name+" "+way, func(t *testing.T) {
				t.Parallel()
				a, b := newEngine(t, "a"), newEngine(t, "b")
				r := start(t, a, b)
				a.on(s.play)
				b.on(s.play)
				for range 3 {
					id := r.id("leaver")
					c := r.dial(t)
					c.send(request("POST", chatPath, id, s.body))
					x := waitFor(t, id, a, b)
					s.seen(c)
					if s.behind != "" {
						c.send(s.behind)
						time.Sleep(20 * time.Millisecond)
					}
					left := time.Now()
					leaveWays[way](c)
					if !x.gone(leaveLimit) { // before the next token after 2 s
						t.Fatalf("still open %v after the client left", time.Since(left))
					}
					t.Logf("closed after %v", x.goneAt().Sub(left))
					r.ended(t, id, "client-gone-waiting", "client-gone-streaming")
				}
				neverMoved(t, r, a, b)
			})
		}
	}
}

// TestAnchorAbortedStreams: 40 streams are open, the gauges say so; all are
// aborted and the gauges are 0 and the engines free within a second.
func TestAnchorAbortedStreams(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	a.on(tokensFor(time.Minute))
	b.on(tokensFor(time.Minute))
	cs := streams(t, r, 40)
	if m := r.metrics(); m.leases() != 40 || m.sum("ramjet_leases", "phase", "decode") != 40 {
		t.Errorf("%v leases, %v of them decoding, want 40", m.leases(), m.sum("ramjet_leases", "phase", "decode"))
	}
	if na, nb := len(a.byIDPrefix("stream")), len(b.byIDPrefix("stream")); na < 15 || nb < 15 {
		t.Errorf("40 streams are spread %d to %d", na, nb)
	}
	for i, c := range cs {
		if i%2 == 0 {
			c.abort()
		} else {
			c.close()
		}
	}
	eventually(t, time.Second, "gauges at 0", func() string {
		if m := r.metrics(); m.leases() != 0 || m.sum("ramjet_lease_tokens") != 0 {
			return fmt.Sprintf("%v leases of %v tokens", m.leases(), m.sum("ramjet_lease_tokens"))
		}
		if n := a.busy() + b.busy(); n != 0 {
			return fmt.Sprintf("%d still run at the engines", n)
		}
		return ""
	})
	r.counted(t, 40, "499", "client-gone-streaming")
}
