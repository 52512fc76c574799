package benchmarks

import (
	"math"
	"slices"

	"ramjet/benchmarks/lab"
)

// Quantiles of one run, in nanoseconds; all 0 when N is 0.
type Quantiles struct {
	N   int   `json:"n"`
	P50 int64 `json:"p50_ns"`
	P90 int64 `json:"p90_ns"`
	P99 int64 `json:"p99_ns"`
	Max int64 `json:"max_ns"`
}

// quantilesOf sorts samples in place.
func quantilesOf(samples []int64) Quantiles {
	if len(samples) == 0 {
		return Quantiles{}
	}
	slices.Sort(samples)
	return Quantiles{
		N: len(samples), P50: nearestRank(samples, 0.50), P90: nearestRank(samples, 0.90), P99: nearestRank(samples, 0.99),
		Max: samples[len(samples)-1],
	}
}

// nearestRank returns the smallest value that at least the share q of the sorted samples does not exceed.
func nearestRank(sorted []int64, q float64) int64 {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// Spread describes one figure over the rounds.
type Spread struct {
	N                int
	Median, Min, Max float64
	// Low and High enclose the true median with a chance of at least 85 %, whatever the distribution (order statistics,
	// as in a sign test: of 7 rounds the second and the sixth). With fewer than 4 rounds they are Min and Max.
	Low, High float64
}

// spreadOf returns the zero Spread for no values.
func spreadOf(values []float64) Spread {
	n := len(values)
	if n == 0 {
		return Spread{}
	}
	v := slices.Clone(values)
	slices.Sort(v)
	s := Spread{N: n, Min: v[0], Max: v[n-1], Median: v[n/2]}
	if n%2 == 0 {
		s.Median = (v[n/2-1] + v[n/2]) / 2
	}
	k := rankOfInterval(n)
	s.Low, s.High = v[k-1], v[n-k]
	return s
}

// rankOfInterval returns the largest k for which the k-th smallest and k-th largest of n values enclose the median with
// a chance of at least 85 %, and 1 if there is none.
func rankOfInterval(n int) int {
	const outside = 0.15
	best, tail, pmf := 1, 0.0, math.Pow(0.5, float64(n))
	for k := 1; 2*k <= n; k++ {
		tail += pmf // P(at most k-1 of n lie below the median)
		if 2*tail > outside {
			break
		}
		best = k
		pmf = pmf * float64(n-k+1) / float64(k)
	}
	return best
}

// Verdict on a bound.
type Verdict string

// The verdicts.
const (
	Met          Verdict = "met"
	NotMet       Verdict = "not met"
	NotSeparable Verdict = "not separable"
	NotMeasured  Verdict = "not measured"
)

// fewest is the least number of values that may decide anything.
const fewest = lab.Fewest

// judge compares a figure, of which less is better, with its bound.
func judge(s Spread, bound float64) Verdict {
	switch {
	case s.N == 0:
		return NotMeasured
	case s.N < fewest:
		return NotSeparable
	case s.High <= bound:
		return Met
	case s.Low > bound:
		return NotMet
	}
	return NotSeparable
}
