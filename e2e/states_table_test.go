package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// The tests of this file and of states_orders_test.go are the table of engine
// states, row by row, with a whole process in between.

// TestStateAtStart: an engine that answers Ramjet's first check is no new one;
// one that refuses, or answers no, is down and warms up when it comes.
func TestStateAtStart(t *testing.T) {
	t.Parallel()
	a, b, c := rig.NewEngine(t, "a"), rig.NewEngine(t, "b"), rig.NewEngine(t, "c")
	b.Down()
	c.Get("/health", rig.Ailing)
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b, c}, Flags: rig.Swift, NotReady: true})
	r.Is(t, rig.Patience, "a", "ready")
	if list := r.Went(t, rig.Patience, "a", "ready"); !strings.Contains(list[0].Reason, "when Ramjet started") {
		t.Errorf("a: %+v", list)
	}
	for name, why := range map[string]string{"b": "refused", "c": "503"} {
		r.Is(t, rig.Patience, name, "down")
		rig.Eventually(t, rig.Patience, "why "+name+" is down", func() string {
			if e := r.Status(t, name); !strings.Contains(e.Reason, why) {
				return e.Reason
			}
			return ""
		})
	}
	b.Up(t)
	c.Well("/health")
	for _, name := range []string{"b", "c"} {
		list := r.Went(t, 2*rig.Patience, name, "warming", "slow-start", "ready")
		if warm := list[1].Time.Sub(list[0].Time); warm < 500*time.Millisecond {
			t.Errorf("%s warmed up for %v, want 500 ms at least", name, warm)
		}
		if slow := list[2].Time.Sub(list[1].Time); slow < 490*time.Millisecond {
			t.Errorf("%s started slowly for %v, want 500 ms", name, slow)
		}
	}
	r.ClosesLater(t)
}

// startTime is an engine's metrics page with the time its process began.
func startTime(seconds int) string {
	return rig.FullResponse(200, "text/plain; version=0.0.4", fmt.Sprintf("# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %d\n", seconds))
}

// TestStateDown: what takes a ready engine down, and that it warms up after.
func TestStateDown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		before func(b *rig.Engine)
		hit    func(b *rig.Engine)
		mend   func(t *testing.T, b *rig.Engine)
		why    string
	}{
		{"refused", nil, (*rig.Engine).Down, func(t *testing.T, b *rig.Engine) { b.Up(t) }, "connection refused"},
		{"checks answered no", nil, func(b *rig.Engine) { b.Get("/health", rig.Ailing) }, func(_ *testing.T, b *rig.Engine) { b.Well("/health") }, "3 checks failed"},
		{"restarted", func(b *rig.Engine) { b.Get("/metrics", startTime(1000)) }, func(b *rig.Engine) { b.Get("/metrics", startTime(2000)) }, nil, "start time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
			if c.before != nil {
				c.before(b)
			}
			r := rig.Start(t, a, b, rig.Swift...)
			c.hit(b)
			r.Went(t, rig.Patience, "b", strings.Fields("ready down"+map[bool]string{true: " warming slow-start ready"}[c.mend == nil])...)
			if c.mend != nil {
				r.Is(t, rig.Patience, "b", "down")
				if resp := r.Post(t, rig.ChatPath, rig.ChatBody(true)); resp.Status != 200 || resp.Fields.Get("X-Ramjet-Engine") != "a" || resp.Fields.Get("X-Ramjet-Reason") != "only-one" {
					t.Errorf("while b is down: %d by %q (%s)", resp.Status, resp.Fields.Get("X-Ramjet-Engine"), resp.Fields.Get("X-Ramjet-Reason"))
				}
				c.mend(t, b)
			}
			list := r.Went(t, 2*rig.Patience, "b", "ready", "down", "warming", "slow-start", "ready")
			if !strings.Contains(list[1].Reason, c.why) {
				t.Errorf("down for %q, want %q", list[1].Reason, c.why)
			}
			if warm := list[3].Time.Sub(list[2].Time); warm < 500*time.Millisecond {
				t.Errorf("it warmed up for %v, want 500 ms at least", warm)
			}
			if got := rig.Path(r.Changes(t, "a")); got != "ready" {
				t.Errorf("the other went %s", got)
			}
		})
	}
}

// TestStateOldStartTime: behind one address several processes may answer in
// turns; only a later start than any seen is a restart.
func TestStateOldStartTime(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	b.Get("/metrics", startTime(2000))
	r := rig.Start(t, a, b, rig.Swift...)
	for i := range 6 {
		b.Get("/metrics", startTime(2000-i%2*1000))
		r.Stays(t, 150*time.Millisecond, "b", "ready")
	}
}

