package probe

import (
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// add makes another fake, which no list has yet.
func (r *rig) add(t *testing.T, name string) *fake {
	t.Helper()
	synctest.Wait() // no check reads the list of fakes
	u, err := url.Parse("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{e: engine.New(engine.Options{Name: name, URL: u}), mode: "ok", start: 100, models: `{"data":[{"id":"m"}]}`}
	r.fakes[name] = f
	return f
}

// list gives the monitor these engines.
func (r *rig) list(fakes ...*fake) {
	var list []*engine.Engine
	for _, f := range fakes {
		list = append(list, f.e)
	}
	r.SetEngines(list)
}

// TestAddedEngineWarmsUp: one that comes while Ramjet runs was not there
// before it, be it up at once or later.
func TestAddedEngineWarmsUp(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a"}, nil, func(t *testing.T, r *rig) {
		time.Sleep(10 * time.Second)
		b, c := r.add(t, "b"), r.add(t, "c")
		c.mode = "refused"
		r.list(r.fakes["a"], b, c)
		r.is(t, "b", warming) // the first check is not waited for
		r.is(t, "c", down)
		if d := r.until(t, "b", slow, time.Minute); d < 29*time.Second || d > 34*time.Second {
			t.Errorf("warming took %s, want 30 s and a check", d)
		}
		r.until(t, "b", ready, time.Minute)
		c.set(func(f *fake) { f.mode = "ok" })
		r.until(t, "c", warming, 3*time.Second)
		r.is(t, "a", ready)
		if v := r.Health(); len(v.Engines) != 3 || v.Engines[2].Name != "c" || v.Status != HealthDegraded {
			t.Errorf("%+v", v)
		}
		if err := r.Drain("b"); err != nil {
			t.Error(err)
		}
	})
}

// TestRemovedEngine is watched on until it is forgotten, but counts for
// nothing.
func TestRemovedEngine(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a", "b"}, nil, func(t *testing.T, r *rig) {
		a, b := r.fakes["a"], r.fakes["b"]
		s := &stream{}
		a.e.Enter(s)
		defer a.e.Leave(s)
		r.list(b)
		r.is(t, "a", draining)
		if v := r.Health(); len(v.Engines) != 1 || v.Status != HealthOK || r.Accepts(a.e) {
			t.Errorf("%+v, a accepts %v", v, r.Accepts(a.e))
		}
		if err := r.Ready("a"); err == nil {
			t.Error("an engine that left takes orders")
		}
		for range 10 {
			r.Outcome(b.e, engine.OutcomeDied, "test")
		}
		r.is(t, "b", ready) // it is the last usable one
		// A frozen one must not hold its streams for ever.
		a.set(func(f *fake) { f.mode = "late" })
		time.Sleep(70 * time.Second)
		if got := s.ended(); len(got) == 0 || got[0] != telemetry.EndEngineStalled {
			t.Errorf("the stream was told %v", got)
		}
		r.is(t, "a", draining)
		r.Forget(a.e)
		r.Forget(a.e) // once is enough
		checks := a.count(func(f *fake) int { return len(f.checks) })
		time.Sleep(time.Minute)
		if n := a.count(func(f *fake) int { return len(f.checks) }); n != checks {
			t.Errorf("%d checks of an engine that is forgotten", n-checks)
		}
		r.Outcome(a.e, engine.OutcomeDied, "late")
		r.Restarted(a.e, "late")
		if r.Reported(a.e) != nil {
			t.Error("figures of an engine that is forgotten")
		}
		var told []string
		for _, tr := range r.Transitions() {
			if tr.Engine == "a" {
				told = append(told, tr.To.String()+": "+tr.Reason)
			}
		}
		if want := "draining: removed from the configuration"; told[len(told)-1] != want {
			t.Errorf("%q, want %q at the end", told, want)
		}
	})
}

// TestSameNameAnotherEngine: its state is the one that is shown.
func TestSameNameAnotherEngine(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a"}, nil, func(t *testing.T, r *rig) {
		old := r.fakes["a"]
		next := r.add(t, "a")
		r.list(next)
		r.is(t, "a", warming)
		synctest.Wait()
		if s := old.e.State(); s != draining {
			t.Errorf("the old one is %s", s)
		}
		if p := r.page(); !strings.Contains(p, `ramjet_engine_state{engine="a",state="warming"} 1`) {
			t.Error("the metrics show another state than that of the new engine")
		}
		r.Outcome(old.e, engine.OutcomeRefused, "late")
		r.is(t, "a", warming)
		r.Forget(old.e)
		r.until(t, "a", ready, 2*time.Minute)
	})
}

// TestForgettingWaits: when Forget returns no check runs any more.
func TestForgettingWaits(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a", "b"}, func(r *rig) { r.fakes["a"].mode = "late" }, func(t *testing.T, r *rig) {
		a := r.fakes["a"] // its check is under way
		r.list(r.fakes["b"])
		began := time.Now()
		r.Forget(a.e)
		if d := time.Since(began); d > 0 {
			t.Errorf("it took %s though a check need not be waited for", d)
		}
		if reason := a.e.Status().Reason; reason != "removed from the configuration" {
			t.Errorf("the check that was cut counts: %s", reason)
		}
	})
}

// TestTune: other limits hold from the next check on.
func TestTune(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a"}, nil, func(t *testing.T, r *rig) {
		tuning := Defaults().Tuning
		tuning.Interval, tuning.Failures, tuning.Successes, tuning.Stable, tuning.SlowStart = 100*time.Millisecond, 1, 1, time.Second, time.Second
		r.Tune(tuning)
		time.Sleep(3 * time.Second) // the check that was due before
		f := r.fakes["a"]
		f.set(func(f *fake) { f.mode = "503" })
		if d := r.until(t, "a", down, time.Minute); d > 200*time.Millisecond {
			t.Errorf("one failed check of 100 ms: down after %s", d)
		}
		f.set(func(f *fake) { f.mode = "ok" })
		if d := r.until(t, "a", ready, time.Minute); d > 3*time.Second {
			t.Errorf("ready after %s", d)
		}
	})
}

// TestEnginesBeforeRun are checked once it runs.
func TestEnginesBeforeRun(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a"}, func(r *rig) {
		b := r.add(&testing.T{}, "b")
		r.list(b)
		r.Forget(r.fakes["a"].e)
	}, func(t *testing.T, r *rig) {
		r.is(t, "b", warming)
		if n := r.fakes["a"].count(func(f *fake) int { return len(f.checks) }); n != 0 {
			t.Errorf("%d checks of an engine that left before", n)
		}
	})
}
