package proxy

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// drainWithin drains with a limit and waits for the end.
func (f *fixture) drainWithin(limit time.Duration) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	f.srv.Drain(ctx)
}

// TestDrainLetsRequestsFinish: what is under way ends well, every answer tells
// its client to close, and Drain returns when nobody is left.
func TestDrainLetsRequestsFinish(t *testing.T) {
	t.Parallel()
	h := newHeld()
	f := start(t, []script{func(x *exchange) {
		if strings.Contains(string(x.body), `"stream":true`) {
			x.write(streamHead, chunk(roleEvent))
			h.started <- ""
			<-h.release
			x.write(chunk(tokenEvent), endOfBody)
			return
		}
		h.script(x)
	}})
	streaming, plain, idle := f.dial(), f.dial(), f.dial()
	idle.send(get("/health"))
	idle.receive()
	streaming.send(post(chatPath, chatSBody))
	plain.send(post(chatPath, chatBody))
	<-h.started
	<-h.started
	resp := streaming.head("POST")
	done := make(chan struct{})
	go func() { f.drainWithin(far); close(done) }()
	eventually(t, "the drain", f.srv.Draining)
	// An idle connection serves one more request, and closes.
	idle.send(get("/health"))
	if a := idle.receive(); a.StatusCode != 200 || !a.Close {
		t.Errorf("got %d, closes: %v", a.StatusCode, a.Close)
	}
	idle.closed()
	select {
	case <-done:
		t.Fatal("the drain did not wait for requests")
	case <-time.After(30 * time.Millisecond):
	}
	h.release <- struct{}{}
	h.release <- struct{}{}
	streaming.rest(resp).want(t, 200, roleEvent+tokenEvent)
	// Its head was out before the drain and promised to keep the connection,
	// so that ends with the next answer.
	streaming.send(get("/health"))
	if a := streaming.receive(); a.StatusCode != 200 || !a.Close {
		t.Errorf("got %d, closes: %v", a.StatusCode, a.Close)
	}
	streaming.closed()
	a := plain.receive()
	a.want(t, 200, answerBody)
	if !a.Close {
		t.Error("no Connection: close")
	}
	plain.closed()
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("the drain does not end")
	}
	f.ends(telemetry.EndDone, telemetry.EndDone, telemetry.EndDone, telemetry.EndDone, telemetry.EndDone)
}

// TestDrainLimit: at the end of its time a stream ends with a draining event,
// a waiting request with a 503.
func TestDrainLimit(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"tcp", "tls"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			started := make(chan struct{}, 10)
			f, dial := startOn(t, transport, []script{func(x *exchange) {
				if strings.Contains(string(x.body), `"stream":true`) {
					x.write(streamHead, chunk(roleEvent), chunk(tokenEvent)[:30])
				}
				started <- struct{}{}
				x.gone()
			}}, func(s *setup) {
				s.Limits.Queue, s.Limits.QueueWait = 5, far
				s.engine = func(_ int, o *engine.Options) { o.InFlight = 2 }
			})
			stream, plain, queued := newClient(t, dial()), newClient(t, dial()), newClient(t, dial())
			stream.send(post(chatPath, chatSBody))
			<-started
			plain.send(post(chatPath, chatBody))
			<-started
			queued.send(post(chatPath, chatBody))
			eventually(t, "a place in the queue", f.srv.queue.busy)
			resp := stream.head("POST")
			stream.event(resp)
			f.drainWithin(20 * time.Millisecond)
			a := stream.rest(resp)
			if a.err != nil || !strings.HasPrefix(string(a.body), `data: {"error":`) || !strings.Contains(string(a.body), `"draining"`) {
				t.Errorf("the stream ended %q, %v", a.body, a.err)
			}
			for _, c := range []*client{plain, queued} {
				a := c.receive()
				a.wantError(t, 503, "draining")
				if a.Header.Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
			}
			f.ends(telemetry.EndDrained, telemetry.EndDrained, telemetry.EndDrained)
			// The one in the queue may have had its turn in between.
			for _, v := range f.judged.all {
				if v.outcome != engine.OutcomeNeutral {
					t.Errorf("outcomes %v", f.judged.all)
				}
			}
		})
	}
}

// TestCloseIsImmediate, whatever is under way.
func TestCloseIsImmediate(t *testing.T) {
	t.Parallel()
	started := make(chan struct{}, 1)
	f := start(t, []script{func(x *exchange) {
		x.write(streamHead, chunk(roleEvent))
		started <- struct{}{}
		x.gone()
	}})
	c := f.dial()
	c.send(post(chatPath, chatSBody))
	<-started
	c.head("POST")
	began := time.Now()
	f.srv.Close()
	if d := time.Since(began); d > patience/2 {
		t.Errorf("took %v", d)
	}
	_, _ = io.ReadAll(c.br)
	f.ends(telemetry.EndDrained)
}

// TestEngineGone: a frozen engine's requests move if nothing of a body is out,
// and end engine_stalled otherwise; the connection lives on.
func TestEngineGone(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"tcp", "tls"} {
		for name, c := range map[string]struct {
			sends, want string
			end         telemetry.End
		}{
			"before the head":       {"", wholeStream, telemetry.EndDone},
			"before the first byte": {streamHead, wholeStream, telemetry.EndDone},
			"in the stream":         {streamHead + chunk(roleEvent), roleEvent, telemetry.EndEngineStalled},
		} {
			t.Run(transport+"/"+name, func(t *testing.T) {
				t.Parallel()
				f, dial := startOn(t, transport, []script{func(x *exchange) {
					x.write(c.sends)
					x.gone()
				}, streaming})
				cl := newClient(t, dial())
				cl.send(post(chatPath, chatSBody))
				eventually(t, "the attempt", func() bool { return f.members[0].Flights() == 1 && len(f.engines[0].got()) == 1 })
				if c.sends != "" {
					cl.br.Peek(1)
				}
				if c.end == telemetry.EndEngineStalled {
					eventually(t, "the first token", func() bool { n, _, _ := f.members[0].Streams(); return n == 1 })
				}
				f.members[0].AbortAll(telemetry.EndEngineStalled)
				a := cl.receive()
				if c.end == telemetry.EndDone {
					a.want(t, 200, c.want)
				} else if a.err != nil || !strings.HasPrefix(string(a.body), c.want+`data: {"error":`) || !strings.Contains(string(a.body), "engine_stalled") {
					t.Errorf("got %q, %v", a.body, a.err)
				}
				f.ends(c.end)
				if c.end == telemetry.EndEngineStalled {
					// Longer than what was granted for the last words.
					time.Sleep(1100 * time.Millisecond)
				}
				cl.send(get("/health"))
				cl.receive().want(t, 200, `{"status":"ok","engines":{}}`)
			})
		}
	}
}
