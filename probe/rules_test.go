package probe

import (
	"fmt"
	"testing"
	"time"

	"ramjet/telemetry"
)

const (
	down     = telemetry.StateDown
	warming  = telemetry.StateWarming
	slow     = telemetry.StateSlowStart
	ready    = telemetry.StateReady
	suspects = telemetry.StateSuspect
	ejected  = telemetry.StateEjected
	draining = telemetry.StateDraining
)

var testRules = Rules{Successes: 3, Stable: 30 * time.Second, SlowStart: 30 * time.Second, Failures: 3,
	Stall: 60 * time.Second, EjectAfter: 5, EjectBase: 10 * time.Second, EjectMax: 25 * time.Second}

// step is what happens after a number of seconds, and the state it leads to.
type step struct {
	after float64
	ev    event
	want  telemetry.State
}

var (
	good    = event{kind: checkGood}
	refused = event{kind: checkRefused}
	bad     = event{kind: checkFailed, detail: "status 500"}
	late    = event{kind: checkTimedOut}
	lateBut = event{kind: checkTimedOut, busy: true}
	ownFail = event{kind: requestFailed, others: true, detail: "reset"}
	lastOne = event{kind: requestFailed, others: false, detail: "reset"}
	done    = event{kind: requestGood}
	abort   = event{kind: requestAborted}
	no4xx   = event{kind: trialRefused}
	tick    = event{kind: timePassed}
	drain   = event{kind: orderDrain}
	makeRdy = event{kind: orderReady}
	eject   = event{kind: orderEject}
)

// at starts a case in a state that a running Ramjet could be in.
func at(s telemetry.State) health { return health{state: s, reason: "test", asked: true} }

func repeat(n int, s ...step) []step {
	var out []step
	for range n {
		out = append(out, s...)
	}
	return out
}

