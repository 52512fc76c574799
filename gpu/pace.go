package gpu

import (
	"slices"
	"time"
)

// pace learns how often something happens from when it did.
type pace struct {
	last time.Time
	gaps [16]time.Duration
	n    int
}

// tick notes one event.
func (p *pace) tick(at time.Time) {
	if gap := at.Sub(p.last); !p.last.IsZero() && gap > 0 {
		p.gaps[p.n%len(p.gaps)] = gap
		p.n++
	}
	p.last = at
}

// interval is the lower quartile of the newest gaps, 0 before there is one. An
// idle GPU whose figures do not change makes gaps long, never short.
func (p *pace) interval() time.Duration {
	n := min(p.n, len(p.gaps))
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(p.gaps[:n]))
	return sorted[n/4]
}
