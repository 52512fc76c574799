package e2e

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// slowReader connects with a small receive buffer, sends a request and then
// reads nothing.
func slowReader(t *testing.T, r *ramjet, id string) *client {
	t.Helper()
	c := r.dial(t)
	_ = c.conn.SetReadBuffer(4 << 10)
	c.send(request("POST", chatPath, id, chatBody(true)))
	return c
}

// flood streams up to n bytes in events of 64 KB and says how many the peer
// took.
func flood(n int, taken *counter) script {
	ev := chunk(deltaEvent(strings.Repeat("x", 64<<10)))
	return func(x *exchange) {
		x.streamHead()
		for range n / len(ev) {
			if !x.write(ev) {
				return
			}
			taken.add(len(ev))
		}
		x.events(doneEvent)
		x.write(lastChunk)
	}
}

type counter struct {
	mu sync.Mutex // guards n
	n  int
}

func (c *counter) add(n int) { c.mu.Lock(); defer c.mu.Unlock(); c.n += n }
func (c *counter) get() int  { c.mu.Lock(); defer c.mu.Unlock(); return c.n }

// TestB7Row04SlowReader: a client that takes nothing of 100 MB pauses the engine
// instead of filling memory, and is cut when it makes no progress.
func TestB7Row04SlowReader(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--timeouts.client-write=2s")
	var taken counter
	a.on(flood(100<<20, &taken))
	b.on(flood(100<<20, &taken))
	before := r.rss()
	id := r.id("slow")
	slowReader(t, r, id)
	x := waitFor(t, id, a, b)
	time.Sleep(time.Second)
	if grown := r.rss() - before; grown > 8<<20 && !raceEnabled {
		t.Errorf("memory grew by %d bytes for a client that reads nothing", grown)
	}
	// The kernel's own buffers (tcp_rmem, tcp_wmem) hold some, by default up to 38 MB.
	if n := taken.get(); n > 60<<20 {
		t.Errorf("the engine could send %d bytes although nobody reads", n)
	}
	if !x.gone(20 * time.Second) {
		t.Error("the stream of a stalled client is not ended after client_write")
	}
	r.ended(t, id, "client-stalled")
	neverMoved(t, r, a, b)
}

// TestB7Row05SlowLoris: 1,000 heads that come byte by byte end at the total
// limit of the head, and the others are served meanwhile.
func TestB7Row05SlowLoris(t *testing.T) {
	t.Parallel()
	slow(t, "a thousand connections")
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--timeouts.client-header=2s")
	var wg sync.WaitGroup
	var early, late counter
	began := time.Now()
	for range 1000 {
		c := r.dial(t)
		wg.Go(func() {
			switch lived := dribble(c.conn, began); {
			case lived < 1500*time.Millisecond:
				early.add(1)
			case lived > 20*time.Second:
				late.add(1)
			}
		})
	}
	worst := time.Duration(0)
	for range 40 {
		sent := time.Now()
		r.served(r.id("other"), false)
		worst = max(worst, time.Since(sent))
		time.Sleep(20 * time.Millisecond)
	}
	wg.Wait()
	if early.get() > 0 || late.get() > 0 {
		t.Errorf("of 1,000 slow heads %d ended before the limit of 2 s, %d stayed for 20 s", early.get(), late.get())
	}
	if worst > 3*time.Second {
		t.Errorf("another client waited %v", worst)
	}
}

// dribble sends a head at 5 bytes a second until the peer ends the connection,
// and returns for how long it lived.
func dribble(conn net.Conn, began time.Time) time.Duration {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, conn)
	}()
	head := request("POST", chatPath, "", "", "X-Long: "+strings.Repeat("x", 1000))
	for i := 0; i < len(head)-4; i++ {
		select {
		case <-done:
			return time.Since(began)
		case <-time.After(200 * time.Millisecond):
			if _, err := conn.Write([]byte{head[i]}); err != nil {
				<-done
				return time.Since(began)
			}
		}
		if time.Since(began) > 25*time.Second {
			_ = conn.Close()
		}
	}
	<-done
	return time.Since(began)
}

// TestB7Row06TrickledBody: 1 byte a second of a megabyte is 408 by the least
// rate, judged from 2 s on, and holds no lease meanwhile.
func TestB7Row06TrickledBody(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	c := r.dial(t)
	id := r.id("trickle")
	c.send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{", chatPath, id))
	began := time.Now()
	for time.Since(began) < 20*time.Second {
		if resp, _ := c.until(500*time.Millisecond, func(resp *response) bool { return resp != nil }); resp != nil || c.closed {
			break
		}
		if m := r.metrics(); m.leases() != 0 || m.sum("ramjet_lease_tokens") != 0 {
			t.Fatal("a body that is not whole yet holds a lease")
		}
		_, _ = io.WriteString(c.conn, " ")
	}
	resp := c.response(patience)
	if resp.status != 408 || resp.code() != "request_timeout" {
		t.Errorf("answered %d %s, want 408 request_timeout", resp.status, resp.code())
	}
	if took := time.Since(began); took < 1500*time.Millisecond || took > 15*time.Second {
		t.Errorf("cut after %v, want soon after 2 s", took)
	}
	if !c.gone(patience) {
		t.Error("the connection stays open after 408")
	}
	if len(a.byID(id))+len(b.byID(id)) != 0 {
		t.Error("the request reached an engine")
	}
	r.ended(t, id, "rejected", "timed-out")
}