// TestStateFrozen: an engine without any sign of life for health.stall is down;
// what sent its client nothing moves, what streams ends.
func TestStateFrozen(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Settings("--health.stall=4s", "--health.timeout=1s", "--route.policy=round-robin")...)
	hold := func(x *rig.Exchange) {
		x.StreamHead()
		if strings.HasPrefix(x.ID(), "stream") {
			x.Events(rig.RoleEvent(), rig.DeltaEvent("one"))
		}
		x.Gone(0)
	}
	b.On(hold)
	ask := func(prefix string) (*rig.Client, string) {
		for range 4 { // in turns: one of two is b's
			c, id := r.Dial(t), r.ID(prefix)
			c.Send(rig.Request("POST", rig.ChatPath, id, rig.ChatBody(true)))
			if x := rig.WaitFor(t, id, a, b); x.E == b {
				return c, id
			}
			c.Response(rig.Patience)
		}
		t.Fatal("nothing went to b")
		return nil, ""
	}
	streaming, streamID := ask("stream")
	streaming.EventCount(rig.Patience, 2)
	waiting, waitID := ask("wait")
	waiting.Head(rig.Patience)
	b.Hang("/health")
	r.Is(t, 2*rig.Patience, "b", "down") // by way of suspect, for its stream stands still as well
	list := r.Changes(t, "b")
	if last := list[len(list)-1]; !strings.Contains(last.Reason, "frozen") {
		t.Errorf("down for %q", last.Reason)
	}
	resp := streaming.Response(rig.Patience)
	if codes := resp.ErrorEvents(); !resp.Complete || len(codes) != 1 || codes[0] != "engine_stalled" {
		t.Errorf("the stream ended with %v, properly %v", codes, resp.Complete)
	}
	r.Ended(t, streamID, "engine-stalled")
	if resp := waiting.Response(rig.Patience); !resp.Complete || len(resp.ErrorEvents()) > 0 || len(a.ByID(waitID)) != 1 {
		t.Errorf("what waited for its first token did not move: %.300q", resp.Body)
	}
	r.Ended(t, waitID, "done")
	b.Well("/health")
	r.Is(t, 2*rig.Patience, "b", "ready")
	if got := rig.Path(r.Changes(t, "b")); !strings.HasSuffix(got, "down warming slow-start ready") {
		t.Errorf("b went %s", got)
	}
}

// TestStateWarmingAnew: any failed check starts both the count and the time of
// a warm-up anew.
func TestStateWarmingAnew(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Settings("--health.stable=3s")...)
	b.Down()
	r.Went(t, rig.Patience, "b", "ready", "down")
	b.Up(t)
	r.Went(t, rig.Patience, "b", "ready", "down", "warming")
	began := time.Now()
	for time.Since(began) < 6*time.Second {
		time.Sleep(300 * time.Millisecond)
		b.Get("/health", rig.Ailing)
		time.Sleep(150 * time.Millisecond)
		b.Well("/health")
		if e := r.Status(t, "b"); e.State != "warming" && e.State != "down" {
			t.Fatalf("b is %s (%s) though its checks fail again and again", e.State, e.Reason)
		}
	}
	mended := time.Now()
	list := r.Changes(t, "b")
	rig.Eventually(t, 2*rig.Patience, "b in use again", func() string {
		if list = r.Changes(t, "b"); list[len(list)-1].To != "ready" {
			return rig.Path(list)
		}
		return ""
	})
	for _, c := range list {
		// The last failed check may have been at the beginning of its 150 ms.
		if c.To == "slow-start" && c.Time.Sub(mended) < 2*time.Second {
			t.Errorf("it was stable for 3 s only %v after its last failed check", c.Time.Sub(mended))
		}
	}
}

