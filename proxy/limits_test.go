package proxy

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/route"
	"ramjet/telemetry"
)

func TestHeadLimit(t *testing.T) {
	t.Parallel()
	f := start(t, []script{streaming}, func(s *setup) { s.Limits.Header = 8 << 10 })
	padded := func(n int) string {
		r := get("/health", "X-A: ")
		return strings.Replace(r, "X-A: ", "X-A: "+strings.Repeat("a", n-len(r)), 1)
	}
	for _, c := range []struct {
		bytes, status int
	}{{8 << 10, 200}, {8<<10 + 1, 431}, {9 << 10, 431}, {100 << 10, 431}} {
		for _, piece := range []int{1 << 20, 1000} {
			cl := f.dial()
			go func() {
				for s := padded(c.bytes); len(s) > 0; {
					n := min(piece, len(s))
					if _, err := io.WriteString(cl.nc, s[:n]); err != nil {
						return
					}
					s = s[n:]
				}
			}()
			a := cl.receive()
			if a.StatusCode != c.status {
				t.Errorf("a head of %d bytes: %d, want %d", c.bytes, a.StatusCode, c.status)
			}
			if c.status == 431 {
				a.wantError(t, 431, "header_too_large")
				if !a.Close {
					t.Error("a refused head keeps its connection")
				}
			}
			cl.close()
		}
	}
	cl := f.dial()
	cl.send("GET /health HTTP/1.1\r\nHost: x\r\n", strings.Repeat("A: b\r\n", 257), "\r\n")
	cl.receive().wantError(t, 431, "header_too_large")
}

func TestBodyLimit(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) {
		x.write(sized("200 OK", "application/json", fmt.Sprint(len(x.body))))
	}}, func(s *setup) { s.Limits.Body = 100 << 10 })
	body := func(n int) string { return `{"input":"` + strings.Repeat("x", n-12) + `"}` }
	for _, n := range []int{100, 100 << 10} {
		f.ask(post("/v1/embeddings", body(n))).want(t, 200, fmt.Sprint(n))
		f.ask(chunkedPost("/v1/embeddings", inChunks(body(n), 5000)+endOfBody)).want(t, 200, fmt.Sprint(n))
	}
	f.ask(post("/v1/embeddings", body(100<<10+1))).wantError(t, 413, "body_too_large")
	f.ask(chunkedPost("/v1/embeddings", inChunks(body(100<<10+1), 5000)+endOfBody)).wantError(t, 413, "body_too_large")
	records := f.records(6)
	if r := records[4]; r.End != "rejected" || r.Attempts != 0 {
		t.Errorf("record %+v", r)
	}
}

func chunkedPost(path, body string, fields ...string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
		strings.Join(append(fields, ""), "\r\n") + "Transfer-Encoding: chunked\r\n\r\n" + body
}

func TestConnectionLimit(t *testing.T) {
	t.Parallel()
	f := start(t, []script{streaming}, func(s *setup) { s.Limits.Connections = 2 })
	var open []*client
	for range 2 {
		c := f.dial()
		c.send(get("/health"))
		c.receive()
		open = append(open, c)
	}
	for range 5 {
		f.dial().closed()
	}
	open[0].close()
	eventually(t, "room for a connection", func() bool { return f.srv.connections() == 1 })
	c := f.dial()
	c.send(get("/health"))
	c.receive().want(t, 200, `{"status":"ok","engines":{}}`)
}

// held is an engine whose requests wait until the test lets each go.
type held struct {
	started chan string // the body of each request
	release chan struct{}
}

func newHeld() *held { return &held{make(chan string, 100), make(chan struct{}, 100)} }

func (h *held) script(x *exchange) {
	h.started <- string(x.body)
	select {
	case <-h.release:
	case <-x.e.stopping:
	}
	x.write(plainAnswer)
}

// numberedBody is a chat body that can be told from others.
func numberedBody(i int) string { return fmt.Sprintf(`{"model":"m","messages":[{"n":%d}]}`, i) }

