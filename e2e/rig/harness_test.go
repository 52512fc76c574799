package rig

import (
	"net"
	"strings"
	"testing"
	"time"
)

// The tests of this file prove the harness itself, without the binary.

func dialEngine(t *testing.T, e *Engine) *Client {
	t.Helper()
	c, err := DialAddr(t, e.Addr)
	if err != nil {
		t.Fatalf("cannot connect to the engine: %v", err)
	}
	return c
}

func TestEngineAnswersAndRecords(t *testing.T) {
	t.Parallel()
	e := NewEngine(t, "a")
	c := dialEngine(t, e)
	c.Send(Request("POST", ChatPath, "one", ChatBody(true)))
	if r := c.Response(Patience); !r.Complete || !strings.HasSuffix(string(r.Body), DoneEvent) {
		t.Errorf("stream: %+v", r)
	}
	c.Send("POST /x HTTP/1.1\r\nHost: h\r\nX-Request-Id: two\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", LastChunk)
	if r := c.Response(Patience); r.Status != 200 {
		t.Errorf("second request on the connection: %d", r.Status)
	}
	x := WaitFor(t, "two", e)
	if string(x.Body) != "abc" || x.Framing != "chunked" {
		t.Errorf("recorded %q framed by %s", x.Body, x.Framing)
	}
	if xs, odd := e.Seen(); len(xs) != 2 || len(odd) != 0 {
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
		e := NewEngine(t, "a")
		e.On(func(x *Exchange) { x.Pause(20 * time.Millisecond); x.Plain() })
		c := dialEngine(t, e)
		c.Send(raw)
		Eventually(t, Patience, "anomaly for "+raw, func() string {
			if _, odd := e.Seen(); len(odd) == 0 {
				return "none noted"
			}
			return ""
		})
		c.Close()
	}
}

func TestEngineSeesTheClientLeave(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*Client){"fin": (*Client).Close, "rst": (*Client).Abort, "half": (*Client).CloseWrite} {
		e := NewEngine(t, "a")
		e.On(ProcessScripts["silent"])
		c := dialEngine(t, e)
		c.Send(Request("POST", ChatPath, "one", ChatBody(true)))
		x := WaitFor(t, "one", e)
		if e.Busy() != 1 {
			t.Errorf("%s: busy %d while the request runs", name, e.Busy())
		}
		leave(c)
		if !x.Gone(Patience) {
			t.Errorf("%s: leaving not seen", name)
		}
		Eventually(t, Patience, name, func() string {
			if e.Busy() != 0 {
				return "still busy"
			}
			return ""
		})
	}
}

func TestEngineFaults(t *testing.T) {
	t.Parallel()
	e := NewEngine(t, "a")
	e.CloseIdle(30 * time.Millisecond)
	c := dialEngine(t, e)
	if c.Send(Request("POST", ChatPath, "", ChatBody(false))); c.Response(Patience).Status != 200 {
		t.Error("no plain answer")
	}
	if !c.Gone(Patience) || c.Reset {
		t.Error("an idle connection is not closed by FIN")
	}
	e.On(func(x *Exchange) { x.StreamHead(); x.Events(RoleEvent()); x.Reset() })
	c = dialEngine(t, e)
	c.Send(Request("POST", ChatPath, "", ChatBody(true)))
	if !c.Gone(Patience) || !c.Reset {
		t.Error("reset does not arrive as a reset")
	}
	e.Down()
	if _, err := DialAddr(t, e.Addr); err == nil {
		t.Error("an engine that is down accepts")
	}
	e.Up(t)
	c = dialEngine(t, e)
	if c.Send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n"); c.Head(Patience).Status != 200 {
		t.Error("the engine does not come back")
	}
}

func TestEngineBlackHole(t *testing.T) {
	t.Parallel()
	e := NewEngineAt(t, "a", "127.0.0.1:0", 1)
	e.Silence(t)
	done := make(chan error, 1)
	go func() {
		c, err := net.DialTimeout("tcp", e.Addr, time.Second)
		if err == nil {
			_ = c.Close()
		}
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
	p := StartEngineProcess(t, "many", "127.0.0.1:0")
	c, err := DialAddr(t, p.Addr)
	if err != nil {
		t.Fatalf("cannot connect: %v", err)
	}
	c.Send(Request("POST", ChatPath, "one", ChatBody(true)))
	c.EventCount(Patience, 3)
	p.Freeze()
	time.Sleep(50 * time.Millisecond)
	_, _ = c.Until(200*time.Millisecond, func(*Response) bool { return false })
	before := len(c.Raw)
	if _, _ = c.Until(100*time.Millisecond, func(*Response) bool { return false }); len(c.Raw) != before {
		t.Error("a frozen engine goes on sending")
	}
	p.Thaw()
	c.EventCount(Patience, 8)
	p.Kill()
	if !c.Gone(Patience) {
		t.Error("a killed engine leaves the connection open")
	}
}
