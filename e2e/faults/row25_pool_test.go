package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestB7Row25IdleClosedByEngine: the engine closes idle connections after 50 ms
// and requests come at just that pace: none fails or counts against an engine.
func TestB7Row25IdleClosedByEngine(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	a.CloseIdle(50 * time.Millisecond)
	b.CloseIdle(50 * time.Millisecond)
	// In turns, so that each connection rests for about twice what its engine
	// allows: the one that is found closed as it is used is another test's.
	r := rig.Start(t, a, b, "--route.policy=round-robin")
	for i := range 60 {
		time.Sleep(time.Duration(46+i%8) * time.Millisecond)
		resp := r.Post(t, rig.ChatPath, rig.ChatBody(i%2 == 0))
		if resp.Status != 200 || !resp.Whole() || resp.Fields.Get("X-Ramjet-Attempts") != "1" {
			t.Errorf("request %d: %d in %q attempts, %.200q", i, resp.Status, resp.Fields.Get("X-Ramjet-Attempts"), resp.Body)
		}
	}
	rig.NeverBlamed(t, r, a, b)
}

// TestB7Row26CutAtEveryByte plays an answer cut at every byte, ended by FIN and
// by RST. The client never takes it for a whole one, never gets half an event
// followed by an error event, and never a sentinel of ours.
func TestB7Row26CutAtEveryByte(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--health.interval=1h", "--eject.after=1000000")
	delta := "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n"
	stream := "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" + rig.Chunked([]string{delta, delta, rig.DoneEvent})
	plain := rig.JSONResponse(200, `{"choices":[{"index":0}]}`)
	step := 1
	if testing.Short() {
		step = 7
	}
	for _, kind := range []struct {
		name, bytes, body string
		stream            bool
	}{{"stream", stream, rig.ChatBody(true), true}, {"plain", plain, rig.ChatBody(false), false}} {
		for cut := 0; cut < len(kind.bytes); cut += step {
			for _, way := range []string{"fin", "rst"} {
				play := func(x *rig.Exchange) {
					x.Write(kind.bytes[:cut])
					if way == "rst" {
						x.Pause(2 * time.Millisecond)
						x.Reset()
					} else {
						x.Close()
					}
				}
				a.On(play)
				b.On(play)
				if problem := judgeCut(r.Do(t, rig.Request("POST", rig.ChatPath, r.ID("cut"), kind.body)), kind.bytes, kind.stream); problem != "" {
					t.Errorf("%s cut at %d of %d by %s (engine sent ..%q): %s", kind.name, cut, len(kind.bytes), way, kind.bytes[max(0, cut-20):cut], problem)
				}
			}
		}
	}
}

// judgeCut says what is wrong with the client's view of a cut answer.
func judgeCut(resp *rig.Response, whole string, stream bool) string {
	if resp.Status == 502 || resp.Status == 503 {
		return ""
	}
	body := string(resp.Body)
	sentinel := strings.Contains(body, "[DONE]")
	failed := len(resp.ErrorEvents()) > 0
	switch {
	case resp.Status != 200:
		return fmt.Sprintf("status %d", resp.Status)
	case !stream && resp.Whole():
		return "a cut plain answer looks whole"
	case !stream:
		return ""
	case failed && sentinel:
		return "an error event and a sentinel"
	case resp.Complete && !failed && !sentinel:
		return "a cut stream ends as if it were whole"
	}
	events, rest := resp.Events()
	if failed && rest != "" {
		return fmt.Sprintf("bytes behind the error event: %q", rest)
	}
	for i, ev := range events {
		if last := i == len(events)-1 && failed; !last && !strings.Contains(whole, ev) {
			return fmt.Sprintf("event that no engine sent: %q", ev)
		}
	}
	return ""
}
