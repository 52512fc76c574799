package growth

import (
	"math"
	"strconv"
)

// Unit says how the numbers of an axis are written.
type Unit string

// The units.
const (
	Count   Unit = ""      // thousands as k, millions as M
	Seconds Unit = "s"     // down to nanoseconds
	Bytes   Unit = "B"     // thousands, as in the bounds of the design
	Cores   Unit = "cores" // processors in use, 1 = one core
)

// format writes v with about that many digits.
func (u Unit) format(v float64, digits int) string {
	if v == 0 {
		return "0"
	}
	type step struct {
		least float64
		name  string
	}
	steps := []step{{1e6, "M"}, {1e3, "k"}, {1, ""}}
	switch u {
	case Seconds:
		steps = []step{{1, " s"}, {1e-3, " ms"}, {1e-6, " µs"}, {1e-9, " ns"}}
	case Bytes:
		steps = []step{{1e9, " GB"}, {1e6, " MB"}, {1e3, " KB"}, {1, " B"}}
	case Cores:
		return trimmed(100*v, digits) + " %"
	case Count:
	}
	for _, s := range steps {
		if math.Abs(v) >= s.least*0.9995 {
			return trimmed(v/s.least, digits) + s.name
		}
	}
	last := steps[len(steps)-1]
	return trimmed(v/last.least, digits) + last.name
}

// trimmed writes v with significant digits and without an exponent.
func trimmed(v float64, digits int) string {
	if v == 0 {
		return "0"
	}
	decimals := max(0, digits-1-int(math.Floor(math.Log10(math.Abs(v)))))
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return s
}
