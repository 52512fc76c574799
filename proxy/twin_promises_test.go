package proxy

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// relays are the two ways of relaying a stream; what users rely on holds for
// both.
var relays = map[string]func(s *setup){
	"verbatim": func(*setup) {},
	"twin":     func(s *setup) { s.StreamRelay = true },
}

// TestTwinFramesAnew is the one difference that a client can see: the verbatim
// relay passes the engine's chunks as they are, the twin makes its own.
func TestTwinFramesAnew(t *testing.T) {
	t.Parallel()
	odd := inChunks(wholeStream, 7) + endOfBody
	even := chunk(roleEvent) + chunk(tokenEvent) + chunk(stopEvent) + chunk(doneEvent) + endOfBody
	raw := func(f *fixture) string {
		c := f.dial()
		c.send(post(chatPath, chatSBody))
		c.receive().want(t, 200, wholeStream)
		_, body, _ := strings.Cut(c.raw.String(), "\r\n\r\n")
		return body
	}
	for name, c := range map[string]struct {
		sends string
		same  bool // the verbatim relay's bytes are the engine's
	}{"one event a chunk": {even, true}, "chunks that cut events": {odd, false}} {
		for relay, tweak := range relays {
			t.Run(name+"/"+relay, func(t *testing.T) {
				t.Parallel()
				f := start(t, []script{answering(streamHead + c.sends)}, tweak)
				got := raw(f)
				if relay == "verbatim" && c.same && got != c.sends {
					t.Errorf("the framing changed: %q", got)
				}
				if decoded, ended, err := unchunk([]byte(got)); decoded != wholeStream || !ended || err != nil {
					t.Errorf("the body does not decode: %q, %v, %v", got, ended, err)
				}
			})
		}
	}
}

// TestRelaysReuseConnections: a stream that came whole leaves its connection
// to the next request, one with bytes behind its end does not.
func TestRelaysReuseConnections(t *testing.T) {
	t.Parallel()
	whole := streamHead + chunk(wholeStream) + endOfBody
	for name, c := range map[string]struct {
		sends   string
		dialled int
	}{
		"whole":                   {whole, 1},
		"in many chunks":          {streamHead + inChunks(wholeStream, 100) + endOfBody, 1},
		"with trailers":           {streamHead + chunk(wholeStream) + "0\r\nX-T: v\r\n\r\n", 1},
		"junk behind the end":     {whole + "junk", 4},
		"an answer behind it":     {whole + sized("200 OK", "application/json", `{"forged":true}`), 4},
		"the engine wants to end": {strings.Replace(whole, "\r\n", "\r\nConnection: close\r\n", 1), 4},
	} {
		for relay, tweak := range relays {
			t.Run(name+"/"+relay, func(t *testing.T) {
				t.Parallel()
				f := start(t, []script{answering(c.sends)}, tweak)
				cl := f.dial()
				for range 4 {
					cl.send(post(chatPath, chatSBody))
					cl.receive().want(t, 200, wholeStream)
				}
				if n := f.engines[0].dialled(); n != c.dialled {
					t.Errorf("%d connections to the engine, want %d", n, c.dialled)
				}
			})
		}
	}
}

// TestHalfReadStreamIsNotPooled: what a client that left did not take must not
// reach the next one, however the stream was read.
func TestHalfReadStreamIsNotPooled(t *testing.T) {
	t.Parallel()
	for relay, tweak := range relays {
		t.Run(relay, func(t *testing.T) {
			t.Parallel()
			canary := func(x *exchange) string { return "data: canary of " + x.req.Header.Get("X-User") + "\n\n" }
			f := start(t, []script{func(x *exchange) {
				x.write(streamHead)
				n := 3
				if strings.HasPrefix(x.req.Header.Get("X-User"), "leaver") {
					n = 2000
				}
				for range n {
					if _, err := io.WriteString(x.conn, chunk(canary(x))); err != nil {
						return
					}
				}
				x.write(endOfBody)
			}}, tweak)
			for i := range 30 {
				leaver := f.dial()
				leaver.send(post(chatPath, chatSBody, fmt.Sprintf("X-User: leaver%d", i)))
				leaver.event(leaver.head("POST"))
				leaver.close()
				f.ask(post(chatPath, chatSBody, fmt.Sprintf("X-User: %d", i))).
					want(t, 200, strings.Repeat(fmt.Sprintf("data: canary of %d\n\n", i), 3))
			}
		})
	}
}

// TestTwinDeparture: clients are seen to leave whatever the relay.
func TestTwinDeparture(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"tcp", "tls", "unix"} {
		for _, s := range situations[1:3] { // those of streams
			for _, d := range departures {
				t.Run(transport+"/"+s.name+"/"+d.name, func(t *testing.T) {
					t.Parallel()
					reached := make(chan struct{}, 2)
					f, dial := startOn(t, transport, []script{s.script(reached)}, relays["twin"])
					nc := dial()
					c := newClient(t, nc)
					c.send(post(chatPath, s.body))
					<-reached
					// The head is out before the first token, as vLLM sends it.
					resp := c.head("POST")
					if s.end == telemetry.EndClientGoneStreaming {
						c.event(resp)
						c.event(resp)
					}
					d.leave(nc)
					if r := f.ends(append([]telemetry.End{s.end}, d.also...)...)[0]; r.Status != 499 {
						t.Errorf("status %d, want 499", r.Status)
					}
					f.outcomes(verdictOn{"a", engine.OutcomeNeutral})
				})
			}
		}
	}
}

