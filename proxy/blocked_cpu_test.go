package proxy

import (
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"ramjet/telemetry"
)

// cpu is the process's CPU time so far.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// TestBlockedStreamsUseNoCPU: streams whose clients take nothing, some of whose
// engines have ended meanwhile, leave readable sockets and ends that nobody
// reads. No loop may turn for them. Not parallel: it measures the process.
func TestBlockedStreamsUseNoCPU(t *testing.T) {
	event := chunk("data: " + strings.Repeat("x", 8<<10) + "\n\n")
	for relay, tweak := range relays {
		t.Run(relay, func(t *testing.T) {
			f, dial := startNarrow(t, false, []script{func(x *exchange) {
				x.write(streamHead)
				if x.req.Header.Get("X-Ends") != "" {
					x.write(strings.Repeat(event, 14))
					x.close() // a part of that stays unread, with the end behind it
					return
				}
				for {
					if _, err := io.WriteString(x.conn, event); err != nil {
						return
					}
				}
			}}, tweak)
			var clients []*client
			for i := range 20 {
				c := newClient(t, dial())
				extra := "X-A: b"
				if i%2 == 0 {
					extra = "X-Ends: 1"
				}
				c.send(post(chatPath, chatSBody, extra))
				clients = append(clients, c)
			}
			stuck(t, f)
			// The least of several, since a collection may fall into one.
			least := time.Hour
			for range 5 {
				before := cpu(t)
				time.Sleep(60 * time.Millisecond)
				least = min(least, cpu(t)-before)
			}
			if least > 15*time.Millisecond {
				t.Errorf("%v of CPU in 60 ms of doing nothing", least)
			}
			ends := make([]telemetry.End, len(clients))
			for i, c := range clients {
				c.close()
				ends[i] = telemetry.EndClientGoneStreaming
			}
			f.ends(ends...)
		})
	}
}

// TestNoLimitStaysOnAPooledConnection: one that bounded the gaps of a stream
// must not end the next request's wait for its head, which has no limit.
func TestNoLimitStaysOnAPooledConnection(t *testing.T) {
	t.Parallel()
	for relay, tweak := range relays {
		for _, kind := range []string{"stream", "plain"} {
			t.Run(relay+"/"+kind, func(t *testing.T) {
				t.Parallel()
				f := start(t, []script{func(x *exchange) {
					if x.n == 0 && kind == "stream" {
						streaming(x)
						return
					}
					if x.n > 0 {
						time.Sleep(2 * ample) // beyond the first request's limit
					}
					x.write(plainAnswer)
				}}, tweak, func(s *setup) { s.Timeouts.EventGap, s.Timeouts.FirstEvent = ample, ample })
				c := f.dial()
				c.send(post(chatPath, chatSBody))
				if a := c.receive(); a.StatusCode != 200 || a.err != nil {
					t.Fatalf("got %d %q, %v", a.StatusCode, a.body, a.err)
				}
				c.send(post(chatPath, chatBody))
				c.receive().want(t, 200, answerBody)
				if n := f.engines[0].dialled(); n != 1 {
					t.Errorf("%d connections to the engine, want 1", n)
				}
				f.ends(telemetry.EndDone, telemetry.EndDone)
			})
		}
	}
}
