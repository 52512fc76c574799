package telemetry

import (
	"bytes"
	"maps"
	"slices"
	"testing"
)

func sortedKeys(m map[float64]float64) []float64 { return slices.Sorted(maps.Keys(m)) }

// sameBut reports whether two label sets agree but for one name.
func sameBut(a, b map[string]string, name string) bool {
	a, b = maps.Clone(a), maps.Clone(b)
	delete(a, name)
	delete(b, name)
	return maps.Equal(a, b)
}

// scrape writes the page and reads it back strictly.
func scrape(t testing.TB, m *Metrics) *page {
	t.Helper()
	var b bytes.Buffer
	m.WritePrometheus(&b)
	p, err := parsePage(b.String())
	if err != nil {
		t.Fatalf("the page does not parse: %v", err)
	}
	return p
}

// find returns the value of the series of a family whose labels are exactly
// these, and how many there are.
func (p *page) find(name string, labels map[string]string) (v float64, n int) {
	for series, l := range p.labels {
		if (series == name || len(series) > len(name) && series[:len(name)+1] == name+"{") && maps.Equal(l, labels) {
			v = p.value[series]
			n++
		}
	}
	return v, n
}
