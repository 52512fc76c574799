package probe

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"ramjet/engine"
	"ramjet/telemetry"
)

// TestFrozenEngine is row 22: SIGSTOP. Nothing answers, no byte comes; the
// engine goes down and everything that waits for it is told.
func TestFrozenEngine(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a"}, nil, func(t *testing.T, r *rig) {
		s := &stream{prefill: true}
		a := r.fakes["a"].e
		a.Enter(s)
		defer a.Leave(s)
		r.fakes["a"].set(func(f *fake) { f.mode = "late" })
		r.until(t, "a", suspects, time.Minute)
		if d := r.until(t, "a", down, 2*time.Minute); d < 40*time.Second {
			t.Errorf("frozen after only %s more", d)
		}
		if got := s.ended(); len(got) != 1 || got[0] != telemetry.EndEngineStalled {
			t.Errorf("the attempt was told %v", got)
		}
		if !r.Accepts(a) {
			t.Error("a frozen engine's port still takes connections")
		}
		r.fakes["a"].set(func(f *fake) { f.mode = "ok" })
		r.until(t, "a", warming, 5*time.Second)
	})
}

// TestUnreachableEngine: that a host cannot be reached, or not be found, is no
// answer of the engine's, so that what waits for it must not wait for ever.
func TestUnreachableEngine(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"unreachable", "unnamed"} {
		bubble(t, nil, []string{"a"}, nil, func(t *testing.T, r *rig) {
			s := &stream{}
			a := r.fakes["a"].e
			a.Enter(s)
			defer a.Leave(s)
			r.fakes["a"].set(func(f *fake) { f.mode = mode })
			time.Sleep(50 * time.Second)
			synctest.Wait()
			if got := s.ended(); len(got) != 0 {
				t.Errorf("%s: told %v before health.stall", mode, got)
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if got := s.ended(); len(got) == 0 || got[0] != telemetry.EndEngineStalled {
				t.Errorf("%s: the attempt was told %v", mode, got)
			}
			if r.Accepts(a) {
				t.Errorf("%s: its port took no connection", mode)
			}
		})
	}
}

// TestOurWantIsNotTheEngines: a Ramjet without descriptors asks nothing, which
// must put no engine down and end no stream.
func TestOurWantIsNotTheEngines(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a"}, nil, func(t *testing.T, r *rig) {
		s := &stream{prefill: true}
		a := r.fakes["a"].e
		a.Enter(s)
		defer a.Leave(s)
		r.fakes["a"].set(func(f *fake) { f.mode = "starved" })
		time.Sleep(3 * time.Minute)
		r.is(t, "a", ready)
		if got := s.ended(); len(got) != 0 || !r.Accepts(a) {
			t.Errorf("the attempt was told %v; accepts %v", got, r.Accepts(a))
		}
	})
}

// TestAnsweredChecksAreASignOfLife, whatever they say.
func TestAnsweredChecksAreASignOfLife(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"503", "reset", "refused"} {
		bubble(t, nil, []string{"a"}, nil, func(t *testing.T, r *rig) {
			s := &stream{prefill: true}
			a := r.fakes["a"].e
			a.Enter(s)
			defer a.Leave(s)
			r.fakes["a"].set(func(f *fake) { f.mode = mode })
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			if got := s.ended(); len(got) != 0 {
				t.Errorf("%s: the attempt was told %v", mode, got)
			}
		})
	}
}

// TestReasonsAreBrief: an engine that talks no HTTP is not repeated at length,
// nor is what a request heard of it.
func TestReasonsAreBrief(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a", "b"}, nil, func(t *testing.T, r *rig) {
		r.fakes["a"].set(func(f *fake) { f.mode = "page" })
		r.until(t, "a", down, time.Minute)
		for range 5 {
			r.Outcome(r.fakes["b"].e, engine.OutcomeAborted, strings.Repeat("é", 30<<10))
		}
		r.is(t, "b", suspects)
		for name, f := range r.fakes {
			if reason := f.e.Status().Reason; len(reason) > 300 || !utf8.ValidString(reason) {
				t.Errorf("%s: a reason of %d bytes: %.400q", name, len(reason), reason)
			}
		}
	})
}

func TestBytesAreASignOfLife(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a"}, nil, func(t *testing.T, r *rig) {
		s := &stream{}
		a := r.fakes["a"].e
		a.Enter(s)
		defer a.Leave(s)
		r.fakes["a"].set(func(f *fake) { f.mode = "late" })
		for range 60 {
			a.AddBytesIn(10)
			s.move()
			time.Sleep(5 * time.Second)
		}
		r.is(t, "a", suspects)
		if got := s.ended(); len(got) != 0 {
			t.Errorf("a living stream was told %v", got)
		}
	})
}

func TestFrozenWhileDraining(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a"}, nil, func(t *testing.T, r *rig) {
		s := &stream{}
		r.fakes["a"].e.Enter(s)
		defer r.fakes["a"].e.Leave(s)
		if err := r.Drain("a"); err != nil {
			t.Fatal(err)
		}
		r.fakes["a"].set(func(f *fake) { f.mode = "late" })
		time.Sleep(70 * time.Second)
		r.is(t, "a", draining)
		if len(s.ended()) == 0 {
			t.Error("the stream of a frozen draining engine hangs")
		}
	})
}

// TestStalledEngine is row 34 and the case of a live /health before a dead
// scheduler.
func TestStalledEngine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tokens float64
		each   func(r *rig, s *stream)
		want   telemetry.State
	}{
		"nothing moves":              {5, func(*rig, *stream) {}, suspects},
		"no metrics page":            {-1, func(*rig, *stream) {}, suspects},
		"the stream moves":           {5, func(_ *rig, s *stream) { s.move() }, ready},
		"the engine's counter moves": {5, func(r *rig, _ *stream) { r.fakes["a"].set(func(f *fake) { f.tokens++ }) }, ready},
		"it is still in its prefill": {5, func(_ *rig, s *stream) { s.setPrefill() }, ready},
		"its client takes nothing":   {5, func(_ *rig, s *stream) { s.setBlocked() }, ready},
		"bytes come but not a token": {5, func(r *rig, _ *stream) { r.fakes["a"].e.AddBytesIn(14) }, suspects},
	} {
		bubble(t, nil, []string{"a"}, func(r *rig) { r.fakes["a"].tokens = c.tokens }, func(t *testing.T, r *rig) {
			r.fakes["a"].set(func(f *fake) { f.trial = errors.New("dead") })
			s := &stream{}
			a := r.fakes["a"].e
			a.Enter(s)
			for range 55 {
				c.each(r, s)
				time.Sleep(time.Second)
			}
			r.is(t, "a", ready)
			for range 12 {
				c.each(r, s)
				time.Sleep(time.Second)
			}
			synctest.Wait()
			if got := a.State(); got != c.want {
				t.Errorf("%s: %s (%s), want %s", name, got, a.Status().Reason, c.want)
			}
			if len(s.ended()) != 0 {
				t.Errorf("%s: a stalled engine's streams are not ours to end", name)
			}
			a.Leave(s)
			time.Sleep(time.Minute)
			r.is(t, "a", c.want) // good checks alone restore nothing
		})
	}
}
