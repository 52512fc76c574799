package probe

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ramjet/engine"
)

// slowly lets an engine take its time for every answer.
func slowly(name string, d time.Duration) func(o *Options) {
	return func(o *Options) {
		get := o.Get
		o.Get = func(ctx context.Context, e *engine.Engine, path string, into []byte, limit int64) (int, []byte, error) {
			status, body, err := get(ctx, e, path, into, limit)
			if e.Name == name {
				time.Sleep(d)
			}
			return status, body, err
		}
	}
}

// pass lets virtual time pass, with traffic every few milliseconds or without.
func (r *rig) pass(d time.Duration, traffic bool) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if traffic {
			time.Sleep(7 * time.Millisecond)
			r.Tick(time.Now())
		} else {
			time.Sleep(time.Second)
		}
		synctest.Wait()
	}
}

// since returns the checks of an engine from a time on.
func (r *rig) since(name string, from time.Time) []time.Time {
	var checks []time.Time
	r.fakes[name].set(func(f *fake) { checks = slices.Clone(f.checks) })
	return slices.DeleteFunc(checks, func(c time.Time) bool { return c.Before(from) })
}

// inStep fails the test unless these engines are checked at the same moments
// for two minutes.
func (r *rig) inStep(t *testing.T, traffic bool, names ...string) {
	t.Helper()
	from := time.Now()
	r.pass(2*time.Minute, traffic)
	moments := map[time.Time]int{}
	for _, name := range names {
		checks := r.since(name, from)
		if len(checks) < 40 {
			t.Fatalf("%d checks of %s in two minutes", len(checks), name)
		}
		for _, c := range checks {
			moments[c]++
		}
	}
	alone := 0
	for _, n := range moments {
		if n != len(names) {
			alone++
		}
	}
	if alone > 0 {
		t.Errorf("%d of %d moments are not those of all of %v", alone, len(moments), names)
	}
}

// steady fails the test unless an engine's checks are an interval apart, give
// or take 20 %, and what they took themselves.
func (r *rig) steady(t *testing.T, from time.Time, took time.Duration) {
	t.Helper()
	interval := r.tuning.Load().Interval
	gaps := map[time.Duration]bool{}
	for name := range r.fakes {
		checks := r.since(name, from)
		for i := 1; i < len(checks); i++ {
			gap := checks[i].Sub(checks[i-1])
			gaps[gap] = true
			if gap < interval*8/10 || gap > interval*12/10+took {
				t.Errorf("%s: %s between two checks", name, gap)
			}
		}
	}
	if len(gaps) < 10 {
		t.Errorf("only %d different intervals", len(gaps))
	}
}

// TestEnginesFallIntoStep after their first checks, though some answer later
// than others, and stay there, be it traffic or their timers that bring them.
func TestEnginesFallIntoStep(t *testing.T) {
	t.Parallel()
	for _, traffic := range []bool{true, false} {
		bubble(t, slowly("b", 5*time.Millisecond), []string{"a", "b", "c"}, nil, func(t *testing.T, r *rig) {
			start := time.Now()
			time.Sleep(time.Second)
			r.inStep(t, traffic, "a", "b", "c")
			r.pass(10*time.Minute, traffic)
			r.inStep(t, traffic, "a", "b", "c")
			r.steady(t, start, 20*time.Millisecond)
		})
	}
}

// TestKickedEngineRejoins: a check out of turn, or another interval, leads out
// of step for a while only.
func TestKickedEngineRejoins(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a", "b", "c"}, nil, func(t *testing.T, r *rig) {
		for i := range 10 {
			time.Sleep(time.Millisecond + time.Duration(i)*300*time.Millisecond)
			r.table.Load().byName["b"].kick()
			from := time.Now()
			r.pass(5*time.Minute, false)
			r.inStep(t, false, "a", "b", "c")
			r.steady(t, from, 0)
		}
		tuning := Defaults().Tuning
		for _, tuning.Interval = range []time.Duration{300 * time.Millisecond, 2500 * time.Millisecond} {
			r.Tune(tuning)
			time.Sleep(time.Millisecond)
			r.table.Load().byName["c"].kick()
			from := time.Now()
			r.pass(5*time.Minute, false)
			r.inStep(t, false, "a", "b", "c")
			r.steady(t, from, 0)
		}
	})
}

// TestMomentsAreNotCrowded: many engines share moments, but never more than
// may be asked at once, in timers as in traffic.
func TestMomentsAreNotCrowded(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("e%d", i))
	}
	bubble(t, nil, names, nil, func(t *testing.T, r *rig) {
		start := time.Now()
		time.Sleep(time.Nanosecond) // past the first checks, which all are due at once
		for i := range 20 {
			from := time.Now()
			r.pass(30*time.Second, false)
			at, checks := map[time.Time]int{}, 0
			for _, name := range names {
				for _, c := range r.since(name, from) {
					at[c]++
					checks++
				}
			}
			for c, n := range at {
				if n > maxChecks {
					t.Errorf("%d engines were checked %s after the start", n, c.Sub(start))
				}
			}
			if checks < 5*len(at) {
				t.Errorf("%d checks at %d moments", checks, len(at))
			}
			r.table.Load().byName[names[i]].kick()
		}
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		due := map[*moment]int{}
		for _, w := range r.table.Load().watches {
			due[w.meets]++
		}
		for o, n := range due {
			if o == nil || o.n != n {
				t.Errorf("%d engines share a moment that counts %+v", n, o)
			}
		}
	})
}

// TestRemovedEngineHoldsUpNobody who shared its moment.
func TestRemovedEngineHoldsUpNobody(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a", "b", "c"}, nil, func(t *testing.T, r *rig) {
		start := time.Now()
		time.Sleep(5 * time.Second)
		r.list(r.fakes["a"], r.fakes["c"])
		r.inStep(t, false, "a", "b", "c") // it is watched on
		r.Forget(r.fakes["b"].e)
		r.inStep(t, false, "a", "c")
		r.list(r.fakes["c"])
		r.Forget(r.fakes["a"].e)
		r.inStep(t, false, "c")
		r.steady(t, start, 0)
		r.mu.Lock()
		defer r.mu.Unlock()
		if o := r.table.Load().watches[0].meets; o == nil || o.n != 1 || len(r.moments) > 1 {
			t.Errorf("%+v for one engine, of %d", o, len(r.moments))
		}
	})
}
