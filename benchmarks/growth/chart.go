package growth

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"

	"ramjet/benchmarks/lab"
)

// Curve is one cost over a size.
type Curve struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
	// Bound is the largest exponent that the curve may have; 0 where none is stated.
	Bound float64 `json:"bound,omitempty"`
}

// Chart is some curves over one size, in one unit.
type Chart struct {
	File   string `json:"file"` // name of the SVG
	Title  string `json:"title"`
	XTitle string `json:"x"`
	YTitle string `json:"y"`
	XUnit  Unit   `json:"x_unit"`
	YUnit  Unit   `json:"y_unit"`
	// Per says that the cost is one of each of what X counts, so that a level curve is growth in proportion.
	Per bool `json:"per,omitempty"`
	// Text says how it was measured, as Markdown.
	Text   string  `json:"text"`
	Curves []Curve `json:"curves"`
}

// The picture's measures, in pixels. Colours are dark enough for small text on white and far enough apart for most
// colour-blind readers; markers differ as well.
const (
	width, plotHeight   = 820, 380
	left, right, bottom = 96, 28, 62
	rowHeight           = 22
	ink, faint, guide   = "#1a1a1a", "#e3e3e3", "#8a8a8a"
)

var colours = []string{"#0b4f8a", "#b3430e", "#1b6e3c", "#6a2c8f"}

// axis maps values to pixels by their logarithm.
type axis struct {
	low, high float64 // logarithms to the base of ten
	from, to  float64 // pixels
}

func (a axis) at(v float64) float64 {
	return a.from + (math.Log10(v)-a.low)/(a.high-a.low)*(a.to-a.from)
}

// ticks are the values to label and those that only have a line.
func (a axis) ticks() (labelled, plain []float64) {
	narrow := a.high-a.low <= 2.2
	for d := math.Floor(a.low); d <= math.Ceil(a.high); d++ {
		for m := 1.0; m < 10; m++ {
			v := m * math.Pow(10, d)
			if l := math.Log10(v); l < a.low-1e-9 || l > a.high+1e-9 {
				continue
			}
			if m == 1 || narrow && (m == 2 || m == 5) {
				labelled = append(labelled, v)
			} else {
				plain = append(plain, v)
			}
		}
	}
	return labelled, plain
}

// around returns the axis of some values, widened to the next of 1, 2 and 5 of a power of ten.
func around(values []float64, from, to float64) axis {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if v > 0 {
			low, high = min(low, v), max(high, v)
		}
	}
	if low > high {
		low, high = 1, 10
	}
	a := axis{low: outward(low, -1), high: outward(high, 1), from: from, to: to}
	if a.high-a.low < 0.5 { // noise must not fill the picture
		a.low, a.high = a.low-0.25, a.high+0.25
	}
	return a
}

// outward returns the logarithm of the nearest of 1, 2 and 5 that is at least v in the direction.
func outward(v float64, direction int) float64 {
	d := math.Floor(math.Log10(v))
	steps := []float64{1, 2, 5, 10}
	for i := range steps {
		s := steps[i]
		if direction < 0 {
			s = steps[len(steps)-1-i]
		}
		edge := s * math.Pow(10, d)
		if direction > 0 && edge >= v*0.999 || direction < 0 && edge <= v*1.001 {
			return math.Log10(edge)
		}
	}
	return math.Log10(v)
}

// SVG draws the chart. Every measured value above 0 is a circle: the median of a point filled, single rounds hollow.
func (c Chart) SVG() string {
	var xs, ys []float64
	for _, k := range c.Curves {
		for _, p := range k.Points {
			xs = append(xs, p.X)
			ys = append(ys, p.Y...)
		}
	}
	top := 44.0 + rowHeight*float64(len(c.Curves)) + 14
	x := around(xs, left, width-right)
	y := around(ys, top+plotHeight, top)
	var w strings.Builder
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(&w, format+"\n", args...) }
	height := top + plotHeight + bottom
	p(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%.0f" viewBox="0 0 %d %.0f" font-family="system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif" font-size="13" fill="%s">`, width, height, width, height, ink)
	p(`<title>%s</title>`, text(c.Title))
	p(`<rect width="%d" height="%.0f" fill="#ffffff"/>`, width, height)
	p(`<text x="%d" y="26" font-size="17" font-weight="600">%s</text>`, left, text(c.Title))
	c.grid(p, x, y)
	c.linear(p, x, y)
	for i, k := range c.Curves {
		k.draw(p, colours[i%len(colours)], x, y)
		row := 44 + rowHeight*float64(i) + 10
		p(`<path d="M%d %.1fh26" stroke="%s" stroke-width="2.5" fill="none"/>`, left, row-4, colours[i%len(colours)])
		p(`<text x="%d" y="%.1f">%s</text>`, left+36, row, text(k.legend()))
	}
	p(`</svg>`)
	return w.String()
}

