package e2e

import (
	"testing"
	"time"

	"ramjet/e2e/rig"
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
		{"8 s with an event gap of 3 s", 8 * time.Second, []string{"--timeouts.event-gap=3s"}, false, false},
		{"the same with comments", 8 * time.Second, []string{"--timeouts.event-gap=3s"}, true, false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.long {
				rig.Slow(t, "75 s of silence")
			}
			silentStart(t, tc.silence, tc.flags, tc.comments)
		})
	}
}

func silentStart(t *testing.T, silence time.Duration, flags []string, comments bool) {
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, flags...)
	headOut := make(chan time.Time, 1)
	play := func(x *rig.Exchange) {
		x.StreamHead()
		headOut <- time.Now()
		for until := time.Now().Add(silence); time.Now().Before(until); {
			if !x.Pause(min(400*time.Millisecond, time.Until(until))) {
				return
			}
			if comments && time.Now().Before(until) {
				x.Events(": keep-alive\n\n")
			}
		}
		x.Events(rig.ChatEvents(2)...)
		x.Write(rig.LastChunk)
	}
	a.On(play)
	b.On(play)
	id := r.ID("c05")
	c := r.Dial(t)
	c.Send(rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true)))
	c.Head(rig.Patience)
	if late := time.Since(<-headOut); late > silence*2/3 {
		t.Errorf("the head came %v after the engine wrote it", late)
	}
	if comments {
		c.EventCount(silence, 1)
		if m := r.Metrics(); m.Sum("ramjet_leases", "phase", "prefill") != 1 || m.Sum("ramjet_leases", "phase", "decode") != 0 {
			t.Error("a comment ended the prefill of the lease")
		}
	}
	resp := c.Response(silence + rig.Patience)
	if !resp.Complete || len(resp.ErrorEvents()) > 0 {
		t.Errorf("properly ended %v, error events %v", resp.Complete, resp.ErrorEvents())
	}
	line := r.Ended(t, id, "done")
	if ttft := line.Num("ttft_s"); ttft < silence.Seconds()-0.1 || ttft > silence.Seconds()+5 {
		t.Errorf("ttft_s %v, want the time of the role chunk, %v", line["ttft_s"], silence)
	}
}

// TestCaseC05LateHead: only a head that is later than timeouts.head is cut: 504,
// and no second prefill elsewhere.
func TestCaseC05LateHead(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--timeouts.head=3s")
	a.On(rig.ProcessScripts["silent"])
	b.On(rig.ProcessScripts["silent"])
	id := r.ID("c05")
	began := time.Now()
	resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true)))
	if resp.Status != 504 || resp.Code() != "engine_timeout" {
		t.Errorf("answered %d %.200q, want 504 engine_timeout", resp.Status, resp.Body)
	}
	if took := time.Since(began); took < 2900*time.Millisecond || took > rig.Patience {
		t.Errorf("cut after %v, want 3 s", took)
	}
	r.Ended(t, id, "timed-out")
	if n := len(a.ByID(id)) + len(b.ByID(id)); n != 1 {
		t.Errorf("%d engines were asked", n)
	}
	rig.NeverMoved(t, r, a, b)
}

// TestCaseC05Kind: each wait has its own limit. first_event cuts a silent start
// and nothing else; total cuts a stream that moves.
func TestCaseC05Kind(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		flag string
		play rig.Script
	}{
		"first event": {"--timeouts.first-event=3s", func(x *rig.Exchange) { x.StreamHead(); x.Gone(0) }},
		"total":       {"--timeouts.total=3s", rig.TokensFor(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
			r := rig.Start(t, a, b, tc.flag)
			a.On(tc.play)
			b.On(tc.play)
			id := r.ID("c05")
			began := time.Now()
			resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true)))
			if codes := resp.ErrorEvents(); resp.Status != 200 || len(codes) != 1 || codes[0] != "engine_timeout" || !resp.Complete {
				t.Errorf("%d, error events %v, properly ended %v", resp.Status, codes, resp.Complete)
			}
			if took := time.Since(began); took < 2900*time.Millisecond || took > rig.Patience {
				t.Errorf("cut after %v, want 3 s", took)
			}
			r.Ended(t, id, "timed-out")
			rig.NeverMoved(t, r, a, b)
		})
	}
}
