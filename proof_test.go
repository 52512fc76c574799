package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"ramjet/config"
	"ramjet/engine"
	"ramjet/lease"
	"ramjet/radix"
	"ramjet/sim"
	"ramjet/telemetry"
)

// TestPausesGrow: an engine that passes the questions and ignores ids is asked
// less often each time, until it behaved for long or is another process.
func TestPausesGrow(t *testing.T) {
	t.Parallel()
	f := &proof{}
	now := time.Unix(1_000_000, 0)
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60} {
		if got := f.fail(now).Sub(now); got != want*time.Minute {
			t.Errorf("pause %d is %s, want %d min", i+1, got, want)
		}
		now = now.Add(want * time.Minute)
		if f.paused(now) > 0 || f.paused(now.Add(-time.Second)) != time.Second {
			t.Errorf("pause %d does not end when it says", i+1)
		}
	}
	now = now.Add(2*mostPause + time.Second)
	if got := f.fail(now).Sub(now); got != firstPause {
		t.Errorf("after two good hours the pause is %s", got)
	}
	f.fail(now)
	f.forgive()
	if f.paused(now) > 0 {
		t.Error("another process is paused for what the one before did")
	}
	if got := f.fail(now).Sub(now); got != firstPause {
		t.Errorf("the first pause of another process is %s", got)
	}
}

// hanging is an engine that holds whatever it is asked.
type hanging struct {
	now, most atomic.Int32
	release   chan struct{}
}

func (h *hanging) member(t *testing.T, slot int) *member {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // until then nobody notices that the client left
		now := h.now.Add(1)
		defer h.now.Add(-1)
		for most := h.most.Load(); now > most && !h.most.CompareAndSwap(most, now); most = h.most.Load() {
		}
		select {
		case <-h.release:
		case <-r.Context().Done():
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(s.Close)
	return serving(t, s.URL, slot)
}

// serving is an engine at a URL that is ready.
func serving(t *testing.T, address string, slot int) *member {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(engine.Options{Name: fmt.Sprintf("e%d", slot), URL: u})
	t.Cleanup(e.Close)
	e.SetModels(engine.NewModels([]string{"m"}, [][]byte{[]byte(`{"id":"m"}`)}, nil))
	e.SetState(telemetry.StateReady, "test")
	return &member{cfg: &config.Engine{}, engine: e, account: lease.NewAccount("none"), slot: slot}
}

// simulated is an engine that answers as vLLM does.
func simulated(t *testing.T, slot int) *member {
	t.Helper()
	s, err := sim.NewServer(sim.ServerOptions{Core: sim.CoreOptions{Speed: 500}, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return serving(t, "http://"+s.Addr(), slot)
}

// running starts prompts that prove members until the test ends.
func running(t *testing.T, members []*member) *prompts {
	t.Helper()
	p := promptsOf(t, "--tokenizer="+modelFolder(t), "--handoff.mode=auto", "--tokens.max-time=10s")
	p.setEngines(members)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return p
}

// soon waits for what must happen at once.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not: %s", what)
}

// TestProvenAtOnce: engines that hang do not keep others from being proven,
// but no more than a few are asked at once, and one that leaves is let go of.
func TestProvenAtOnce(t *testing.T) {
	t.Parallel()
	stuck := &hanging{release: make(chan struct{})}
	t.Cleanup(func() { close(stuck.release) })
	var members []*member
	for slot := range probeAtOnce + 2 {
		if slot < probeAtOnce-1 {
			members = append(members, stuck.member(t, slot))
		} else {
			members = append(members, simulated(t, slot))
		}
	}
	p := running(t, members)
	proven := func(slot int) bool { return p.handoff.Load().Status(slot).Chat != "unknown" }
	quick := []int{probeAtOnce - 1, probeAtOnce, probeAtOnce + 1}
	for _, slot := range quick {
		soon(t, "the quick ones are proven beside those that hang", func() bool { return proven(slot) && stuck.now.Load() == probeAtOnce-1 })
	}
	members = append(members, stuck.member(t, 10), stuck.member(t, 11), stuck.member(t, 12))
	p.setEngines(members)
	soon(t, "one more is asked", func() bool { return stuck.now.Load() == probeAtOnce })
	p.setEngines(members[probeAtOnce-1 : probeAtOnce+2])
	soon(t, "questions to engines that left end", func() bool { return stuck.now.Load() == 0 })
	if stuck.most.Load() > probeAtOnce {
		t.Errorf("%d engines were asked at once", stuck.most.Load())
	}

	// Another process is asked anew, one that ignored ids later.
	p.forget(quick[0])
	if proven(quick[0]) {
		t.Error("ids are handed to a process that was not asked")
	}
	p.lost(quick[0])
	soon(t, "a new process is proven", func() bool { return proven(quick[0]) })
	p.forget(quick[1])
	p.ignored(quick[1])
	if f := find(*p.engines.Load(), quick[1]); f.paused(time.Now()) < firstPause/2 {
		t.Error("an engine that ignored ids is not paused")
	}
	time.Sleep(50 * time.Millisecond)
	if proven(quick[1]) {
		t.Error("it was asked at once")
	}
	p.ignored(63) // nobody's

	// Handing over ends, and begins anew with other limits.
	p.setHandoff(config.Handoff{Mode: "off"})
	if p.handoff.Load() != nil {
		t.Error("it does not end")
	}
	p.setHandoff(config.Handoff{Mode: "auto", MinTokens: 7})
	soon(t, "they are proven for the new beginning", func() bool { return proven(quick[0]) && proven(quick[2]) })
}

// TestFreeSlot: slots go round, so that one is not used again at once, and none
// is given twice.
func TestFreeSlot(t *testing.T) {
	t.Parallel()
	at := func(slots ...int) (list []*member) {
		for _, s := range slots {
			list = append(list, &member{slot: s})
		}
		return list
	}
	var all []int
	if config.MaxEngines != radix.MaxEngines {
		t.Errorf("a configuration may have %d engines, and the index has room for %d", config.MaxEngines, radix.MaxEngines)
	}
	for s := range radix.MaxEngines {
		all = append(all, s)
	}
	for name, tt := range map[string]struct {
		r    roster
		last int
		more []*member
		want int
	}{
		"behind the last":    {roster{present: at(0, 1)}, 1, nil, 2},
		"not the freed one":  {roster{present: at(0, 2)}, 2, nil, 3},
		"who leaves keeps":   {roster{present: at(0), leaving: at(1)}, 0, nil, 2},
		"others of the plan": {roster{present: at(0)}, 0, at(1, 2), 3},
		"round":              {roster{present: at(0, 63)}, 63, nil, 1},
		"the only one":       {roster{present: at(slices.Concat(all[:7], all[8:])...)}, 30, nil, 7},
		"none":               {roster{present: at(all[:32]...), leaving: at(all[32:]...)}, 5, nil, -1},
	} {
		if got := tt.r.freeSlot(tt.last, tt.more); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}
