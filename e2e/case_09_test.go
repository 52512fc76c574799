package e2e

import (
	"io"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
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
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	quickest := rig.Patience
	for range 20 {
		c := r.Dial(t)
		c.Method = "GET"
		began := time.Now()
		c.Send(upgrade(rig.ResponsesPath, r.ID("c09")))
		resp := c.Response(rig.Patience)
		quickest = min(quickest, time.Since(began))
		if resp.Status != 426 || resp.Code() != "websocket_unsupported" {
			t.Fatalf("answered %d %.200q, want 426 websocket_unsupported", resp.Status, resp.Body)
		}
		c.Close()
	}
	if quickest > 500*time.Millisecond {
		t.Errorf("refused after %v at best", quickest)
	}
	xs, _ := a.Seen()
	ys, _ := b.Seen()
	if len(xs)+len(ys) != 0 {
		t.Errorf("%d attempts reached an engine", len(xs)+len(ys))
	}
	if resp := r.Post(t, rig.ResponsesPath, `{"model":"m","input":"x"}`); resp.Status != 200 {
		t.Errorf("the plain request is answered %d %.200q", resp.Status, resp.Body)
	}
	r.Counted(t, 20, "426", "rejected")
	rig.NeverMoved(t, r, a, b)
}

// TestCaseC09Kind: other paths that have no WebSocket refuse it the same way.
func TestCaseC09Kind(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	for _, path := range []string{rig.ChatPath, rig.MessagesPath, "/v1/models", "/v1/embeddings"} {
		if resp := r.Do(t, upgrade(path, r.ID("c09"))); resp.Status != 426 && resp.Status != 405 {
			t.Errorf("%s: answered %d %.200q", path, resp.Status, resp.Body)
		}
	}
	rig.NoAnomalies(t, a, b)
}

// TestCaseC09Realtime: where there is a WebSocket, it still upgrades, and bytes
// pass both ways.
func TestCaseC09Realtime(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	switching := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n\x81\x05hello"
	a.Get("/v1/realtime", switching)
	b.Get("/v1/realtime", switching)
	id := r.ID("c09")
	c := r.Dial(t)
	c.Method = "GET"
	c.Send(upgrade("/v1/realtime?model=m", id))
	resp := c.Head(rig.Patience)
	if resp.Status != 101 || !strings.EqualFold(resp.Fields.Get("Upgrade"), "websocket") {
		t.Fatalf("answered %d %.300q, want 101", resp.Status, c.Raw)
	}
	x := rig.WaitFor(t, id, a, b)
	_, _ = io.WriteString(c.Conn, "\x81\x03abc")
	rig.Eventually(t, rig.Patience, "bytes to the engine", func() string {
		if !strings.HasSuffix(x.Received(), "\x81\x03abc") {
			return "not there"
		}
		return ""
	})
	_, _ = c.Until(rig.Patience, func(*rig.Response) bool { return strings.HasSuffix(string(c.Raw), "\x81\x05hello") })
	if !strings.HasSuffix(string(c.Raw), "\x81\x05hello") {
		t.Errorf("bytes to the client: %q", c.Raw)
	}
	c.Close()
	if !x.Gone(rig.LeaveLimit) {
		t.Error("the engine's side stays open after the client left")
	}
}