func join(parts ...[]step) []step {
	var out []step
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// TestTable walks every row of the table in CONTRACT section 2.
func TestTable(t *testing.T) {
	t.Parallel()
	fresh := health{state: down, reason: "not checked yet"}
	for name, c := range map[string]struct {
		from  health
		steps []step
	}{
		"start, first check good":               {fresh, []step{{0, good, ready}}},
		"start, refused, then good":             {fresh, []step{{0, refused, down}, {2, good, warming}}},
		"start, not 200, then good":             {fresh, []step{{0, bad, down}, {2, good, warming}}},
		"start, a late answer decides nothing":  {fresh, []step{{0, late, down}, {2, late, down}, {2, late, down}, {2, good, ready}}},
		"ready, check refused":                  {at(ready), []step{{0, refused, down}}},
		"ready, request refused":                {at(ready), []step{{0, event{kind: requestRefused}, down}}},
		"slow start, refused":                   {at(slow), []step{{0, refused, down}}},
		"warming, refused":                      {at(warming), []step{{0, refused, down}}},
		"suspect, refused":                      {at(suspects), []step{{0, refused, down}}},
		"ejected, refused":                      {at(ejected), []step{{0, refused, down}}},
		"draining, refused":                     {at(draining), []step{{0, refused, draining}}},
		"ready, three bad answers":              {at(ready), []step{{0, bad, ready}, {2, bad, ready}, {2, bad, down}}},
		"ready, bad answers with a good one":    {at(ready), []step{{0, bad, ready}, {2, bad, ready}, {2, good, ready}, {2, bad, ready}, {2, bad, ready}, {2, bad, down}}},
		"draining, bad answers":                 {at(draining), repeat(5, step{2, bad, draining})},
		"ready, restarted":                      {at(ready), []step{{0, event{kind: restarted}, down}, {2, good, warming}}},
		"warming, restarted":                    {at(warming), []step{{0, event{kind: restarted}, down}}},
		"draining, restarted":                   {at(draining), []step{{0, event{kind: restarted}, draining}}},
		"ready, frozen":                         {at(ready), []step{{0, event{kind: frozen}, down}}},
		"suspect, frozen":                       {at(suspects), []step{{0, event{kind: frozen}, down}}},
		"draining, frozen":                      {at(draining), []step{{0, event{kind: frozen}, draining}}},
		"ready, late but busy":                  {at(ready), repeat(20, step{2, lateBut, ready})},
		"slow start, late but busy":             {at(slow), repeat(20, step{2, lateBut, slow})},
		"ready, three late":                     {at(ready), []step{{0, late, ready}, {2, late, ready}, {2, late, suspects}}},
		"slow start, three late":                {at(slow), []step{{0, late, slow}, {2, late, slow}, {2, late, suspects}}},
		"ready, late, late, good, late":         {at(ready), []step{{0, late, ready}, {2, late, ready}, {2, good, ready}, {2, late, ready}, {2, late, ready}}},
		"ready, a busy one counts for nothing":  {at(ready), []step{{0, late, ready}, {2, late, ready}, {2, lateBut, ready}, {2, late, suspects}}},
		"ready, stalled":                        {at(ready), []step{{0, event{kind: stalled}, suspects}}},
		"slow start, stalled":                   {at(slow), []step{{0, event{kind: stalled}, suspects}}},
		"warming, stalled":                      {at(warming), []step{{0, event{kind: stalled}, warming}}},
		"ready, aborted":                        {at(ready), []step{{0, abort, suspects}}},
		"down, first good":                      {at(down), []step{{0, good, warming}}},
		"down, late":                            {at(down), []step{{0, late, down}, {0, late, down}, {0, late, down}}},
		"warming, enough checks, too early":     {at(down), []step{{0, good, warming}, {2, good, warming}, {2, good, warming}, {2, good, warming}}},
		"warming, stable, too few":              {at(down), []step{{0, good, warming}, {40, good, warming}, {0, good, slow}}},
		"warming, both":                         {at(down), join([]step{{0, good, warming}}, repeat(14, step{2, good, warming}), []step{{2, good, slow}})},
		"warming, one bad starts anew":          {at(down), join([]step{{0, good, warming}}, repeat(14, step{2, good, warming}), []step{{1, bad, warming}, {1, good, warming}}, repeat(14, step{2, good, warming}), []step{{2, good, slow}})},
		"warming, one late starts anew":         {at(down), join([]step{{0, good, warming}}, repeat(14, step{2, good, warming}), []step{{1, late, warming}, {1, good, warming}, {2, good, warming}})},
		"warming, busy is no excuse":            {at(down), join([]step{{0, good, warming}}, repeat(14, step{2, good, warming}), []step{{1, lateBut, warming}, {1, good, warming}, {2, good, warming}})},
		"slow start ends":                       {at(down), join([]step{{0, good, warming}}, repeat(14, step{2, good, warming}), []step{{2, good, slow}, {29, tick, slow}, {1, tick, ready}})},
		"ready, five own failures":              {at(ready), join(repeat(4, step{0, ownFail, ready}), []step{{0, ownFail, ejected}, {9, tick, ejected}, {1, tick, slow}, {30, tick, ready}})},
		"slow start, five own failures":         {at(slow), join(repeat(4, step{0, ownFail, slow}), []step{{0, ownFail, ejected}})},
		"ready, a good one clears the count":    {at(ready), join(repeat(4, step{0, ownFail, ready}), []step{{0, done, ready}}, repeat(4, step{0, ownFail, ready}), []step{{0, ownFail, ejected}})},
		"ready, the last usable one":            {at(ready), join(repeat(50, step{0, lastOne, ready}), []step{{0, ownFail, ejected}})},
		"suspect is not ejected":                {at(suspects), repeat(20, step{0, ownFail, suspects})},
		"warming is not ejected":                {at(warming), repeat(20, step{0, ownFail, warming})},
		"ejected, good checks change nothing":   {at(ejected), repeat(20, step{0, good, ejected})},
		"suspect recovers, checks first":        {at(suspects), []step{{0, good, suspects}, {2, good, suspects}, {2, good, suspects}, {2, done, ready}}},
		"suspect recovers, request first":       {at(suspects), []step{{0, done, suspects}, {0, good, suspects}, {2, good, suspects}, {2, good, ready}}},
		"suspect, checks alone do not restore":  {at(suspects), repeat(100, step{2, good, suspects})},
		"suspect, requests alone do not":        {at(suspects), repeat(100, step{2, done, suspects})},
		"suspect, a late check starts anew":     {at(suspects), []step{{0, done, suspects}, {0, good, suspects}, {0, good, suspects}, {0, late, suspects}, {0, good, suspects}, {0, good, suspects}, {0, good, ready}}},
		"suspect, an old request does not help": {at(ready), []step{{0, done, ready}, {0, abort, suspects}, {0, good, suspects}, {0, good, suspects}, {0, good, suspects}}},
		"suspect unheard, a refused trial":      {at(ready), []step{{0, late, ready}, {0, late, ready}, {0, late, suspects}, {0, good, suspects}, {0, good, suspects}, {0, no4xx, suspects}, {0, good, ready}}},
		"suspect stalled, a refused trial":      {at(ready), join([]step{{0, event{kind: stalled}, suspects}}, repeat(9, step{0, good, suspects}), repeat(9, step{0, no4xx, suspects}))},
		"stalled, then unheard, refused trial":  {at(ready), join([]step{{0, event{kind: stalled}, suspects}}, repeat(3, step{0, late, suspects}), repeat(9, step{0, good, suspects}), repeat(9, step{0, no4xx, suspects}))},
		"a refused trial of a ready one":        {at(ready), repeat(9, step{0, no4xx, ready})},
		"suspect, three bad answers":            {at(suspects), []step{{0, bad, suspects}, {0, bad, suspects}, {0, bad, down}}},
		"operator drains":                       {at(ready), []step{{0, drain, draining}, {0, good, draining}, {0, late, draining}, {0, abort, draining}, {999, tick, draining}}},
		"operator drains a down one":            {at(down), []step{{0, drain, draining}, {0, good, draining}}},
		"operator makes ready":                  {at(draining), []step{{0, makeRdy, slow}, {30, tick, ready}}},
		"operator makes a warming one ready":    {at(warming), []step{{0, makeRdy, slow}}},
		"operator makes a suspect ready":        {at(suspects), []step{{0, makeRdy, slow}}},
		"operator ejects for the longest time":  {at(ready), []step{{0, eject, ejected}, {24, tick, ejected}, {1, tick, slow}}},
		"operator ejects the last one":          {at(ready), []step{{0, eject, ejected}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(1_000_000, 0)
			h := c.from
			for i, s := range c.steps {
				now = now.Add(time.Duration(s.after * float64(time.Second)))
				h = next(testRules, h, s.ev, now)
				if h.state != s.want {
					t.Fatalf("step %d: %s (%s), want %s", i, h.state, h.reason, s.want)
				}
				if h.reason == "" {
					t.Fatalf("step %d: no reason", i)
				}
			}
		})
	}
}

// TestEjectionGrows is row 32 of the fault table: each ejection is longer, up
// to the longest, and good behaviour for that long forgives.
func TestEjectionGrows(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	h := at(ready)
	for i, want := range []time.Duration{10 * time.Second, 20 * time.Second, 25 * time.Second, 25 * time.Second} {
		for range testRules.EjectAfter {
			h = next(testRules, h, ownFail, now)
		}
		if got := h.until.Sub(now); h.state != ejected || got != want {
			t.Fatalf("ejection %d: %s for %s, want %s", i+1, h.state, got, want)
		}
		now = h.until
		h = next(testRules, h, tick, now)
		if h.state != slow {
			t.Fatalf("after ejection %d: %s", i+1, h.state)
		}
	}
	now = now.Add(testRules.EjectMax + time.Second)
	for range testRules.EjectAfter {
		h = next(testRules, h, ownFail, now)
	}
	if got := h.until.Sub(now); got != testRules.EjectBase {
		t.Errorf("after good behaviour the ejection lasts %s, want %s", got, testRules.EjectBase)
	}
}

func TestZeroRulesSwitchOff(t *testing.T) {
	t.Parallel()
	h := at(ready)
	for range 100 {
		h = next(Rules{Failures: 1}, h, ownFail, time.Unix(1, 0))
	}
	if h.state != ready {
		t.Errorf("eject.after 0 ejects: %s", h.state)
	}
}

// TestNoEventIsForgotten runs every event in every state: none panics, and
// none but an order leaves draining.
func TestNoEventIsForgotten(t *testing.T) {
	t.Parallel()
	for _, s := range telemetry.States() {
		for k := checkGood; k <= orderEject; k++ {
			h := next(testRules, at(s), event{kind: k}, time.Unix(1, 0))
			order := k == orderReady || k == orderEject
			if s == draining && !order && h.state != draining {
				t.Errorf("event %d leaves draining for %s", k, h.state)
			}
			if usable(h.state) && !usable(s) && k != orderReady && s != down {
				t.Errorf("event %d makes a single step from %s to %s", k, s, h.state)
			}
		}
	}
	defer func() {
		if r := recover(); r == nil || fmt.Sprint(r) != "BUG: unknown event" {
			t.Errorf("an unknown event gives %v", r)
		}
	}()
	next(testRules, at(ready), event{kind: orderEject + 1}, time.Unix(1, 0))
}
