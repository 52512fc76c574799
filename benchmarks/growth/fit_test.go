package growth

import (
	"math"
	"testing"
)

// law returns points of y = a x^b, with one factor for each round.
func law(a, b float64, xs []float64, factors ...float64) (points []Point) {
	for _, x := range xs {
		p := Point{X: x}
		for _, f := range factors {
			p.Y = append(p.Y, f*a*math.Pow(x, b))
		}
		points = append(points, p)
	}
	return points
}

var decades = []float64{1, 10, 100, 1000, 10_000}

func TestFitOfKnownLaws(t *testing.T) {
	for _, c := range []struct {
		name     string
		points   []Point
		all      float64
		tail     float64
		decades  float64
		bound    float64
		verdict  Verdict
		min, max float64 // of all
	}{
		{name: "constant", points: law(3, 0, decades, 1, 1, 1), decades: 4, bound: 1, verdict: Met},
		{name: "linear", points: law(0.02, 1, decades, 1, 2, 0.5), all: 1, tail: 1, min: 1, max: 1, decades: 4, bound: 1.001, verdict: Met},
		{name: "square", points: law(1e-9, 2, decades, 1, 1, 1), all: 2, tail: 2, min: 2, max: 2, decades: 4, bound: 1, verdict: NotMet},
		{name: "two rounds", points: law(1, 0.5, decades, 1, 1), all: 0.5, tail: 0.5, min: 0.5, max: 0.5, decades: 4, bound: 1, verdict: NotSeparable},
		{name: "two rounds, above", points: law(1, 0.5, decades, 1, 1), all: 0.5, tail: 0.5, min: 0.5, max: 0.5, decades: 4, bound: 0.4, verdict: NotSeparable},
		{name: "root, shown", points: law(1, 0.5, decades, 1, 1), all: 0.5, tail: 0.5, min: 0.5, max: 0.5, decades: 4, verdict: Shown},
		{name: "sizes in no order", points: law(1, 0.5, []float64{100, 1, 10_000, 10, 1000}, 1, 2, 3), all: 0.5, tail: 0.5, min: 0.5, max: 0.5, decades: 4, bound: 1, verdict: Met},
		{name: "half a decade", points: law(1, 0.5, []float64{1, 2, 3}, 1), all: 0.5, tail: 0.5, min: 0.5, max: 0.5, decades: math.Log10(3), bound: 1, verdict: NotMeasured},
		{name: "nothing", verdict: NotMeasured, bound: 1},
		{name: "nothing above the noise", points: []Point{{X: 1, Y: []float64{0}}, {X: 10, Y: []float64{-2}}}, decades: 1, bound: 1, verdict: NotMeasured},
		{
			// Flat at first, then in proportion to the square: seen in the upper half alone.
			name:   "bends",
			points: []Point{{X: 1, Y: []float64{1, 1, 1}}, {X: 10, Y: []float64{1, 1, 1}}, {X: 100, Y: []float64{1, 1, 1}}, {X: 1000, Y: []float64{1, 1, 1}}, {X: 10_000, Y: []float64{100, 100, 100}}},
			all:    0.4, min: 0.4, max: 0.4, tail: 1, decades: 4, bound: 0.9, verdict: NotMet,
		},
		{
			name:   "rounds on both sides",
			points: []Point{{X: 1, Y: []float64{1, 1, 1}}, {X: 10, Y: []float64{math.Pow(10, 0.5), 10, math.Pow(10, 1.5)}}, {X: 100, Y: []float64{10, 100, 1000}}},
			all:    1, min: 0.5, max: 1.5, tail: 1, decades: 2, bound: 1, verdict: NotSeparable,
		},
		{
			// The first size of the second round shows nothing: its other sizes are fitted.
			name:   "a hole",
			points: []Point{{X: 1, Y: []float64{1, -1, 1}}, {X: 10, Y: []float64{10, 10, 10}}, {X: 100, Y: []float64{100, 100, 100}}},
			all:    1, min: 1, max: 1, tail: 1, decades: 2, bound: 1.001, verdict: Met,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := FitOf(c.points)
			for _, v := range []struct {
				what      string
				got, want float64
			}{{"exponent", f.All.Median, c.all}, {"least", f.All.Min, c.min}, {"greatest", f.All.Max, c.max}, {"upper half", f.Tail.Median, c.tail}, {"decades", f.Decades, c.decades}} {
				if math.Abs(v.got-v.want) > 1e-9 {
					t.Errorf("%s %v, want %v", v.what, v.got, v.want)
				}
			}
			if got := f.Judge(c.bound); got != c.verdict {
				t.Errorf("verdict %q, want %q", got, c.verdict)
			}
		})
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		unit   Unit
		v      float64
		digits int
		want   string
	}{
		{Seconds, 0.0000012345, 3, "1.23 µs"}, {Seconds, 1e-6, 1, "1 µs"}, {Seconds, 2e-10, 2, "0.2 ns"}, {Seconds, 12, 3, "12 s"}, {Seconds, 0, 3, "0"},
		{Count, 1e6, 1, "1M"}, {Count, 999, 3, "999"}, {Count, 12_345, 3, "12.3k"}, {Count, 0.5, 1, "0.5"},
		{Bytes, 20_480, 3, "20.5 KB"}, {Bytes, 40, 2, "40 B"}, {Bytes, -1500, 2, "-1.5 KB"}, {Cores, 0.0123, 2, "1.2 %"},
	} {
		if got := c.unit.format(c.v, c.digits); got != c.want {
			t.Errorf("%v in %q: %q, want %q", c.v, c.unit, got, c.want)
		}
	}
}
