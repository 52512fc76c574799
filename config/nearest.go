package config

import "strings"

// nearest returns the known name that a person most likely meant, and whether
// it is close enough to be offered as a question rather than as a pointer.
// With no known names it returns "".
func nearest(name string, known []string) (best string, isClose bool) {
	bestDistance := -1
	// No known name is nearly as long; the cost is quadratic.
	name = name[:min(len(name), 64)]
	for _, k := range known {
		d := distance(name, k)
		// A word cut off or drawn out is a likelier slip than its length says.
		if len(name) >= 2 && strings.HasPrefix(k, name) || len(k) > 2 && strings.HasPrefix(name, k) {
			d = min(d, 1)
		}
		if bestDistance < 0 || d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best, bestDistance >= 0 && bestDistance <= slip(name)
}

// slip is how many wrong letters a word of that length may have before a
// suggestion does more harm than good: "std" must not become "mtp".
func slip(name string) int { return max(1, len(name)/3) }

// distance is the optimal string alignment distance in bytes: insertions,
// deletions, replacements and swaps of neighbours cost 1 each.
func distance(a, b string) int {
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}

// didYouMean is the hint for an unknown word out of a short closed list.
func didYouMean(name string, known []string) string {
	if best, ok := nearest(name, known); ok {
		return "did you mean " + best + "?"
	}
	return "one of " + strings.Join(known, ", ")
}

// nearestHint is the hint for an unknown name out of a long list: it always
// names one.
func nearestHint(name string, known []string) string {
	best, ok := nearest(name, known)
	switch {
	case best == "":
		return ""
	case ok:
		return "did you mean " + best + "?"
	default:
		return "the nearest known one is " + best
	}
}
