package e2e

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestB7Row27BadEngineAnswers plays every vector of testdata/responses on both
// engines. The client gets a 502, or can tell that the answer is not whole;
// what is legal passes as it is. Memory stays bounded and no byte of one answer
// shows up in the next.
func TestB7Row27BadEngineAnswers(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--eject.after=1000000", "--health.failures=1000000")
	before := r.rss()
	for _, v := range readVectors(t, "responses") {
		t.Run(v.name, func(t *testing.T) {
			play := playVector(v)
			a.on(play)
			b.on(play)
			judgeAnswer(t, r, v)
			a.on(nil)
			b.on(nil)
			for range 2 {
				next := r.do(t, request("POST", chatPath, r.id("after"), chatBody(false)))
				if next.status != 200 || !strings.Contains(string(next.body), "hello world") {
					t.Errorf("the next request was answered %d %.200q", next.status, next.body)
				}
			}
		})
	}
	if grown := r.rss() - before; grown > 64<<20 && !raceEnabled {
		t.Errorf("memory grew by %d bytes", grown)
	}
}

func playVector(v vector) script {
	return func(x *exchange) {
		x.write(v.bytes)
		switch {
		case v.words["fin"]:
			x.pause(5 * time.Millisecond)
			x.close()
		case v.words["rst"]:
			x.pause(5 * time.Millisecond)
			x.reset()
		default:
			// What follows the bytes is silence; Ramjet decides by the bytes alone.
			if v.want[0] != "ok" {
				x.gone(patience)
				x.close()
			}
		}
	}
}

func judgeAnswer(t *testing.T, r *ramjet, v vector) {
	t.Helper()
	c := r.dial(t)
	defer c.close()
	id := r.id("bad")
	c.send(request("POST", chatPath, id, chatBody(!v.words["plain"])))
	resp, err := c.until(patience, func(resp *response) bool { return resp != nil && (resp.complete || resp.closed) })
	if resp == nil {
		t.Errorf("%s: no answer (%v), received %.200q", v.rule, err, c.raw)
		return
	}
	got := nameAnswer(resp, err, v)
	if !oneOf(got, v.want) {
		t.Errorf("%s: got %s, want %v; engine sent %.200q, received %.400q", v.rule, got, v.want, v.bytes, c.raw)
	}
	if strings.Contains(string(c.raw), "POISONED") {
		t.Errorf("%s: bytes behind the answer reached the client: %.300q", v.rule, c.raw)
	}
	if got == "502" && resp.code() != "engine_bad_response" && resp.code() != "engine_unreachable" {
		t.Errorf("%s: code %q in %.200q", v.rule, resp.code(), resp.body)
	}
	if got == "502" || got == "broken" {
		r.ended(t, id, "engine-bad-response", "engine-died", "engine-unreachable")
	}
}

// nameAnswer says how a client would take an answer: by its status unless 200,
// else "ok" or "broken".
func nameAnswer(resp *response, err error, v vector) string {
	if resp.status != 200 {
		return strconv.Itoa(resp.status)
	}
	failed := len(resp.errorEvents()) > 0
	switch {
	case err == errWait:
		return "hanging"
	case err != nil && !resp.closed:
		return "malformed: " + err.Error()
	case failed && strings.Contains(string(resp.body), "[DONE]"):
		return "an error event and [DONE]"
	case failed, !resp.whole():
		return "broken"
	case !strings.Contains(vectorBodyOf(v), string(resp.body)) || len(resp.body) == 0:
		return "another body"
	}
	return "ok"
}

// vectorBodyOf is the decoded body that a vector carries.
func vectorBodyOf(v vector) string {
	_, raw, _ := strings.Cut(v.bytes, "\r\n\r\n")
	for strings.HasPrefix(raw, "HTTP/1.1 ") { // interim answers came first
		_, raw, _ = strings.Cut(raw, "\r\n\r\n")
	}
	if strings.Contains(v.bytes, "transfer-encoding: chunked") {
		d, _ := dechunk([]byte(raw))
		return string(d.body)
	}
	return raw
}

// TestB7Row27UnsolicitedBytes sends a whole answer that nobody asked for on an
// idle pooled connection: it must not become the answer to the next request.
func TestB7Row27UnsolicitedBytes(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	poison := func(x *exchange) {
		x.plain()
		x.pause(10 * time.Millisecond)
		x.write(jsonResponse(200, `{"choices":"POISONED"}`))
	}
	a.on(poison)
	b.on(poison)
	for range 20 {
		if resp := r.post(t, chatPath, chatBody(false)); resp.status != 200 || strings.Contains(string(resp.body), "POISONED") {
			t.Fatalf("answered %d %.200q", resp.status, resp.body)
		}
		time.Sleep(25 * time.Millisecond) // the unsolicited answer lands in the pool
	}
}