func TestInFlightAndQueue(t *testing.T) {
	t.Parallel()
	h := newHeld()
	f := start(t, []script{h.script}, func(s *setup) {
		s.Limits.Queue, s.Limits.QueueWait = 3, far
		s.engine = func(_ int, o *engine.Options) { o.InFlight = 1 }
	})
	waits := func() int {
		f.srv.queue.mu.Lock()
		defer f.srv.queue.mu.Unlock()
		return len(f.srv.queue.waiting)
	}
	var clients []*client
	for i := range 4 {
		c := f.dial()
		c.send(post(chatPath, numberedBody(i)))
		clients = append(clients, c)
		if i == 0 {
			<-h.started
		}
		eventually(t, "a place in the queue", func() bool { return waits() == i })
	}
	a := f.ask(post(chatPath, numberedBody(9)))
	a.wantError(t, 429, "queue_full")
	if a.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	// The one in the middle leaves; its place is free at once.
	clients[2].close()
	eventually(t, "the place of the one who left", func() bool { return waits() == 2 })
	late := f.dial()
	late.send(post(chatPath, numberedBody(4)))
	eventually(t, "the new one in the queue", func() bool { return waits() == 3 })
	clients = append(clients, late)
	for _, i := range []int{0, 1, 3, 4} {
		if i > 0 {
			if got := <-h.started; got != numberedBody(i) {
				t.Errorf("served %s, want number %d", got, i)
			}
		}
		h.release <- struct{}{}
		clients[i].receive().want(t, 200, answerBody)
	}
	if n := len(f.engines[0].got()); n != 4 {
		t.Errorf("the engine got %d requests, want 4", n)
	}
	counts := map[string]int{}
	for _, r := range f.records(6) {
		counts[r.End]++
		if r.End == "done" && r.Queue == nil && counts["done"] > 1 {
			t.Error("a request that waited has no queue time")
		}
	}
	if counts["done"] != 4 || counts["shed"] != 1 || counts["client-gone-waiting"] != 1 {
		t.Errorf("ends %v", counts)
	}
}

func TestQueueWaitIsBounded(t *testing.T) {
	t.Parallel()
	h := newHeld()
	f := start(t, []script{h.script}, func(s *setup) {
		s.Limits.Queue, s.Limits.QueueWait = 3, soon
		s.engine = func(_ int, o *engine.Options) { o.InFlight = 1 }
	})
	c := f.dial()
	c.send(post(chatPath, chatBody))
	<-h.started
	f.ask(post(chatPath, chatBody)).wantError(t, 429, "queue_full")
	h.release <- struct{}{}
	c.receive().want(t, 200, answerBody)
	f.endsInAnyOrder(telemetry.EndShed, telemetry.EndDone)
}

// TestNoQueue: without one nobody waits, and an engine with room is used.
func TestNoQueue(t *testing.T) {
	t.Parallel()
	h := newHeld()
	f := start(t, []script{h.script, h.script}, func(s *setup) {
		s.engine = func(_ int, o *engine.Options) { o.InFlight = 1 }
	})
	var open []*client
	for range 2 {
		c := f.dial()
		c.send(post(chatPath, chatBody))
		<-h.started
		open = append(open, c)
	}
	f.ask(post(chatPath, chatBody)).wantError(t, 429, "queue_full")
	for _, c := range open {
		h.release <- struct{}{}
		c.receive().want(t, 200, answerBody)
	}
	if len(f.engines[0].got()) != 1 || len(f.engines[1].got()) != 1 {
		t.Error("the engines did not share the requests")
	}
}

// TestMovingRequestFreesItsEngine: a request that waits in the queue for
// another engine must not weigh on the one that failed it.
func TestMovingRequestFreesItsEngine(t *testing.T) {
	t.Parallel()
	h := newHeld()
	busy := func(x *exchange) { x.write(sized("503 Service Unavailable", "application/json", `{}`)) }
	f := start(t, []script{busy, h.script}, func(s *setup) {
		s.Limits.Queue, s.Limits.QueueWait = 3, far
		s.engine = func(_ int, o *engine.Options) { o.InFlight = 1 }
	})
	var open []*client
	for range 2 { // one of the two starts at a, and then waits for b
		c := f.dial()
		c.send(post(chatPath, chatBody))
		open = append(open, c)
	}
	<-h.started
	eventually(t, "a free engine a", func() bool { return f.book.Load(f.set.Members[0].Account).Requests() == 0 })
	for range open {
		h.release <- struct{}{}
	}
	for _, c := range open {
		c.receive().want(t, 200, answerBody)
	}
}

