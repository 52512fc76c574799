package growth

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"ramjet/benchmarks/lab"
)

// Meta says how the figures were made.
type Meta struct {
	Command string `json:"command"`
	Quick   bool   `json:"quick"`
	Rounds  int    `json:"rounds"`
	Streams int    `json:"rounds_of_streams"`
	Seed    uint64 `json:"seed"`
	lab.Machine
}

// publish prints the report and, if the whole was measured, saves it with its curves and raw figures. A smoke test must not
// replace a measurement.
func (r *runner) publish(m Meta) (ok bool, err error) {
	doc, ok := report(m, r.charts)
	r.say("\n%s", doc)
	if r.cfg.Out == "" || r.cfg.Quick || len(r.cfg.Only) > 0 {
		return ok, nil
	}
	dir := filepath.Dir(r.cfg.Out)
	for _, c := range r.charts {
		if err := lab.Save(filepath.Join(dir, "growth", c.File), c.SVG()); err != nil {
			return ok, err
		}
	}
	var raw strings.Builder
	enc := json.NewEncoder(&raw)
	if err := enc.Encode(m); err != nil {
		return ok, err
	}
	for _, c := range r.charts {
		if err := enc.Encode(c); err != nil {
			return ok, err
		}
	}
	if err := lab.Save(filepath.Join(dir, "results", "growth.jsonl"), raw.String()); err != nil {
		return ok, err
	}
	return ok, lab.Save(r.cfg.Out, doc)
}

// report renders the whole document; ok is false when a bound is not met.
func report(m Meta, charts []Chart) (doc string, ok bool) {
	var w strings.Builder
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(&w, format, args...) }
	p("# How costs grow\n\nWritten by the command below, as a whole; nothing here is typed by hand. Raw figures: [results/growth.jsonl](results/growth.jsonl).\n\n")
	if m.Quick {
		p("**A quick run: fewer sizes, shorter looks.** Its exponents are indications; the full run is `make bench-growth`.\n\n")
	}
	p("| | |\n| --- | --- |\n| command | `%s` |\n%s", m.Command, m.Rows())
	p("| method | %d rounds (streams: %d), sizes in random order in each (seed %d); least squares of the logarithms, round by round: median (least .. greatest) |\n\n", m.Rounds, m.Streams, m.Seed)
	p("## Exponents\n\nA cost that grows in proportion has exponent 1, one that does not grow has 0. The upper half is a fit of the larger half of the sizes alone, at least three, since a curve that begins flat may bend later. " +
		"A bound is met where every round keeps it in both fits, not met where no round of one of them does, else, and with fewer than three rounds, not separable.\n\n")
	p("| cost | over | sizes | exponent | upper half | bound | verdict |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	ok = true
	for _, c := range charts {
		for _, k := range c.Curves {
			f := FitOf(k.Points)
			bound, verdict := "-", f.Judge(k.Bound)
			if k.Bound > 0 {
				bound = fmt.Sprintf("<= %g", k.Bound)
			}
			ok = ok && verdict != NotMet
			sizes := "-"
			if n := len(k.Points); n > 0 {
				sizes = c.XUnit.format(k.Points[0].X, 2) + " .. " + c.XUnit.format(k.Points[n-1].X, 2)
			}
			p("| %s: %s | %s | %s | %s | %s | %s | %s |\n", c.Title, k.Name, c.XTitle, sizes, spreadText(f.All), spreadText(f.Tail), bound, verdict)
		}
	}
	for _, c := range charts {
		p("\n## %s\n\n%s\n\n![%s](growth/%s)\n\n", c.Title, c.Text, c.Title, c.File)
		c.table(p)
	}
	return w.String(), ok
}

// table has a row for each size. Where the curves were measured at different sizes, each has a column of its own for them.
func (c Chart) table(p func(string, ...any)) {
	own := !c.sameSizes()
	columns := 0
	for i, k := range c.Curves {
		if i == 0 || own {
			p("| %s ", c.XTitle)
			columns++
		}
		p("| %s ", k.Name)
		columns++
	}
	if columns == 0 {
		return
	}
	p("|\n|%s\n", strings.Repeat(" --- |", columns))
	rows := 0
	for _, k := range c.Curves {
		rows = max(rows, len(k.Points))
	}
	for row := range rows {
		for i, k := range c.Curves {
			size, cost := "-", "-"
			if row < len(k.Points) {
				size, cost = c.XUnit.format(k.Points[row].X, 3), c.cost(k.Points[row])
			}
			if i == 0 || own {
				p("| %s ", size)
			}
			p("| %s ", cost)
		}
		p("|\n")
	}
}

// sameSizes says whether the sizes of the first curve are those of all.
func (c Chart) sameSizes() bool {
	for _, k := range c.Curves {
		if !slices.EqualFunc(k.Points, c.Curves[0].Points, func(a, b Point) bool { return a.X == b.X }) {
			return false
		}
	}
	return true
}

func (c Chart) cost(q Point) string {
	s := lab.SpreadOf(q.Y)
	if s.Max <= 0 {
		return "nothing above the noise"
	}
	return fmt.Sprintf("%s (%s .. %s)", c.YUnit.format(s.Median, 3), c.YUnit.format(s.Min, 3), c.YUnit.format(s.Max, 3))
}
