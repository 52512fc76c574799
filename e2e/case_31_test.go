package e2e

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestCaseC31KeepAliveDuringDrain: after SIGTERM requests on old connections are
// served and told to close, idle ones are closed after their next answer and
// never under a request, streams finish, exit 0.
func TestCaseC31KeepAliveDuringDrain(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := startWith(t, setup{engines: []*engine{a, b}, flags: []string{"--timeouts.drain=30s"}, loose: true})
	long := 4 * time.Second
	play := func(x *exchange) {
		if strings.Contains(string(x.body), `"stream":true`) {
			tokensFor(long)(x)
			return
		}
		x.plain()
	}
	a.on(play)
	b.on(play)
	cs := streams(t, r, 5)
	var wg sync.WaitGroup
	keepers := make([]keeper, 10)
	stop := make(chan struct{}) // closed once the signal has taken effect
	for i := range keepers {
		k := &keepers[i]
		k.c = r.dial(t)
		wg.Go(func() { k.run(r, stop, time.Duration(i)*20*time.Millisecond) })
	}
	time.Sleep(time.Second)
	r.signal(syscall.SIGTERM)
	eventually(t, patience, "/readyz 503", func() string {
		if status, _ := r.adminGet("/readyz"); status != 503 {
			return fmt.Sprintf("is %d", status)
		}
		return ""
	})
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
		if resp := c.response(long + 2*patience); !resp.complete || !strings.HasSuffix(string(resp.body), doneEvent) || len(resp.errorEvents()) > 0 {
			t.Errorf("stream %d is not whole", i)
		}
	}
	if code := r.awaitExit(5 * patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	drainedLedger(t, r)
}

// keeper is a client that keeps its connection and sends 5 requests a second
// until it is told to close.
type keeper struct {
	c       *client
	answers int
	problem string
}

func (k *keeper) run(r *ramjet, signalled <-chan struct{}, offset time.Duration) {
	time.Sleep(offset)
	for range 40 {
		after := false
		select {
		case <-signalled:
			after = true
		default:
		}
		id := r.id("keep")
		if _, err := io.WriteString(k.c.conn, request("POST", chatPath, id, chatBody(false))); err != nil {
			k.problem = fmt.Sprintf("cannot send %s: %v", id, err)
			return
		}
		resp, err := k.c.until(patience, func(resp *response) bool { return resp != nil && resp.complete })
		if err != nil || resp.status != 200 {
			k.problem = fmt.Sprintf("request %s (sent after the signal: %v): %v", id, after, err)
			return
		}
		k.c.raw = nil
		k.answers++
		if strings.EqualFold(resp.fields.get("Connection"), "close") {
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
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := startWith(t, setup{engines: []*engine{a, b}, flags: []string{"--timeouts.drain=30s"}, loose: true})
	a.on(tokensFor(3 * time.Second))
	b.on(tokensFor(3 * time.Second))
	streams(t, r, 1)
	a.on(nil)
	b.on(nil)
	idle := r.dial(t)
	idle.send(request("POST", chatPath, r.id("idle"), chatBody(false)))
	idle.response(patience)
	r.signal(syscall.SIGTERM)
	time.Sleep(500 * time.Millisecond)
	idle.send(request("POST", chatPath, r.id("idle"), chatBody(false)))
	resp := idle.response(patience)
	if resp.status != 200 || !strings.EqualFold(resp.fields.get("Connection"), "close") || !idle.gone(patience) {
		t.Errorf("answered %d, Connection: %q, then closed %v", resp.status, resp.fields.get("Connection"), idle.closed)
	}
	if code := r.awaitExit(5 * patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
