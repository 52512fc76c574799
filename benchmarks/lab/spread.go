package lab

import (
	"math"
	"slices"
)

// Spread is the median of some values with the least and the greatest of them.
type Spread struct {
	N                int
	Median, Min, Max float64
}

// SpreadOf passes over values that are no number; of none it is the zero Spread.
func SpreadOf(values []float64) Spread {
	v := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(v) == 0 {
		return Spread{}
	}
	slices.Sort(v)
	s := Spread{N: len(v), Median: v[len(v)/2], Min: v[0], Max: v[len(v)-1]}
	if len(v)%2 == 0 {
		s.Median = (v[len(v)/2-1] + v[len(v)/2]) / 2
	}
	return s
}

// Verdicts on a bound.
const (
	Met          = "met"
	NotMet       = "not met"
	NotSeparable = "not separable"
	NotMeasured  = "not measured"
)

// Fewest is the least number of values that may decide anything.
const Fewest = 3

// Against compares a figure, of which less is better, with its bound: met or not met where every round is on one side, of
// Fewest at least.
func (s Spread) Against(bound float64) string {
	switch {
	case s.N == 0:
		return NotMeasured
	case s.N < Fewest:
		return NotSeparable
	case s.Max <= bound:
		return Met
	case s.Min > bound:
		return NotMet
	}
	return NotSeparable
}