// TestStateSuspect: checks that time out while no request finished lately make
// an engine suspect; it is used only where nothing better is left, and is ready
// after three good checks and one finished request.
func TestStateSuspect(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	// No request may have finished on b: it would explain the time-outs.
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Flags: rig.Settings("--health.timeout=1s"), NotReady: true})
	r.Is(t, rig.Patience, "a", "ready")
	r.Is(t, rig.Patience, "b", "ready")
	b.Hang("/health")
	list := r.Went(t, rig.Patience, "b", "ready", "suspect")
	if !strings.Contains(list[1].Reason, "timed out") {
		t.Errorf("suspect for %q", list[1].Reason)
	}
	r.Is(t, rig.Patience, "b", "suspect")
	for range 5 {
		if resp := r.Post(t, rig.ChatPath, rig.ChatBody(true)); resp.Status != 200 || resp.Fields.Get("X-Ramjet-Engine") != "a" {
			t.Errorf("beside a suspect: %d by %q", resp.Status, resp.Fields.Get("X-Ramjet-Engine"))
		}
	}
	r.Orders(t, "a", "drain", "draining")
	if status, body := r.AdminGet("/readyz"); status != 200 {
		t.Errorf("with a suspect alone: /readyz %d %s", status, body)
	}
	resp := r.Post(t, rig.ChatPath, rig.ChatBody(true))
	if resp.Status != 200 || resp.Fields.Get("X-Ramjet-Engine") != "b" {
		t.Errorf("with nothing but a suspect: %d by %q", resp.Status, resp.Fields.Get("X-Ramjet-Engine"))
	}
	r.Stays(t, 500*time.Millisecond, "b", "suspect") // one finished request alone restores nothing
	b.Well("/health")
	list = r.Went(t, rig.Patience, "b", "ready", "suspect", "ready")
	if took := list[2].Time.Sub(list[1].Time); took < 2*50*time.Millisecond {
		t.Errorf("ready again after %v, which is no time for three checks", took)
	}
	r.Orders(t, "a", "ready", "slow-start")
	r.Is(t, rig.Patience, "a", "ready")
	r.ClosesLater(t)
}

// TestStateSlowStart: an engine in slow start gets one request at least, and
// not more tokens than its part of what the others hold.
func TestStateSlowStart(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Settings("--health.slow-start=600s")...) // b's part stays a tenth and a little
	hold := func(x *rig.Exchange) { x.StreamHead(); x.Gone(0) }
	a.On(hold)
	b.On(hold)
	held := func(prefix string, n int) (onA, onB int, ids []string, free func()) {
		var cs []*rig.Client
		for i := range n {
			c, id := r.Dial(t), r.ID(prefix)
			c.Send(rig.Request("POST", rig.ChatPath, id, rig.DistinctBody(prefix, i)))
			rig.WaitFor(t, id, a, b)
			cs, ids = append(cs, c), append(ids, id)
		}
		return len(a.ByIDPrefix(prefix)), len(b.ByIDPrefix(prefix)), ids, func() {
			for _, c := range cs {
				c.Close()
			}
			rig.Eventually(t, rig.Patience, "leases back", func() string {
				if n := r.Metrics().Leases(); n != 0 {
					return fmt.Sprint(n)
				}
				return ""
			})
		}
	}
	onA, onB, _, free := held("both", 8)
	if onA != 4 || onB != 4 {
		t.Errorf("eight requests on two ready engines: %d and %d", onA, onB)
	}
	free()
	r.Orders(t, "b", "ready", "slow-start")
	onA, onB, ids, free := held("slow", 9)
	e := r.Status(t, "b")
	if onB != 1 || onA != 8 || e.Leases.Prefill != 1 {
		t.Errorf("nine requests while b starts slowly: %d on a, %d on b, which tells %d; want 8 and 1", onA, onB, e.Leases.Prefill)
	}
	free()
	var x struct {
		Candidates []struct {
			Engine, State string
			Usable        bool
			Note          *string
		}
	}
	status, body := r.AdminGet("/api/v1/explain/" + ids[8])
	if err := json.Unmarshal([]byte(body), &x); status != 200 || err != nil {
		t.Fatalf("explain: %d %v", status, err)
	}
	for _, c := range x.Candidates {
		if c.Engine == "b" && (c.Usable || c.State != "slow-start" || c.Note == nil || !strings.Contains(*c.Note, "slow start")) {
			t.Errorf("the last of them explains b as %+v", c)
		}
	}
}

// TestStateStalled: streams that stand still make an engine suspect, but not
// while its own count of tokens moves: it is busy with others' requests.
func TestStateStalled(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	counted := func(n int) {
		b.Get("/metrics", rig.FullResponse(200, "text/plain; version=0.0.4",
			fmt.Sprintf("# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{model_name=\"m\"} %d\n", n)))
	}
	counted(1)
	r := rig.Start(t, a, b, rig.Settings("--health.stall=3s", "--route.policy=round-robin")...)
	c := rig.StuckStream(t, r, a, b)
	b.On(nil)
	for i := range 90 { // three times health.stall
		counted(2 + i)
		r.Stays(t, 100*time.Millisecond, "b", "ready")
	}
	var list []rig.Transition // its count stands still now
	rig.Eventually(t, 3*rig.Patience, "b suspect", func() string {
		if list = r.Changes(t, "b"); !strings.HasPrefix(rig.Path(list), "ready suspect") {
			return rig.Path(list)
		}
		return ""
	})
	if len(list) > 1 && !strings.Contains(list[1].Reason, "stalled") {
		t.Errorf("suspect for %q", list[1].Reason)
	}
	c.Close()
	r.Is(t, rig.Patience, "b", "ready") // by three good checks and Ramjet's own request
}
