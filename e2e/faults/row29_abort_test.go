package faults

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestB7Row29AbortMoves: an abort with no token at one engine moves the request,
// the client sees only the other's answer, and the engine is suspect.
func TestB7Row29AbortMoves(t *testing.T) {
	t.Parallel()
	for i, tc := range rig.AbortAnswers {
		apart := i == 0 // one of the streams with its head out before
		t.Run(tc.Name, func(t *testing.T) {
			t.Parallel()
			a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
			r := rig.Start(t, a, b, "--health.interval=1h")
			var stopping atomic.Pointer[rig.Engine] // the first that is asked
			play := func(x *rig.Exchange) {
				if stopping.CompareAndSwap(nil, x.E); stopping.Load() == x.E {
					playAbort(x, tc.Raw, apart)
					return
				}
				x.Plain()
			}
			a.On(play)
			b.On(play)
			id := r.ID("abort")
			resp := r.Do(t, rig.Request("POST", tc.Path, id, tc.Body))
			if resp.Status != 200 || !resp.Whole() || strings.Contains(string(resp.Body), "abort") || len(a.ByID(id)) != 1 || len(b.ByID(id)) != 1 {
				t.Errorf("answered %d %.400q; a had it %d times, b %d times", resp.Status, resp.Body, len(a.ByID(id)), len(b.ByID(id)))
			}
			if line := r.Ended(t, id, "done"); line.Num("attempts") != 2 {
				t.Errorf("attempts %v, want 2", line["attempts"])
			}
			rig.Eventually(t, rig.Patience, "the stopping engine's state", func() string {
				if s := r.EngineState(stopping.Load().Name); s != "suspect" {
					return "is " + s + ", want suspect"
				}
				return ""
			})
		})
	}
}

// playAbort sends an answer, its head apart if asked, as vLLM sends the head of
// a stream before it queues the request.
func playAbort(x *rig.Exchange, raw string, apart bool) {
	if apart {
		head, _, _ := strings.Cut(raw, "\r\n\r\n")
		x.Write(head + "\r\n\r\n")
		x.Pause(50 * time.Millisecond)
		raw = raw[len(head)+4:]
	}
	x.Write(raw)
}

// TestB7Row29AbortPasses: when the abort comes behind what is out already, or
// from every engine, it passes as it came and the request ends engine-died. A
// cut after tokens is the engine's answer.
func TestB7Row29AbortPasses(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--health.interval=1h", "--eject.after=1000000")
	for i, tc := range rig.AbortAnswers {
		play := func(x *rig.Exchange) { playAbort(x, tc.Raw, i == 0) }
		a.On(play)
		b.On(play)
		id := r.ID("abort")
		resp := r.Do(t, rig.Request("POST", tc.Path, id, tc.Body))
		want, _, _ := rig.ParseResponse([]byte(tc.Raw), "POST", false)
		if resp.Status != 200 || string(resp.Body) != string(want.Body) {
			t.Errorf("%s at every engine: %d %.300q", tc.Name, resp.Status, resp.Body)
		}
		r.Ended(t, id, "engine-died")
	}
	seen := make(chan struct{})
	late := func(x *rig.Exchange) {
		x.StreamHead()
		x.Events(rig.RoleEvent())
		x.Hold(seen)
		x.Events(rig.FinishEvent("abort"), rig.DoneEvent)
		x.Write(rig.LastChunk)
	}
	a.On(late)
	b.On(late)
	id := r.ID("late")
	c := r.Dial(t)
	c.Send(rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true)))
	c.EventCount(rig.Patience, 1)
	close(seen)
	if resp := c.Response(rig.Patience); string(resp.Body) != rig.RoleEvent()+rig.FinishEvent("abort")+rig.DoneEvent || len(a.ByID(id))+len(b.ByID(id)) != 1 {
		t.Errorf("an abort behind the role chunk: %.400q", resp.Body)
	}
	r.Ended(t, id, "engine-died")
}
