package faults

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestB7Row27BadEngineAnswers plays every vector of rig/testdata/responses on both
// engines. The client gets a 502, or can tell that the answer is not whole;
// what is legal passes as it is. Memory stays bounded and no byte of one answer
// shows up in the next.
func TestB7Row27BadEngineAnswers(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--eject.after=1000000", "--health.failures=1000000")
	before := r.RSS()
	for _, v := range rig.ReadVectors(t, "responses") {
		t.Run(v.Name, func(t *testing.T) {
			play := playVector(v)
			a.On(play)
			b.On(play)
			judgeAnswer(t, r, v)
			a.On(nil)
			b.On(nil)
			for range 2 {
				next := r.Do(t, rig.Request("POST", rig.ChatPath, r.ID("after"), rig.ChatBody(false)))
				if next.Status != 200 || !strings.Contains(string(next.Body), "hello world") {
					t.Errorf("the next request was answered %d %.200q", next.Status, next.Body)
				}
			}
		})
	}
	if grown := r.RSS() - before; grown > 64<<20 && !rig.RaceEnabled {
		t.Errorf("memory grew by %d bytes", grown)
	}
}

func playVector(v rig.Vector) rig.Script {
	return func(x *rig.Exchange) {
		x.Write(v.Bytes)
		switch {
		case v.Words["fin"]:
			x.Pause(5 * time.Millisecond)
			x.Close()
		case v.Words["rst"]:
			x.Pause(5 * time.Millisecond)
			x.Reset()
		default:
			// What follows the bytes is silence; Ramjet decides by the bytes alone.
			if v.Want[0] != "ok" {
				x.Gone(5 * time.Second)
				x.Close()
			}
		}
	}
}

func judgeAnswer(t *testing.T, r *rig.Ramjet, v rig.Vector) {
	t.Helper()
	c := r.Dial(t)
	defer c.Close()
	id := r.ID("bad")
	c.Send(rig.Request("POST", rig.ChatPath, id, rig.ChatBody(!v.Words["plain"])))
	resp, err := c.Until(rig.Patience, func(resp *rig.Response) bool { return resp != nil && (resp.Complete || resp.Closed) })
	if resp == nil {
		t.Errorf("%s: no answer (%v), received %.200q", v.Rule, err, c.Raw)
		return
	}
	got := nameAnswer(resp, err, v)
	if !rig.OneOf(got, v.Want) {
		t.Errorf("%s: got %s, want %v; engine sent %.200q, received %.400q", v.Rule, got, v.Want, v.Bytes, c.Raw)
	}
	if strings.Contains(string(c.Raw), "POISONED") {
		t.Errorf("%s: bytes behind the answer reached the client: %.300q", v.Rule, c.Raw)
	}
	if got == "502" && resp.Code() != "engine_bad_response" && resp.Code() != "engine_unreachable" {
		t.Errorf("%s: code %q in %.200q", v.Rule, resp.Code(), resp.Body)
	}
	if got == "502" || got == "broken" {
		r.Ended(t, id, "engine-bad-response", "engine-died", "engine-unreachable")
	}
}

// nameAnswer says how a client would take an answer: by its status unless 200,
// else "ok" or "broken".
func nameAnswer(resp *rig.Response, err error, v rig.Vector) string {
	if resp.Status != 200 {
		return strconv.Itoa(resp.Status)
	}
	failed := len(resp.ErrorEvents()) > 0
	switch {
	case err == rig.ErrWait:
		return "hanging"
	case err != nil && !resp.Closed:
		return "malformed: " + err.Error()
	case failed && strings.Contains(string(resp.Body), "[DONE]"):
		return "an error event and [DONE]"
	case failed, !resp.Whole():
		return "broken"
	case !strings.Contains(vectorBodyOf(v), string(resp.Body)) || len(resp.Body) == 0:
		return "another body"
	}
	return "ok"
}

// vectorBodyOf is the decoded body that a vector carries.
func vectorBodyOf(v rig.Vector) string {
	_, raw, _ := strings.Cut(v.Bytes, "\r\n\r\n")
	for strings.HasPrefix(raw, "HTTP/1.1 ") { // interim answers came first
		_, raw, _ = strings.Cut(raw, "\r\n\r\n")
	}
	if strings.Contains(v.Bytes, "transfer-encoding: chunked") {
		d, _ := rig.Dechunk([]byte(raw))
		return string(d.Body)
	}
	return raw
}

// TestB7Row27UnsolicitedBytes sends a whole answer that nobody asked for on an
// idle pooled connection: it must not become the answer to the next request.
func TestB7Row27UnsolicitedBytes(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	// Only what comes before the next request can be told from its answer.
	arrived := make(chan struct{}, 100)
	poison := func(x *rig.Exchange) {
		x.Plain()
		x.Pause(10 * time.Millisecond)
		x.Write(rig.JSONResponse(200, `{"choices":"POISONED"}`))
		arrived <- struct{}{}
	}
	a.On(poison)
	b.On(poison)
	for range 20 {
		if resp := r.Post(t, rig.ChatPath, rig.ChatBody(false)); resp.Status != 200 || strings.Contains(string(resp.Body), "POISONED") {
			t.Fatalf("answered %d %.200q", resp.Status, resp.Body)
		}
		select { // the unsolicited answer lands in the pool
		case <-arrived:
		case <-time.After(rig.Patience):
			t.Fatal("the engine did not send what nobody asked for")
		}
		time.Sleep(5 * time.Millisecond) // from one socket to the other
	}
}
