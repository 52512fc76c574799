package e2e

import (
	"encoding/json"
	"io"
	"strings"
	"sync"
	"time"
)

// exchange is one request at an engine and the means to answer it.
type exchange struct {
	e       *engine
	conn    *engineConn
	at      time.Time // when the head was whole
	method  string
	target  string
	head    []byte
	fields  fields
	framing string
	body    []byte
	cut     bool // the connection ended inside the body
	end     int  // offset in the connection's record behind the request
	first   sync.Once

	mu   sync.Mutex // guards the following
	shut bool       // the script closed the connection
	over bool       // the script has returned
}

// answer plays the script for POSTs, and the engine's own words for the rest.
func (x *exchange) answer() {
	x.e.mu.Lock()
	play := x.e.play
	path, _, _ := strings.Cut(x.target, "?")
	fixed, isFixed := x.e.gets[path]
	x.e.mu.Unlock()
	switch {
	case strings.HasPrefix(x.fields.get("X-Request-Id"), autoID):
		x.plain()
	case isFixed && x.method != "POST":
		x.write(fixed)
		if strings.HasPrefix(fixed, "HTTP/1.1 101 ") { // what follows is another protocol
			x.gone(0)
			x.markShut()
		}
	case x.method == "POST" && play != nil:
		play(x)
	case x.method == "POST":
		x.plain()
	default:
		x.write(ownWords(x.method, path))
	}
}

func ownWords(method, path string) string {
	body, status, kind := `{"detail":"Not Found"}`, 404, "application/json"
	switch path {
	case "/health":
		body, status = "", 200
	case "/v1/models":
		body, status = modelList("m"), 200
	case "/version":
		body, status = `{"version":"0.32.0"}`, 200
	case "/metrics":
		body, status, kind = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 0\n", 200, "text/plain; version=0.0.4"
	}
	answer := fullResponse(status, kind, body)
	if method == "HEAD" {
		return strings.TrimSuffix(answer, body)
	}
	return answer
}

// plain is the answer without a script: a short chat answer, streamed when the
// body asks for it.
func (x *exchange) plain() {
	var q struct {
		Stream bool `json:"stream"`
	}
	_ = json.Unmarshal(x.body, &q)
	if !q.Stream {
		x.write(jsonResponse(200, chatAnswer("hello world")))
		return
	}
	x.write(streamHead)
	for _, ev := range chatEvents(3) {
		x.write(chunk(ev))
	}
	x.write(lastChunk)
}

// write sends bytes as they are, in one write. It reports whether they left.
// Bytes that the peer sent behind its request and ahead of this answer are an
// anomaly: a proxy that pipelines, or a body that was longer than its framing.
func (x *exchange) write(s string) bool {
	x.first.Do(func() {
		if early := x.conn.received() - x.end; early > 0 {
			x.e.anomaly("%d bytes followed %s %s before it was answered", early, x.method, x.target)
		}
	})
	_, err := io.WriteString(x.conn.conn, s)
	return err == nil
}

// streamHead sends the head of a stream; events sends each in a chunk and write of
// its own.
func (x *exchange) streamHead() bool { return x.write(streamHead) }

func (x *exchange) events(events ...string) bool {
	for _, ev := range events {
		if !x.write(chunk(ev)) {
			return false
		}
	}
	return true
}

// gone waits until the peer leaves; false at the limit.
func (x *exchange) gone(limit time.Duration) bool {
	_, ended, _ := x.conn.wait(0, limit, func([]byte) bool { return false })
	return ended
}

// goneAt is the time when the peer left, zero while it is there.
func (x *exchange) goneAt() time.Time {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	return x.conn.ended
}

// hold waits for a channel or for the peer to leave, and reports whether the
// peer is still there.
func (x *exchange) hold(until <-chan struct{}) bool {
	for {
		x.conn.mu.Lock()
		ended, changed := !x.conn.ended.IsZero(), x.conn.changed
		x.conn.mu.Unlock()
		if ended {
			return false
		}
		select {
		case <-until:
			return true
		case <-changed:
		}
	}
}

// pause sleeps, but not beyond the peer's leaving.
func (x *exchange) pause(d time.Duration) bool { return !x.gone(d) }

// close ends the connection with a FIN, reset with a RST.
func (x *exchange) close() {
	x.markShut()
	_ = x.conn.conn.Close()
}

func (x *exchange) reset() {
	_ = x.conn.conn.SetLinger(0)
	x.close()
}

func (x *exchange) markShut() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.shut = true
}

func (x *exchange) isShut() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shut
}

func (x *exchange) finish() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
}

func (x *exchange) finished() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.over
}

func (x *exchange) id() string { return x.fields.get("X-Request-Id") }
