package faults

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestB7Row23KilledBeforeFirstByte: the engine dies with the request in its
// hands and nothing said; another one serves, the client does not notice.
func TestB7Row23KilledBeforeFirstByte(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--health.interval=1h", "--eject.after=1000000")
	for _, way := range []string{"rst", "fin", "head out, rst", "head out, fin"} {
		t.Run(way, func(t *testing.T) {
			var dying atomic.Pointer[rig.Engine] // the first that is asked
			play := func(x *rig.Exchange) {
				if dying.CompareAndSwap(nil, x.E); dying.Load() != x.E {
					x.Plain()
					return
				}
				if strings.HasPrefix(way, "head out") {
					x.StreamHead()
					x.Pause(20 * time.Millisecond)
				}
				if strings.HasSuffix(way, "rst") {
					x.Reset()
				} else {
					x.Close()
				}
			}
			a.On(play)
			b.On(play)
			id := r.ID("killed")
			resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true)))
			if resp.Status != 200 || !resp.Complete || !strings.HasSuffix(string(resp.Body), rig.DoneEvent) || len(resp.ErrorEvents()) > 0 {
				t.Errorf("answered %d %.300q", resp.Status, resp.Body)
			}
			if !bytes.Equal(resp.Body, []byte(strings.Join(rig.ChatEvents(3), ""))) {
				t.Errorf("body %.300q", resp.Body)
			}
			if len(a.ByID(id)) == 0 || len(b.ByID(id)) == 0 {
				t.Errorf("a had it %d times, b %d times, want both", len(a.ByID(id)), len(b.ByID(id)))
			}
			if line := r.Ended(t, id, "done"); line.Num("attempts") != 2 {
				t.Errorf("attempts in the access line: %v, want 2", line["attempts"])
			}
		})
	}
	if n := r.Metrics().Sum("ramjet_retries_total"); n < 4 {
		t.Errorf("%v retries counted, want 4", n)
	}
}

// TestB7Row24KilledMidStream: whole events are kept, one error event in the
// dialect follows, no sentinel, and the proper end of the body.
func TestB7Row24KilledMidStream(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--health.interval=1h", "--eject.after=1000000")
	for _, d := range rig.Dialects {
		for _, way := range []string{"fin", "rst", "inside an event", "inside a chunk"} {
			t.Run(d.Name+" "+way, func(t *testing.T) {
				play := func(x *rig.Exchange) {
					x.StreamHead()
					x.Events(d.Events...)
					if way == "inside an event" {
						x.Write(rig.Chunk(`data: {"half`))
					} else if way == "inside a chunk" {
						x.Write("40\r\ndata: {\"half")
					}
					x.Pause(20 * time.Millisecond)
					if way == "rst" {
						x.Reset()
					} else {
						x.Close()
					}
				}
				a.On(play)
				b.On(play)
				id := r.ID("killed")
				c := r.Dial(t)
				c.Send(rig.Request("POST", d.Path, id, d.Body))
				resp := c.Response(rig.Patience)
				d.DiedWell(t, resp)
				r.Ended(t, id, "engine-died")
				if n := len(a.ByID(id)) + len(b.ByID(id)); n != 1 {
					t.Errorf("%d engines had it: what is out cannot move", n)
				}
			})
		}
	}
	r.Counted(t, 4*len(rig.Dialects), "200", "engine-died")
}
