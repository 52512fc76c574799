package e2e

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestAnchorKeepAliveEdge: 200 POSTs each 5.0 s +-10 ms after the last use of a
// pooled connection, while the engines close idle ones at 5.0 s as uvicorn does.
// None fails and no engine is marked for it.
func TestAnchorKeepAliveEdge(t *testing.T) {
	t.Parallel()
	slow(t, "10 s of waiting for the keep-alive edge")
	a, b := newEngine(t, "a"), newEngine(t, "b")
	a.closeIdle(5 * time.Second)
	b.closeIdle(5 * time.Second)
	r := start(t, a, b)
	// All in flight at once, so that each has a connection of its own in the pool.
	hold := func(x *exchange) {
		x.pause(300 * time.Millisecond)
		x.plain()
	}
	a.on(hold)
	b.on(hold)
	var wg sync.WaitGroup
	for i := range 100 {
		c := r.dial(t)
		wg.Go(func() {
			for round := range 3 {
				id := r.id("edge")
				c.send(request("POST", chatPath, id, chatBody(i%2 == 0)))
				resp, err := c.until(2*patience, func(resp *response) bool { return resp != nil && resp.complete })
				if err != nil || resp.status != 200 || resp.fields.get("X-Ramjet-Attempts") != "1" {
					t.Errorf("connection %d round %d: %v, %.300q", i, round, err, c.raw)
					return
				}
				last := time.Now()
				c.raw = nil
				if round < 2 {
					time.Sleep(time.Until(last.Add(5*time.Second + time.Duration(i%21-10)*time.Millisecond)))
				}
			}
		})
	}
	wg.Wait()
	neverMoved(t, r, a, b)
}

// TestAnchorSessionTurns: with the session policy all later turns of a session
// go to the engine of its first turn, 20 of 20.
func TestAnchorSessionTurns(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--route.policy=session")
	used := map[string]bool{}
	for session := range 8 {
		first := ""
		for turn := range 5 {
			resp := r.post(t, chatPath, chatBody(turn%2 == 0, fmt.Sprintf(`"turn":%d`, turn)), fmt.Sprintf("X-Session-Id: session-%d", session))
			engine := resp.fields.get("X-Ramjet-Engine")
			if turn == 0 {
				first = engine
			}
			if resp.status != 200 || engine != first {
				t.Errorf("session %d turn %d: %d on %q, want %q", session, turn, resp.status, engine, first)
			}
			if turn > 0 && resp.fields.get("X-Ramjet-Reason") != "session" {
				t.Errorf("reason %q", resp.fields.get("X-Ramjet-Reason"))
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
	p := startEngineProcess(t, "short", "127.0.0.1:0")
	q := startEngineProcess(t, "short", "127.0.0.1:0")
	r := startWith(t, setup{urls: []string{"a=" + p.url(), "b=" + q.url()}})
	var wg sync.WaitGroup
	killed := time.AfterFunc(time.Second, p.kill)
	revived := make(chan struct{})
	back := time.AfterFunc(time.Second+down, func() {
		defer close(revived)
		startEngineProcess(t, "short", p.addr)
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

func loadOnce(t *testing.T, r *ramjet, stream bool) {
	c, err := dialAddr(t, r.public)
	if err != nil {
		t.Errorf("cannot connect: %v", err)
		return
	}
	defer c.close()
	id := r.id("load")
	c.send(request("POST", chatPath, id, chatBody(stream)))
	resp, err := c.until(2*patience, func(resp *response) bool { return resp != nil && (resp.complete || resp.closed) })
	if err != nil || resp.status != 200 || !resp.complete || len(resp.errorEvents()) > 0 {
		t.Errorf("%s failed: %v, %.300q", id, err, c.raw)
	}
}

// TestAnchorIdleCostsNothing: a proxy that stands idle behind busy minutes uses
// no CPU (a level-triggered loop that nobody disarms would).
func TestAnchorIdleCostsNothing(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	a.on(tokensFor(time.Minute))
	b.on(tokensFor(time.Minute))
	for i, c := range streams(t, r, 30) { // open, half-read and aborted connections of every kind
		if i%3 == 0 {
			c.abort()
		} else if i%3 == 1 {
			c.closeWrite()
		}
	}
	hold := func(x *exchange) { x.streamHead(); x.gone(0) }
	a.on(hold)
	b.on(hold)
	c := r.dial(t)
	c.send(request("POST", chatPath, r.id("silent"), chatBody(true)))
	c.head(patience)
	a.dropAll()
	b.dropAll()
	time.Sleep(500 * time.Millisecond)
	before := r.cpuTicks()
	time.Sleep(time.Second)
	if used := r.cpuTicks() - before; used > 20 {
		t.Errorf("an idle second costs %d ms of CPU", used*10)
	}
}

// cpuTicks is the CPU time used so far, in hundredths of a second (the kernel's
// USER_HZ).
func (r *ramjet) cpuTicks() int {
	r.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid))
	if err != nil {
		r.t.Fatalf("cannot read the process status: %v", err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	var user, system int
	fields := strings.Fields(rest)
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		r.t.Fatalf("cannot read the process status: %v", err)
	}
	return user + system
}
