package e2e

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// TestB7Row04SteadySlowReader: a client that reads slowly but makes progress is
// never cut, however long the answer takes.
func TestB7Row04SteadySlowReader(t *testing.T) {
	t.Parallel()
	a := newEngine(t, "a")
	r := startWith(t, setup{engines: []*engine{a}, flags: []string{"--timeouts.client-write=4s"}})
	const size = 8 << 20 // more than socket buffers hold, so that the writer waits again and again
	var taken counter
	a.on(flood(size, &taken))
	id := r.id("steady")
	c := r.dial(t)
	_ = c.conn.SetReadBuffer(128 << 10)
	c.send(request("POST", chatPath, id, chatBody(true)))
	got, tail := readSlowly(c, 64<<10, 40*time.Millisecond)
	if got < taken.get() || !strings.HasSuffix(tail, lastChunk) {
		t.Errorf("%d bytes arrived of %d, the end is %.40q", got, taken.get(), tail)
	}
	r.ended(t, id, "done")
}

// TestB7Row04CrawlingReader: progress is what the client takes, not what fits
// into the socket: Linux calls a socket writable only when a third of its
// buffer (megabytes by then) is free, and a slow link needs long for that.
func TestB7Row04CrawlingReader(t *testing.T) {
	t.Parallel()
	a := newEngine(t, "a")
	r := startWith(t, setup{engines: []*engine{a}, flags: []string{"--timeouts.client-write=2s"}})
	var taken counter
	a.on(flood(60<<20, &taken))
	id := r.id("crawl")
	c := r.dial(t)
	_ = c.conn.SetReadBuffer(64 << 10)
	c.send(request("POST", chatPath, id, chatBody(true)))
	x := waitFor(t, id, a)
	buf := make([]byte, 8<<10) // at 20 reads a second a third of a send buffer takes longer than the limit
	for began := time.Now(); time.Since(began) < 7*time.Second; time.Sleep(50 * time.Millisecond) {
		_ = c.conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadAtLeast(c.conn, buf, 1); err != nil {
			t.Fatalf("cannot read: %v", err)
		}
	}
	if !x.goneAt().IsZero() {
		t.Error("a client that takes bytes all the time was cut")
	}
	c.close()
	r.ended(t, id, "client-gone-streaming")
}

// readSlowly reads up to n bytes at a time with pauses, until the last chunk
// behind another one or the end of the connection, and returns how many came and
// the last of them.
func readSlowly(c *client, n int, pause time.Duration) (got int, tail string) {
	const end = "\r\n" + lastChunk
	buf := make([]byte, n)
	for {
		_ = c.conn.SetReadDeadline(time.Now().Add(patience))
		k, err := io.ReadAtLeast(c.conn, buf, 1)
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
	a := newEngine(t, "a")
	r := startWith(t, setup{engines: []*engine{a}, flags: []string{"--timeouts.client-body-rate=4KiB"}})
	body := vectorBody + strings.Repeat(" ", 100_000)
	id := r.id("steady")
	c := r.dial(t)
	c.send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", chatPath, id, len(body)))
	for rest := body; rest != ""; {
		n := min(len(rest), 4000)
		c.send(rest[:n])
		rest = rest[n:]
		time.Sleep(120 * time.Millisecond) // about 30 KB/s, 3 s in all
	}
	if resp := c.response(patience); resp.status != 200 {
		t.Errorf("answered %d %.200q", resp.status, resp.body)
	}
	if x := waitFor(t, id, a); string(x.body) != body {
		t.Errorf("%d bytes at the engine, want %d", len(x.body), len(body))
	}
}

// TestB7Row09ByteByByte: two requests that arrive byte by byte, the second
// right behind the first.
func TestB7Row09ByteByByte(t *testing.T) {
	t.Parallel()
	a := newEngine(t, "a")
	r := startWith(t, setup{engines: []*engine{a}})
	first, second := r.id("bytes"), r.id("bytes")
	chunkedRequest := "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + second + "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + chunkEach(vectorBody, 9) + lastChunk
	c := r.dial(t)
	for _, b := range []byte(request("POST", chatPath, first, chatBody(true)) + chunkedRequest) {
		if _, err := c.conn.Write([]byte{b}); err != nil {
			t.Fatalf("cannot send: %v", err)
		}
	}
	for range 2 {
		if resp := c.response(patience); resp.status != 200 || !resp.complete {
			t.Errorf("answered %d %.200q", resp.status, resp.body)
		}
	}
	if x, y := waitFor(t, first, a), waitFor(t, second, a); string(x.body) != chatBody(true) || string(y.body) != vectorBody {
		t.Errorf("bodies at the engine: %q and %q", x.body, y.body)
	}
	noAnomalies(t, a)
}

// TestB7Row28ByteByByte: an answer whose every byte comes in a packet of its
// own, head and framing included, is relayed exact.
func TestB7Row28ByteByByte(t *testing.T) {
	t.Parallel()
	a := newEngine(t, "a")
	r := startWith(t, setup{engines: []*engine{a}})
	events := []string{roleEvent(), "event: x\r\ndata: {\"a\":\"\xe2\x82\xac\"}\r\n\r\n", ": c\n\n", doneEvent}
	framed := chunkEach(strings.Join(events, ""), 37) + lastChunk
	a.on(func(x *exchange) {
		for _, b := range []byte(streamHead + framed) {
			x.write(string([]byte{b}))
			if b == '\r' || b == '\n' || b == ':' {
				time.Sleep(200 * time.Microsecond) // so that reads end at the odd places
			}
		}
	})
	for range 2 {
		resp := r.do(t, request("POST", chatPath, r.id("bytes"), chatBody(true)))
		if resp.status != 200 || !resp.complete || string(resp.body) != strings.Join(events, "") {
			t.Errorf("answered %d %.600q", resp.status, resp.body)
		}
	}
}
