package e2e

import (
	"testing"
	"time"
)

// TestCaseC05Silence: the head goes out at once and silence before the first
// token is no fault, whatever the limit between events says; comments pass and
// are no token.
func TestCaseC05Silence(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name     string
		silence  time.Duration
		flags    []string
		comments bool
		long     bool
	}{
		{"75 s by default", 75 * time.Second, nil, false, true},
		{"3 s with an event gap of 1 s", 3 * time.Second, []string{"--timeouts.event-gap=1s"}, false, false},
		{"the same with comments", 3 * time.Second, []string{"--timeouts.event-gap=1s"}, true, false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.long {
				slow(t, "75 s of silence")
			}
			silentStart(t, tc.silence, tc.flags, tc.comments)
		})
	}
}

func silentStart(t *testing.T, silence time.Duration, flags []string, comments bool) {
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, flags...)
	headOut := make(chan time.Time, 1)
	play := func(x *exchange) {
		x.streamHead()
		headOut <- time.Now()
		for until := time.Now().Add(silence); time.Now().Before(until); {
			if !x.pause(min(400*time.Millisecond, time.Until(until))) {
				return
			}
			if comments && time.Now().Before(until) {
				x.events(": keep-alive\n\n")
			}
		}
		x.events(chatEvents(2)...)
		x.write(lastChunk)
	}
	a.on(play)
	b.on(play)
	id := r.id("c05")
	c := r.dial(t)
	c.send(request("POST", chatPath, id, chatBody(true)))
	c.head(patience)
	if late := time.Since(<-headOut); late > 500*time.Millisecond {
		t.Errorf("the head came %v after the engine wrote it", late)
	}
	if comments {
		c.eventCount(2*time.Second, 1)
		if m := r.metrics(); m.sum("ramjet_leases", "phase", "prefill") != 1 || m.sum("ramjet_leases", "phase", "decode") != 0 {
			t.Error("a comment ended the prefill of the lease")
		}
	}
	resp := c.response(silence + patience)
	if !resp.complete || len(resp.errorEvents()) > 0 {
		t.Errorf("properly ended %v, error events %v", resp.complete, resp.errorEvents())
	}
	line := r.ended(t, id, "done")
	if ttft := line.num("ttft_s"); ttft < silence.Seconds()-0.1 || ttft > silence.Seconds()+2 {
		t.Errorf("ttft_s %v, want the time of the role chunk, %v", line["ttft_s"], silence)
	}
}

// TestCaseC05LateHead: only a head that is later than timeouts.head is cut: 504,
// and no second prefill elsewhere.
func TestCaseC05LateHead(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--timeouts.head=1s")
	a.on(processScripts["silent"])
	b.on(processScripts["silent"])
	id := r.id("c05")
	began := time.Now()
	resp := r.do(t, request("POST", chatPath, id, chatBody(true)))
	if resp.status != 504 || resp.code() != "engine_timeout" {
		t.Errorf("answered %d %.200q, want 504 engine_timeout", resp.status, resp.body)
	}
	if took := time.Since(began); took < 900*time.Millisecond || took > patience {
		t.Errorf("cut after %v, want 1 s", took)
	}
	r.ended(t, id, "timed-out")
	if n := len(a.byID(id)) + len(b.byID(id)); n != 1 {
		t.Errorf("%d engines were asked", n)
	}
	neverMoved(t, r, a, b)
}

// TestCaseC05Kind: each wait has its own limit. first_event cuts a silent start
// and nothing else; total cuts a stream that moves.
func TestCaseC05Kind(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		flag string
		play script
	}{
		"first event": {"--timeouts.first-event=1s", func(x *exchange) { x.streamHead(); x.gone(0) }},
		"total":       {"--timeouts.total=1s", tokensFor(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := newEngine(t, "a"), newEngine(t, "b")
			r := start(t, a, b, tc.flag)
			a.on(tc.play)
			b.on(tc.play)
			id := r.id("c05")
			began := time.Now()
			resp := r.do(t, request("POST", chatPath, id, chatBody(true)))
			if codes := resp.errorEvents(); resp.status != 200 || len(codes) != 1 || codes[0] != "engine_timeout" || !resp.complete {
				t.Errorf("%d, error events %v, properly ended %v", resp.status, codes, resp.complete)
			}
			if took := time.Since(began); took < 900*time.Millisecond || took > patience {
				t.Errorf("cut after %v, want 1 s", took)
			}
			r.ended(t, id, "timed-out")
			neverMoved(t, r, a, b)
		})
	}
}
