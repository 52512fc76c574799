package e2e

import (
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestAnchorKeepAliveEdge: 200 POSTs each 5.0 s +-10 ms after the last use of a
// pooled connection, while the engines close idle ones at 5.0 s as uvicorn does.
// None fails and no engine is marked for it.
func TestAnchorKeepAliveEdge(t *testing.T) {
	t.Parallel()
	rig.Slow(t, "10 s of waiting for the keep-alive edge")
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	a.CloseIdle(5 * time.Second)
	b.CloseIdle(5 * time.Second)
	r := rig.Start(t, a, b)
	// All in flight at once, so that each has a connection of its own in the pool.
	hold := func(x *rig.Exchange) {
		x.Pause(300 * time.Millisecond)
		x.Plain()
	}
	a.On(hold)
	b.On(hold)
	var wg sync.WaitGroup
	for i := range 100 {
		c := r.Dial(t)
		wg.Go(func() {
			for round := range 3 {
				id := r.ID("edge")
				c.Send(rig.Request("POST", rig.ChatPath, id, rig.ChatBody(i%2 == 0)))
				resp, err := c.Until(2*rig.Patience, func(resp *rig.Response) bool { return resp != nil && resp.Complete })
				if err != nil || resp.Status != 200 || resp.Fields.Get("X-Ramjet-Attempts") != "1" {
					t.Errorf("connection %d round %d: %v, %.300q", i, round, err, c.Raw)
					return
				}
				last := time.Now()
				c.Raw = nil
				if round < 2 {
					time.Sleep(time.Until(last.Add(5*time.Second + time.Duration(i%21-10)*time.Millisecond)))
				}
			}
		})
	}
	wg.Wait()
	rig.NeverBlamed(t, r, a, b)
}

// TestAnchorSessionTurns: with the session policy all later turns of a session
// go to the engine of its first turn, 20 of 20.
func TestAnchorSessionTurns(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--route.policy=session")
	used := map[string]bool{}
	for session := range 8 {
		first := ""
		for turn := range 5 {
			resp := r.Post(t, rig.ChatPath, rig.ChatBody(turn%2 == 0, fmt.Sprintf(`"turn":%d`, turn)), fmt.Sprintf("X-Session-Id: session-%d", session))
			engine := resp.Fields.Get("X-Ramjet-Engine")
			if turn == 0 {
				first = engine
			}
			if resp.Status != 200 || engine != first {
				t.Errorf("session %d turn %d: %d on %q, want %q", session, turn, resp.Status, engine, first)
			}
			if turn > 0 && resp.Fields.Get("X-Ramjet-Reason") != "session" {
				t.Errorf("reason %q", resp.Fields.Get("X-Ramjet-Reason"))
			}
		}
		used[first] = true
	}
	if len(used) != 2 {
		t.Errorf("8 sessions used the engines %v", used)
	}
}

// TestAnchorKilledUnderLoad: one of two engines is killed under 22 requests a
// second and started again 7 s later: no request fails.
func TestAnchorKilledUnderLoad(t *testing.T) {
	t.Parallel()
	down, total := 7*time.Second, 12*time.Second
	if testing.Short() {
		down, total = time.Second, 3*time.Second
	}
	p := rig.StartEngineProcess(t, "short", "127.0.0.1:0")
	q := rig.StartEngineProcess(t, "short", "127.0.0.1:0")
	r := rig.StartWith(t, rig.Setup{URLs: []string{"a=" + p.URL(), "b=" + q.URL()}})
	var wg sync.WaitGroup
	killed := time.AfterFunc(time.Second, p.Kill)
	revived := make(chan struct{})
	back := time.AfterFunc(time.Second+down, func() {
		defer close(revived)
		rig.StartEngineProcess(t, "short", p.Addr)
	})
	defer killed.Stop()
	defer back.Stop()
	n := 0
	for began := time.Now(); time.Since(began) < total; n++ {
		stream := n%2 == 0
		wg.Go(func() { loadOnce(t, r, stream) })
		time.Sleep(45 * time.Millisecond)
	}
	wg.Wait()
	<-revived
	t.Logf("%d requests", n)
}

func loadOnce(t *testing.T, r *rig.Ramjet, stream bool) {
	c, err := rig.DialAddr(t, r.Public)
	if err != nil {
		t.Errorf("cannot connect: %v", err)
		return
	}
	defer c.Close()
	id := r.ID("load")
	c.Send(rig.Request("POST", rig.ChatPath, id, rig.ChatBody(stream)))
	resp, err := c.Until(2*rig.Patience, func(resp *rig.Response) bool { return resp != nil && (resp.Complete || resp.Closed) })
	if err != nil || resp.Status != 200 || !resp.Complete || len(resp.ErrorEvents()) > 0 {
		t.Errorf("%s failed: %v, %.300q", id, err, c.Raw)
	}
}

// TestAnchorIdleCostsNothing: a proxy that stands idle behind busy minutes uses
// no CPU (a level-triggered loop that nobody disarms would).
func TestAnchorIdleCostsNothing(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	a.On(rig.TokensFor(time.Minute))
	b.On(rig.TokensFor(time.Minute))
	for i, c := range rig.Streams(t, r, 30) { // open, half-read and aborted connections of every kind
		if i%3 == 0 {
			c.Abort()
		} else if i%3 == 1 {
			c.CloseWrite()
		}
	}
	hold := func(x *rig.Exchange) { x.StreamHead(); x.Gone(0) }
	a.On(hold)
	b.On(hold)
	c := r.Dial(t)
	c.Send(rig.Request("POST", rig.ChatPath, r.ID("silent"), rig.ChatBody(true)))
	c.Head(rig.Patience)
	a.DropAll()
	b.DropAll()
	time.Sleep(500 * time.Millisecond)
	least := math.MaxInt // of some seconds: checks and the collector have their moments
	for range 5 {
		before := cpuTicks(r)
		time.Sleep(time.Second)
		least = min(least, cpuTicks(r)-before)
	}
	if least > 20 {
		t.Errorf("an idle second costs %d ms of CPU", least*10)
	}
}

// cpuTicks is the CPU time used so far, in hundredths of a second (the kernel's
// USER_HZ).
func cpuTicks(r *rig.Ramjet) int {
	r.T.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.Cmd.Process.Pid))
	if err != nil {
		r.T.Fatalf("cannot read the process status: %v", err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	var user, system int
	fields := strings.Fields(rest)
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		r.T.Fatalf("cannot read the process status: %v", err)
	}
	return user + system
}
