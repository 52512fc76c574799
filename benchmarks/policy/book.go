package policy

import (
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// book runs what is asked for, once.
type book struct {
	traces *traces
	first  int // seeds
	last   int
	short  bool
	log    io.Writer
	who    map[string]candidate
	runs   map[runID]*result
	load   *workload // the last one used, and whose it is
	loadOf runID
}

type runID struct {
	scenario, who string
	seed          int
}

// get returns the run of a scenario under a candidate.
func (b *book) get(s *scenario, who string, seed int) (*result, error) {
	id := runID{s.name, who, seed}
	if r, ok := b.runs[id]; ok {
		return r, nil
	}
	c, ok := b.who[who]
	if !ok {
		panic("BUG: nobody is called " + who)
	}
	r, err := b.play(s, c, seed)
	if err != nil {
		return nil, err
	}
	b.runs[id] = r
	return r, nil
}

func (b *book) play(s *scenario, c candidate, seed int) (*result, error) {
	of := runID{scenario: s.name, seed: seed}
	if b.loadOf != of {
		rng := rand.New(rand.NewPCG(uint64(seed), 0x706f6c696379)) //nolint:gosec // a seed
		b.load, b.loadOf = s.make(b.traces, rng, b.short), of
	}
	began := time.Now()
	r, err := play(s, b.load, c)
	if err != nil {
		return nil, fmt.Errorf("%s under %s: %w", s.name, c.name, err)
	}
	fmt.Fprintf(b.log, "%-18s seed %d %-18s TTFT %8.2f s, p99 %7.2f, E2E %8.2f, %5d answers, hit %.3f, again %5.2f M, busiest %.2f x, first engine %.2f, exact %.3f (%.1f s)\n",
		s.name, seed, c.name, r.meanTTFT(), quantile(r.ttft, 0.99), r.meanE2E(), len(r.e2e), r.hitRate(), r.duplicate/1e6, r.imbalance(), r.shareOf(0), r.exact,
		time.Since(began).Seconds())
	return r, nil
}

// each calls use for every seed with the runs of these candidates, and returns the median of what it returns.
func (b *book) each(s *scenario, who []string, use func(r ...*result) float64) (float64, error) {
	var values []float64
	for seed := b.first; seed <= b.last; seed++ {
		var runs []*result
		for _, name := range who {
			r, err := b.get(s, name, seed)
			if err != nil {
				return 0, err
			}
			runs = append(runs, r)
		}
		values = append(values, use(runs...))
	}
	return median(values), nil
}
