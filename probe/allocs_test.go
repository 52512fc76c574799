//go:build !race

package probe

import (
	"testing"

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
