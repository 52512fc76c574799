package policy

import (
	"math/rand/v2"
	"testing"
)

// growing is people whose sessions grow by some blocks each turn. Nothing but the prompt says which session a request
// is of.
func growing(users, turns, first, step int, rng *rand.Rand) *workload {
	l := &workload{blockTokens: mooncakeBlock, until: 1e5}
	for u := range users {
		var jobs []*job
		var like *job
		for n := range turns {
			j := &job{at: 2 + 20*rng.Float64(), in: first + n*step, out: 100, like: like}
			for k := range j.in / mooncakeBlock {
				j.words = append(j.words, mix(uint64(u+1)<<32+uint64(k))) //nolint:gosec // small
			}
			like, jobs = j, append(jobs, j)
		}
		l.users = append(l.users, jobs)
	}
	return l
}

// TestHitsHoldUnderEviction: open sessions grow to a seventh more than both caches hold together, so that blocks are
// evicted, and the share of tokens that are hit stays what the growth of the prompts leaves (95 %) but for a little. In
// turns, where each cache needs every session, the same load falls off a cliff.
func TestHitsHoldUnderEviction(t *testing.T) {
	t.Parallel()
	const users, turns, first, step = 45, 25, 40_000, 1500
	if whole := users * (first + (turns-1)*step); whole < 2*cacheTokens*11/10 {
		t.Fatalf("the sessions come to %d tokens, which fit", whole)
	}
	s := &scenario{name: "growing sessions", profiles: []string{profileStandard, profileStandard}}
	run := func(who string) (r *result, removed uint64) {
		var w *world
		c := candidates()[who]
		c.disturb = func(of *world) { w = of }
		r, err := play(s, growing(users, turns, first, step, rand.New(rand.NewPCG(7, 7))), c)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.e2e) != users*turns {
			t.Fatalf("%s: %d answers of %d", who, len(r.e2e), users*turns)
		}
		for _, f := range w.product.feeds {
			removed += f.Stats().Removed
		}
		return r, removed
	}
	r, removed := run(nameDefault)
	inTurns, _ := run(nameOwnTurns)
	t.Logf("hit %.3f with %d announced evictions, in turns %.3f", r.hitRate(), removed, inTurns.hitRate())
	if removed < 100 || r.exact != 1 {
		t.Errorf("%d evictions were announced, %.2f of the choices by exact keys", removed, r.exact)
	}
	if r.hitRate() < 0.88 || r.hitRate() < 1.5*inTurns.hitRate() {
		t.Errorf("hit %.3f of all tokens, in turns %.3f", r.hitRate(), inTurns.hitRate())
	}
}
