package e2e

import (
	"slices"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// Trace headers (W3C Trace Context) are the client's and the engine's: they
// reach the engine byte for byte, also where the request moves or its body is
// added to, and Ramjet makes none of its own.
func TestTraceContextPasses(t *testing.T) {
	t.Parallel()
	given := []string{
		"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"tracestate: rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
		"tracestate: third=1, ,vendor@x=a b", // a list may come in several lines
		"Baggage: userId=alice,serverNode=DF%2028",
	}
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--usage=inject")
	traced := func(x *rig.Exchange) (got []string) {
		for _, line := range strings.Split(string(x.Head), "\r\n") {
			name, _, _ := strings.Cut(strings.ToLower(line), ":")
			if strings.HasPrefix(name, "trace") || name == "baggage" {
				got = append(got, line)
			}
		}
		return got
	}
	for _, body := range []string{rig.ChatBody(false), rig.ChatBody(true)} {
		id := r.ID("trace")
		if answer := r.Do(t, rig.Request("POST", rig.ChatPath, id, body, given...)); answer.Status != 200 {
			t.Fatalf("%d %.300q", answer.Status, answer.Body)
		}
		if got := traced(rig.WaitFor(t, id, a, b)); !slices.Equal(got, given) {
			t.Errorf("the engine got %q, want %q", got, given)
		}
		id = r.ID("untraced")
		r.Do(t, rig.Request("POST", rig.ChatPath, id, body))
		if got := traced(rig.WaitFor(t, id, a, b)); len(got) != 0 {
			t.Errorf("an untraced request reached the engine with %q", got)
		}
	}

	// A malformed one is not ours to judge either.
	odd := []string{"traceparent: not-a-trace"}
	id := r.ID("odd")
	r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(false), odd...))
	if got := traced(rig.WaitFor(t, id, a, b)); !slices.Equal(got, odd) {
		t.Errorf("the engine got %q, want %q", got, odd)
	}

	// A request that moves takes them along.
	a.On(func(x *rig.Exchange) { x.Reset() })
	b.On(func(x *rig.Exchange) { x.Reset() })
	id = r.ID("moved")
	r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(false), given...))
	for _, e := range []*rig.Engine{a, b} {
		if got := traced(rig.WaitFor(t, id, e)); !slices.Equal(got, given) {
			t.Errorf("engine %s got %q after a move, want %q", e.Name, got, given)
		}
	}
	a.On(nil)
	b.On(nil)
}
