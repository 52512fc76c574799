package route

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"ramjet/lease"
	"ramjet/telemetry"
)

// contractKeys are the members of CONTRACT section 4, in order.
var contractKeys = []string{
	"request_id", "time", "path", "model", "dialect", "stream", "session", "prompt_tokens", "keys", "keys_note", "output_cap", "expected_output_tokens", "handoff",
	"policy", "cohort", "candidates", "engine", "reason", "runner_up", "margin_s", "forgone_tokens", "shadow", "attempts", "result",
}

var contractCandidate = []string{
	"engine", "profile", "state", "trust", "usable", "note", "match_tokens", "match_exact_tokens", "match_approximate_tokens", "match_in_flight_tokens",
	"uncached_tokens", "queue_tokens", "prefill_requests", "decode_requests", "prefill_tokens_per_s", "seconds_per_token",
	"wait_s", "prefill_s", "decode_s", "delay_s", "cost_s",
}

func decode(t *testing.T, x *Explanation) map[string]any {
	t.Helper()
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestExplanationHasTheContractsMembers(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaults(), profileMTP, profileStandard)
	b.Members().Members[1].Engine.SetState(down, "test")
	q := request(ids(1, 500), 64)
	q.Session = 0xabc
	b.x.RequestID, b.x.Path, b.x.Time, b.x.Dialect = Text("r-1"), Text("/v1/chat/completions"), 1_700_000_000_123, "openai"
	b.want(t, q, "a", telemetry.ReasonOnlyOne)
	got := decode(t, &b.x)
	if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, slices.Sorted(slices.Values(contractKeys))) {
		t.Errorf("members %v", keys)
	}
	for name, want := range map[string]any{
		"request_id": "r-1", "time": "2023-11-14T22:13:20.123Z", "model": nil, "session": "0000000000000abc", "prompt_tokens": 500.0, "keys": "exact", "keys_note": nil,
		"output_cap": 64.0, "expected_output_tokens": 64.0, "engine": "a", "reason": "only-one", "runner_up": nil, "result": nil, "policy": "latency",
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	candidates := got["candidates"].([]any) //nolint:forcetypeassert // the test fails then
	for i, usable := range []bool{true, false} {
		c := candidates[i].(map[string]any) //nolint:forcetypeassert // the test fails then
		if keys := slices.Sorted(maps.Keys(c)); !slices.Equal(keys, slices.Sorted(slices.Values(contractCandidate))) {
			t.Errorf("members of candidate %d: %v", i, keys)
		}
		if c["usable"] != usable || (c["cost_s"] == nil) == usable || (c["note"] == nil) != usable {
			t.Errorf("candidate %d: %v", i, c)
		}
	}
}

// TestUnknownIsNull, never 0 and never absent.
func TestUnknownIsNull(t *testing.T) {
	t.Parallel()
	x := Explanation{Result: Result{Ended: true, Status: 499, End: telemetry.EndClientGoneWaiting, PromptTokens: -1, CachedTokens: -1, OutputTokens: -1,
		RouteSeconds: 0.5, TTFTSeconds: telemetry.Unknown, DurationSecond: 1}}
	result := decode(t, &x)["result"].(map[string]any) //nolint:forcetypeassert // the test fails then
	want := map[string]any{"status": 499.0, "end": "client-gone-waiting", "prompt_tokens": nil, "cached_tokens": nil, "output_tokens": nil,
		"route_s": 0.5, "ttft_s": nil, "duration_s": 1.0}
	if !maps.Equal(result, want) {
		t.Errorf("%v", result)
	}
}

func TestRingKeepsTheNewest(t *testing.T) {
	t.Parallel()
	r := NewRing(3)
	var x Explanation
	if got := r.List(Filter{}, 10); len(got) != 0 {
		t.Errorf("an empty ring lists %d", len(got))
	}
	for i := range 5 {
		x.Reset()
		x.RequestID = fmt.Appendf(x.RequestID[:0], "r%d", i)
		x.Engine, x.Reason = Word([]string{"a", "b"}[i%2]), "load"
		x.Candidates = append(x.Candidates, Candidate{Engine: "a", Match: int64(i)})
		x.Result = Result{Ended: true, End: telemetry.EndDone}
		r.Put(&x)
	}
	names := func(f Filter, limit int) string {
		var s []string
		for _, x := range r.List(f, limit) {
			s = append(s, string(x.RequestID))
		}
		return strings.Join(s, " ")
	}
	for _, c := range []struct {
		f     Filter
		limit int
		want  string
	}{
		{Filter{}, 10, "r4 r3 r2"}, {Filter{}, 2, "r4 r3"}, {Filter{Engine: "b"}, 10, "r3"}, {Filter{Reason: "exact"}, 10, ""},
		{Filter{End: "done", Engine: "a"}, 10, "r4 r2"}, {Filter{End: "rejected"}, 10, ""},
	} {
		if got := names(c.f, c.limit); got != c.want {
			t.Errorf("%+v: %q, want %q", c.f, got, c.want)
		}
	}
	got, ok := r.Find([]byte("r3"))
	if !ok || got.Candidates[0].Match != 3 {
		t.Errorf("found %v %+v", ok, got)
	}
	if _, ok := r.Find([]byte("r1")); ok {
		t.Error("found what was pushed out")
	}
	got.Candidates[0].Match = 99
	if again, _ := r.Find([]byte("r3")); again.Candidates[0].Match != 3 {
		t.Error("a copy shares memory with the ring")
	}
}

// TestNotesAreClosed: keys_note has no other words.
func TestNotesAreClosed(t *testing.T) {
	t.Parallel()
	for _, e := range []Exact{ExactOff, ExactShadow, ExactPercent} {
		s := defaults()
		s.Exact, s.Percent = e, 0
		b := newBench(t, s, "none", "none")
		var l lease.Lease
		b.pick(t, request(ids(1, 500), 64), &l)
		l.Release(0)
		if !slices.Contains(Notes(), string(b.x.KeysNote)) {
			t.Errorf("%v: note %q", e, b.x.KeysNote)
		}
	}
}
