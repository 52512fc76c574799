package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ramjet/engine"
	"ramjet/lease"
	"ramjet/radix"
	"ramjet/route"
	"ramjet/telemetry"
)

func TestEnginesThatAnswerAtStartAreReadyAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a", "b"}, func(r *rig) { r.fakes["b"].mode = "refused" }, func(t *testing.T, r *rig) {
		r.is(t, "a", ready)
		r.is(t, "b", down)
		a := r.fakes["a"].e
		if !a.Models().Serves([]byte("m-a")) || string(a.Models().Object("m-a")) != `{"id":"m-a","x":1}` {
			t.Errorf("models of a: %+v", a.Models())
		}
		if r.fakes["b"].e.Status().Reason != "connection refused" {
			t.Errorf("reason of b: %q", r.fakes["b"].e.Status().Reason)
		}
		if got := r.Transitions(); len(got) != 1 || got[0].Engine != "a" || got[0].From != down || got[0].To != ready || got[0].Reason == "" {
			t.Errorf("transitions %+v", got)
		}
		_ = r.l.Close()
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(r.log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(r.log.String(), `"engine":"b","reason":"connection refused"`) ||
			!strings.Contains(r.log.String(), `"engine":"a","from":"down","to":"ready"`) {
			t.Errorf("log:\n%s", r.log.String())
		}
		if p := r.page(); !strings.Contains(p, `ramjet_engine_state{engine="a",state="ready"} 1`) || !strings.Contains(p, `ramjet_engine_state{engine="b",state="down"} 1`) {
			t.Error("the metrics do not show the states")
		}
	})
}

// TestRestartedEngineWarmsUp is row 31 of the fault table.
func TestRestartedEngineWarmsUp(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a"}, nil, func(t *testing.T, r *rig) {
		f := r.fakes["a"]
		f.set(func(f *fake) { f.mode = "refused" })
		if d := r.until(t, "a", down, time.Minute); d > 3*time.Second {
			t.Errorf("seen down after %s", d)
		}
		time.Sleep(10 * time.Second)
		f.set(func(f *fake) { f.mode, f.start, f.models = "ok", 200, `{"data":[{"id":"new"}]}` })
		r.until(t, "a", warming, 3*time.Second)
		if !f.e.Models().Serves([]byte("new")) {
			t.Error("the models of the new process are not known when it warms up")
		}
		if d := r.until(t, "a", slow, time.Minute); d < 29*time.Second || d > 34*time.Second {
			t.Errorf("warming took %s, want 30 s and at most one check", d)
		}
		if d := r.until(t, "a", ready, time.Minute); d < 29*time.Second || d > 31*time.Second {
			t.Errorf("slow start took %s, want 30 s", d)
		}
		var got []string
		for _, tr := range r.Transitions() {
			got = append(got, tr.From.String()+">"+tr.To.String())
		}
		if want := "down>ready ready>down down>warming warming>slow-start slow-start>ready"; strings.Join(got, " ") != want {
			t.Errorf("%v, want %s", got, want)
		}
	})
}

func TestQuickRestartIsSeenByItsStartTime(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a"}, nil, func(t *testing.T, r *rig) {
		time.Sleep(5 * time.Second)
		r.fakes["a"].set(func(f *fake) { f.start = 150.5 })
		r.until(t, "a", down, 3*time.Second)
		if s := r.fakes["a"].e.Status(); !strings.Contains(s.Reason, "restarted") {
			t.Errorf("reason %q", s.Reason)
		}
		r.until(t, "a", warming, 3*time.Second)
		time.Sleep(20 * time.Second)
		r.is(t, "a", warming)
		r.until(t, "a", ready, 2*time.Minute)
		r.fakes["a"].set(func(f *fake) { f.start = 100 })
		time.Sleep(10 * time.Second)
		r.is(t, "a", ready) // an older process behind the same address is no restart
	})
}

// TestSaturatedEngineKeepsItsTraffic is row 33: checks starve, requests finish.
func TestSaturatedEngineKeepsItsTraffic(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a", "b"}, nil, func(t *testing.T, r *rig) {
		for _, f := range r.fakes {
			f.set(func(f *fake) { f.mode = "late" })
		}
		for range 30 {
			for _, f := range r.fakes {
				r.Outcome(f.e, engine.OutcomeOK, "")
			}
			time.Sleep(10 * time.Second)
			r.is(t, "a", ready)
			r.is(t, "b", ready)
		}
		// Ten seconds later the window of the last request still holds.
		if d := r.until(t, "a", suspects, time.Minute); d < 20*time.Second || d > 40*time.Second {
			t.Errorf("without requests suspect after %s more", d)
		}
	})
}

