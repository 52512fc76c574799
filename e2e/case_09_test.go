package e2e

import (
	"io"
	"strings"
	"testing"
	"time"
)

const upgradeFields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"

func upgrade(path, id string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + id + "\r\n" + upgradeFields + "OpenAI-Beta: responses_websockets=2026-02-06\r\n\r\n"
}

// TestCaseC09WebSocketAttempt: a client that tries a WebSocket where there is
// none is refused at once with 426, without a lease and without an engine; its
// plain request then works on the same connection.
func TestCaseC09WebSocketAttempt(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	var slowest time.Duration
	for range 20 {
		c := r.dial(t)
		c.method = "GET"
		began := time.Now()
		c.send(upgrade(responsesPath, r.id("c09")))
		resp := c.response(patience)
		slowest = max(slowest, time.Since(began))
		if resp.status != 426 || resp.code() != "websocket_unsupported" {
			t.Fatalf("answered %d %.200q, want 426 websocket_unsupported", resp.status, resp.body)
		}
		c.close()
	}
	if slowest > 500*time.Millisecond {
		t.Errorf("refused after %v", slowest)
	}
	xs, _ := a.seen()
	ys, _ := b.seen()
	if len(xs)+len(ys) != 0 {
		t.Errorf("%d attempts reached an engine", len(xs)+len(ys))
	}
	if resp := r.post(t, responsesPath, `{"model":"m","input":"x"}`); resp.status != 200 {
		t.Errorf("the plain request is answered %d %.200q", resp.status, resp.body)
	}
	r.counted(t, 20, "426", "rejected")
	neverMoved(t, r, a, b)
}

// TestCaseC09Kind: other paths that have no WebSocket refuse it the same way.
func TestCaseC09Kind(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	for _, path := range []string{chatPath, messagesPath, "/v1/models", "/v1/embeddings"} {
		if resp := r.do(t, upgrade(path, r.id("c09"))); resp.status != 426 && resp.status != 405 {
			t.Errorf("%s: answered %d %.200q", path, resp.status, resp.body)
		}
	}
	noAnomalies(t, a, b)
}

// TestCaseC09Realtime: where there is a WebSocket, it still upgrades, and bytes
// pass both ways.
func TestCaseC09Realtime(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	switching := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n\x81\x05hello"
	a.get("/v1/realtime", switching)
	b.get("/v1/realtime", switching)
	id := r.id("c09")
	c := r.dial(t)
	c.method = "GET"
	c.send(upgrade("/v1/realtime?model=m", id))
	resp := c.head(patience)
	if resp.status != 101 || !strings.EqualFold(resp.fields.get("Upgrade"), "websocket") {
		t.Fatalf("answered %d %.300q, want 101", resp.status, c.raw)
	}
	x := waitFor(t, id, a, b)
	_, _ = io.WriteString(c.conn, "\x81\x03abc")
	eventually(t, patience, "bytes to the engine", func() string {
		x.conn.mu.Lock()
		defer x.conn.mu.Unlock()
		if !strings.HasSuffix(string(x.conn.raw), "\x81\x03abc") {
			return "not there"
		}
		return ""
	})
	_, _ = c.until(patience, func(*response) bool { return strings.HasSuffix(string(c.raw), "\x81\x05hello") })
	if !strings.HasSuffix(string(c.raw), "\x81\x05hello") {
		t.Errorf("bytes to the client: %q", c.raw)
	}
	c.close()
	if !x.gone(leaveLimit) {
		t.Error("the engine's side stays open after the client left")
	}
}
