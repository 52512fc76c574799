package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/telemetry"
)

// TestLastBytesAndEndInOneWakeUp: an engine whose last bytes and whose end
// arrive together. The poller tells of both once, so a relay that took a short
// read for the last one would hang here for good; most of these must not be
// rare to hit, so each way is tried often.
func TestLastBytesAndEndInOneWakeUp(t *testing.T) {
	t.Parallel()
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	ways := map[string]func(x *exchange){
		"half an event, FIN": func(x *exchange) { x.write(chunk(tokenEvent) + chunk(tokenEvent)[:40]); x.close() },
		"an event, FIN":      func(x *exchange) { x.write(chunk(tokenEvent)); x.close() },
		"an event, RST":      func(x *exchange) { x.write(chunk(tokenEvent)); x.reset() },
		"half a last chunk":  func(x *exchange) { x.write(chunk(doneEvent) + "0\r\n"); x.close() },
		"a full buffer, FIN": func(x *exchange) {
			x.write(chunk("data: " + strings.Repeat("x", sizeRelay-len("data: \n\n")-len("4000\r\n\r\n")) + "\n\n"))
			x.close()
		},
	}
	for _, watched := range []bool{true, false} {
		for relay, tweak := range relays {
			for name, die := range ways {
				t.Run(fmt.Sprintf("%s/%s/watched %v", name, relay, watched), func(t *testing.T) {
					t.Parallel()
					f := start(t, []script{func(x *exchange) {
						x.write(streamHead, chunk(roleEvent))
						x.taken()
						if x.n%2 == 0 {
							time.Sleep(time.Millisecond) // the relay waits already
						}
						die(x)
					}}, tweak, func(s *setup) { s.blind = !watched })
					var ends []telemetry.End
					for range rounds {
						a := f.ask(post(chatPath, chatSBody))
						told := strings.Contains(string(a.body), `"engine_died"`)
						var late net.Error
						if !strings.HasPrefix(string(a.body), roleEvent) || !told && a.err == nil || errors.As(a.err, &late) && late.Timeout() {
							t.Fatalf("got %q, %v", a.body, a.err)
						}
						ends = append(ends, telemetry.EndEngineDied)
					}
					f.ends(ends...)
				})
			}
		}
	}
}

// TestSlowClientHoldsUpNobody: clients that take nothing of endless streams do
// not hold up others.
func TestSlowClientHoldsUpNobody(t *testing.T) {
	t.Parallel()
	event := chunk("data: " + strings.Repeat("x", 8<<10) + "\n\n")
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls %v", secure), func(t *testing.T) {
			t.Parallel()
			f, dial := startNarrow(t, secure, []script{func(x *exchange) {
				if x.req.Header.Get("X-Endless") == "" {
					streaming(x)
					return
				}
				x.write(streamHead)
				for {
					if _, err := io.WriteString(x.conn, event); err != nil {
						return
					}
				}
			}})
			for range 16 {
				c := newClient(t, dial())
				c.send(post(chatPath, chatSBody, "X-Endless: 1"))
			}
			stuck(t, f)
			var wg sync.WaitGroup
			for range 4 {
				c := newClient(t, dial())
				wg.Go(func() {
					for range 25 {
						c.send(post(chatPath, chatSBody))
						c.receive().want(t, 200, wholeStream) // within patience
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestStreamOutlivesTheWriteLimit: timeouts.client_write bounds the wait for
// progress, not the whole answer (fasthttp's WriteTimeout is one deadline for
// all of it).
func TestStreamOutlivesTheWriteLimit(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"tcp", "tls"} {
		for relay, tweak := range relays {
			t.Run(transport+"/"+relay, func(t *testing.T) {
				t.Parallel()
				f, dial := startOn(t, transport, []script{func(x *exchange) {
					x.write(streamHead)
					for range 5 {
						x.write(chunk(tokenEvent))
						time.Sleep(2 * soon)
					}
					x.write(endOfBody)
				}}, tweak, func(s *setup) { s.Timeouts.ClientWrite = soon })
				c := newClient(t, dial())
				for range 2 {
					c.send(post(chatPath, chatSBody))
					c.receive().want(t, 200, strings.Repeat(tokenEvent, 5))
				}
				f.ends(telemetry.EndDone, telemetry.EndDone)
			})
		}
	}
}
