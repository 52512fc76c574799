package faults

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestB7Row04SlowReader: a client that takes nothing of 100 MB pauses the engine
// instead of filling memory, and is cut when it makes no progress.
func TestB7Row04SlowReader(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--timeouts.client-write=2s")
	var taken rig.Counter
	a.On(rig.Flood(100<<20, &taken))
	b.On(rig.Flood(100<<20, &taken))
	before := r.RSS()
	id := r.ID("slow")
	rig.SlowReader(t, r, id)
	x := rig.WaitFor(t, id, a, b)
	time.Sleep(time.Second)
	if grown := r.RSS() - before; grown > 8<<20 && !rig.RaceEnabled {
		t.Errorf("memory grew by %d bytes for a client that reads nothing", grown)
	}
	// The kernel's own buffers (tcp_rmem, tcp_wmem) hold some, by default up to 38 MB.
	if n := taken.Get(); n > 60<<20 {
		t.Errorf("the engine could send %d bytes although nobody reads", n)
	}
	if !x.Gone(20 * time.Second) {
		t.Error("the stream of a stalled client is not ended after client_write")
	}
	r.Ended(t, id, "client-stalled")
	rig.NeverMoved(t, r, a, b)
}

// TestB7Row05SlowLoris: 1,000 heads that come byte by byte end at the total
// limit of the head, and the others are served meanwhile.
func TestB7Row05SlowLoris(t *testing.T) {
	t.Parallel()
	rig.Slow(t, "a thousand connections")
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--timeouts.client-header=10s")
	var wg sync.WaitGroup
	var early, late rig.Counter
	began := time.Now()
	for range 1000 {
		c := r.Dial(t)
		wg.Go(func() {
			switch lived := dribble(c.Conn, began); {
			case lived < 9500*time.Millisecond:
				early.Add(1)
			case lived > 40*time.Second:
				late.Add(1)
			}
		})
	}
	worst := time.Duration(0)
	for range 40 {
		sent := time.Now()
		r.Served(r.ID("other"), false)
		worst = max(worst, time.Since(sent))
		time.Sleep(20 * time.Millisecond)
	}
	wg.Wait()
	if early.Get() > 0 || late.Get() > 0 {
		t.Errorf("of 1,000 slow heads %d ended before the limit of 10 s, %d stayed for 40 s", early.Get(), late.Get())
	}
	if worst > 8*time.Second {
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
	head := rig.Request("POST", rig.ChatPath, "", "", "X-Long: "+strings.Repeat("x", 1000))
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
		if time.Since(began) > 45*time.Second {
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
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	c := r.Dial(t)
	id := r.ID("trickle")
	c.Send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{", rig.ChatPath, id))
	began := time.Now()
	for time.Since(began) < 20*time.Second {
		if resp, _ := c.Until(500*time.Millisecond, func(resp *rig.Response) bool { return resp != nil }); resp != nil || c.Closed {
			break
		}
		if m := r.Metrics(); m.Leases() != 0 || m.Sum("ramjet_lease_tokens") != 0 {
			t.Fatal("a body that is not whole yet holds a lease")
		}
		_, _ = io.WriteString(c.Conn, " ")
	}
	resp := c.Response(rig.Patience)
	if resp.Status != 408 || resp.Code() != "request_timeout" {
		t.Errorf("answered %d %s, want 408 request_timeout", resp.Status, resp.Code())
	}
	if took := time.Since(began); took < 1500*time.Millisecond || took > 15*time.Second {
		t.Errorf("cut after %v, want soon after 2 s", took)
	}
	if !c.Gone(rig.Patience) {
		t.Error("the connection stays open after 408")
	}
	if len(a.ByID(id))+len(b.ByID(id)) != 0 {
		t.Error("the request reached an engine")
	}
	r.Ended(t, id, "rejected", "timed-out")
}

// TestB7Row04SteadySlowReader: a client that reads slowly but makes progress is
// never cut, however long the answer takes.
func TestB7Row04SteadySlowReader(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a}, Flags: []string{"--timeouts.client-write=4s"}})
	const size = 8 << 20 // more than socket buffers hold, so that the writer waits again and again
	var taken rig.Counter
	a.On(rig.Flood(size, &taken))
	id := r.ID("steady")
	c := r.Dial(t)
	_ = c.Conn.SetReadBuffer(128 << 10)
	c.Send(rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true)))
	got, tail := readSlowly(c, 64<<10, 40*time.Millisecond)
	if got < taken.Get() || !strings.HasSuffix(tail, rig.LastChunk) {
		t.Errorf("%d bytes arrived of %d, the end is %.40q", got, taken.Get(), tail)
	}
	r.Ended(t, id, "done")
}

// TestB7Row04CrawlingReader: progress is what the client takes, not what fits
// into the socket: Linux calls a socket writable only when a third of its
// buffer (megabytes by then) is free, and a slow link needs long for that.
func TestB7Row04CrawlingReader(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a}, Flags: []string{"--timeouts.client-write=2s"}})
	var taken rig.Counter
	a.On(rig.Flood(60<<20, &taken))
	id := r.ID("crawl")
	c := r.Dial(t)
	_ = c.Conn.SetReadBuffer(64 << 10)
	c.Send(rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true)))
	x := rig.WaitFor(t, id, a)
	buf := make([]byte, 8<<10) // at 20 reads a second a third of a send buffer takes longer than the limit
	for began := time.Now(); time.Since(began) < 7*time.Second; time.Sleep(50 * time.Millisecond) {
		_ = c.Conn.SetReadDeadline(time.Now().Add(rig.Patience))
		if _, err := io.ReadAtLeast(c.Conn, buf, 1); err != nil {
			t.Fatalf("cannot read: %v", err)
		}
	}
	if !x.GoneAt().IsZero() {
		t.Error("a client that takes bytes all the time was cut")
	}
	c.Close()
	r.Ended(t, id, "client-gone-streaming")
}

// readSlowly reads up to n bytes at a time with pauses, until the last chunk
// behind another one or the end of the connection, and returns how many came and
// the last of them.
func readSlowly(c *rig.Client, n int, pause time.Duration) (got int, tail string) {
	const end = "\r\n" + rig.LastChunk
	buf := make([]byte, n)
	for {
		_ = c.Conn.SetReadDeadline(time.Now().Add(rig.Patience))
		k, err := io.ReadAtLeast(c.Conn, buf, 1)
		got += k
		tail += string(buf[:k])
		tail = tail[max(0, len(tail)-len(end)):]
		if err != nil || tail == end {
			return got, tail
		}
		time.Sleep(pause)
	}
}

// TestB7Row06SteadyBody: a body that is slow, but faster than client_body_rate,
// is served.
func TestB7Row06SteadyBody(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a}, Flags: []string{"--timeouts.client-body-rate=4KiB"}})
	body := rig.VectorBody + strings.Repeat(" ", 100_000)
	id := r.ID("steady")
	c := r.Dial(t)
	c.Send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", rig.ChatPath, id, len(body)))
	for rest := body; rest != ""; {
		n := min(len(rest), 4000)
		c.Send(rest[:n])
		rest = rest[n:]
		time.Sleep(120 * time.Millisecond) // about 30 KB/s, 3 s in all
	}
	if resp := c.Response(rig.Patience); resp.Status != 200 {
		t.Errorf("answered %d %.200q", resp.Status, resp.Body)
	}
	if x := rig.WaitFor(t, id, a); string(x.Body) != body {
		t.Errorf("%d bytes at the engine, want %d", len(x.Body), len(body))
	}
}
