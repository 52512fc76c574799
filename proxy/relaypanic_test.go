package proxy

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestPanicInsideTheRelay, deep in the two sockets' callbacks: the client gets
// an error event and a proper end, the access line tells engine, attempt and
// the word internal, and neither descriptor lock, lease nor connection is left.
func TestPanicInsideTheRelay(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"tcp", "tls"} {
		for _, relay := range []string{"verbatim", "twin"} {
			t.Run(transport+"/"+relay, func(t *testing.T) {
				t.Parallel()
				var armed atomic.Bool
				died := func(x *exchange) { x.close() }
				f, dial := startOn(t, transport, []script{died, func(x *exchange) {
					if x.n > 0 {
						streaming(x)
						return
					}
					x.write(streamHead, chunk(roleEvent))
					x.taken()
					armed.Store(true)
					for range tickStep + 1 { // one of them makes the relay tell the time
						x.write(chunk(tokenEvent))
					}
					x.gone()
				}}, func(s *setup) {
					s.StreamRelay = relay == "twin"
					s.Tick = func(time.Time) {
						if armed.Swap(false) {
							panic("BUG: asked for by a test")
						}
					}
				})
				c := newClient(t, dial())
				c.send(post(chatPath, chatSBody))
				a := c.receive()
				if !strings.HasPrefix(string(a.body), roleEvent) || strings.Contains(string(a.body), "[DONE]") {
					t.Errorf("got %d %q", a.StatusCode, a.body)
				}
				// Either there was room for an error event, or the end is a cut.
				if told := strings.Contains(string(a.body), `"internal_error"`); told == (a.err != nil) {
					t.Errorf("the stream ended %v, with an error event: %v", a.err, told)
				}
				for event := range strings.SplitAfterSeq(string(a.body), "\n\n") {
					if event != "" && event != roleEvent && event != tokenEvent && !strings.Contains(event, `"internal_error"`) {
						t.Errorf("the client got %q", event)
					}
				}
				c.closed()
				r := f.records(1)[0]
				if r.End != "internal" || r.Status != 200 || r.Attempts != 2 || !slices.Equal(r.Engines, []string{"a", "b"}) || r.Engine != "b" || r.Error != "panic" {
					t.Errorf("record %+v", r)
				}
				eventually(t, "the stack in the log", func() bool { return strings.Contains(string(f.log.bytes()), "a request panicked") })
				next := newClient(t, dial())
				next.send(post(chatPath, chatSBody))
				next.receive().want(t, 200, wholeStream)
				f.records(2)
			})
		}
	}
}
