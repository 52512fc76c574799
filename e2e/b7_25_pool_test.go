package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestB7Row25IdleClosedByEngine: the engine closes idle connections after 50 ms
// and requests come at just that pace: none fails, none counts as a retry or
// against an engine.
func TestB7Row25IdleClosedByEngine(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	a.closeIdle(50 * time.Millisecond)
	b.closeIdle(50 * time.Millisecond)
	r := start(t, a, b)
	for i := range 60 {
		time.Sleep(time.Duration(46+i%8) * time.Millisecond)
		resp := r.post(t, chatPath, chatBody(i%2 == 0))
		if resp.status != 200 || !resp.whole() || resp.fields.get("X-Ramjet-Attempts") != "1" {
			t.Errorf("request %d: %d in %q attempts, %.200q", i, resp.status, resp.fields.get("X-Ramjet-Attempts"), resp.body)
		}
	}
	neverMoved(t, r, a, b)
}

// TestB7Row26CutAtEveryByte plays an answer cut at every byte, ended by FIN and
// by RST. The client never takes it for a whole one, never gets half an event
// followed by an error event, and never a sentinel of ours.
func TestB7Row26CutAtEveryByte(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--health.interval=1h", "--eject.after=1000000")
	delta := "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n"
	stream := "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" + chunked([]string{delta, delta, doneEvent})
	plain := jsonResponse(200, `{"choices":[{"index":0}]}`)
	step := 1
	if testing.Short() {
		step = 7
	}
	for _, kind := range []struct {
		name, bytes, body string
		stream            bool
	}{{"stream", stream, chatBody(true), true}, {"plain", plain, chatBody(false), false}} {
		for cut := 0; cut < len(kind.bytes); cut += step {
			for _, way := range []string{"fin", "rst"} {
				play := func(x *exchange) {
					x.write(kind.bytes[:cut])
					if way == "rst" {
						x.pause(2 * time.Millisecond)
						x.reset()
					} else {
						x.close()
					}
				}
				a.on(play)
				b.on(play)
				if problem := judgeCut(r.do(t, request("POST", chatPath, r.id("cut"), kind.body)), kind.bytes, kind.stream); problem != "" {
					t.Errorf("%s cut at %d of %d by %s (engine sent ..%q): %s", kind.name, cut, len(kind.bytes), way, kind.bytes[max(0, cut-20):cut], problem)
				}
			}
		}
	}
}

// judgeCut says what is wrong with the client's view of a cut answer.
func judgeCut(resp *response, whole string, stream bool) string {
	if resp.status == 502 || resp.status == 503 {
		return ""
	}
	body := string(resp.body)
	sentinel := strings.Contains(body, "[DONE]")
	failed := len(resp.errorEvents()) > 0
	switch {
	case resp.status != 200:
		return fmt.Sprintf("status %d", resp.status)
	case !stream && resp.whole():
		return "a cut plain answer looks whole"
	case !stream:
		return ""
	case failed && sentinel:
		return "an error event and a sentinel"
	case resp.complete && !failed && !sentinel:
		return "a cut stream ends as if it were whole"
	}
	events, rest := resp.events()
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
