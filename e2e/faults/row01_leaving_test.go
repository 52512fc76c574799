package faults

import (
	"testing"

	"ramjet/e2e/rig"
)

// TestB7Row01ClientLeavesInPrefill: the engine is silent, with its head out (as
// vLLM sends it before queueing) and without; upstream closed, 499 in the log.
func TestB7Row01ClientLeavesInPrefill(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	n := 0
	for _, headOut := range []bool{true, false} {
		play := func(x *rig.Exchange) {
			if headOut {
				x.StreamHead()
			}
			x.Gone(0)
		}
		a.On(play)
		b.On(play)
		for _, way := range []string{"fin", "rst"} {
			seen := func(c *rig.Client) {
				if headOut {
					c.Head(rig.Patience)
				}
			}
			id, _ := rig.Leaves(t, r, rig.ChatBody(true), seen, rig.LeaveWays[way], a, b)
			n++
			if line := r.Ended(t, id, "client-gone-waiting"); line.Num("status") != 499 {
				t.Errorf("%s, head out %v: status %v in the log, want 499", way, headOut, line["status"])
			}
			r.Counted(t, n, "499", "client-gone-waiting")
		}
	}
	rig.NeverMoved(t, r, a, b)
}

// TestB7Row02ClientLeavesMidStream: within one event the engine sees the abort,
// and the connection is not used again.
func TestB7Row02ClientLeavesMidStream(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	play := func(x *rig.Exchange) {
		x.StreamHead()
		x.Events(rig.ChatEvents(3)[:3]...)
		x.Gone(0)
	}
	a.On(play)
	b.On(play)
	for i, way := range []string{"fin", "rst"} {
		id, x := rig.Leaves(t, r, rig.ChatBody(true), func(c *rig.Client) { c.EventCount(rig.Patience, 3) }, rig.LeaveWays[way], a, b)
		if line := r.Ended(t, id, "client-gone-streaming"); line.Num("status") != 499 {
			t.Errorf("%s: status %v in the log, want 499", way, line["status"])
		}
		r.Counted(t, i+1, "499", "client-gone-streaming")
		a.On(nil)
		b.On(nil)
		r.Served(r.ID("after"+way), false)
		for _, e := range []*rig.Engine{a, b} {
			for _, other := range e.ByIDPrefix("after" + way) {
				if other.Shares(x) {
					t.Error("the aborted connection was used again")
				}
			}
			e.On(play)
		}
	}
	rig.NeverMoved(t, r, a, b)
}

// TestB7Row03ClientHalfCloses: shutting the writing side counts as leaving, as
// uvicorn and nginx take it.
func TestB7Row03ClientHalfCloses(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	play := func(x *rig.Exchange) {
		x.StreamHead()
		x.Gone(0)
	}
	a.On(play)
	b.On(play)
	id, _ := rig.Leaves(t, r, rig.ChatBody(true), func(c *rig.Client) { c.Head(rig.Patience) }, rig.LeaveWays["half-close"], a, b)
	r.Ended(t, id, "client-gone-waiting")
	r.Counted(t, 1, "499", "client-gone-waiting")
	rig.NeverMoved(t, r, a, b)
}

// TestB7Row02LeavesAfterTheEnd: a client that closes as soon as it has the last
// byte did not leave: its request is done.
func TestB7Row02LeavesAfterTheEnd(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	get := rig.ResponsesPath + "/resp-1"
	a.Get(get, rig.JSONResponse(200, `{"id":"resp-1"}`))
	b.Get(get, rig.JSONResponse(200, `{"id":"resp-1"}`))
	var ids []string
	for i := range 600 {
		id := r.ID("quick")
		ids = append(ids, id)
		raw := rig.Request("POST", rig.ChatPath, id, rig.ChatBody(i%3 == 0))
		if i%3 == 2 {
			raw = rig.Request("GET", get, id, "")
		}
		c := r.Dial(t)
		c.Send(raw)
		resp := c.Response(rig.Patience)
		if i%2 == 0 {
			c.Abort()
		} else {
			c.Close()
		}
		if resp.Status != 200 || !resp.Whole() {
			t.Fatalf("answered %d %.200q", resp.Status, resp.Body)
		}
	}
	for _, id := range ids {
		if line := r.Ended(t, id, "done"); line.Num("status") != 200 {
			t.Errorf("%s: status %v", id, line["status"])
		}
	}
}
