package probe

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// brought takes engine a, which was there at the start, into a state by what
// leads there.
func brought(t *testing.T, r *rig, to telemetry.State) {
	t.Helper()
	f := r.fakes["a"]
	switch to {
	case ready:
	case down:
		f.set(func(f *fake) { f.mode = "refused" })
	case warming:
		r.Outcome(f.e, engine.OutcomeRefused, "test")
	case slow:
		if err := r.Ready("a"); err != nil {
			t.Fatal(err)
		}
	case suspects:
		f.set(func(f *fake) { f.trial = errors.New("no trial") })
		r.Outcome(f.e, engine.OutcomeAborted, "test")
	case ejected:
		if err := r.Eject("a"); err != nil {
			t.Fatal(err)
		}
	case draining:
		if err := r.Drain("a"); err != nil {
			t.Fatal(err)
		}
	}
	r.until(t, "a", to, 5*time.Second)
}

// Ways in which an engine is lost.
var losses = map[string]func(r *rig, f *fake){
	"check refused": func(_ *rig, f *fake) { f.set(func(f *fake) { f.mode = "refused" }) },
	"request refused": func(r *rig, f *fake) {
		f.set(func(f *fake) { f.mode = "refused" })
		r.Outcome(f.e, engine.OutcomeRefused, "test")
	},
	"answers 503":       func(_ *rig, f *fake) { f.set(func(f *fake) { f.mode = "503" }) },
	"connections break": func(_ *rig, f *fake) { f.set(func(f *fake) { f.mode = "reset" }) },
	"sequence went back": func(r *rig, f *fake) {
		f.set(func(f *fake) { f.mode = "refused" }) // else the next check makes it warm
		r.Restarted(f.e, "its events began anew")
	},
	"frozen": func(_ *rig, f *fake) { f.set(func(f *fake) { f.mode = "late" }) },
}

// TestRowAnyToDown: any state but draining, and every way of being lost.
func TestRowAnyToDown(t *testing.T) {
	t.Parallel()
	for _, from := range []telemetry.State{ready, slow, warming, suspects, ejected, draining} {
		for name, lose := range losses {
			bubble(t, func(o *Options) { o.SlowStart, o.Stable, o.EjectMax = time.Hour, time.Hour, time.Hour }, []string{"a", "b"}, nil, func(t *testing.T, r *rig) {
				brought(t, r, from)
				lose(r, r.fakes["a"])
				time.Sleep(70 * time.Second) // health.stall and some checks
				want := down
				if from == draining {
					want = draining
				}
				if s := r.fakes["a"].e.Status(); s.State != want {
					t.Errorf("%s, %s: %s (%s), want %s", from, name, s.State, s.Reason, want)
				}
				r.is(t, "b", ready)
			})
		}
	}
}

// then loses an engine twice.
func then(first, second func(r *rig, f *fake)) func(r *rig, f *fake) {
	return func(r *rig, f *fake) {
		first(r, f)
		time.Sleep(70 * time.Second)
		second(r, f)
	}
}

// another is a new process at the same address, itself the old one again.
func another(_ *rig, f *fake) { f.set(func(f *fake) { f.mode, f.start = "ok", 200 }) }
func itself(_ *rig, f *fake)  { f.set(func(f *fake) { f.mode = "ok" }) }

// TestLostWhileDraining: an operator drains an engine and its process is
// replaced, which is what draining is for.
func TestLostWhileDraining(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *rig, f *fake){
		"refused":               losses["check refused"],
		"refused by a request":  losses["request refused"],
		"another":               another,
		"refused, then another": then(losses["check refused"], another),
	} {
		lost := 0
		bubble(t, func(o *Options) { o.Lost = func(*engine.Engine, string) { lost++ } }, []string{"a"}, nil, func(t *testing.T, r *rig) {
			time.Sleep(5 * time.Second)
			brought(t, r, draining)
			end(r, r.fakes["a"])
			time.Sleep(70 * time.Second)
			r.is(t, "a", draining)
			if lost != 1 {
				t.Errorf("%s: told %d times that the cache is lost, want once", name, lost)
			}
		})
	}
}

// TestNeverServedIsNotLost: what never answered held nothing.
func TestNeverServedIsNotLost(t *testing.T) {
	t.Parallel()
	lost := 0
	bubble(t, func(o *Options) { o.Lost = func(*engine.Engine, string) { lost++ } }, []string{"a"}, func(r *rig) { r.fakes["a"].mode = "refused" }, func(t *testing.T, r *rig) {
		r.Outcome(r.fakes["a"].e, engine.OutcomeRefused, "test")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if lost != 0 {
			t.Errorf("told %d times that the cache of nothing is lost", lost)
		}
		r.Outcome(r.fakes["a"].e, engine.OutcomeOK, "") // failing open, it served
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if lost != 1 {
			t.Errorf("told %d times that the cache is lost, want once", lost)
		}
	})
}

