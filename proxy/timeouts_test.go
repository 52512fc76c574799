package proxy

import (
	"io"
	"strings"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// soon is a limit that is meant to pass in a test, far is one that is not;
// ample is one that is not either, though the test waits for longer somewhere.
const (
	soon  = 100 * time.Millisecond
	ample = 1500 * time.Millisecond
	far   = time.Minute
)

// TestEngineTimeouts: each wait for the engine has its own limit, the others
// do not end it, and what the client gets depends on what is out.
func TestEngineTimeouts(t *testing.T) {
	t.Parallel()
	silent := func(parts ...string) script {
		return func(x *exchange) {
			x.write(parts...)
			x.gone()
		}
	}
	dripping := func(x *exchange) {
		x.write(streamHead, chunk(roleEvent))
		for {
			if _, err := io.WriteString(x.conn, chunk(": ping\n\n")); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	for _, c := range []struct {
		name   string
		limit  func(*Timeouts)
		script script
		body   string
		status int
		begins string // of the decoded body
	}{
		{"head", func(o *Timeouts) { o.Head = soon }, silent(), chatBody, 504, `{"error":`},
		{"head, half of it", func(o *Timeouts) { o.Head = soon }, silent("HTTP/1.1 200 OK\r\n"), chatBody, 504, `{"error":`},
		{"first_event", func(o *Timeouts) { o.FirstEvent = soon }, silent(streamHead), chatSBody, 200, `data: {"error":`},
		{"first_event, comments", func(o *Timeouts) { o.FirstEvent = soon }, func(x *exchange) {
			x.write(streamHead, chunk(": ping\n\n"))
			x.gone()
		}, chatSBody, 200, ": ping\n\ndata: {\"error\":"},
		{"event_gap", func(o *Timeouts) { o.EventGap = soon }, silent(streamHead, chunk(roleEvent), chunk(tokenEvent)), chatSBody, 200, roleEvent + tokenEvent + `data: {"error":`},
		{"event_gap, comments", func(o *Timeouts) { o.EventGap = soon }, dripping, chatSBody, 200, roleEvent + ": ping\n\n"},
		{"total, before the head", func(o *Timeouts) { o.Total = soon }, silent(), chatBody, 504, `{"error":`},
		{"total, in a stream", func(o *Timeouts) { o.Total = ample }, silent(streamHead, chunk(roleEvent)), chatSBody, 200, roleEvent + `data: {"error":`},
		{"total, in a plain answer", func(o *Timeouts) { o.Total = ample }, silent(plainAnswer[:150]), chatBody, 504, `{"error":`},
	} {
		for _, transport := range []string{"tcp", "tls"} {
			t.Run(c.name+"/"+transport, func(t *testing.T) {
				t.Parallel()
				f, dial := startOn(t, transport, []script{c.script, streaming}, func(s *setup) {
					s.Timeouts.Head, s.Timeouts.FirstEvent, s.Timeouts.EventGap, s.Timeouts.Total = far, far, far, far
					c.limit(&s.Timeouts)
				})
				cl := newClient(t, dial())
				cl.send(post(chatPath, c.body))
				a := cl.receive()
				if a.StatusCode != c.status || a.err != nil || !strings.HasPrefix(string(a.body), c.begins) ||
					strings.Count(string(a.body), "engine_timeout") != 1 {
					t.Fatalf("got %d %q, %v", a.StatusCode, a.body, a.err)
				}
				f.ends(telemetry.EndTimedOut)
				f.outcomes(verdictOn{"a", engine.OutcomeNeutral})
				cl.send(get("/health"))
				cl.receive().want(t, 200, `{"status":"ok","engines":{}}`)
			})
		}
	}
}

// TestLimitsThatDoNotApply: slow but living answers pass.
func TestLimitsThatDoNotApply(t *testing.T) {
	t.Parallel()
	t.Run("first event does not bound later ones", func(t *testing.T) {
		t.Parallel()
		f := start(t, []script{func(x *exchange) {
			x.write(streamHead, chunk(roleEvent))
			time.Sleep(2 * ample)
			x.write(chunk(tokenEvent), endOfBody)
		}}, func(s *setup) { s.Timeouts.FirstEvent, s.Timeouts.Head = ample, ample })
		f.ask(post(chatPath, chatSBody)).want(t, 200, roleEvent+tokenEvent)
	})
	t.Run("a stream moves on", func(t *testing.T) {
		t.Parallel()
		f := start(t, []script{func(x *exchange) {
			x.write(streamHead)
			for range 40 { // longer than the limit in all, and far from it in each gap
				x.write(chunk(tokenEvent))
				time.Sleep(ample / 12)
			}
			x.write(endOfBody)
		}}, func(s *setup) { s.Timeouts.EventGap = 2 * ample })
		f.ask(post(chatPath, chatSBody)).want(t, 200, strings.Repeat(tokenEvent, 40))
	})
	t.Run("a plain answer has no events", func(t *testing.T) {
		t.Parallel()
		f := start(t, []script{func(x *exchange) {
			x.write(plainAnswer[:100])
			time.Sleep(2 * ample)
			x.write(plainAnswer[100:])
		}}, func(s *setup) { s.Timeouts.EventGap, s.Timeouts.FirstEvent, s.Timeouts.Head = ample, ample, ample })
		f.ask(post(chatPath, chatBody)).want(t, 200, answerBody)
	})
	t.Run("no limit stays on a pooled connection", func(t *testing.T) {
		t.Parallel()
		f := start(t, []script{streaming}, func(s *setup) { s.Timeouts.Head, s.Timeouts.EventGap = ample, ample })
		c := f.dial()
		for range 2 {
			c.send(post(chatPath, chatSBody))
			c.receive().want(t, 200, wholeStream)
			time.Sleep(ample * 3 / 2)
		}
		if n := f.engines[0].dialled(); n != 1 {
			t.Errorf("%d connections to the engine, want 1", n)
		}
	})
}

func TestClientHeaderTimeout(t *testing.T) {
	t.Parallel()
	f := start(t, []script{streaming}, func(s *setup) { s.Timeouts.ClientHeader = soon })
	c := f.dial()
	time.Sleep(2 * soon) // a connection that is idle is not late
	c.send(get("/health"))
	c.receive().want(t, 200, `{"status":"ok","engines":{}}`)
	time.Sleep(2 * soon)
	c.send("GET /health HTTP/1.1\r\nHost: x\r\n")
	c.receive().wantError(t, 408, "request_timeout")
	c.closed()
	f.ends(telemetry.EndDone, telemetry.EndRejected)
}

// TestClientBodyRate: judged from 2 s on, by the average since the head.
func TestClientBodyRate(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes two seconds")
	}
	f := start(t, []script{streaming}, func(s *setup) { s.Timeouts.ClientBodyRate = 1 << 20 })
	began := time.Now()
	c := f.dial()
	request := post(chatPath, chatBody)
	c.send(request[:len(request)-5])
	c.receive().wantError(t, 408, "request_timeout")
	if d := time.Since(began); d < rateGrace {
		t.Errorf("judged after %v", d)
	}
	c.closed()
	f.ends(telemetry.EndTimedOut)
}

// TestClientWrite: a client that takes nothing ends its request; one that is
// slow but goes on does not. Meanwhile nothing is read from the engine.
func TestClientWrite(t *testing.T) {
	t.Parallel()
	big := "data: " + strings.Repeat("x", 8<<10) + "\n\n"
	for _, transport := range []string{"tcp", "tls"} {
		for _, body := range []string{"stream", "plain"} {
			t.Run(transport+"/"+body, func(t *testing.T) {
				t.Parallel()
				f, dial := startOn(t, transport, []script{func(x *exchange) {
					if body == "plain" {
						x.write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n")
					} else {
						x.write(streamHead)
					}
					for range 100000000/len(big) + 1 {
						data := big
						if body == "stream" {
							data = chunk(big)
						}
						if _, err := io.WriteString(x.conn, data); err != nil {
							return
						}
					}
				}}, func(s *setup) { s.Timeouts.ClientWrite = 2 * soon })
				c := newClient(t, dial())
				c.send(post(chatPath, chatSBody))
				r := f.ends(telemetry.EndClientStalled)[0]
				if r.Status != 200 || r.BytesOut > 32<<20 {
					t.Errorf("record %+v", r)
				}
				f.outcomes(verdictOn{"a", engine.OutcomeNeutral})
			})
		}
	}
	t.Run("slow but moving", func(t *testing.T) {
		t.Parallel()
		const n = 1000
		f := start(t, []script{func(x *exchange) {
			x.write(streamHead)
			for range n {
				x.write(chunk(big))
			}
			x.write(endOfBody)
		}}, func(s *setup) { s.Timeouts.ClientWrite = 2 * ample })
		c := f.dial()
		c.send(post(chatPath, chatSBody))
		resp := c.head("POST")
		total := 0
		buf := make([]byte, 1<<20)
		for {
			k, err := io.ReadFull(resp.Body, buf)
			total += k
			if err != nil {
				break
			}
			time.Sleep(soon / 2)
		}
		if total != n*len(big) {
			t.Errorf("got %d bytes, want %d", total, n*len(big))
		}
		// The limit is off again.
		time.Sleep(5 * ample / 2)
		c.send(get("/health"))
		c.receive().want(t, 200, `{"status":"ok","engines":{}}`)
	})
}
