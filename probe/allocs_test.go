//go:build !race

package probe

import (
	"testing"
	"time"

	"ramjet/engine"
)

func TestGoodOutcomeAllocatesNothing(t *testing.T) {
	r := newRig(t, nil, "a", "b")
	defer func() { _ = r.l.Close() }()
	r.apply(r.table.Load().watches[0], event{kind: checkGood})
	e := r.table.Load().watches[0].e
	if n := testing.AllocsPerRun(1000, func() {
		r.Outcome(e, engine.OutcomeOK, "")
		r.Outcome(e, engine.OutcomeNeutral, "")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestTickCostsNothing: it runs for every few tokens.
func TestTickCostsNothing(t *testing.T) {
	r := newRig(t, nil, "a", "b")
	defer func() { _ = r.l.Close() }()
	now, watches := time.Now(), r.table.Load().watches
	if n := testing.AllocsPerRun(1000, func() {
		for _, w := range watches {
			r.expect(w, now.Add(time.Hour))
		}
		r.Tick(now)
		r.Tick(now.Add(2 * time.Hour))
		for _, w := range watches {
			select {
			case <-w.wake:
			default:
				t.Fatal("a check that was due was not told")
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
