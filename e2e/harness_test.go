package e2e

import (
	"strings"
	"testing"
	"time"
)

// The tests of this file prove the harness itself, without the binary.

func dialEngine(t *testing.T, e *engine) *client {
	t.Helper()
	c, err := dialAddr(t, e.addr)
	if err != nil {
		t.Fatalf("cannot connect to the engine: %v", err)
	}
	return c
}

func TestEngineAnswersAndRecords(t *testing.T) {
	t.Parallel()
	e := newEngine(t, "a")
	c := dialEngine(t, e)
	c.send(request("POST", chatPath, "one", chatBody(true)))
	if r := c.response(patience); !r.complete || !strings.HasSuffix(string(r.body), doneEvent) {
		t.Errorf("stream: %+v", r)
	}
	c.send("POST /x HTTP/1.1\r\nHost: h\r\nX-Request-Id: two\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", lastChunk)
	if r := c.response(patience); r.status != 200 {
		t.Errorf("second request on the connection: %d", r.status)
	}
	x := waitFor(t, "two", e)
	if string(x.body) != "abc" || x.framing != "chunked" {
		t.Errorf("recorded %q framed by %s", x.body, x.framing)
	}
	if xs, odd := e.seen(); len(xs) != 2 || len(odd) != 0 {
		t.Errorf("%d exchanges, anomalies %q", len(xs), odd)
	}
}

func TestEngineJudgesFraming(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
		"POST / HTTP/1.1\nHost: h\r\n\r\n",
		"POST http://h/ HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\nGET /smuggled HTTP/1.1\r\n",
	} {
		e := newEngine(t, "a")
		e.on(func(x *exchange) { x.pause(20 * time.Millisecond); x.plain() })
		c := dialEngine(t, e)
		c.send(raw)
		eventually(t, patience, "anomaly for "+raw, func() string {
			if _, odd := e.seen(); len(odd) == 0 {
				return "none noted"
			}
			return ""
		})
		c.close()
	}
}

func TestEngineSeesTheClientLeave(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*client){"fin": (*client).close, "rst": (*client).abort, "half": (*client).closeWrite} {
		e := newEngine(t, "a")
		e.on(processScripts["silent"])
		c := dialEngine(t, e)
		c.send(request("POST", chatPath, "one", chatBody(true)))
		x := waitFor(t, "one", e)
		if e.busy() != 1 {
			t.Errorf("%s: busy %d while the request runs", name, e.busy())
		}
		leave(c)
		if !x.gone(patience) {
			t.Errorf("%s: leaving not seen", name)
		}
		eventually(t, patience, name, func() string {
			if e.busy() != 0 {
				return "still busy"
			}
			return ""
		})
	}
}

func TestEngineFaults(t *testing.T) {
	t.Parallel()
	e := newEngine(t, "a")
	e.closeIdle(30 * time.Millisecond)
	c := dialEngine(t, e)
	if c.send(request("POST", chatPath, "", chatBody(false))); c.response(patience).status != 200 {
		t.Error("no plain answer")
	}
	if !c.gone(patience) || c.reset {
		t.Error("an idle connection is not closed by FIN")
	}
	e.on(func(x *exchange) { x.streamHead(); x.events(roleEvent()); x.reset() })
	c = dialEngine(t, e)
	c.send(request("POST", chatPath, "", chatBody(true)))
	if !c.gone(patience) || !c.reset {
		t.Error("reset does not arrive as a reset")
	}
	e.down()
	if _, err := dialAddr(t, e.addr); err == nil {
		t.Error("an engine that is down accepts")
	}
	e.up(t)
	c = dialEngine(t, e)
	if c.send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n"); c.head(patience).status != 200 {
		t.Error("the engine does not come back")
	}
}

func TestEngineBlackHole(t *testing.T) {
	t.Parallel()
	e := newEngineAt(t, "a", "127.0.0.1:0", 1)
	e.silence(t)
	done := make(chan error, 1)
	go func() {
		_, err := dialAddr(t, e.addr)
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("connecting to the black hole ended: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	<-done
}

func TestEngineProcessStopsAndDies(t *testing.T) {
	t.Parallel()
	p := startEngineProcess(t, "many", "127.0.0.1:0")
	c, err := dialAddr(t, p.addr)
	if err != nil {
		t.Fatalf("cannot connect: %v", err)
	}
	c.send(request("POST", chatPath, "one", chatBody(true)))
	c.eventCount(patience, 3)
	p.freeze()
	time.Sleep(50 * time.Millisecond)
	_, _ = c.until(time.Millisecond, func(*response) bool { return false })
	before := len(c.raw)
	if _, _ = c.until(100*time.Millisecond, func(*response) bool { return false }); len(c.raw) != before {
		t.Error("a frozen engine goes on sending")
	}
	p.thaw()
	c.eventCount(patience, 8)
	p.kill()
	if !c.gone(patience) {
		t.Error("a killed engine leaves the connection open")
	}
}
