package proxy

import (
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// engineConn is a pooled connection to a listener that only accepts.
func engineConn(t testing.TB) *engine.Conn {
	t.Helper()
	ln := listen(t)
	go func() {
		if nc, err := ln.Accept(); err == nil {
			_, _ = nc.Read(make([]byte, 1))
			_ = nc.Close()
		}
	}()
	e := engine.New(engine.Options{Name: "a", URL: &url.URL{Scheme: "http", Host: ln.Addr().String()}, Dial: patience})
	c, err := e.Pool().Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); _ = ln.Close() })
	return c
}

func isClosed(c *engine.Conn) bool { return c.SetDeadline(time.Time{}) != nil }

// TestGateOrders plays an attempt's steps in their order with an abort in
// every place between them, and says what each must come to.
func TestGateOrders(t *testing.T) {
	t.Parallel()
	steps := []string{"open", "dial", "attach", "detach", "shut"}
	for at := 0; at <= len(steps); at++ {
		for _, how := range []string{"hangup", "drain", "stall"} {
			t.Run(fmt.Sprintf("%s before step %d", how, at), func(t *testing.T) {
				t.Parallel()
				c := engineConn(t)
				var stops int
				g := &gate{stop: func() { stops++ }}
				abort := func() {
					switch how {
					case "hangup":
						g.hangup()
					case "drain":
						g.abort(telemetry.EndDrained)
					case "stall":
						g.EngineGone(telemetry.EndEngineStalled)
					}
				}
				cause := map[string]telemetry.End{"hangup": telemetry.EndClientGoneWaiting, "drain": telemetry.EndDrained, "stall": telemetry.EndEngineStalled}[how]
				// Before open only a hang-up lasts: it is the connection's,
				// not a request's. After shut nothing reaches the request.
				aborted := at >= 1 && at < len(steps) || at == 0 && how == "hangup"
				attached, detached := false, false
				for i, step := range append(steps, "") {
					if i == at {
						abort()
						abort() // the first word stands
						g.abort(telemetry.EndInternal)
					}
					switch step {
					case "open":
						g.open()
					case "dial":
						if ctx := g.dialing(); (ctx.Err() != nil) != (aborted && at <= i) {
							t.Errorf("dial: context %v", ctx.Err())
						}
					case "attach":
						if attached = g.attach(c); attached == (aborted && at <= i) {
							t.Errorf("attach: %v", attached)
						}
					case "detach":
						if !attached {
							break
						}
						if detached = g.detach(); detached == (aborted && at <= i) {
							t.Errorf("detach: %v", detached)
						}
					case "shut":
						g.shut()
					}
				}
				if at < len(steps) && aborted && g.aborted() != cause {
					t.Errorf("cause %v, want %v", g.aborted(), cause)
				}
				// The connection is closed only by an abort while attached:
				// afterwards it belongs to the pool.
				if want := at == 3 && attached; isClosed(c) != want {
					t.Errorf("closed: %v, want %v", isClosed(c), want)
				}
				if wantStops := 1; at >= 1 && at < len(steps) && stops != wantStops {
					t.Errorf("the wait for the client was woken %d times, want %d", stops, wantStops)
				}
				_ = detached
			})
		}
	}
}

// TestGateRetry: an engine's fault may be forgotten, a client's leaving not,
// even when it came second.
func TestGateRetry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		aborts []func(g *gate)
		want   telemetry.End
	}{
		{[]func(g *gate){func(g *gate) { g.EngineGone(telemetry.EndEngineStalled) }}, telemetry.EndNone},
		{[]func(g *gate){(*gate).hangup}, telemetry.EndClientGoneWaiting},
		{[]func(g *gate){func(g *gate) { g.EngineGone(telemetry.EndEngineStalled) }, (*gate).hangup}, telemetry.EndClientGoneWaiting},
		{[]func(g *gate){func(g *gate) { g.abort(telemetry.EndDrained) }}, telemetry.EndDrained},
	} {
		var g gate
		g.open()
		for _, abort := range c.aborts {
			abort(&g)
		}
		g.retry()
		if got := g.aborted(); got != c.want {
			t.Errorf("after retry: %v, want %v", got, c.want)
		}
	}
}

// TestGateRace has aborts race with attempts: a connection that came back from
// detach is never closed by anybody else, and one that did not is closed.
func TestGateRace(t *testing.T) {
	t.Parallel()
	conns := make([]*engine.Conn, 200)
	for i := range conns {
		conns[i] = engineConn(t)
	}
	g := &gate{}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for _, abort := range []func(){func() { g.abort(telemetry.EndDrained) }, func() { g.EngineGone(telemetry.EndEngineStalled) }, func() { _ = g.aborted(); _ = g.Streaming() }} {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					abort()
				}
			}
		})
	}
	won := 0
	for _, c := range conns {
		g.open()
		if g.dialing().Err() == nil && g.attach(c) && g.detach() {
			won++
			if isClosed(c) {
				t.Error("a connection was closed although it was given back")
			}
		}
		g.shut()
	}
	close(stop)
	wg.Wait()
	t.Logf("%d of %d attempts ended unharmed", won, len(conns))
}

var _ net.Conn = (*engine.Conn)(nil)