// TestEngineRefusesTheModel keeps the queue out of it.
func TestUnservedModelIsNotQueued(t *testing.T) {
	t.Parallel()
	f := start(t, []script{streaming}, func(s *setup) { s.Limits.Queue = 3; s.policy = route.PolicyLatency })
	f.ask(post(chatPath, `{"model":"other","messages":[]}`)).wantError(t, 404, "model_not_found")
	f.ends(telemetry.EndRejected)
}

// TestBodyMemory: beyond the budget reading pauses until bytes come back, and
// after a while the client is told.
func TestBodyMemory(t *testing.T) {
	t.Parallel()
	big := func(i int) string {
		return fmt.Sprintf(`{"model":"m","n":%d,"messages":[{"c":%q}]}`, i, strings.Repeat("x", 900<<10))
	}
	t.Run("pauses", func(t *testing.T) {
		t.Parallel()
		h := newHeld()
		f := start(t, []script{h.script}, func(s *setup) { s.Limits.BodyMemory, s.Limits.QueueWait = 1<<20, far })
		first, second := f.dial(), f.dial()
		first.send(post(chatPath, big(1)))
		<-h.started
		go func() { _, _ = io.WriteString(second.nc, post(chatPath, big(2))) }()
		eventually(t, "a reader that waits", func() bool {
			f.srv.bodies.mu.Lock()
			defer f.srv.bodies.mu.Unlock()
			return len(f.srv.bodies.waiting) == 1
		})
		if n := f.srv.BodyBytes(); n > 1<<20 {
			t.Errorf("%d bytes are held", n)
		}
		h.release <- struct{}{}
		first.receive().want(t, 200, answerBody)
		<-h.started
		h.release <- struct{}{}
		second.receive().want(t, 200, answerBody)
	})
	t.Run("gives up", func(t *testing.T) {
		t.Parallel()
		h := newHeld()
		f := start(t, []script{h.script}, func(s *setup) { s.Limits.BodyMemory, s.Limits.QueueWait = 1<<20, soon })
		first := f.dial()
		first.send(post(chatPath, big(1)))
		<-h.started
		c := f.dial()
		go func() { _, _ = io.WriteString(c.nc, post(chatPath, big(2))) }()
		a := c.receive()
		a.wantError(t, 503, "overloaded")
		h.release <- struct{}{}
		first.receive().want(t, 200, answerBody)
		f.endsInAnyOrder(telemetry.EndShed, telemetry.EndDone)
	})
	t.Run("a client that left waits for nothing", func(t *testing.T) {
		t.Parallel()
		h := newHeld()
		f := start(t, []script{h.script}, func(s *setup) { s.Limits.BodyMemory, s.Limits.QueueWait = 1<<20, far })
		first := f.dial()
		first.send(post(chatPath, big(1)))
		<-h.started
		c := f.dial()
		c.send(post(chatPath, big(2))[:1000])
		eventually(t, "a reader that waits", func() bool { return f.srv.InFlight() == 2 })
		time.Sleep(5 * time.Millisecond)
		c.close()
		f.ends(telemetry.EndClientGoneWaiting)
		h.release <- struct{}{}
		first.receive().want(t, 200, answerBody)
	})
}

// TestCloseEndsEveryWait: Close returns although requests wait for memory, a
// place, an engine and a client.
func TestCloseEndsEveryWait(t *testing.T) {
	t.Parallel()
	h := newHeld()
	f := start(t, []script{h.script}, func(s *setup) {
		s.Limits.BodyMemory, s.Limits.QueueWait, s.Limits.Queue = 64<<10, far, 5
		s.engine = func(_ int, o *engine.Options) { o.InFlight = 1 }
	})
	send := func(s string) { go func() { _, _ = io.WriteString(f.dial().nc, s) }() }
	send(post(chatPath, `{"model":"m","messages":[{"c":"`+strings.Repeat("x", 40<<10)+`"}]}`)) // at the engine, holding the memory
	<-h.started
	send(post(chatPath, `{"model":"m","messages":[{"c":"`+strings.Repeat("x", 20<<10)+`"}]}`)) // waits for memory
	send(post("/v1/thing", ""))                                                                // waits for a place
	send("POST /v1/thing HTTP/1.1\r\nHost: x\r\n")                                             // waits for its client
	eventually(t, "three requests", func() bool { return f.srv.InFlight() == 3 })
	done := make(chan struct{})
	go func() { f.srv.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("Close does not return")
	}
	h.release <- struct{}{}
}

var _ net.Conn = (*sink)(nil)
