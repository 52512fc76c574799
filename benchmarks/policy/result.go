package policy

import (
	"math"
	"slices"
)

// result is what one run came to. Times are in seconds.
type result struct {
	ttft, e2e              []float64
	hit, prompt, duplicate float64 // tokens
	last                   float64 // when the last answer was whole
	placedAt               []int   // requests by engine
	busy                   []float64
	prefills               float64 // most times that a new shared prefix was computed
	exact                  float64 // share of decisions by exact keys
	prefillRate            []float64
	steps                  [][]float64 // learnt seconds a token by bucket
}

func (r *result) begin(engines int) { r.placedAt = make([]int, engines) }

func (r *result) placed(f *flight) { r.placedAt[f.slot]++ }

func (r *result) end(w *world) *result {
	groups := map[int]float64{}
	for _, m := range w.models {
		r.busy = append(r.busy, m.busy)
		for g, n := range m.prefilled {
			groups[g] += n
			r.prefills = max(r.prefills, groups[g])
		}
	}
	if o, ok := w.chooser.(*ours); ok {
		r.exact = float64(o.exact) / float64(max(o.picks, 1))
		for i := range w.product.set.Members {
			rates := w.product.book.Rates(w.product.set.Members[i].Account)
			r.prefillRate = append(r.prefillRate, rates.Prefill())
			var steps []float64
			for b := 1; b <= 128; b *= 2 {
				steps = append(steps, rates.SecondsPerToken(float64(b)))
			}
			r.steps = append(r.steps, steps)
		}
	}
	return r
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(max(len(v), 1))
}

func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Clone(v)
	slices.Sort(s)
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

func median(v []float64) float64 {
	s := slices.Clone(v)
	slices.Sort(s)
	n := len(s)
	if n == 0 {
		return math.NaN()
	}
	return (s[(n-1)/2] + s[n/2]) / 2
}

func (r *result) meanTTFT() float64 { return mean(r.ttft) }
func (r *result) meanE2E() float64  { return mean(r.e2e) }

// hitRate is the share of prompt tokens that were cached.
func (r *result) hitRate() float64 { return r.hit / max(r.prompt, 1) }

// imbalance is the busiest engine's time over the mean.
func (r *result) imbalance() float64 { return slices.Max(r.busy) / mean(r.busy) }

// throughput is answers a second up to the last one.
func (r *result) throughput() float64 { return float64(len(r.e2e)) / max(r.last, 1e-9) }

// shareOf is the share of requests that the engine in a slot got.
func (r *result) shareOf(slot int) float64 {
	total := 0
	for _, n := range r.placedAt {
		total += n
	}
	return float64(r.placedAt[slot]) / float64(max(total, 1))
}
