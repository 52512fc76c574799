package web

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ramjet/telemetry"
)

// TestRunRests: when nothing moves nothing is sampled, and the time axis is
// whole all the same.
func TestRunRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		var busy atomic.Bool
		r := newRig(t, func(o *Options) {
			o.Leases = func(string) (prefill, decode int, tokens int64) {
				reads.Add(1)
				if busy.Load() {
					return 0, 1, 0
				}
				return 0, 0, 0
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { r.Run(ctx) })
		time.Sleep(10 * time.Second)
		before := reads.Load()
		time.Sleep(time.Hour)
		if n := reads.Load() - before; n != 0 {
			t.Errorf("%d readings in an hour without a request", n)
		}

		// Somebody asks while it rests.
		v := r.history(time.Now().Add(-5*time.Minute), "")
		if n := len(v.Tokens.Time); n < 599 || n > 601 {
			t.Errorf("%d samples of five minutes", n)
		}

		// A request comes: 4 s of it, 6 tokens a second of engine a.
		busy.Store(true)
		tokens := r.o.Metrics.Engine("a").OutputTokens
		r.Stir(time.Now())
		for range 8 {
			time.Sleep(sampleEvery)
			tokens.Add(3)
		}
		busy.Store(false)
		r.Stir(time.Now())
		time.Sleep(20 * time.Second)
		v = r.history(time.Time{}, "a")
		if n := len(v.Tokens.Time); n != samplesKept {
			t.Fatalf("%d samples", n)
		}
		sum := 0.0
		for i, x := range v.Tokens.Engines[0].Decode {
			if i == 0 {
				continue
			}
			d := time.Time(v.Tokens.Time[i]).Sub(time.Time(v.Tokens.Time[i-1]))
			if d < sampleEvery/2 || d > 2*sampleEvery+sampleSlack {
				t.Fatalf("step %d is %s", i, d)
			}
			if !math.IsNaN(float64(x)) {
				sum += float64(x) * d.Seconds()
			}
		}
		if sum < 23 || sum > 25 {
			t.Errorf("%v tokens on the axis, 24 were made", sum)
		}
		if n := reads.Load(); n < 16 {
			t.Errorf("%d readings of a moving process", n)
		}
		report, _ := r.recent.Report(time.Now())
		if rate := report.Engines["a"].OutputTokens; rate != 0 {
			t.Errorf("%v tokens/s ten seconds later", rate)
		}
		cancel()
		run.Wait()
	})
}

// TestReportAfterRest: what is of the last minute stays so over a rest, before
// it ends and behind it.
func TestReportAfterRest(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics("1", "go")
	recent := telemetry.NewRecent(m)
	tokens := m.Engine("a").OutputTokens
	at := time.Unix(1000, 0)
	recent.Mark(at)
	tokens.Add(100)
	at = at.Add(2 * time.Second)
	recent.Rest(at)
	check := func(what string, rate float64) {
		t.Helper()
		got, known := recent.Report(at)
		if x := got.Engines["a"].OutputTokens; !known || math.Abs(x-rate) > 0.01 || got.Span > 62*time.Second+sampleEvery+sampleSlack {
			t.Errorf("%s: %v tokens/s over %v, want %v", what, x, got.Span, rate)
		}
	}
	at = at.Add(3 * time.Second)
	check("soon", 20)
	at = at.Add(time.Hour)
	check("resting", 0)
	recent.Rest(at)
	tokens.Add(240)
	at = at.Add(2 * time.Second)
	recent.Mark(at)
	check("behind it", 240/12.65) // of a span of twelve seconds and a late sample at most
}

// TestNoWakeIsLost: whoever stirs while Run falls asleep wakes it.
func TestNoWakeIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	done := make(chan struct{})
	for range 2000 {
		slept := make(chan struct{})
		r.rest.stirred.Store(false)
		go func() {
			r.rest.sleep(done)
			close(slept)
		}()
		r.Stir(time.Now())
		select {
		case <-slept:
		case <-time.After(20 * time.Second):
			t.Fatal("it sleeps on")
		}
	}
}

// TestTrafficTakesTheSamples: where nobody looks on, no timer of its own wakes the process for a sample while events
// come often enough; where somebody does, every sample is in time.
func TestTrafficTakesTheSamples(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		every   time.Duration // between two events
		watched bool
		most    time.Duration // between two samples
	}{
		{"a fast stream", 40 * time.Millisecond, false, sampleEvery + 40*time.Millisecond},
		{"a slow stream", 3 * time.Second, false, sampleEvery + sampleSlack},
		{"a fast stream that is watched", 40 * time.Millisecond, true, sampleEvery},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &Server{}
			s.rest.wake, s.rest.born = make(chan struct{}, 1), time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var events sync.WaitGroup
			events.Go(func() {
				for ctx.Err() == nil {
					time.Sleep(c.every)
					s.Stir(time.Now())
				}
			})
			for n := range 20 {
				from := time.Now()
				if !s.rest.wait(ctx.Done(), from.Add(sampleEvery), c.watched) {
					t.Fatal("ended")
				}
				if d := time.Since(from); d < sampleEvery || d > c.most {
					t.Errorf("%s: sample %d came after %s, want %s to %s", c.name, n, d, sampleEvery, c.most)
				}
			}
			cancel()
			if s.rest.wait(ctx.Done(), time.Now().Add(time.Hour), c.watched) {
				t.Errorf("%s: it waits on after the end", c.name)
			}
			events.Wait()
		})
	}
}

// TestTrustInTraffic: traffic that took some samples is trusted with the others, until it fails to take one.
func TestTrustInTraffic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		s.rest.wake, s.rest.born = make(chan struct{}, 1), time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		flowing, events := true, sync.WaitGroup{}
		var mu sync.Mutex
		events.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(40 * time.Millisecond)
				mu.Lock()
				if flowing {
					s.Stir(time.Now())
				}
				mu.Unlock()
			}
		})
		wait := func(watched bool) time.Duration {
			from := time.Now()
			if !s.rest.wait(ctx.Done(), from.Add(sampleEvery), watched) {
				t.Fatal("ended")
			}
			return time.Since(from)
		}
		for round := range 3 {
			for n := range 12 {
				if d := wait(false); d > sampleEvery+40*time.Millisecond {
					t.Fatalf("round %d: sample %d took %s", round, n, d)
				}
				if trusted := s.rest.watch != nil; trusted != (n >= stepsToTrust) {
					t.Fatalf("round %d: trusted at sample %d: %v", round, n, trusted)
				}
			}
			if d := wait(true); d != sampleEvery {
				t.Errorf("round %d: a sample that is looked at took %s", round, d)
			}
			for range stepsToTrust + 1 {
				wait(false)
			}
			mu.Lock()
			flowing = false
			mu.Unlock()
			if d := wait(false); d < sampleEvery || d > watchEvery {
				t.Errorf("round %d: the first sample without traffic took %s", round, d)
			}
			for n := range 3 {
				if d := wait(false); d != sampleEvery+sampleSlack {
					t.Errorf("round %d: sample %d without traffic took %s", round, n, d)
				}
			}
			mu.Lock()
			flowing = true
			mu.Unlock()
			wait(false) // on time or, with the first event at its end, taken by it
			s.rest.doubt()
		}
		cancel()
		if s.rest.wait(ctx.Done(), time.Now().Add(time.Hour), false) {
			t.Error("it waits on after the end")
		}
		events.Wait()
	})
}
