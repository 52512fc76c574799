package rig

import (
	"encoding/json"
	"io"
	"strings"
	"sync"
	"time"
)

// Exchange is one request at an engine and the means to answer it.
type Exchange struct {
	E       *Engine
	conn    *EngineConn
	At      time.Time // when the head was whole
	Method  string
	Target  string
	Head    []byte
	Fields  Fields
	Framing string
	Body    []byte
	Cut     bool // the connection ended inside the body
	end     int  // offset in the connection's record behind the request
	first   sync.Once

	mu   sync.Mutex // guards the following
	shut bool       // the script closed the connection
	over bool       // the script has returned
}

// answer plays the script for POSTs, and the engine's own words for the rest.
func (x *Exchange) answer() {
	x.E.mu.Lock()
	play := x.E.play
	path, _, _ := strings.Cut(x.Target, "?")
	fixed, isFixed := x.E.gets[path]
	x.E.mu.Unlock()
	switch {
	case strings.HasPrefix(x.Fields.Get("X-Request-Id"), AutoID):
		x.Plain()
	case isFixed && x.Method != "POST":
		x.Write(fixed)
		if strings.HasPrefix(fixed, "HTTP/1.1 101 ") { // what follows is another protocol
			x.Gone(0)
			x.markShut()
		}
	case x.Method == "POST" && play != nil:
		play(x)
	case x.Method == "POST":
		x.Plain()
	default:
		x.Write(ownWords(x.Method, path))
	}
}

func ownWords(method, path string) string {
	body, status, kind := `{"detail":"Not Found"}`, 404, "application/json"
	switch path {
	case "/health":
		body, status = "", 200
	case "/v1/models":
		body, status = ModelList("m"), 200
	case "/version":
		body, status = `{"version":"0.32.0"}`, 200
	case "/metrics":
		body, status, kind = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 0\n", 200, "text/plain; version=0.0.4"
	}
	answer := FullResponse(status, kind, body)
	if method == "HEAD" {
		return strings.TrimSuffix(answer, body)
	}
	return answer
}

// Plain is the answer without a script: a short chat answer, streamed when the
// body asks for it.
func (x *Exchange) Plain() {
	if !x.streamed() {
		x.Write(JSONResponse(200, ChatAnswer("hello world")))
		return
	}
	x.Write(StreamHead)
	for _, ev := range ChatEvents(3) {
		x.Write(Chunk(ev))
	}
	x.Write(LastChunk)
}

// streamed reports whether the body asks for a stream.
func (x *Exchange) streamed() bool {
	var q struct {
		Stream bool `json:"stream"`
	}
	_ = json.Unmarshal(x.Body, &q)
	return q.Stream
}

// Write sends bytes as they are, in one write. It reports whether they left.
// Bytes that the peer sent behind its request and ahead of this answer are an
// anomaly: a proxy that pipelines, or a body that was longer than its framing.
func (x *Exchange) Write(s string) bool {
	x.first.Do(func() {
		if early := x.conn.received() - x.end; early > 0 {
			x.E.anomaly("%d bytes followed %s %s before it was answered", early, x.Method, x.Target)
		}
	})
	_, err := io.WriteString(x.conn.conn, s)
	return err == nil
}

// StreamHead sends the head of a stream; events sends each in a chunk and write of
// its own.
func (x *Exchange) StreamHead() bool { return x.Write(StreamHead) }

// Events sends each event in a chunk of its own; false when the client is gone.
func (x *Exchange) Events(events ...string) bool {
	for _, ev := range events {
		if !x.Write(Chunk(ev)) {
			return false
		}
	}
	return true
}

// Gone waits until the peer leaves; false at the limit.
func (x *Exchange) Gone(limit time.Duration) bool {
	_, ended, _ := x.conn.wait(0, limit, func([]byte) bool { return false })
	return ended
}

// GoneAt is the time when the peer left, zero while it is there.
func (x *Exchange) GoneAt() time.Time {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	return x.conn.ended
}

// Hold waits for a channel or for the peer to leave, and reports whether the
// peer is still there.
func (x *Exchange) Hold(until <-chan struct{}) bool {
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

// Pause sleeps, but not beyond the peer's leaving.
func (x *Exchange) Pause(d time.Duration) bool { return !x.Gone(d) }

// Close ends the connection with a FIN, reset with a RST.
func (x *Exchange) Close() {
	x.markShut()
	_ = x.conn.conn.Close()
}

// Reset ends the connection with a reset.
func (x *Exchange) Reset() {
	_ = x.conn.conn.SetLinger(0)
	x.Close()
}

func (x *Exchange) markShut() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.shut = true
}

func (x *Exchange) isShut() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shut
}

// Finish marks the exchange as over; a second call does nothing.
func (x *Exchange) Finish() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
}

func (x *Exchange) finished() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.over
}

// Shares reports whether both came on one connection.
func (x *Exchange) Shares(other *Exchange) bool { return x.conn == other.conn }

// Received is all that the client sent on the connection so far.
func (x *Exchange) Received() string {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	return string(x.conn.raw)
}

// ID is the request id that came with the request.
func (x *Exchange) ID() string { return x.Fields.Get("X-Request-Id") }
