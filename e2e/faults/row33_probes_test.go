package faults

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestB7Row33StarvedProbes: every check times out while requests are served: a
// saturated engine starves its probes, and fencing it would turn load into an
// outage. Nothing changes, and no client notices.
func TestB7Row33StarvedProbes(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Settings("--health.timeout=100ms")...)
	stop := rig.Steady(t, r, 20*time.Millisecond)
	a.Hang("/health")
	b.Hang("/health")
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) { // some 30 checks
		if status, body := r.AdminGet("/readyz"); status != 200 {
			t.Fatalf("/readyz %d %s", status, body)
		}
	}
	for _, name := range []string{"a", "b"} {
		if got := rig.Path(r.Changes(t, name)); got != "ready" {
			t.Errorf("%s went %s", name, got)
		}
		r.Is(t, rig.Patience, name, "ready")
	}
	if sent, bad := stop(); len(bad) > 0 || sent < 50 {
		t.Errorf("%d of %d clients noticed: %v", len(bad), sent, bad)
	}
	a.Well("/health")
	b.Well("/health")
}

// TestB7Row33AllSuspect: every check times out and no request explains it: all
// engines are suspect, which the state set and the log tell, and requests are
// served all the same. Good checks and the requests of that time clear it.
func TestB7Row33AllSuspect(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Flags: rig.Settings("--health.timeout=100ms"), NotReady: true})
	r.Is(t, rig.Patience, "a", "ready")
	r.Is(t, rig.Patience, "b", "ready")
	a.Hang("/health")
	b.Hang("/health")
	r.Is(t, rig.Patience, "a", "suspect")
	r.Is(t, rig.Patience, "b", "suspect")
	used := map[string]int{}
	for i := range 10 {
		resp := r.Do(t, rig.Request("POST", rig.ChatPath, r.ID("suspect"), rig.DistinctBody("suspect", i)))
		if resp.Status != 200 || !resp.Whole() {
			t.Errorf("with suspects alone: %d %.200q", resp.Status, resp.Body)
		}
		used[resp.Fields.Get("X-Ramjet-Engine")]++
	}
	if used["a"] == 0 || used["b"] == 0 {
		t.Errorf("of two suspects one got everything: %v", used)
	}
	if status, _ := r.AdminGet("/readyz"); status != 200 {
		t.Errorf("/readyz %d while requests are served", status)
	}
	if resp := r.Do(t, rig.Request("GET", "/health", r.ID("health"), "", "Connection: close")); resp.Status != 200 || !strings.Contains(string(resp.Body), `"degraded"`) {
		t.Errorf("/health %d %s, want degraded", resp.Status, resp.Body)
	}
	for _, name := range []string{"a", "b"} {
		if !r.Logged(`"level":"warn"`, `"engine":"`+name+`"`, `"to":"suspect"`) {
			t.Errorf("no warning about %s", name)
		}
	}
	a.Well("/health")
	b.Well("/health")
	r.Is(t, rig.Patience, "a", "ready")
	r.Is(t, rig.Patience, "b", "ready")
	r.ClosesLater(t)
}

// TestB7Row34Lies: /health answers 200 and nothing is generated. A stream that
// stands still makes the engine suspect; good checks alone do not restore it,
// for Ramjet tries it with a request of its own, which stands still as well.
func TestB7Row34Lies(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Settings("--health.stall=800ms", "--health.timeout=1s", "--route.policy=round-robin")...)
	dead := func(x *rig.Exchange) { // its scheduler died: the API process goes on
		x.StreamHead()
		x.Gone(0)
	}
	stuck := rig.StuckStream(t, r, a, b)
	b.On(dead)
	list := r.Went(t, rig.Patience, "b", "ready", "suspect")
	if !strings.Contains(list[1].Reason, "stalled") {
		t.Errorf("suspect for %q", list[1].Reason)
	}
	before := len(b.ByIDPrefix("t-"))
	for range 10 {
		if resp := r.Post(t, rig.ChatPath, rig.ChatBody(true)); resp.Status != 200 || resp.Fields.Get("X-Ramjet-Engine") != "a" {
			t.Errorf("beside it: %d by %q", resp.Status, resp.Fields.Get("X-Ramjet-Engine"))
		}
	}
	r.Stays(t, 1500*time.Millisecond, "b", "suspect") // 25 good checks
	trials := 0
	for _, x := range b.ByIDPrefix("") {
		if x.Target == "/v1/completions" {
			trials++
		}
	}
	if n := len(b.ByIDPrefix("t-")); n != before || trials == 0 || trials > 3 {
		t.Errorf("a suspect got %d clients' requests, and %d of Ramjet's own", n-before, trials)
	}
	stuck.Close()
	b.On(nil) // it generates again; the trial that hangs ends by its limit
	b.DropAll()
	r.Went(t, 2*rig.Patience, "b", "ready", "suspect", "ready")
}

