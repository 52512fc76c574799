package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"ramjet/engine"
	"ramjet/telemetry"
)

func (f *fixture) metric(line string) bool {
	var b strings.Builder
	f.srv.Metrics.WritePrometheus(&b)
	return strings.Contains(b.String(), line+"\n")
}

// TestStaleConnection: an idle connection that the engine closes just as it is
// used costs no attempt and says nothing about the engine.
func TestStaleConnection(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"FIN", "RST"} {
		for _, body := range []string{chatBody, `{"model":"m","input":"` + strings.Repeat("x", 100<<10) + `"}`} {
			t.Run(fmt.Sprintf("%s/%d", how, len(body)), func(t *testing.T) {
				t.Parallel()
				f := start(t, []script{func(x *exchange) {
					if x.onConn == 1 {
						if how == "RST" {
							x.reset()
						} else {
							x.close()
						}
						return
					}
					x.write(plainAnswer)
				}})
				c := f.dial()
				for range 4 {
					c.send(post("/v1/embeddings", body))
					a := c.receive()
					a.want(t, 200, answerBody)
					if got := a.Header.Get("X-Ramjet-Attempts"); got != "1" {
						t.Errorf("X-Ramjet-Attempts: %s", got)
					}
				}
				for _, r := range f.ends(telemetry.EndDone, telemetry.EndDone, telemetry.EndDone, telemetry.EndDone) {
					if r.Attempts != 1 {
						t.Errorf("%d attempts", r.Attempts)
					}
				}
				ok := verdictOn{"a", engine.OutcomeOK}
				f.outcomes(ok, ok, ok, ok)
				if !f.metric(`ramjet_retries_total{reason="stale-connection"} 3`) {
					t.Error("the stale connections were not counted")
				}
			})
		}
	}
}

// TestFreshConnectionThatFailsIsAnAttempt, and so is a reused one that failed
// behind the first byte.
func TestFreshConnectionThatFailsIsAnAttempt(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) {
		if x.n == 0 {
			x.write(plainAnswer)
			return
		}
		if x.onConn > 0 {
			x.write("HTTP/1.1 2")
		}
		x.close()
	}})
	c := f.dial()
	c.send(post(chatPath, chatBody))
	c.receive().want(t, 200, answerBody)
	for range 2 {
		c.send(post(chatPath, chatBody))
		c.receive().wantError(t, 502, "engine_unreachable")
	}
	if n := len(f.engines[0].got()); n != 3 {
		t.Errorf("the engine got %d requests, want 3", n)
	}
}

// failure is a way in which the first engine fails a request.
type failure struct {
	name    string
	script  script
	outcome engine.Outcome
	end     string // of the request when no engine is left
	status  int
	code    string // "" = the engine's own body
	stream  bool   // the head of a stream is out
}

var failures = []failure{
	{"503", answering(sized("503 Service Unavailable", "application/json", `{"error":"busy"}`)), engine.OutcomeServerError, "engine-error", 503, "", false},
	{"503 in chunks", answering("HTTP/1.1 503 Service Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n" + inChunks(`{"error":"busy"}`, 5) + endOfBody),
		engine.OutcomeServerError, "engine-error", 503, "", false},
	{"503 until close", func(x *exchange) { x.write("HTTP/1.1 503 Service Unavailable\r\n\r\n" + `{"error":"busy"}`); x.close() },
		engine.OutcomeServerError, "engine-error", 503, "", false},
	{"503, body later", func(x *exchange) {
		x.write("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 16\r\n\r\n")
		x.taken()
		x.write(`{"error":"busy"}`)
	}, engine.OutcomeServerError, "engine-error", 503, "", false},
	{"503 that dies", func(x *exchange) {
		x.write("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 16\r\n\r\n{")
		x.close()
	},
		engine.OutcomeServerError, "engine-error", 503, "overloaded", false},
	{"reset before the head", func(x *exchange) { x.reset() }, engine.OutcomeReset, "engine-died", 502, "engine_unreachable", false},
	{"FIN before the head", func(x *exchange) { x.close() }, engine.OutcomeReset, "engine-died", 502, "engine_unreachable", false},
	{"FIN in the head", func(x *exchange) { x.write("HTTP/1.1 200 OK\r\nX-"); x.close() }, engine.OutcomeReset, "engine-died", 502, "engine_unreachable", false},
	{"no HTTP", func(x *exchange) { x.write("SSH-2.0-x\r\n\r\n"); x.close() }, engine.OutcomeBadResponse, "engine-bad-response", 502, "engine_bad_response", false},
	{"dies in a short answer", func(x *exchange) { x.write(plainAnswer[:200]); x.close() }, engine.OutcomeDied, "engine-died", 502, "engine_unreachable", false},
	{"head, then FIN", func(x *exchange) { x.write(streamHead); x.taken(); x.close() }, engine.OutcomeDied, "engine-died", 200, "engine_died", true},
	{"head, then RST", func(x *exchange) { x.write(streamHead); x.taken(); x.reset() }, engine.OutcomeDied, "engine-died", 200, "engine_died", true},
	{"head, half an event, then FIN", func(x *exchange) {
		x.write(streamHead, fmt.Sprintf("%x\r\n", len(roleEvent)), roleEvent[:50])
		x.taken()
		x.close()
	}, engine.OutcomeDied, "engine-died", 200, "engine_died", true},
}