func TestAnsweredErrorsFence(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"503", "reset"} {
		bubble(t, nil, []string{"a"}, nil, func(t *testing.T, r *rig) {
			r.Outcome(r.fakes["a"].e, engine.OutcomeOK, "")
			r.fakes["a"].set(func(f *fake) { f.mode = mode })
			if d := r.until(t, "a", down, time.Minute); d < 3*time.Second || d > 8*time.Second {
				t.Errorf("%s: down after %s, want three checks", mode, d)
			}
		})
	}
}

func TestSuspectRecoversByATrial(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a", "b"}, nil, func(t *testing.T, r *rig) {
		a := r.fakes["a"]
		a.set(func(f *fake) { f.trial = errors.New("gave up") })
		r.Outcome(a.e, engine.OutcomeAborted, "finish_reason abort")
		r.is(t, "a", suspects)
		time.Sleep(time.Minute)
		r.is(t, "a", suspects)
		n := a.count(func(f *fake) int { return f.trials })
		if n < 2 || n > 7 {
			t.Errorf("%d trials in a minute", n)
		}
		a.set(func(f *fake) { f.trial = nil })
		r.until(t, "a", ready, 20*time.Second)
		time.Sleep(time.Minute)
		if n := r.fakes["b"].count(func(f *fake) int { return f.trials }); n != 0 {
			t.Errorf("a healthy engine got %d trials", n)
		}
	})
}

// TestSuspectThatRefusesTrials: an engine whose key only clients have answers
// 401. That is enough where its checks had timed out; one that gave a request
// up, or stood still, has to finish a real one.
func TestSuspectThatRefusesTrials(t *testing.T) {
	t.Parallel()
	for _, why := range []string{"checks timed out", "aborted"} {
		bubble(t, nil, []string{"a", "b"}, nil, func(t *testing.T, r *rig) {
			a := r.fakes["a"]
			a.set(func(f *fake) { f.trial = fmt.Errorf("401: %w", ErrTrialRefused) })
			if why == "aborted" {
				r.Outcome(a.e, engine.OutcomeAborted, "finish_reason abort")
				time.Sleep(2 * time.Minute)
				r.is(t, "a", suspects)
				r.Outcome(a.e, engine.OutcomeOK, "")
				r.is(t, "a", ready)
				return
			}
			a.set(func(f *fake) { f.mode = "late" })
			r.until(t, "a", suspects, time.Minute)
			a.set(func(f *fake) { f.mode = "ok" })
			r.until(t, "a", ready, time.Minute)
		})
	}
}

func TestSuspectRecoversByARealRequest(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a"}, nil, func(t *testing.T, r *rig) {
		a := r.fakes["a"]
		a.set(func(f *fake) { f.trial = errors.New("no") })
		r.Outcome(a.e, engine.OutcomeAborted, "abort")
		time.Sleep(10 * time.Second)
		r.Outcome(a.e, engine.OutcomeOK, "")
		r.is(t, "a", ready)
	})
}

func TestRefusedRequestIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a", "b"}, nil, func(t *testing.T, r *rig) {
		a := r.fakes["a"]
		a.set(func(f *fake) { f.mode = "refused" })
		r.Outcome(a.e, engine.OutcomeRefused, "connection refused")
		if a.e.State() != down {
			t.Errorf("%s before Outcome returned, want down", a.e.State())
		}
		synctest.Wait()
		if r.Accepts(a.e) {
			t.Error("the port was not looked at again")
		}
		if ok, _ := r.AnyEngine(); !ok {
			t.Error("b is there")
		}
	})
}

func TestOwnFailuresEject(t *testing.T) {
	t.Parallel()
	for o, cause := range map[engine.Outcome]string{engine.OutcomeReset: "reset", engine.OutcomeDied: "died",
		engine.OutcomeBadResponse: "bad-response", engine.OutcomeServerError: "server-error"} {
		bubble(t, nil, []string{"a", "b"}, nil, func(t *testing.T, r *rig) {
			a := r.fakes["a"].e
			for range 4 {
				r.Outcome(a, o, "x")
			}
			r.Outcome(a, engine.OutcomeNeutral, "client left")
			r.is(t, "a", ready)
			r.Outcome(a, o, "x")
			r.is(t, "a", ejected)
			if want := `ramjet_ejections_total{engine="a",reason="` + cause + `"} 1`; !strings.Contains(r.page(), want) {
				t.Errorf("the page lacks %s", want)
			}
			for range 20 {
				r.Outcome(r.fakes["b"].e, o, "x")
			}
			r.is(t, "b", ready) // never the last usable one
			if d := r.until(t, "a", slow, time.Minute); d > 11*time.Second {
				t.Errorf("ejected for %s", d)
			}
			r.until(t, "a", ready, time.Minute)
		})
	}
}

