package e2e

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// dyingFirst plays death (its head out) at the first engine that is asked, and
// next at the others.
func dyingFirst(next script) script {
	var dying atomic.Pointer[engine]
	return func(x *exchange) {
		if dying.CompareAndSwap(nil, x.e); dying.Load() != x.e {
			next(x)
			return
		}
		x.streamHead()
		x.pause(30 * time.Millisecond)
		x.reset()
	}
}

// TestB7Row23MovedToNoStream: the head is out and the second engine answers no
// event stream: the stream ends with engine_died, not with a mixture.
func TestB7Row23MovedToNoStream(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--health.interval=1h", "--eject.after=1000000")
	for name, answer := range map[string]string{
		"500": jsonResponse(500, `{"error":{"message":"SECOND"}}`), "400": jsonResponse(400, `{"error":{"message":"SECOND"}}`),
		"no stream": jsonResponse(200, `{"choices":"SECOND"}`), "empty": "HTTP/1.1 204 No Content\r\n\r\n",
	} {
		play := dyingFirst(func(x *exchange) { x.write(answer) })
		a.on(play)
		b.on(play)
		id := r.id("moved")
		resp := r.do(t, request("POST", chatPath, id, chatBody(true)))
		if codes := resp.errorEvents(); resp.status != 200 || !resp.complete || len(codes) != 1 || codes[0] != "engine_died" || strings.Contains(string(resp.body), "SECOND") {
			t.Errorf("%s: %d, error events %v, properly ended %v: %.300q", name, resp.status, codes, resp.complete, resp.body)
		}
		r.ended(t, id, "engine-died")
	}
}

// TestB7Row23MovedHeaders: the headers name the first engine, the access line
// all of them.
func TestB7Row23MovedHeaders(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--health.interval=1h", "--eject.after=1000000")
	play := dyingFirst(func(x *exchange) { x.plain() })
	a.on(play)
	b.on(play)
	id := r.id("moved")
	resp := r.do(t, request("POST", chatPath, id, chatBody(true)))
	first := a
	if len(b.byID(id)) > 0 && b.byID(id)[0].at.Before(a.byID(id)[0].at) {
		first = b
	}
	if resp.fields.get("X-Ramjet-Engine") != first.name || len(resp.fields.all("X-Request-Id")) != 1 {
		t.Errorf("X-Ramjet-Engine %q, want the first engine %s", resp.fields.get("X-Ramjet-Engine"), first.name)
	}
	if string(resp.rawBody) != chunked(chatEvents(3)) {
		t.Errorf("body %.400q", resp.rawBody)
	}
	if line := r.ended(t, id, "done"); line.num("attempts") != 2 {
		t.Errorf("attempts %v", line["attempts"])
	}
}

// TestB7Row23AtMostThree: five engines that die are not all asked.
func TestB7Row23AtMostThree(t *testing.T) {
	t.Parallel()
	var engines []*engine
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		e := newEngine(t, name)
		engines = append(engines, e)
	}
	r := startWith(t, setup{engines: engines, flags: []string{"--health.interval=1h", "--eject.after=1000000"}})
	for _, e := range engines {
		e.on(func(x *exchange) { x.reset() })
	}
	for _, stream := range []bool{true, false} {
		id := r.id("three")
		resp := r.do(t, request("POST", chatPath, id, chatBody(stream)))
		asked := 0
		for _, e := range engines {
			if len(e.byID(id)) > 0 {
				asked++
			}
		}
		if resp.status != 502 || asked != 3 || resp.fields.get("X-Ramjet-Attempts") != "3" {
			t.Errorf("answered %d, %d engines asked, X-Ramjet-Attempts %q, want 502 after 3", resp.status, asked, resp.fields.get("X-Ramjet-Attempts"))
		}
	}
}
