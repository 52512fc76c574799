package growth

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
)

// drawn is what is found in a picture.
type drawn struct {
	filled, hollow int
	texts          []string
}

// read decodes a picture and fails where it is no XML or something lies outside it.
func read(t *testing.T, svg string) (d drawn) {
	t.Helper()
	x := xml.NewDecoder(strings.NewReader(svg))
	var w, h float64
	for {
		token, err := x.Token()
		if errors.Is(err, io.EOF) {
			return d
		}
		if err != nil {
			t.Fatalf("no XML: %v", err)
		}
		switch e := token.(type) {
		case xml.CharData:
			if s := strings.TrimSpace(string(e)); s != "" {
				d.texts = append(d.texts, s)
			}
		case xml.StartElement:
			attr := map[string]string{}
			for _, a := range e.Attr {
				attr[a.Name.Local] = a.Value
			}
			number := func(name string) float64 {
				v, err := strconv.ParseFloat(attr[name], 64)
				if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
					t.Fatalf("%s: %s is %q", e.Name.Local, name, attr[name])
				}
				return v
			}
			switch e.Name.Local {
			case "svg":
				w, h = number("width"), number("height")
			case "circle":
				if cx, cy := number("cx"), number("cy"); cx < 0 || cx > w || cy < 0 || cy > h {
					t.Errorf("a point at %v, %v is outside %v x %v", cx, cy, w, h)
				}
				if attr["fill"] == "none" {
					d.hollow++
				} else {
					d.filled++
				}
			}
			for name, v := range attr {
				if strings.Contains(v, "NaN") || strings.Contains(v, "Inf") {
					t.Errorf("%s of %s is %q", name, e.Name.Local, v)
				}
			}
		}
	}
}

func TestChartHasEveryPoint(t *testing.T) {
	for _, c := range []struct {
		name           string
		chart          Chart
		filled, hollow int
	}{
		{"two curves", Chart{Title: "a < b & \"c\"", YUnit: Seconds, Curves: []Curve{
			{Name: "x & y", Points: law(1e-6, 1, decades, 1, 2)}, {Name: "z", Points: law(1e-3, 0, decades, 1)},
		}}, 10, 15},
		{"values without a logarithm", Chart{Curves: []Curve{{Points: []Point{{X: 1, Y: []float64{0, -1}}, {X: 10, Y: []float64{2, 0, 3}}}}}}, 1, 2},
		{"a size without a logarithm", Chart{Curves: []Curve{{Points: []Point{{X: 0, Y: []float64{1}}, {X: 10, Y: []float64{2}}}}}}, 1, 1},
		{"one point", Chart{Curves: []Curve{{Points: []Point{{X: 7, Y: []float64{0.3}}}}}}, 1, 1},
		{"one value for all sizes", Chart{YUnit: Bytes, Curves: []Curve{{Points: law(5, 0, decades, 1)}}}, 5, 5},
		{"nothing", Chart{Title: "empty", Curves: []Curve{{Name: "none"}}}, 0, 0},
		{"more curves than colours", Chart{Curves: []Curve{{Points: law(1, 1, decades, 1)}, {}, {}, {}, {Points: law(1, 2, decades, 1)}}}, 10, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := read(t, c.chart.SVG())
			if d.filled != c.filled || d.hollow != c.hollow {
				t.Errorf("%d medians and %d rounds, want %d and %d", d.filled, d.hollow, c.filled, c.hollow)
			}
			all := strings.Join(d.texts, "\n")
			for _, k := range c.chart.Curves {
				if !strings.Contains(all, k.legend()) {
					t.Errorf("no legend %q", k.legend())
				}
			}
		})
	}
}

func TestReportSaysWhatWasMeasured(t *testing.T) {
	charts := []Chart{
		{File: "a.svg", Title: "A", XTitle: "engines", YUnit: Seconds, Curves: []Curve{{Name: "fine", Bound: 1, Points: law(1e-6, 0.5, decades, 1, 1, 1)}}},
		{File: "b.svg", Title: "B", XTitle: "blocks", YUnit: Bytes, Curves: []Curve{{Name: "grows", Bound: 1, Points: law(1, 1.5, decades, 1, 1, 1)}}},
	}
	doc, ok := report(Meta{Command: "the command", Quick: true}, charts)
	if ok {
		t.Error("an exponent of 1.5 keeps a bound of 1")
	}
	for _, want := range []string{
		"`the command`", "A quick run", "| A: fine | engines | 1 .. 10k | 0.50 (0.50 .. 0.50) | 0.50 (0.50 .. 0.50) | <= 1 | met |",
		"| B: grows | blocks | 1 .. 10k | 1.50 (1.50 .. 1.50) | 1.50 (1.50 .. 1.50) | <= 1 | not met |", "![A](growth/a.svg)", "| 100 | 10 µs (10 µs .. 10 µs) |",
	} {
		if !strings.Contains(doc, want) {
			t.Errorf("the report lacks %q:\n%s", want, doc)
		}
	}
	if _, ok := report(Meta{}, charts[:1]); !ok {
		t.Error("bounds that are met are reported as not met")
	}
}

// Two curves of one chart need not have been measured at the same sizes.
func TestTableHasEveryCurvesSizes(t *testing.T) {
	table := func(c Chart) string {
		var w strings.Builder
		c.table(func(format string, args ...any) { fmt.Fprintf(&w, format, args...) })
		return w.String()
	}
	a := Curve{Name: "a", Points: law(1, 1, []float64{1, 10}, 1)}
	same := Chart{XTitle: "size", Curves: []Curve{a, {Name: "b", Points: law(2, 1, []float64{1, 10}, 1)}}}
	if got, want := table(same), "| size | a | b |\n| --- | --- | --- |\n| 1 | 1 (1 .. 1) | 2 (2 .. 2) |\n| 10 | 10 (10 .. 10) | 20 (20 .. 20) |\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	other := Chart{XTitle: "size", Curves: []Curve{a, {Name: "b", Points: law(2, 1, []float64{3}, 1)}, {Name: "c", Points: []Point{{X: 1, Y: []float64{0}}, {X: 10, Y: []float64{1}}}}}}
	want := "| size | a | size | b | size | c |\n| --- | --- | --- | --- | --- | --- |\n" +
		"| 1 | 1 (1 .. 1) | 3 | 6 (6 .. 6) | 1 | nothing above the noise |\n| 10 | 10 (10 .. 10) | - | - | 10 | 1 (1 .. 1) |\n"
	if got := table(other); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := table(Chart{XTitle: "size"}); got != "" {
		t.Errorf("of no curve: %q", got)
	}
}