// TestRowRestartClears: a restart, told or seen by the start time, and a port
// that refuses say that the cache is lost; other ways down do not.
func TestRowRestartClears(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lose func(r *rig, f *fake)
		lost bool
	}{
		"told":       {func(r *rig, f *fake) { r.Restarted(f.e, "its events began anew") }, true},
		"start time": {func(_ *rig, f *fake) { f.set(func(f *fake) { f.start = 200 }) }, true},
		"refused":    {losses["check refused"], true},
		"503":        {losses["answers 503"], false},
		"frozen":     {losses["frozen"], false},

		// A process may die, or be followed by another, while its engine is out.
		"503, then refused":              {then(losses["answers 503"], losses["check refused"]), true},
		"503, then refused by a request": {then(losses["answers 503"], losses["request refused"]), true},
		"503, then another":              {then(losses["answers 503"], another), true},
		"503, then itself":               {then(losses["answers 503"], itself), false},
		"frozen, then refused":           {then(losses["frozen"], losses["check refused"]), true},
		"frozen, then another":           {then(losses["frozen"], another), true},
		"refused, then another":          {then(losses["check refused"], another), true},
		"told, then another":             {then(losses["sequence went back"], another), true},
	} {
		lost := 0
		bubble(t, func(o *Options) { o.Lost = func(*engine.Engine, string) { lost++ } }, []string{"a"}, nil, func(t *testing.T, r *rig) {
			time.Sleep(5 * time.Second) // its start time is known
			tt.lose(r, r.fakes["a"])
			time.Sleep(70 * time.Second)
			synctest.Wait()
			if (lost > 0) != tt.lost || lost > 1 {
				t.Errorf("%s: told %d times that the cache is lost", name, lost)
			}
			went := false
			for _, tr := range r.Transitions() {
				went = went || tr.From != down && tr.To == down
			}
			if !went {
				t.Errorf("%s: not down; %+v", name, r.Transitions())
			}
		})
	}
}

// TestRowTimeOuts: checks that time out make a usable engine suspect, unless a
// request of the last 30 s finished there.
func TestRowTimeOuts(t *testing.T) {
	t.Parallel()
	for _, from := range []telemetry.State{ready, slow} {
		for _, busy := range []bool{true, false} {
			bubble(t, func(o *Options) { o.SlowStart = time.Hour }, []string{"a"}, nil, func(t *testing.T, r *rig) {
				brought(t, r, from)
				f := r.fakes["a"]
				f.set(func(f *fake) { f.mode = "late" })
				for range 10 {
					if busy {
						r.Outcome(f.e, engine.OutcomeOK, "")
					}
					time.Sleep(5 * time.Second)
				}
				want := suspects
				if busy {
					want = from
				}
				r.is(t, "a", want)
			})
		}
	}
}

// TestRowWarming: a failed check of any kind starts both counts anew.
func TestRowWarming(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"503", "late", "reset"} {
		bubble(t, nil, []string{"a", "b"}, nil, func(t *testing.T, r *rig) {
			brought(t, r, down)
			f := r.fakes["a"]
			f.set(func(f *fake) { f.mode = "ok" })
			r.until(t, "a", warming, 5*time.Second)
			time.Sleep(27 * time.Second)
			f.set(func(f *fake) { f.mode = mode })
			time.Sleep(2500 * time.Millisecond)
			f.set(func(f *fake) { f.mode = "ok" })
			if d := r.until(t, "a", slow, time.Minute); d < 28*time.Second || d > 36*time.Second {
				t.Errorf("%s: warm %s after the failed check, want 30 s and a check", mode, d)
			}
			if d := r.until(t, "a", ready, time.Minute); d < 29*time.Second || d > 31*time.Second {
				t.Errorf("%s: slow start took %s", mode, d)
			}
		})
	}
}

// TestRowEjection: base x n, to the longest, never the last usable one, and
// slow start afterwards.
func TestRowEjection(t *testing.T) {
	t.Parallel()
	bubble(t, func(o *Options) { o.EjectMax = 25 * time.Second }, []string{"a", "b"}, nil, func(t *testing.T, r *rig) {
		f := r.fakes["a"]
		for n, want := range []time.Duration{10 * time.Second, 20 * time.Second, 25 * time.Second, 25 * time.Second} {
			for range 5 {
				r.Outcome(f.e, engine.OutcomeDied, "test")
			}
			r.is(t, "a", ejected)
			if d := r.until(t, "a", slow, time.Minute); d < want-time.Second || d > want+time.Second {
				t.Errorf("ejection %d lasts %s, want %s", n+1, d, want)
			}
		}
		for range 5 {
			r.Outcome(f.e, engine.OutcomeServerError, "test")
		}
		r.is(t, "a", ejected)
		for range 50 {
			r.Outcome(r.fakes["b"].e, engine.OutcomeReset, "test")
		}
		r.is(t, "b", ready)
	})
}

// TestRowSuspect: three good checks and one finished request, in either order.
func TestRowSuspect(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"checks", "request"} {
		bubble(t, nil, []string{"a", "b"}, nil, func(t *testing.T, r *rig) {
			brought(t, r, suspects)
			f := r.fakes["a"]
			if first == "request" {
				r.Outcome(f.e, engine.OutcomeOK, "")
				r.is(t, "a", suspects)
			}
			time.Sleep(10 * time.Second)
			if first == "checks" {
				r.is(t, "a", suspects)
				r.Outcome(f.e, engine.OutcomeOK, "")
			}
			r.is(t, "a", ready)
		})
	}
}

// TestRowOperator: the three orders hold from every state, and draining against
// everything but another order.
func TestRowOperator(t *testing.T) {
	t.Parallel()
	for _, from := range []telemetry.State{ready, slow, warming, suspects, ejected, draining} {
		bubble(t, func(o *Options) { o.SlowStart, o.Stable, o.EjectMax = time.Hour, time.Hour, time.Hour }, []string{"a"}, nil, func(t *testing.T, r *rig) {
			brought(t, r, from)
			for _, order := range []struct {
				do   func(string) error
				want telemetry.State
			}{{r.Drain, draining}, {r.Ready, slow}, {r.Eject, ejected}, {r.Drain, draining}} {
				if err := order.do("a"); err != nil {
					t.Fatal(err)
				}
				r.is(t, "a", order.want)
			}
			f := r.fakes["a"]
			for range 20 {
				r.Outcome(f.e, engine.OutcomeDied, "test")
			}
			r.Outcome(f.e, engine.OutcomeAborted, "test")
			time.Sleep(time.Minute)
			r.is(t, "a", draining)
		})
	}
}
