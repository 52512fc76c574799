package e2e

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestCaseC31KeepAliveDuringDrain: after SIGTERM requests on old connections are
// served and told to close, idle ones are closed after their next answer and
// never under a request, streams finish, exit 0.
func TestCaseC31KeepAliveDuringDrain(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Flags: []string{"--timeouts.drain=30s"}, Loose: true})
	long := 12 * time.Second
	play := func(x *rig.Exchange) {
		if strings.Contains(string(x.Body), `"stream":true`) {
			rig.TokensFor(long)(x)
			return
		}
		x.Plain()
	}
	a.On(play)
	b.On(play)
	cs := rig.Streams(t, r, 5)
	var wg sync.WaitGroup
	keepers := make([]keeper, 10)
	stop := make(chan struct{}) // closed once the signal has taken effect
	for i := range keepers {
		k := &keepers[i]
		k.c = r.Dial(t)
		wg.Go(func() { k.run(r, stop, time.Duration(i)*20*time.Millisecond) })
	}
	time.Sleep(time.Second)
	r.Signal(syscall.SIGTERM)
	r.Draining(t, rig.Patience)
	close(stop)
	wg.Wait()
	for i, k := range keepers {
		if k.problem != "" {
			t.Errorf("connection %d: %s", i, k.problem)
		}
		if k.answers < 2 { // one before the signal and the one that says close
			t.Errorf("connection %d: only %d answers", i, k.answers)
		}
	}
	for i, c := range cs {
		if resp := c.Response(long + 2*rig.Patience); !resp.Complete || !strings.HasSuffix(string(resp.Body), rig.DoneEvent) || len(resp.ErrorEvents()) > 0 {
			t.Errorf("stream %d is not whole", i)
		}
	}
	if code := r.AwaitExit(5 * rig.Patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	rig.DrainedLedger(t, r)
}

// keeper is a client that keeps its connection and sends 5 requests a second
// until it is told to close.
type keeper struct {
	c       *rig.Client
	answers int
	problem string
}

func (k *keeper) run(r *rig.Ramjet, signalled <-chan struct{}, offset time.Duration) {
	time.Sleep(offset)
	for range 40 {
		after := false
		select {
		case <-signalled:
			after = true
		default:
		}
		id := r.ID("keep")
		if _, err := io.WriteString(k.c.Conn, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(false))); err != nil {
			k.problem = fmt.Sprintf("cannot send %s: %v", id, err)
			return
		}
		resp, err := k.c.Until(rig.Patience, func(resp *rig.Response) bool { return resp != nil && resp.Complete })
		if err != nil || resp.Status != 200 {
			k.problem = fmt.Sprintf("request %s (sent after the signal: %v): %v", id, after, err)
			return
		}
		k.c.Raw = nil
		k.answers++
		if strings.EqualFold(resp.Fields.Get("Connection"), "close") {
			return
		}
		if after {
			k.problem = "an answer after the signal does not say Connection: close"
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// TestCaseC31IdleConnection: a connection that is idle when the signal comes
// stays until its next answer.
func TestCaseC31IdleConnection(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Flags: []string{"--timeouts.drain=30s"}, Loose: true})
	a.On(rig.TokensFor(12 * time.Second))
	b.On(rig.TokensFor(12 * time.Second))
	rig.Streams(t, r, 1)
	a.On(nil)
	b.On(nil)
	idle := r.Dial(t)
	idle.Send(rig.Request("POST", rig.ChatPath, r.ID("idle"), rig.ChatBody(false)))
	idle.Response(rig.Patience)
	r.Signal(syscall.SIGTERM)
	r.Draining(t, rig.Patience)
	idle.Send(rig.Request("POST", rig.ChatPath, r.ID("idle"), rig.ChatBody(false)))
	resp := idle.Response(rig.Patience)
	if resp.Status != 200 || !strings.EqualFold(resp.Fields.Get("Connection"), "close") || !idle.Gone(rig.Patience) {
		t.Errorf("answered %d, Connection: %q, then closed %v", resp.Status, resp.Fields.Get("Connection"), idle.Closed)
	}
	if code := r.AwaitExit(5 * rig.Patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