// TestMoves: whatever fails before the first body byte, the other engine
// answers and the client sees nothing of it.
func TestMoves(t *testing.T) {
	t.Parallel()
	for _, c := range failures {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := start(t, []script{c.script, streaming})
			a := f.ask(post(chatPath, chatSBody))
			a.want(t, 200, wholeStream)
			attempts, named := "2", "b"
			if c.stream {
				attempts, named = "1", "a" // the head names the first engine
			}
			if a.Header.Get("X-Ramjet-Attempts") != attempts || a.Header.Get("X-Ramjet-Engine") != named {
				t.Errorf("attempts %q, engine %q", a.Header.Get("X-Ramjet-Attempts"), a.Header.Get("X-Ramjet-Engine"))
			}
			r := f.ends(telemetry.EndDone)[0]
			if r.Attempts != 2 || len(r.Engines) != 2 || r.Engines[0] != "a" || r.Engines[1] != "b" || r.Status != 200 {
				t.Errorf("record %+v", r)
			}
			f.outcomes(verdictOn{"a", c.outcome}, verdictOn{"b", engine.OutcomeOK})
		})
	}
}

// TestMovesEndSomewhere: three engines at most, and then the client is told.
func TestMovesEndSomewhere(t *testing.T) {
	t.Parallel()
	for _, c := range failures {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := start(t, []script{c.script, c.script, c.script, c.script})
			cl := f.dial()
			cl.send(post(chatPath, chatSBody))
			a := cl.receive()
			if c.code == "" {
				a.want(t, c.status, `{"error":"busy"}`)
				if got := a.Header.Get("X-Ramjet-Attempts"); got != "3" {
					t.Errorf("X-Ramjet-Attempts: %s", got)
				}
			} else {
				a.wantError(t, c.status, c.code)
			}
			if a.err != nil {
				t.Errorf("the answer is cut: %v", a.err)
			}
			r := f.records(1)[0]
			if r.End != c.end || r.Attempts != 3 || r.Status != c.status {
				t.Errorf("record %+v", r)
			}
			// The order in which the others are tried is the router's.
			slices.SortFunc(f.judged.all, func(a, b verdictOn) int { return strings.Compare(a.engine, b.engine) })
			v := c.outcome
			f.outcomes(verdictOn{"a", v}, verdictOn{"b", v}, verdictOn{"c", v})
			// The connection serves the next request.
			cl.send(get("/health"))
			cl.receive().want(t, 200, `{"status":"ok","engines":{}}`)
		})
	}
}

// TestRefused: a refusing engine is passed over; when all refuse there is none.
func TestRefused(t *testing.T) {
	t.Parallel()
	t.Run("one", func(t *testing.T) {
		t.Parallel()
		f := start(t, []script{streaming, streaming}, refusing(t))
		f.ask(post(chatPath, chatSBody)).want(t, 200, wholeStream)
		f.outcomes(verdictOn{"a", engine.OutcomeRefused}, verdictOn{"b", engine.OutcomeOK})
	})
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		f := start(t, []script{streaming}, refusing(t))
		a := f.ask(post(chatPath, chatBody))
		a.wantError(t, 503, "no_engine")
		if a.Header.Get("Retry-After") != "5" {
			t.Errorf("Retry-After %q", a.Header.Get("Retry-After"))
		}
		f.ends(telemetry.EndEngineUnreachable)
	})
}

// TestWhatADialSays of its engine: a limit or a want of Ramjet's own says
// nothing.
func TestWhatADialSays(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]engine.Outcome{
		syscall.ECONNREFUSED:        engine.OutcomeRefused,
		syscall.ETIMEDOUT:           engine.OutcomeReset, // the system's, where there is no limit of ours
		syscall.EHOSTUNREACH:        engine.OutcomeReset,
		syscall.EMFILE:              engine.OutcomeNeutral,
		syscall.ENOMEM:              engine.OutcomeNeutral,
		context.DeadlineExceeded:    engine.OutcomeNeutral,
		os.ErrDeadlineExceeded:      engine.OutcomeNeutral,
		errors.New("bad handshake"): engine.OutcomeReset,
	} {
		f := &flight{c: &conn{}}
		v := f.undialled(engine.New(engine.Options{Name: "a"}), fmt.Errorf("cannot connect: %w", &net.OpError{Op: "dial", Err: err}))
		if v.outcome != want || v.done {
			t.Errorf("%v: %+v, want outcome %d and another engine", err, v, want)
		}
	}
}