// TestNeverBothEjected lets every engine fail at the same moment from many
// goroutines: one stays, whatever the order.
func TestNeverBothEjected(t *testing.T) {
	t.Parallel()
	for range 50 {
		r := newRig(t, nil, "a", "b", "c")
		for _, w := range r.table.Load().watches {
			r.apply(w, event{kind: checkGood})
		}
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() { r.Outcome(r.table.Load().watches[i%3].e, engine.OutcomeServerError, "500") })
		}
		wg.Wait()
		left := 0
		for _, w := range r.table.Load().watches {
			if usable(w.e.State()) {
				left++
			}
			if w.e.State() != w.h.state {
				t.Fatalf("%s: the word says %s, the rules %s", w.e.Name, w.e.State(), w.h.state)
			}
		}
		if left != 1 {
			t.Fatalf("%d engines are left, want 1", left)
		}
		_ = r.l.Close()
	}
}

func TestOperatorsWord(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a", "b"}, nil, func(t *testing.T, r *rig) {
		for _, order := range []func(string) error{r.Drain, r.Ready, r.Eject} {
			if err := order("zz"); !errors.Is(err, ErrUnknownEngine) {
				t.Errorf("an unknown engine: %v", err)
			}
		}
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		must(r.Drain("a"))
		r.is(t, "a", draining)
		time.Sleep(time.Hour)
		r.is(t, "a", draining)
		if r.Accepts(r.fakes["a"].e) {
			t.Error("a draining engine is no last resort")
		}
		must(r.Ready("a"))
		r.is(t, "a", slow)
		must(r.Eject("a"))
		r.is(t, "a", ejected)
		if !strings.Contains(r.page(), `ramjet_ejections_total{engine="a",reason="operator"} 1`) {
			t.Error("the operator's ejection is not counted as one")
		}
		must(r.Drain("b"))
		r.fakes["b"].set(func(f *fake) { f.mode = "refused" })
		time.Sleep(10 * time.Second)
		must(r.Ready("b"))
		r.is(t, "b", down) // the check that follows at once knows better
	})
}

func TestModelsAreReadEveryMinute(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a"}, func(r *rig) { r.fakes["a"].models = "not json" }, func(t *testing.T, r *rig) {
		a := r.fakes["a"]
		r.is(t, "a", ready)
		if a.e.Models() != nil {
			t.Error("a broken list was taken")
		}
		a.set(func(f *fake) { f.models = `{"data":[{"id":"x"}]}` })
		time.Sleep(3 * time.Second)
		if !a.e.Models().Serves([]byte("x")) {
			t.Error("an unread list is not tried again with the next check")
		}
		a.set(func(f *fake) { f.reads, f.models = 0, `{"data":[{"id":"y"}]}` })
		time.Sleep(58 * time.Second)
		synctest.Wait()
		if a.e.Models().Serves([]byte("y")) {
			t.Error("read again too early")
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if !a.e.Models().Serves([]byte("y")) || a.count(func(f *fake) int { return f.reads }) != 1 {
			t.Error("not read once within 64 s")
		}
		a.set(func(f *fake) { f.models = `{"data":17}` })
		time.Sleep(2 * time.Minute)
		if !a.e.Models().Serves([]byte("y")) {
			t.Error("a broken list replaced a good one")
		}
	})
}

// TestCheckStorm is row 35: many engines are checked neither all at once nor
// for ever in step.
func TestCheckStorm(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprintf("e%d", i))
	}
	bubble(t, nil, names, nil, func(t *testing.T, r *rig) {
		const minutes = 2
		time.Sleep(minutes * time.Minute)
		perSlot := map[int64]int{}
		total := 0
		for _, f := range r.fakes {
			f.mu.Lock()
			for _, c := range f.checks {
				if time.Since(c) < time.Minute {
					perSlot[c.UnixMilli()/10]++
					total++
				}
			}
			f.mu.Unlock()
		}
		if total < 200*25 || total > 200*40 {
			t.Errorf("%d checks in a minute, want about %d", total, 200*30)
		}
		for slot, n := range perSlot {
			if n > maxChecks {
				t.Errorf("%d checks within 10 ms (slot %d)", n, slot)
			}
		}
	})
}

