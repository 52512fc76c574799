package proxy

import (
	"io"
	"strings"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

const upgradeRequest = "GET /v1/realtime?model=m HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"

const switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"

// echoing agrees to an upgrade and sends every byte back.
func echoing(x *exchange) {
	h := x.req.Header
	if x.req.RequestURI != "/v1/realtime?model=m" || h.Get("Upgrade") != "websocket" || h.Get("Connection") != "Upgrade" || h.Get("Sec-WebSocket-Key") == "" {
		x.e.t.Errorf("the engine got %q", x.head)
	}
	x.write(switching, "early")
	_, _ = io.Copy(x.conn, x.br)
	x.close()
}

func TestTunnel(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"tcp", "tls", "unix"} {
		for _, who := range []string{"client", "engine"} {
			t.Run(transport+"/"+who+" ends it", func(t *testing.T) {
				t.Parallel()
				f, dial := startOn(t, transport, []script{func(x *exchange) {
					if who == "client" {
						echoing(x)
						return
					}
					x.write(switching)
					buf := make([]byte, 5)
					_, _ = io.ReadFull(x.br, buf)
					x.write("early", string(buf))
					x.close()
				}})
				c := newClient(t, dial())
				c.send(upgradeRequest, "hello") // bytes right behind the head belong to the tunnel
				resp := c.head("GET")
				if resp.StatusCode != 101 || resp.Header.Get("Sec-WebSocket-Accept") == "" {
					t.Fatalf("got %v", resp)
				}
				got := make([]byte, 10)
				if _, err := io.ReadFull(c.br, got); err != nil || string(got) != "earlyhello" {
					t.Fatalf("got %q, %v", got, err)
				}
				if who == "engine" {
					c.closed()
				} else {
					c.close()
				}
				r := f.records(1)[0]
				if r.Status != 101 || r.End != "done" && r.End != "client-gone-streaming" {
					t.Errorf("record %+v", r)
				}
			})
		}
	}
}

// TestUpgradeRefusedByTheEngine passes as an ordinary answer.
func TestUpgradeRefusedByTheEngine(t *testing.T) {
	t.Parallel()
	f := start(t, []script{answering(sized("403 Forbidden", "text/plain", "no"))})
	f.ask(upgradeRequest).want(t, 403, "no")
	f.ends(telemetry.EndDone)
}

func TestUpgradeFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script script
		code   string
	}{
		"dies":    {func(x *exchange) { x.close() }, "engine_unreachable"},
		"no HTTP": {answering("hello\r\n\r\n"), "engine_bad_response"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, []script{c.script})
			f.ask(upgradeRequest).wantError(t, 502, c.code)
		})
	}
	t.Run("behind another request", func(t *testing.T) {
		t.Parallel()
		f := start(t, []script{func(x *exchange) {
			if x.req.Method == "POST" {
				x.write(plainAnswer)
				return
			}
			echoing(x)
		}})
		c := f.dial()
		c.send(post(chatPath, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
		c.receive().want(t, 200, answerBody)
		c.send(upgradeRequest)
		if resp := c.head("GET"); resp.StatusCode != 101 {
			t.Errorf("got %v", resp)
		}
	})
	t.Run("the client leaves the queue", func(t *testing.T) {
		t.Parallel()
		h := newHeld()
		f := start(t, []script{h.script}, func(s *setup) {
			s.Limits.Queue, s.Limits.QueueWait = 3, far
			s.engine = func(_ int, o *engine.Options) { o.InFlight = 1 }
		})
		first := f.dial()
		first.send(post(chatPath, chatBody))
		<-h.started
		c := f.dial()
		c.send(upgradeRequest)
		eventually(t, "a place in the queue", f.srv.queue.busy)
		c.close()
		f.ends(telemetry.EndClientGoneWaiting)
		h.release <- struct{}{}
		first.receive().want(t, 200, answerBody)
		if strings.Contains(string(f.log.bytes()), "panic") {
			t.Error("it panicked")
		}
	})
}

// TestTunnelsEndWithTheDrain.
func TestTunnelsEndWithTheDrain(t *testing.T) {
	t.Parallel()
	f := start(t, []script{echoing})
	c := f.dial()
	c.send(upgradeRequest)
	c.head("GET")
	_, _ = io.ReadFull(c.br, make([]byte, 5))
	f.drainWithin(10 * time.Millisecond)
	c.closed()
	f.ends(telemetry.EndDrained)
}

// TestTunnelShowsLife: what an engine sends through a tunnel is a sign of its
// life like any other byte, and one that is found frozen ends its tunnels by
// its own word.
func TestTunnelShowsLife(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"tcp", "tls"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			f, dial := startOn(t, transport, []script{echoing})
			c := newClient(t, dial())
			c.send(upgradeRequest)
			c.head("GET")
			const early = uint64(len(switching) + len("early"))
			_, _ = io.ReadFull(c.br, make([]byte, 5))
			c.send("hello")
			_, _ = io.ReadFull(c.br, make([]byte, 5))
			if got := f.members[0].BytesIn(); got != early+5 {
				t.Errorf("%d bytes are known to have come, want %d", got, early+5)
			}
			f.members[0].AbortAll(telemetry.EndEngineStalled)
			c.closed()
			if r := f.ends(telemetry.EndEngineStalled)[0]; r.Status != 101 || r.Error == "" {
				t.Errorf("record %+v", r)
			}
			f.outcomes(verdictOn{"a", engine.OutcomeNeutral})
		})
	}
}
