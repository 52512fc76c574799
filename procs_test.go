package main

import (
	"testing"
	"time"
)

// TestGovernor plays loads, in processors, each for some looks, and sees which
// number is chosen.
func TestGovernor(t *testing.T) {
	type phase struct {
		load  float64
		looks int
		want  int
	}
	for name, phases := range map[string][]phase{
		"a light load keeps one":               {{0.1, 100, 1}, {0.8, 100, 1}},
		"a burst doubles at once, to the most": {{0.9, 1, 2}, {1.9, 1, 4}, {3.9, 1, 6}, {6, 5, 6}},
		"given up one by one, after a while":   {{4, 4, 6}, {0.2, 39, 6}, {0.2, 2, 3}, {0.2, 41, 1}},
		"a load in between changes nothing":    {{0.9, 1, 2}, {0.8, 200, 2}},
		"one busy look starts the calm anew":   {{0.9, 1, 2}, {0.1, 35, 2}, {1.2, 1, 2}, {0.1, 35, 2}, {0.1, 7, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var spent time.Duration
			g := &governor{most: 6, n: 1, set: func(int) {}, cpu: func() time.Duration { return spent }}
			now := time.Unix(1_000_000, 0)
			g.tick(now)
			for i, p := range phases {
				for range p.looks {
					now = now.Add(governorStep)
					spent += time.Duration(p.load * float64(governorStep))
					g.tick(now)
				}
				if g.n != p.want {
					t.Fatalf("phase %d: %d processors, want %d", i, g.n, p.want)
				}
			}
		})
	}
}

func TestGovernorLooksSeldom(t *testing.T) {
	looks := 0
	g := &governor{most: 2, n: 1, set: func(int) {}, cpu: func() time.Duration { looks++; return 0 }}
	now := time.Unix(1_000_000, 0)
	for range 1000 {
		now = now.Add(time.Millisecond)
		g.tick(now)
	}
	if looks > 21 || looks < 19 {
		t.Errorf("%d looks in a second", looks)
	}
	var none *governor
	none.tick(now) // governs nothing
}

// TestGovernorAfterAPause: a light load over a long time is calm in one look, a
// heavy one is not.
func TestGovernorAfterAPause(t *testing.T) {
	var spent time.Duration
	g := &governor{most: 4, n: 2, set: func(int) {}, cpu: func() time.Duration { return spent }}
	now := time.Unix(1_000_000, 0)
	g.tick(now)
	spent += 6 * time.Second
	now = now.Add(10 * time.Second)
	if g.tick(now); g.n != 2 {
		t.Errorf("%d processors after a busy pause", g.n)
	}
	spent += time.Second
	now = now.Add(10 * time.Second)
	if g.tick(now); g.n != 1 {
		t.Errorf("%d processors after a calm pause", g.n)
	}
}
