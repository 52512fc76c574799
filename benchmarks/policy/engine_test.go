package policy

import (
	"math"
	"math/rand/v2"
	"testing"
)

// burst are n equal requests at once.
func burst(n, in, out int) func(*traces, *rand.Rand, bool) *workload {
	return func(*traces, *rand.Rand, bool) *workload {
		l := &workload{blockTokens: mooncakeBlock}
		for i := range n {
			l.jobs = append(l.jobs, &job{in: in, out: out, session: mix(uint64(i) + 1)})
		}
		return l
	}
}

// TestEngineCalibration: the model decodes as the reference does, alone and with MTP.
func TestEngineCalibration(t *testing.T) {
	t.Parallel()
	rate := func(profile string, n, out int) float64 {
		t.Helper()
		s := &scenario{name: "burst", profiles: []string{profile}, make: burst(n, 64, out)}
		r, err := play(s, s.make(nil, nil, false), candidates()[nameDefault])
		if err != nil {
			t.Fatal(err)
		}
		return float64(n*(out-1)) / (r.e2e[n-1] - r.ttft[n-1]) // the first came alone
	}
	if got := rate(profileStandard, 32, 512); math.Abs(got/1844.1-1) > 0.02 {
		t.Errorf("plain decoding at 32: %.0f tokens/s, the reference has 1,844", got)
	}
	for _, c := range []struct {
		n    int
		gain float64
	}{{1, 1.791}, {8, 1.350}, {16, 1.270}, {32, 1.075}} {
		if got := rate(profileMTP, c.n, 256) / rate(profileStandard, c.n, 256); math.Abs(got/c.gain-1) > 0.02 {
			t.Errorf("MTP at %d is %.3f x as fast, want %.3f", c.n, got, c.gain)
		}
	}
	if got := rate(profileMTP, 32, 512) / rate(profileStandard, 32, 512); math.Abs(got/0.954-1) > 0.02 {
		t.Errorf("MTP at 32 with long answers is %.3f x as fast, want 0.954", got)
	}
}

// TestEngineChunksPrompts: a prompt takes its tokens' time, and what it shares with the one before takes none.
func TestEngineChunksPrompts(t *testing.T) {
	t.Parallel()
	words := make([]uint64, 20)
	for i := range words {
		words[i] = uint64(i) + 1
	}
	s := &scenario{name: "two", profiles: []string{profileStandard}, make: nil}
	load := &workload{blockTokens: mooncakeBlock, jobs: []*job{
		{at: 0, in: 20 * mooncakeBlock, out: 2, words: words, session: 1},
		{at: 10, in: 20 * mooncakeBlock, out: 2, words: words, session: 2},
	}}
	r, err := play(s, load, candidates()[nameDefault])
	if err != nil {
		t.Fatal(err)
	}
	if want := 10240/prefillRate + 3*stepBase; math.Abs(r.ttft[0]-want) > 1e-9 {
		t.Errorf("the first prompt took %v s, want %v: three steps", r.ttft[0], want)
	}
	// The block with the last token is never hit.
	if want := 512/prefillRate + stepBase; math.Abs(r.ttft[1]-want) > 1e-9 || r.hit != 19*mooncakeBlock {
		t.Errorf("the second took %v s with %v tokens hit, want %v", r.ttft[1], r.hit, want)
	}
}

// TestEngineHoldsItsLimits: no more answers than it may have, and the cache is empty of users at the end.
func TestEngineHoldsItsLimits(t *testing.T) {
	t.Parallel()
	s := &scenario{name: "burst", profiles: []string{profileStandard}, make: burst(300, 700, 40)}
	most := 0
	var m *model
	c := candidates()[nameDefault]
	c.disturb = func(w *world) {
		m = w.models[0]
		var look func()
		look = func() {
			most = max(most, len(m.running))
			if w.now < 60 {
				w.agenda.add(w.now+0.01, look)
			}
		}
		w.agenda.add(0.01, look)
	}
	r, err := play(s, s.make(nil, nil, false), c)
	if err != nil {
		t.Fatal(err)
	}
	if most != maxSequences || len(r.e2e) != 300 {
		t.Errorf("%d answers at once, %d in all", most, len(r.e2e))
	}
	if b := m.blocks; b.pinned != 0 || b.private != 0 || b.reserved != 0 {
		t.Errorf("%d blocks pinned, %d private, %d reserved after the end", b.pinned, b.private, b.reserved)
	}
}