// TestDialLimitIsNeutral: the dial limit is Ramjet's own deadline, so that it
// moves the request and says nothing of the engine.
func TestDialLimitIsNeutral(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			at := blackHole(t)
			if scheme == "https" {
				// It connects, and says nothing about TLS.
				mute := listen(t)
				t.Cleanup(func() { _ = mute.Close() })
				at = mute.Addr().String()
			}
			f := start(t, []script{streaming, streaming}, func(s *setup) {
				s.engine = func(i int, o *engine.Options) {
					if i == 0 {
						o.URL.Scheme, o.URL.Host, o.Dial = scheme, at, soon
					}
				}
			})
			f.ask(post(chatPath, chatSBody)).want(t, 200, wholeStream)
			f.outcomes(verdictOn{"a", engine.OutcomeNeutral}, verdictOn{"b", engine.OutcomeOK})
			if r := f.ends(telemetry.EndDone)[0]; r.Attempts != 2 {
				t.Errorf("%d attempts", r.Attempts)
			}
		})
	}
}

// TestHeadOutAndNoContinuation: a stream whose head is out cannot go on with
// anything but another event stream.
func TestHeadOutAndNoContinuation(t *testing.T) {
	t.Parallel()
	dies := func(x *exchange) { x.write(streamHead); x.taken(); x.close() }
	for name, second := range map[string]struct {
		script
		says engine.Outcome
	}{
		"plain":          {answering(plainAnswer), engine.OutcomeNeutral}, // it was not read
		"503":            {answering(sized("503 Service Unavailable", "application/json", `{"error":"busy"}`)), engine.OutcomeServerError},
		"400":            {answering(sized("400 Bad Request", "application/json", `{"error":"no"}`)), engine.OutcomeNeutral},
		"a sized stream": {answering(sized("200 OK", "text/event-stream", wholeStream)), engine.OutcomeNeutral},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, []script{dies, second.script})
			a := f.ask(post(chatPath, chatSBody))
			a.wantError(t, 200, "engine_died")
			if a.err != nil || strings.Count(string(a.body), "data:") != 1 {
				t.Errorf("got %q, %v", a.body, a.err)
			}
			f.ends(telemetry.EndEngineDied)
			f.outcomes(verdictOn{"a", engine.OutcomeDied}, verdictOn{"b", second.says})
		})
	}
	t.Run("a sized stream first", func(t *testing.T) {
		t.Parallel()
		// The client was promised a length, so chunks cannot follow.
		f := start(t, []script{func(x *exchange) {
			x.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100\r\n\r\n")
			x.taken()
			x.close()
		}, streaming})
		a := f.ask(post(chatPath, chatSBody))
		if a.err == nil || len(a.body) > 0 {
			t.Errorf("got %q, %v", a.body, a.err)
		}
		f.ends(telemetry.EndEngineDied)
	})
	t.Run("until close", func(t *testing.T) {
		t.Parallel()
		f := start(t, []script{dies, func(x *exchange) { x.write(sseHead, "\r\n", wholeStream); x.close() }})
		f.ask(post(chatPath, chatSBody)).want(t, 200, wholeStream)
		f.ends(telemetry.EndDone)
	})
}

// TestDiesBehindTheFirstByte: then the stream ends with an error event, and a
// plain answer is cut, so that nobody takes it for whole.
func TestDiesBehindTheFirstByte(t *testing.T) {
	t.Parallel()
	var second atomic.Int32
	other := func(x *exchange) { second.Add(1); streaming(x) }
	t.Run("stream", func(t *testing.T) {
		f := start(t, []script{func(x *exchange) {
			x.write(streamHead, chunk(roleEvent), chunk(tokenEvent)[:40])
			x.taken()
			x.reset()
		}, other})
		c := f.dial()
		c.send(post(chatPath, chatSBody))
		a := c.receive()
		if a.err != nil || !strings.HasPrefix(string(a.body), roleEvent+`data: {"error":`) {
			t.Errorf("got %q, %v", a.body, a.err)
		}
		c.send(get("/health"))
		c.receive().want(t, 200, `{"status":"ok","engines":{}}`)
		f.outcomes(verdictOn{"a", engine.OutcomeDied})
		if r := f.records(2)[0]; r.End != "engine-died" || r.Status != 200 || r.Error == "" {
			t.Errorf("record %+v", r)
		}
	})
	t.Run("plain", func(t *testing.T) {
		long := `{"choices":[{"message":{"content":"` + strings.Repeat("x", 200<<10) + `"}}]}`
		f := start(t, []script{func(x *exchange) {
			x.write(sized("200 OK", "application/json", long)[:150<<10])
			x.taken()
			x.close()
		}, other})
		c := f.dial()
		c.send(post(chatPath, chatBody))
		if a := c.receive(); a.err == nil {
			t.Errorf("%d bytes were taken for a whole answer", len(a.body))
		}
		c.closed()
		f.ends(telemetry.EndEngineDied)
	})
	if second.Load() > 0 {
		t.Error("the request moved although bytes were out")
	}
}
