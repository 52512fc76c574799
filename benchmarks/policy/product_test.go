package policy

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"ramjet/radix"
	"ramjet/telemetry"
)

// TestIndexFollowsTheCaches: after a run whose caches were too small, the index of the product says of every prompt
// what the engines really hold.
func TestIndexFollowsTheCaches(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	load := &workload{blockTokens: sessionBlock}
	for i := range 400 {
		j := &job{at: float64(i) * 2, in: 40_000 + rng.IntN(40_000), out: 20, session: mix(uint64(i) + 1)}
		topic := rng.Uint64N(60)
		for k := range j.in / sessionBlock {
			j.words = append(j.words, mix(topic<<32+uint64(k)+1))
		}
		load.jobs = append(load.jobs, j)
	}
	s := &scenario{name: "full caches", profiles: pair}
	var w *world
	checked, held := 0, 0
	c := candidates()[nameDefault]
	c.disturb = func(of *world) {
		w = of
		w.agenda.add(1500, func() {
			for _, j := range load.jobs {
				var tokens [radix.MaxEngines]int32
				w.product.index.Match(j.keys(sessionBlock), sessionBlock, &tokens)
				for i, m := range w.models {
					n, _ := m.blocks.match(j.keys(sessionBlock))
					checked, held = checked+1, held+n
					if int(tokens[i]) != n*sessionBlock {
						t.Errorf("engine %d holds %d tokens, the index says %d", i, n*sessionBlock, tokens[i])
					}
				}
			}
			for _, e := range w.product.engines {
				if trust, why := e.Trust(); trust != telemetry.TrustExact {
					t.Errorf("engine %s is %v: %s", e.Name, trust, why)
				}
			}
		})
	}
	r, err := play(s, load, c)
	if err != nil {
		t.Fatal(err)
	}
	if checked != 800 || held == 0 || r.exact != 1 {
		t.Errorf("%d compared, %d blocks held, exact %v", checked, held, r.exact)
	}
	full := 0
	for _, m := range w.models {
		full += len(m.blocks.byKey)
	}
	if capacity := 2 * (cacheTokens / sessionBlock); full < capacity*9/10 {
		t.Errorf("only %d of %d blocks are filled: nothing was evicted", full, capacity)
	}
}

// TestRunsLeaveNothingBehind: no goroutine stays, also where the events were cut.
func TestRunsLeaveNothingBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	s := &scenario{name: "burst", profiles: pair, make: burst(50, 2000, 20)}
	load := s.make(nil, nil, false)
	for _, c := range []candidate{candidates()[nameDefault], candidates()["strict"], cutAt()} {
		if _, err := play(s, load, c); err != nil {
			t.Fatal(err)
		}
	}
	for began := time.Now(); runtime.NumGoroutine() > before && time.Since(began) < 10*time.Second; {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}

// TestTrustDecides: late events and a cut end exact keys, and the run goes on by the memory.
func TestTrustDecides(t *testing.T) {
	t.Parallel()
	s := &scenario{name: "turns", profiles: pair}
	load := &workload{blockTokens: mooncakeBlock}
	for i := range 60 {
		j := &job{at: float64(i), in: 3000, out: 5, session: mix(uint64(i%6) + 1)}
		for k := range j.in / mooncakeBlock {
			j.words = append(j.words, mix(uint64(i%6)<<20+uint64(k)+1))
		}
		load.jobs = append(load.jobs, j)
	}
	for _, x := range []struct {
		c         candidate
		low, high float64
	}{{candidates()[nameDefault], 1, 1}, {late(2 + eventDelay), 0, 0.9}, {cutAt(), 0.4, 0.6}} {
		r, err := play(s, load, x.c)
		if err != nil {
			t.Fatal(err)
		}
		if r.exact < x.low || r.exact > x.high {
			t.Errorf("%s: %.2f by exact keys, want %v to %v", x.c.name, r.exact, x.low, x.high)
		}
		if r.hitRate() < 0.7 {
			t.Errorf("%s: hit %.2f", x.c.name, r.hitRate())
		}
	}
}
