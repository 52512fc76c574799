package growth

import (
	"math"
	"slices"

	"ramjet/benchmarks/lab"
)

// Point is what was measured at one size.
type Point struct {
	X float64 `json:"x"`
	// Y has one value for each round, in the order of the rounds. A value of 0 or less means that the round saw nothing
	// above the noise; it has no logarithm and takes no part.
	Y []float64 `json:"y"`
}

// Fit is the exponent b of y = a x^b over the rounds.
type Fit struct {
	// All is over all points. Tail is over the upper half of them, at least three: a curve that begins flat and bends
	// upwards hides in All and shows here.
	All, Tail lab.Spread
	// Decades is the range of sizes that were fitted, in powers of ten.
	Decades float64
}

// FitOf fits each round by itself.
func FitOf(points []Point) Fit {
	p := slices.Clone(points)
	slices.SortFunc(p, func(a, b Point) int {
		if a.X < b.X {
			return -1
		}
		return 1
	})
	rounds := 0
	for _, q := range p {
		rounds = max(rounds, len(q.Y))
	}
	tail := p[min(len(p)/2, max(0, len(p)-3)):]
	var f Fit
	var all, upper []float64
	for r := range rounds {
		all, upper = append(all, slope(p, r)), append(upper, slope(tail, r))
	}
	f.All, f.Tail = lab.SpreadOf(all), lab.SpreadOf(upper)
	if len(p) > 1 && p[0].X > 0 {
		f.Decades = math.Log10(p[len(p)-1].X / p[0].X)
	}
	return f
}

// slope is the least squares slope of ln y over ln x in one round; NaN with fewer than two points.
func slope(points []Point, round int) float64 {
	var n, sx, sy, sxx, sxy float64
	for _, p := range points {
		if round >= len(p.Y) || p.Y[round] <= 0 || p.X <= 0 {
			continue
		}
		x, y := math.Log(p.X), math.Log(p.Y[round])
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	d := n*sxx - sx*sx
	if n < 2 || d <= 1e-12*n*sxx {
		return math.NaN()
	}
	return (n*sxy - sx*sy) / d
}

// Verdict on the bound of an exponent.
type Verdict string

// The verdicts; a curve without a bound has none.
const (
	Met          Verdict = "met"
	NotMet       Verdict = "not met"
	NotSeparable Verdict = "not separable"
	NotMeasured  Verdict = "not measured"
	Shown        Verdict = "shown"
)

// Judge compares an exponent with its bound: met if it is kept in every round, over all points and over the upper half.
// Few rounds decide nothing.
func (f Fit) Judge(bound float64) Verdict {
	switch {
	case bound == 0:
		return Shown
	case f.All.N == 0 || f.Tail.N == 0 || f.Decades < 1:
		return NotMeasured
	case f.All.N < lab.Fewest || f.Tail.N < lab.Fewest:
		return NotSeparable
	case f.All.Max <= bound && f.Tail.Max <= bound:
		return Met
	case f.All.Min > bound || f.Tail.Min > bound:
		return NotMet
	}
	return NotSeparable
}