func (c Chart) grid(p func(string, ...any), x, y axis) {
	labelled, plain := x.ticks()
	for _, v := range plain {
		p(`<path d="M%.1f %.1fV%.1f" stroke="%s" stroke-width="0.5"/>`, x.at(v), y.to, y.from, faint)
	}
	for _, v := range labelled {
		p(`<path d="M%.1f %.1fV%.1f" stroke="%s"/>`, x.at(v), y.to, y.from+5, faint)
		p(`<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x.at(v), y.from+21, text(c.XUnit.format(v, 1)))
	}
	labelled, plain = y.ticks()
	for _, v := range plain {
		p(`<path d="M%.1f %.1fH%.1f" stroke="%s" stroke-width="0.5"/>`, x.from, y.at(v), x.to, faint)
	}
	for _, v := range labelled {
		p(`<path d="M%.1f %.1fH%.1f" stroke="%s"/>`, x.from-5, y.at(v), x.to, faint)
		p(`<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, x.from-10, y.at(v)+4.5, text(c.YUnit.format(v, 1)))
	}
	p(`<path d="M%.1f %.1fV%.1fH%.1f" stroke="%s" fill="none"/>`, x.from, y.to, y.from, x.to, ink)
	p(`<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, (x.from+x.to)/2, y.from+46, text(c.XTitle))
	p(`<text transform="translate(20 %.1f) rotate(-90)" text-anchor="middle">%s</text>`, (y.from+y.to)/2, text(c.YTitle))
}

// linear draws what growth in proportion would look like, through the first curve's last point.
func (c Chart) linear(p func(string, ...any), x, y axis) {
	if c.Per || len(c.Curves) == 0 || len(c.Curves[0].Points) == 0 {
		return
	}
	last := c.Curves[0].Points[len(c.Curves[0].Points)-1]
	end := lab.SpreadOf(last.Y).Median
	if end <= 0 || last.X <= 0 {
		return
	}
	lx, ly := math.Log10(last.X), math.Log10(end)
	back := min(lx-x.low, ly-y.low) // as far as it stays in the picture
	if back <= 0.1 {
		return
	}
	x1, y1 := x.at(math.Pow(10, lx-back)), y.at(math.Pow(10, ly-back))
	p(`<path d="M%.1f %.1fL%.1f %.1f" stroke="%s" stroke-dasharray="3 4"/>`, x1, y1, x.at(last.X), y.at(end), guide)
	// Along the line, where it begins.
	angle := math.Atan2(y.at(end)-y1, x.at(last.X)-x1) * 180 / math.Pi
	p(`<text transform="translate(%.1f %.1f) rotate(%.1f)" font-size="11" fill="%s" stroke="#ffffff" stroke-width="3" paint-order="stroke">in proportion</text>`, x1+14, y1-14*math.Tan(-angle*math.Pi/180)-5, angle, "#666666")
}

func (k Curve) draw(p func(string, ...any), colour string, x, y axis) {
	var line []string
	for _, q := range k.Points {
		if q.X <= 0 {
			continue
		}
		for _, v := range q.Y {
			if v > 0 {
				p(`<circle cx="%.1f" cy="%.1f" r="2" fill="none" stroke="%s" stroke-opacity="0.55"/>`, x.at(q.X), y.at(v), colour)
			}
		}
		if m := lab.SpreadOf(q.Y).Median; m > 0 {
			line = append(line, fmt.Sprintf("%.1f %.1f", x.at(q.X), y.at(m)))
			p(`<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`, x.at(q.X), y.at(m), colour)
		}
	}
	if len(line) > 1 {
		p(`<path d="M%s" stroke="%s" stroke-width="2" fill="none"/>`, strings.Join(line, "L"), colour)
	}
}

func (k Curve) legend() string {
	f := FitOf(k.Points)
	if f.All.N == 0 {
		return k.Name
	}
	return fmt.Sprintf("%s: exponent %s", k.Name, spreadText(f.All))
}

// spreadText writes the exponent and how far the rounds are apart.
func spreadText(s lab.Spread) string {
	if s.N == 0 {
		return "-"
	}
	return strings.ReplaceAll(fmt.Sprintf("%.2f (%.2f .. %.2f)", s.Median, s.Min, s.Max), "-0.00", "0.00")
}

// text escapes s for XML.
func text(s string) string {
	var w strings.Builder
	_ = xml.EscapeText(&w, []byte(s)) // a strings.Builder takes everything
	return w.String()
}
