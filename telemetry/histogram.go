package telemetry

import (
	"slices"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
)

// Histogram is a histogram for Prometheus whose counts can be read back, which
// the library's own cannot: quantiles of the last minute are made from them.
// It is safe for concurrent use and allocates nothing.
type Histogram struct {
	out    *metrics.PrometheusHistogram
	bounds []float64 // upper ones, ascending; shared and never written
	counts []atomic.Uint64
}

func newHistogram(out *metrics.PrometheusHistogram, bounds []float64) *Histogram {
	return &Histogram{out: out, bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

// Update counts v in seconds. What is below 0 or no number is not counted.
func (h *Histogram) Update(v float64) {
	if v != v || v < 0 {
		return
	}
	h.out.Update(v)
	i, _ := slices.BinarySearch(h.bounds, v) // an upper bound belongs to its bucket
	h.counts[i].Add(1)
}

// read adds how many values lie in each bucket, the last one above all bounds,
// to dst, which is made if it is nil.
func (h *Histogram) read(dst []uint64) []uint64 {
	if dst == nil {
		dst = make([]uint64, len(h.counts))
	}
	for i := range h.counts {
		dst[i] = h.counts[i].Load()
	}
	return dst
}

// quantile estimates the q-quantile (0..1) of the values counted between two
// readings, as Prometheus does: evenly spread within a bucket, and for the last
// bucket its lower bound. It is Unknown if nothing was counted between them.
func quantile(q float64, bounds []float64, before, after []uint64) float64 {
	var total uint64
	for i := range after {
		total += grown(before, after, i)
	}
	if total == 0 {
		return Unknown
	}
	rank, seen := q*float64(total), 0.0
	for i := range bounds {
		n := float64(grown(before, after, i))
		if n > 0 && seen+n >= rank {
			low := 0.0
			if i > 0 {
				low = bounds[i-1]
			}
			return low + (bounds[i]-low)*max(rank-seen, 0)/n
		}
		seen += n
	}
	return bounds[len(bounds)-1]
}

// grown is what bucket i took between two readings; a nil reading is of none.
func grown(before, after []uint64, i int) uint64 {
	if before == nil {
		return after[i]
	}
	return after[i] - before[i]
}
