package e2e

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// names lists the engines of the topology in order.
func (r *reloading) names(t testing.TB) (names []string) {
	t.Helper()
	var v struct{ Engines []rig.EngineStatus }
	r.Get(t, "/api/v1/topology", &v)
	for _, e := range v.Engines {
		names = append(names, e.Name)
	}
	return names
}

// TestReloadUnderLoad adds, removes and moves engines under about 30 requests a
// second and some long streams. Nothing is lost, a removed engine finishes its
// streams and is given nothing new, and then nothing of it is left.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	var e []*rig.Engine
	for _, name := range []string{"a", "b", "c", "d"} {
		e = append(e, rig.NewEngine(t, name))
	}
	a, b, c, d := e[0], e[1], e[2], e[3]
	r := startFile(t, engineList([]*rig.Engine{a, b}), []*rig.Engine{a, b}, rig.Swift...)
	var stops []func() (int, []string)
	for range 3 {
		stops = append(stops, rig.Steady(t, r.Ramjet, 70*time.Millisecond))
	}
	began := time.Now()

	r.use(t, engineList([]*rig.Engine{a, b, c}))
	r.Went(t, 2*rig.Patience, "c", "warming", "slow-start", "ready")

	// Streams on a, while a is removed.
	for _, x := range []*rig.Engine{a, b, c} {
		x.On(func(x *rig.Exchange) {
			if bytes.Contains(x.Body, []byte(`"stream":true`)) {
				rig.TokensFor(5 * time.Second)(x)
				return
			}
			x.Plain()
		})
	}
	held := rig.Streams(t, r.Ramjet, 12)
	if a.Busy() == 0 {
		t.Fatal("none of 12 streams is on a")
	}
	before := r.Metrics().Sum("ramjet_leases", "engine", "a")
	r.use(t, engineList([]*rig.Engine{b, c}))
	reloaded := rig.IdsSoFar() // ids that are sent from here on are larger
	if got := r.Metrics().Sum("ramjet_leases", "engine", "a"); before < 1 || got < 1 {
		t.Errorf("a holds %v leases, and %v once it is removed: its streams are not over", before, got)
	}
	for _, h := range held {
		if answer := h.Response(4 * rig.Patience); !answer.Whole() {
			t.Errorf("a stream was cut: %d %.100q", answer.Status, answer.Body)
		}
	}
	for _, x := range a.ByIDPrefix("steady") {
		if n, err := strconv.ParseInt(strings.TrimPrefix(x.ID(), "steady-"), 10, 64); err != nil || n > reloaded {
			t.Errorf("a got request %s, the last one before it was removed was %d", x.ID(), reloaded)
		}
	}
	r.gone(t, a)
	if got := r.names(t); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("the topology has %v", got)
	}
	r.Is(t, rig.Patience, "c", "ready")

	// Another address under the same name is another engine.
	moved := rig.NewEngine(t, "b")
	r.use(t, engineList([]*rig.Engine{c, moved}))
	r.Is(t, 2*rig.Patience, "b", "ready")
	if got := rig.Path(r.Changes(t, "b")); !strings.HasSuffix(got, "warming slow-start ready") {
		t.Errorf("b has another address and went %s", got)
	}
	// All at once: the last that is usable goes too, and what is there fails open.
	r.use(t, engineList([]*rig.Engine{d, a}))
	r.Is(t, 2*rig.Patience, "d", "ready")
	r.gone(t, c)
	r.use(t, engineList([]*rig.Engine{a, b}))
	r.Is(t, 2*rig.Patience, "b", "ready")
	r.Is(t, 2*rig.Patience, "a", "ready")
	r.gone(t, d)

	sent := 0
	for _, stop := range stops {
		n, bad := stop()
		sent += n
		for _, line := range bad {
			t.Errorf("lost: %s", line)
		}
	}
	rate := float64(sent) / time.Since(began).Seconds()
	t.Logf("%d requests, %.0f a second", sent, rate)
	if sent < 50 {
		t.Errorf("%d requests were sent", sent)
	}
}

// TestReloadManyTimes: a hundred reloads leave nothing behind, whatever comes
// and goes; slots are used again.
func TestReloadManyTimes(t *testing.T) {
	t.Parallel()
	a, b, c := rig.NewEngine(t, "a"), rig.NewEngine(t, "b"), rig.NewEngine(t, "c")
	r := startFile(t, engineList([]*rig.Engine{a, b}), []*rig.Engine{a, b}, rig.Swift...)
	for i := range 100 {
		list := []*rig.Engine{a, b}
		if i%2 == 0 {
			list = append(list, c)
		}
		r.use(t, engineList(list, fmt.Sprintf("in_flight: %d", 100+i)))
		if i%10 == 0 {
			r.Served(r.ID("between"), i%20 == 0)
		}
	}
	r.gone(t, c)
	r.use(t, engineList([]*rig.Engine{a, b}))
	if got := r.names(t); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the topology has %v", got)
	}
	r.Is(t, rig.Patience, "a", "ready") // it was there all the time
	if list := r.Changes(t, "a"); len(list) > 1 {
		t.Errorf("a changed its state: %s", rig.Path(list))
	}
}

// TestReloadEngineSettings: what is set of an engine that stays is taken over
// without a change of its state.
func TestReloadEngineSettings(t *testing.T) {
	t.Parallel()
	a := rig.NewEngine(t, "a")
	key := t.TempDir() + "/key"
	write(t, key, "first\n")
	text := engineList([]*rig.Engine{a}, "api_key_file: "+key)
	r := startFile(t, text, []*rig.Engine{a}, rig.Swift...)
	sees := func(want string) {
		t.Helper()
		id := r.ID("key")
		r.Served(id, false)
		if got := rig.WaitFor(t, id, a).Fields.Get("Authorization"); got != want {
			t.Errorf("the engine gets %q, want %q", got, want)
		}
	}
	sees("Bearer first")
	write(t, key, "second\n")
	r.reload(t, 200)
	sees("Bearer second")
	v := r.use(t, engineList([]*rig.Engine{a}, "profile: mtp", "in_flight: 1"))
	if want := []string{"engines.a.api_key_file", "engines.a.in_flight", "engines.a.profile"}; !slices.Equal(v.Changed, want) {
		t.Errorf("changed: %v, want %v", v.Changed, want)
	}
	sees("")
	a.On(func(x *rig.Exchange) { x.StreamHead(); x.Gone(0) })
	held := r.Dial(t)
	held.Send(rig.Request("POST", rig.ChatPath, r.ID("held"), rig.ChatBody(true)))
	held.Head(rig.Patience)
	if got := r.Post(t, rig.ChatPath, rig.ChatBody(false)); got.Status != 429 {
		t.Errorf("above in_flight: %d", got.Status)
	}
	held.Close()
	if list := r.Changes(t, "a"); len(list) > 1 {
		t.Errorf("a changed its state: %s", rig.Path(list))
	}
}