// TestB7Row34Ejected: /health answers 200 and every request fails: after
// eject.after of them no client sees another one, and good checks alone do not
// end the ejection before its time.
func TestB7Row34Ejected(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Settings("--eject.base=8s", "--eject.max=8s")...)
	b.On(rig.Failing(500))
	failed := 0
	ask := func(i int) {
		if resp := r.Do(t, rig.Request("POST", rig.ChatPath, r.ID("lies"), rig.DistinctBody("lies", i))); resp.Status != 200 {
			failed++
		}
	}
	for i := 0; i < 40 && failed < 3; i++ {
		ask(i)
	}
	list := r.Went(t, rig.Patience, "b", "ready", "ejected")
	for i := 0; i < 20 && time.Since(list[1].Time) < 3*time.Second; i++ {
		ask(100 + i)
	}
	if failed != 3 {
		t.Errorf("%d clients saw a failure, want eject.after = 3", failed)
	}
	b.On(nil)
	r.Stays(t, max(0, 3500*time.Millisecond-time.Since(list[1].Time)), "b", "ejected") // some 50 good checks
	list = r.Went(t, 4*rig.Patience, "b", "ready", "ejected", "slow-start", "ready")
	if d := list[2].Time.Sub(list[1].Time); d < 7990*time.Millisecond {
		t.Errorf("its ejection ended after %v, want 8 s", d)
	}
}

// fleet is a number of engines behind one handler that only answers checks. It
// notes when each check came and how many were under way at once.
type fleet struct {
	urls []string
	took time.Duration // of each answer

	mu     sync.Mutex // guards the following
	at     []time.Time
	most   int
	answer atomic.Int64
}

func newFleet(t *testing.T, n int, took time.Duration) *fleet {
	t.Helper()
	f := &fleet{took: took}
	for i := range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatalf("cannot listen: %v", err)
		}
		f.urls = append(f.urls, fmt.Sprintf("e%d=http://%s", i, ln.Addr()))
		s := &http.Server{Handler: http.HandlerFunc(f.serve), ReadHeaderTimeout: rig.Patience}
		go func() { _ = s.Serve(ln) }()
		t.Cleanup(func() { _ = s.Close() })
	}
	return f
}

func (f *fleet) serve(w http.ResponseWriter, req *http.Request) {
	switch req.URL.Path {
	case "/health":
		now := f.answer.Add(1)
		f.mu.Lock()
		f.at = append(f.at, time.Now())
		f.most = max(f.most, int(now))
		f.mu.Unlock()
		time.Sleep(f.took)
		f.answer.Add(-1)
	case "/v1/models":
		_, _ = fmt.Fprint(w, rig.ModelList("m"))
	case rig.ChatPath, "/v1/completions": // the trial of an engine whose checks were late
		_, _ = fmt.Fprint(w, rig.ChatAnswer("hello"))
	default:
		w.WriteHeader(404)
	}
}

// TestB7Row35ProbeStorm: the checks of as many engines as Ramjet takes (64) are
// spread over the interval and only some are under way at once, from the first
// second on.
func TestB7Row35ProbeStorm(t *testing.T) {
	t.Parallel()
	const engines, interval, rounds = 64, 600 * time.Millisecond, 4
	f := newFleet(t, engines, 4*time.Millisecond)
	r := rig.StartWith(t, rig.Setup{URLs: f.urls, Flags: rig.Settings("--health.interval="+interval.String(), "--health.timeout=5s")})
	time.Sleep(7 * interval) // by then what began together is spread
	began := time.Now()
	time.Sleep(rounds * interval)
	f.mu.Lock()
	at, most := f.at, f.most
	f.mu.Unlock()
	const parts = 10
	var bins [rounds * parts]int
	checks := 0
	for _, one := range at {
		if bin := int(one.Sub(began) / (interval / parts)); one.After(began) && bin < len(bins) {
			bins[bin]++
			checks++
		}
	}
	// Spread by chance, the fullest tenth of an interval has 11 or 12 of 64 checks; all together, they would fill one with
	// all 64. A machine that stands still for a moment makes a storm of any spread, so that this is told and not judged.
	fullest := 0.0 // on average over the rounds
	for i := range rounds {
		fullest += float64(slices.Max(bins[i*parts:(i+1)*parts])) / rounds
	}
	t.Logf("%d checks in %d intervals, want about %d; at most %d at once, %.1f in the fullest tenth of one: %v", checks, rounds, engines*rounds, most, fullest, bins)
	if most > 16 {
		t.Errorf("%d checks were under way at once, want 16 at most", most)
	}
	if checks == 0 {
		t.Error("no check came")
	}
	for range 8 {
		if resp := r.Post(t, rig.ChatPath, rig.ChatBody(false)); resp.Status != 200 {
			t.Errorf("beside the checks: %d", resp.Status)
		}
	}
}
