package benchmarks

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestQuantiles(t *testing.T) {
	t.Parallel()
	var v []int64
	for i := range 1000 {
		v = append(v, int64(1000-i))
	}
	if q := quantilesOf(v); q != (Quantiles{N: 1000, P50: 500, P90: 900, P99: 990, Max: 1000}) {
		t.Errorf("%+v", q)
	}
	if q := quantilesOf([]int64{5}); q != (Quantiles{N: 1, P50: 5, P90: 5, P99: 5, Max: 5}) {
		t.Errorf("%+v", q)
	}
	if q := quantilesOf(nil); q != (Quantiles{}) {
		t.Errorf("%+v", q)
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	cases := []struct {
		values []float64
		want   Spread
	}{
		{[]float64{3}, Spread{N: 1, Median: 3, Min: 3, Max: 3, Low: 3, High: 3}},
		{[]float64{4, 1, 2, 3}, Spread{N: 4, Median: 2.5, Min: 1, Max: 4, Low: 1, High: 4}},
		{[]float64{7, 6, 5, 4, 3, 2, 1}, Spread{N: 7, Median: 4, Min: 1, Max: 7, Low: 2, High: 6}},
		{nil, Spread{}},
	}
	for _, c := range cases {
		if got := spreadOf(c.values); got != c.want {
			t.Errorf("%v: got %+v, want %+v", c.values, got, c.want)
		}
	}
}

// The interval encloses the true median as often as it says, for a distribution with a long tail.
func TestIntervalCoversTheMedian(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{4, 7, 9, 15, 30} {
		const trials = 4000
		inside := 0
		for range trials {
			v := make([]float64, n)
			for i := range v {
				v[i] = math.Exp(2 * rng.NormFloat64()) // median 1
			}
			if s := spreadOf(v); s.Low <= 1 && 1 <= s.High {
				inside++
			}
		}
		if share := float64(inside) / trials; share < 0.83 {
			t.Errorf("n=%d: the interval held the median in %.3f of the trials", n, share)
		}
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		values []float64
		want   Verdict
	}{
		{"all below", []float64{1, 1, 1.1, 1.1, 1.2, 1.2, 1.2}, Met},
		{"one outlier does not matter", []float64{1, 1, 1.1, 1.1, 1.2, 1.2, 9}, Met},
		{"all above", []float64{1.3, 1.3, 1.4, 1.4, 1.4, 1.5, 1.6}, NotMet},
		{"around the bound", []float64{1, 1.1, 1.2, 1.24, 1.3, 1.4, 1.5}, NotSeparable},
		{"two below", []float64{1, 1}, NotSeparable},
		{"one above", []float64{2}, NotSeparable},
		{"three below", []float64{1, 1, 1}, Met},
		{"nothing", nil, NotMeasured},
	}
	for _, c := range cases {
		if got := judge(spreadOf(c.values), 1.25); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
