package faults

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// dyingFirst plays death (its head out) at the first engine that is asked, and
// next at the others.
func dyingFirst(next rig.Script) rig.Script {
	var dying atomic.Pointer[rig.Engine]
	return func(x *rig.Exchange) {
		if dying.CompareAndSwap(nil, x.E); dying.Load() != x.E {
			next(x)
			return
		}
		x.StreamHead()
		x.Pause(30 * time.Millisecond)
		x.Reset()
	}
}

// TestB7Row23MovedToNoStream: the head is out and the second engine answers no
// event stream: the stream ends with engine_died, not with a mixture.
func TestB7Row23MovedToNoStream(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--health.interval=1h", "--eject.after=1000000")
	for name, answer := range map[string]string{
		"500": rig.JSONResponse(500, `{"error":{"message":"SECOND"}}`), "400": rig.JSONResponse(400, `{"error":{"message":"SECOND"}}`),
		"no stream": rig.JSONResponse(200, `{"choices":"SECOND"}`), "empty": "HTTP/1.1 204 No Content\r\n\r\n",
	} {
		play := dyingFirst(func(x *rig.Exchange) { x.Write(answer) })
		a.On(play)
		b.On(play)
		id := r.ID("moved")
		resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true)))
		if codes := resp.ErrorEvents(); resp.Status != 200 || !resp.Complete || len(codes) != 1 || codes[0] != "engine_died" || strings.Contains(string(resp.Body), "SECOND") {
			t.Errorf("%s: %d, error events %v, properly ended %v: %.300q", name, resp.Status, codes, resp.Complete, resp.Body)
		}
		r.Ended(t, id, "engine-died")
	}
}

// TestB7Row23MovedHeaders: the headers name the first engine, the access line
// all of them.
func TestB7Row23MovedHeaders(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--health.interval=1h", "--eject.after=1000000")
	play := dyingFirst(func(x *rig.Exchange) { x.Plain() })
	a.On(play)
	b.On(play)
	id := r.ID("moved")
	resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true)))
	first := a
	if len(b.ByID(id)) > 0 && b.ByID(id)[0].At.Before(a.ByID(id)[0].At) {
		first = b
	}
	if resp.Fields.Get("X-Ramjet-Engine") != first.Name || len(resp.Fields.All("X-Request-Id")) != 1 {
		t.Errorf("X-Ramjet-Engine %q, want the first engine %s", resp.Fields.Get("X-Ramjet-Engine"), first.Name)
	}
	if string(resp.RawBody) != rig.Chunked(rig.ChatEvents(3)) {
		t.Errorf("body %.400q", resp.RawBody)
	}
	if line := r.Ended(t, id, "done"); line.Num("attempts") != 2 {
		t.Errorf("attempts %v", line["attempts"])
	}
}

// TestB7Row23AtMostThree: five engines that die are not all asked.
func TestB7Row23AtMostThree(t *testing.T) {
	t.Parallel()
	var engines []*rig.Engine
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		e := rig.NewEngine(t, name)
		engines = append(engines, e)
	}
	r := rig.StartWith(t, rig.Setup{Engines: engines, Flags: []string{"--health.interval=1h", "--eject.after=1000000"}})
	for _, e := range engines {
		e.On(func(x *rig.Exchange) { x.Reset() })
	}
	for _, stream := range []bool{true, false} {
		id := r.ID("three")
		resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(stream)))
		asked := 0
		for _, e := range engines {
			if len(e.ByID(id)) > 0 {
				asked++
			}
		}
		if resp.Status != 502 || asked != 3 || resp.Fields.Get("X-Ramjet-Attempts") != "3" {
			t.Errorf("answered %d, %d engines asked, X-Ramjet-Attempts %q, want 502 after 3", resp.Status, asked, resp.Fields.Get("X-Ramjet-Attempts"))
		}
	}
}
