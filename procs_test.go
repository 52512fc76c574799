package main

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// played is a governor whose process uses as much CPU as it is told.
type played struct {
	governor
	spent atomic.Int64 // nanoseconds
	looks atomic.Int64
}

func play(most, n int) *played {
	p := &played{}
	p.most, p.n, p.set, p.born = most, n, func(int) {}, time.Now().Add(-governorStep)
	p.cpu = func() time.Duration { p.looks.Add(1); return time.Duration(p.spent.Load()) }
	p.tick(time.Now())
	return p
}

// run lets a load, in processors, last for a number of steps.
func (p *played) run(load float64, steps int, ticks bool) {
	for range steps {
		p.spent.Add(int64(load * float64(governorStep)))
		time.Sleep(governorStep)
		if ticks {
			p.tick(time.Now())
		}
	}
	synctest.Wait()
}

// number returns the processors chosen.
func (p *played) number() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// rest waits until no timer runs any more.
func (p *played) rest() {
	p.run(0, 100, false)
}

// TestGovernor plays loads, in processors, each for some looks, and sees which
// number is chosen.
func TestGovernor(t *testing.T) {
	type phase struct {
		load  float64
		looks int
		want  int
	}
	for name, phases := range map[string][]phase{
		"a light load keeps one":               {{0.1, 100, 1}, {0.85, 100, 1}},
		"a burst doubles at once, to the most": {{1, 1, 2}, {2, 1, 4}, {4, 1, 6}, {6, 5, 6}},
		"nearly used up, for a while":          {{0.95, 3, 1}, {0.95, 1, 2}, {1.9, 3, 2}, {1.9, 1, 4}, {3.9, 4, 6}},
		"nearly used up, now and then":         {{0.96, 3, 1}, {0.8, 1, 1}, {0.96, 3, 1}, {0.8, 1, 1}, {0.96, 3, 1}},
		"given up one by one, after a while":   {{4, 4, 6}, {0.2, 9, 6}, {0.2, 2, 3}, {0.2, 11, 1}},
		"a load in between changes nothing":    {{1, 1, 2}, {0.8, 200, 2}},
		"one busy look starts the calm anew":   {{1, 1, 2}, {0.1, 8, 2}, {1.2, 1, 2}, {0.1, 8, 2}, {0.1, 3, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := play(6, 1)
				for i, ph := range phases {
					p.run(ph.load, ph.looks, true)
					if n := p.number(); n != ph.want {
						t.Fatalf("phase %d: %d processors, want %d", i, n, ph.want)
					}
				}
				p.rest()
			})
		})
	}
}

// TestLatestStays: of two numbers on their way the one set last is in force in
// the end, even if the first takes long.
func TestLatestStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in atomic.Int64
		l := newLatest(func(n int) {
			if n == 2 {
				time.Sleep(time.Second) // a collection is under way
			}
			in.Store(int64(n))
		})
		l.set(2)
		synctest.Wait()
		l.set(4)
		time.Sleep(10 * time.Second)
		if n := in.Load(); n != 4 {
			t.Errorf("%d stays, want the last", n)
		}
	})
}

func TestGovernorLooksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := play(2, 1)
		for range 1000 {
			time.Sleep(time.Millisecond)
			p.tick(time.Now())
		}
		if n := p.looks.Load(); n > 21 || n < 19 {
			t.Errorf("%d looks in a second", n)
		}
	})
	var none *governor
	none.tick(time.Now()) // governs nothing
}

// TestGovernorComesToRest: after the last request nobody calls tick, yet an
// idle process ends on one processor, and then looks no more.
func TestGovernorComesToRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := play(8, 1)
		p.run(8, 4, true)
		if n := p.number(); n != 8 {
			t.Fatalf("%d processors under load", n)
		}
		p.run(0, 50, false)
		if n := p.number(); n != 1 {
			t.Errorf("%d processors after 2.5 s of nothing", n)
		}
		p.looks.Store(0)
		p.run(0, 1000, false)
		if n := p.looks.Load(); n != 0 {
			t.Errorf("%d looks at an idle process", n)
		}
	})
}

// TestGovernorTimerTakesNothingFromTheBusy: long streams may not call tick for
// a while, and the timer's looks must not mistake their load for calm.
func TestGovernorTimerTakesNothingFromTheBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := play(4, 2)
		p.run(1.5, 1, true)
		p.run(1.5, 100, false)
		if n := p.number(); n != 2 {
			t.Errorf("%d processors", n)
		}
		p.rest()
	})
}

// TestGovernorAfterAPause: a light load over a long time is calm in one look, a
// heavy one is not.
func TestGovernorAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := play(4, 2)
		time.Sleep(10 * time.Second)
		p.spent.Add(int64(6 * time.Second))
		if p.tick(time.Now()); p.number() != 2 {
			t.Errorf("%d processors after a busy pause", p.number())
		}
		p.rest()
	})
	synctest.Test(t, func(t *testing.T) {
		p := play(4, 2)
		time.Sleep(10 * time.Second)
		p.spent.Add(int64(time.Second))
		if p.tick(time.Now()); p.number() != 1 {
			t.Errorf("%d processors after a calm pause", p.number())
		}
	})
}