// TestTwinMoves, as the verbatim relay does, from whatever fails before the
// first byte of a body.
func TestTwinMoves(t *testing.T) {
	t.Parallel()
	for _, c := range failures {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := start(t, []script{c.script, streaming}, relays["twin"])
			f.ask(post(chatPath, chatSBody)).want(t, 200, wholeStream)
			if r := f.ends(telemetry.EndDone)[0]; r.Attempts != 2 {
				t.Errorf("record %+v", r)
			}
			f.outcomes(verdictOn{"a", c.outcome}, verdictOn{"b", engine.OutcomeOK})
		})
	}
}

// TestTwinSeesAbortsByTheChunk is the other difference. fasthttp gives a body
// out one chunk at a time, and no event waits for the next, so an abort in a
// chunk of its own, as vLLM writes it, passes behind its role event where the
// verbatim relay, which had both in one read, still moves. The engine is judged
// alike. In one chunk, and in a plain answer, the twin moves too.
func TestTwinSeesAbortsByTheChunk(t *testing.T) {
	t.Parallel()
	c := aborted[0]
	passes, _, _ := unchunk([]byte(c.stream))
	for name, e := range map[string]struct {
		sends, body, want string
		end               telemetry.End
		attempts          int
	}{
		"a chunk each":   {streamHead + c.stream, chatSBody, passes, telemetry.EndEngineDied, 1},
		"one chunk":      {streamHead + chunk(roleEvent+abortEvent+doneEvent) + endOfBody, chatSBody, wholeStream, telemetry.EndDone, 2},
		"a plain answer": {sized("200 OK", "application/json", c.plain), chatBody, wholeStream, telemetry.EndDone, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, []script{answering(e.sends), streaming}, relays["twin"])
			cl := f.dial()
			cl.send(post(c.path, e.body))
			cl.receive().want(t, 200, e.want)
			if r := f.ends(e.end)[0]; r.Attempts != e.attempts {
				t.Errorf("record %+v", r)
			}
			f.checkIdle()
			f.judged.mu.Lock()
			defer f.judged.mu.Unlock()
			if len(f.judged.all) != e.attempts || f.judged.all[0] != (verdictOn{"a", engine.OutcomeAborted}) {
				t.Errorf("outcomes %v", f.judged.all)
			}
		})
	}
}

// TestTwinTimeouts: each wait of a stream has its limit there too.
func TestTwinTimeouts(t *testing.T) {
	t.Parallel()
	silent := func(parts ...string) script { return func(x *exchange) { x.write(parts...); x.gone() } }
	for _, c := range []struct {
		name   string
		limit  func(*Timeouts)
		script script
		begins string
	}{
		{"first_event", func(o *Timeouts) { o.FirstEvent = soon }, silent(streamHead), ""},
		{"first_event, comments", func(o *Timeouts) { o.FirstEvent = soon }, silent(streamHead, chunk(": ping\n\n")), ": ping\n\n"},
		{"event_gap", func(o *Timeouts) { o.EventGap = soon }, silent(streamHead, chunk(roleEvent)), roleEvent},
		{"total", func(o *Timeouts) { o.Total = ample }, silent(streamHead, chunk(roleEvent)), roleEvent},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := start(t, []script{c.script, streaming}, relays["twin"], func(s *setup) { c.limit(&s.Timeouts) })
			cl := f.dial()
			cl.send(post(chatPath, chatSBody))
			a := cl.receive()
			if a.err != nil || !strings.HasPrefix(string(a.body), c.begins+`data: {"error":`) || !strings.Contains(string(a.body), "engine_timeout") {
				t.Errorf("got %d %q, %v", a.StatusCode, a.body, a.err)
			}
			f.ends(telemetry.EndTimedOut)
			f.outcomes(verdictOn{"a", engine.OutcomeNeutral})
			cl.send(get("/health"))
			cl.receive().want(t, 200, `{"status":"ok","engines":{}}`)
		})
	}
	t.Run("a stream moves on", func(t *testing.T) {
		t.Parallel()
		f := start(t, []script{func(x *exchange) {
			x.write(streamHead)
			for range 40 { // longer than the limit in all, and far from it in each gap
				x.write(chunk(tokenEvent))
				time.Sleep(ample / 12)
			}
			x.write(endOfBody)
		}}, relays["twin"], func(s *setup) { s.Timeouts.EventGap = 2 * ample })
		f.ask(post(chatPath, chatSBody)).want(t, 200, strings.Repeat(tokenEvent, 40))
	})
}
