package proxy

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"ramjet/engine"
	"ramjet/telemetry"
)

// retries reads the whole family ramjet_retries_total, without its zeros.
func (f *fixture) retries() map[string]int {
	f.t.Helper()
	var b strings.Builder
	f.srv.Metrics.WritePrometheus(&b)
	out := map[string]int{}
	series := 0
	for line := range strings.Lines(b.String()) {
		rest, ok := strings.CutPrefix(line, `ramjet_retries_total{reason="`)
		if !ok {
			continue
		}
		series++
		reason, value, _ := strings.Cut(rest, `"} `)
		var n int
		if _, err := fmt.Sscan(value, &n); err != nil {
			f.t.Fatalf("%q: %v", line, err)
		}
		if n > 0 {
			out[reason] = n
		}
	}
	if series != len(telemetry.Retries()) {
		f.t.Errorf("%d series of retries, want one for each of %d reasons", series, len(telemetry.Retries()))
	}
	return out
}

// refusing makes engine a's port one where nothing listens.
func refusing(t *testing.T) func(s *setup) {
	return func(s *setup) {
		s.engine = func(i int, o *engine.Options) {
			if i == 0 {
				o.URL.Host = closedPort(t)
			}
		}
	}
}

// TestRetriesAreCounted: each reason of ramjet_retries_total once, for what it
// stands for, and only when the request really was sent again.
func TestRetriesAreCounted(t *testing.T) {
	t.Parallel()
	reasons := map[string]bool{}
	for _, c := range []struct {
		name   string
		first  script
		reason string
		tweak  func(t *testing.T) func(s *setup)
	}{
		{"a refused connection", streaming, "refused", refusing},
		{"no TLS where it was promised", streaming, "refused", func(*testing.T) func(s *setup) {
			return func(s *setup) {
				s.engine = func(i int, o *engine.Options) {
					if i == 0 {
						o.URL.Scheme, o.Dial = "https", soon
					}
				}
			}
		}},
		{"a reset before the head", func(x *exchange) { x.reset() }, "reset", nil},
		{"an end before the head", func(x *exchange) { x.close() }, "reset", nil},
		{"no HTTP", func(x *exchange) { x.write("SSH-2.0-x\r\n\r\n"); x.close() }, "reset", nil},
		{"an end inside a held answer", func(x *exchange) { x.write(plainAnswer[:150]); x.close() }, "died", nil},
		{"an end behind a stream's head", func(x *exchange) { x.write(streamHead); x.taken(); x.close() }, "died", nil},
		{"a 503", answering(sized("503 Service Unavailable", "text/plain", "busy")), "status-503", nil},
		{"a 503 in chunks", answering("HTTP/1.1 503 Service Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("busy") + endOfBody), "status-503", nil},
		{"an abort in a stream", answering(streamHead + chunk(roleEvent) + chunk(abortEvent) + chunk(doneEvent) + endOfBody), "abort", nil},
		{"an abort in a plain answer", answering(sized("200 OK", "application/json", aborted[0].plain)), "abort", nil},
	} {
		reasons[c.reason] = true
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var tweaks []func(*setup)
			if c.tweak != nil {
				tweaks = append(tweaks, c.tweak(t))
			}
			f := start(t, []script{c.first, streaming}, tweaks...)
			f.ask(post(chatPath, chatSBody)).want(t, 200, wholeStream)
			f.ends(telemetry.EndDone)
			if got := f.retries(); !maps.Equal(got, map[string]int{c.reason: 1}) {
				t.Errorf("two engines: counted %v, want %s once", got, c.reason)
			}
			// With nobody to move to there is no retry.
			alone := start(t, []script{c.first}, tweaks...)
			alone.ask(post(chatPath, chatSBody))
			alone.records(1)
			if got := alone.retries(); len(got) != 0 {
				t.Errorf("one engine: counted %v, want none", got)
			}
		})
	}
	t.Run("a frozen engine", func(t *testing.T) {
		t.Parallel()
		f := start(t, []script{func(x *exchange) { x.gone() }, streaming})
		c := f.dial()
		c.send(post(chatPath, chatSBody))
		eventually(t, "the attempt", func() bool { return len(f.engines[0].got()) == 1 })
		f.members[0].AbortAll(telemetry.EndEngineStalled)
		c.receive().want(t, 200, wholeStream)
		if got := f.retries(); !maps.Equal(got, map[string]int{"died": 1}) {
			t.Errorf("counted %v, want died once", got)
		}
	})
	t.Run("a stale connection", func(t *testing.T) {
		t.Parallel()
		f := start(t, []script{func(x *exchange) {
			if x.onConn == 1 {
				x.close()
				return
			}
			x.write(plainAnswer)
		}})
		for range 2 {
			f.ask(post(chatPath, chatBody)).want(t, 200, answerBody)
			f.checkIdle() // the connection is back in its pool
		}
		if got := f.retries(); !maps.Equal(got, map[string]int{"stale-connection": 1}) {
			t.Errorf("counted %v, want stale-connection once", got)
		}
	})
	reasons["stale-connection"] = true
	for _, r := range telemetry.Retries() {
		if !reasons[r.String()] {
			t.Errorf("reason %s has no case here", r)
		}
	}
}

// TestSearchIsNoRetry: asking one engine after another for a stored response
// that nobody remembers is no failure of any of them.
func TestSearchIsNoRetry(t *testing.T) {
	t.Parallel()
	unknown := answering(sized("404 Not Found", "application/json", `{"error":"unknown"}`))
	f := start(t, []script{unknown, unknown, unknown})
	f.ask(get("/v1/responses/resp_1")).want(t, 404, `{"error":"unknown"}`)
	if r := f.records(1)[0]; r.Attempts != 3 {
		t.Errorf("%d attempts", r.Attempts)
	}
	if got := f.retries(); len(got) != 0 {
		t.Errorf("counted %v", got)
	}
}