func TestConcurrentChecksAreBounded(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprintf("e%d", i))
	}
	bubble(t, nil, names, func(r *rig) {
		for _, f := range r.fakes {
			f.mode = "late"
		}
	}, func(t *testing.T, r *rig) {
		asked := 0
		for _, f := range r.fakes {
			f.mu.Lock()
			asked += len(f.checks)
			f.mu.Unlock()
		}
		if asked != maxChecks {
			t.Errorf("%d checks under way, want %d", asked, maxChecks)
		}
	})
}

func TestTransitionsAreARing(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "a")
	defer func() { _ = r.l.Close() }()
	for range maxTransitions {
		_ = r.Drain("a")
		_ = r.Ready("a")
	}
	got := r.Transitions()
	if len(got) != maxTransitions || got[len(got)-1].To != slow || got[0].To != draining {
		t.Errorf("%d transitions from %v to %v", len(got), got[0], got[len(got)-1])
	}
}

func TestHealthView(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		states  []telemetry.State
		accepts []bool
		want    string
	}{
		{[]telemetry.State{ready, ready}, []bool{true, true}, "ok"},
		{[]telemetry.State{ready, slow}, []bool{true, true}, "ok"},
		{[]telemetry.State{ready, down}, []bool{true, false}, "degraded"},
		{[]telemetry.State{ready, draining}, []bool{true, true}, "degraded"},
		{[]telemetry.State{suspects, suspects}, []bool{true, true}, "degraded"},
		{[]telemetry.State{suspects, down}, []bool{false, false}, "degraded"}, // it is picked, whatever its last check said
		{[]telemetry.State{warming, down}, []bool{true, false}, "degraded"},
		{[]telemetry.State{down, down}, []bool{false, false}, "unhealthy"},
		{[]telemetry.State{draining, down}, []bool{true, false}, "unhealthy"},
	} {
		r := newRig(t, nil, "a", "b")
		for i, w := range r.table.Load().watches {
			w.h.state = c.states[i]
			w.e.SetState(c.states[i], `odd "reason"`)
			w.e.SetAccepts(c.accepts[i])
		}
		if got := r.Health().Status; got != c.want {
			t.Errorf("%v: %s, want %s", c.states, got, c.want)
		}
		ok, reasons := r.AnyEngine()
		if ok == (c.want == "unhealthy") || (len(reasons) == 2) == ok {
			t.Errorf("%v: any engine %v, %v", c.states, ok, reasons)
		}
		var body struct {
			Status  string
			Engines map[string]struct{ State, Reason string }
		}
		if err := json.Unmarshal(r.AppendHealthJSON(nil), &body); err != nil || body.Status != c.want ||
			body.Engines["b"].State != c.states[1].String() || body.Engines["a"].Reason != `odd "reason"` {
			t.Errorf("%v: %s: %v", c.states, r.AppendHealthJSON(nil), err)
		}
		_ = r.l.Close()
	}
}

// TestReadyAsTheRouterPicks: /readyz must be no stricter than the router, nor
// must it promise what the router refuses. The one difference is meant: where
// every port refused its last check, requests are tried, but none is promised.
func TestReadyAsTheRouterPicks(t *testing.T) {
	t.Parallel()
	for _, s := range telemetry.States() {
		for _, accepts := range []bool{true, false} {
			m := newRig(t, nil, "a")
			defer func() { _ = m.l.Close() }()
			e := m.fakes["a"].e
			e.SetState(s, "test")
			e.SetAccepts(accepts)
			r := route.New(lease.NewBook(nil), radix.NewIndex(), radix.NewMemory(), route.Settings{Policy: route.PolicyLatency}, &route.Set{Members: []route.Member{{Engine: e, Account: lease.NewAccount("")}}})
			want := r.CanPick(&route.Request{})
			if !accepts && (s == down || s == warming || s == ejected) {
				want = false
			}
			if got, reasons := m.AnyEngine(); got != want {
				t.Errorf("%s, accepts %v: ready %v (%v), want %v", s, accepts, got, reasons, want)
			}
		}
	}
}

func TestReportedFigures(t *testing.T) {
	t.Parallel()
	bubble(t, nil, []string{"a"}, func(r *rig) { r.fakes["a"].running = 3 }, func(t *testing.T, r *rig) {
		got := r.Reported(r.fakes["a"].e)
		if got == nil || got.Running != 3 || got.Waiting != -1 || time.Since(got.Time) > 3*time.Second {
			t.Errorf("%+v", got)
		}
		if r.Reported(engine.New(engine.Options{Name: "z"})) != nil {
			t.Error("an engine of nobody has figures")
		}
	})
}

func TestOutcomeOfAForeignEngineIsIgnored(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "a")
	defer func() { _ = r.l.Close() }()
	r.Outcome(engine.New(engine.Options{Name: "a"}), engine.OutcomeRefused, "")
	if got := r.Transitions(); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
