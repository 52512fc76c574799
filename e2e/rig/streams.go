package rig

import (
	"fmt"
	"testing"
	"time"
)

// TokensFor streams an event every 20 ms for d, however slow the machine is.
func TokensFor(d time.Duration) Script {
	return func(x *Exchange) {
		x.StreamHead()
		x.Events(RoleEvent())
		for i, until := 0, time.Now().Add(d); time.Now().Before(until); i++ {
			if !x.Pause(20*time.Millisecond) || !x.Events(DeltaEvent(fmt.Sprintf("tok%d ", i))) {
				return
			}
		}
		x.Events(FinishEvent("stop"), DoneEvent)
		x.Write(LastChunk)
	}
}

// Streams opens n streams and waits until each has its first token.
func Streams(t testing.TB, r *Ramjet, n int) []*Client {
	t.Helper()
	var cs []*Client
	for range n {
		c := r.Dial(t)
		c.Send(Request("POST", ChatPath, r.ID("stream"), ChatBody(true)))
		cs = append(cs, c)
	}
	for _, c := range cs {
		c.EventCount(2*Patience, 2)
	}
	return cs
}

// Draining waits until the process says that it takes nothing new.
func (r *Ramjet) Draining(t testing.TB, limit time.Duration) {
	t.Helper()
	Eventually(t, limit, "/readyz 503", func() string {
		if status, _ := r.AdminGet("/readyz"); status != 503 {
			return fmt.Sprintf("is %d", status)
		}
		return ""
	})
}

// DrainedLedger checks the access lines of a process that has ended: each
// request has one.
func DrainedLedger(t testing.TB, r *Ramjet) {
	t.Helper()
	got := map[string]int{}
	for _, line := range r.AccessLines() {
		got[line.Str("id")]++
	}
	for _, id := range r.ids {
		if got[id] != 1 {
			t.Errorf("%d access lines for %s", got[id], id)
		}
	}
}
