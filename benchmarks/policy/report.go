package policy

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Config says what to run.
type Config struct {
	Traces  string    // folder of the traces
	First   int       // the first seed; 0 is 1
	Seeds   int       // how many, at least 3 for a verdict
	Short   bool      // shortened traces: a smoke test
	Command string    // printed above the figures
	Log     io.Writer // each run
	Out     io.Writer // the report
}

// Judged says whether the bounds hold for such a call: for whole traces, and medians of three seeds at least. Another one is
// a smoke test, and no report.
func (c Config) Judged() bool { return !c.Short && c.Seeds >= 3 }

// Run plays everything and writes the report. ok says that every judged line passed.
func Run(cfg Config) (ok bool, err error) {
	t, err := openTraces(cfg.Traces)
	if err != nil {
		return false, err
	}
	first := max(cfg.First, 1)
	b := &book{traces: t, first: first, last: first + cfg.Seeds - 1, short: cfg.Short, log: cfg.Log, who: candidates(), runs: make(map[runID]*result)}
	p := &paper{out: cfg.Out, ok: true, unjudged: !cfg.Judged()}
	p.printf("`%s`: %d seeds, medians; times are those of model engines in virtual time.\n", cfg.Command, cfg.Seeds)
	if err := b.fill(); err != nil {
		return false, err
	}
	faults, err := b.faults()
	if err != nil {
		return false, err
	}
	for _, part := range []struct {
		title string
		rows  []row
	}{{"Acceptance", table()}, {"Where nothing can be gained", nothing()}, {"When something goes wrong", faults}} {
		p.printf("\n## %s\n\n", part.title)
		for _, r := range part.rows {
			v, err := b.each(r.scenario, r.who, r.figure)
			if err != nil {
				return false, err
			}
			p.row(r, v)
		}
	}
	p.compare(b)
	if err := p.mixed(b); err != nil {
		return false, err
	}
	p.figures(b)
	if err := p.inputs(cfg.Traces, t); err != nil {
		return false, err
	}
	if p.unjudged {
		p.printf("\nNo line is judged: the bounds hold for whole traces and the median of three seeds at least.\n")
	} else {
		p.printf("\n%d of %d lines pass.\n", p.passed, p.judged)
	}
	return p.ok, p.err
}

// fill plays all that is compared, scenario by scenario, so that each load is made once a seed.
func (b *book) fill() error {
	names := []string{nameDefault, nameLearned, nameDelay}
	for _, r := range rules() {
		names = append(names, r.name)
	}
	for _, s := range scenarios() {
		for seed := b.first; seed <= b.last; seed++ {
			for _, name := range names {
				if _, err := b.get(s, name, seed); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// paper is the report.
type paper struct {
	out            io.Writer
	err            error
	ok             bool
	passed, judged int
	// unjudged: a shortened trace is mostly cold caches, and few seeds are no median.
	unjudged bool
}

func (p *paper) printf(format string, a ...any) {
	if _, err := fmt.Fprintf(p.out, format, a...); err != nil && p.err == nil {
		p.err = fmt.Errorf("cannot write the report: %w", err)
	}
}

func (p *paper) row(r row, v float64) {
	bound, pass := "", true
	if r.low > 0 {
		bound, pass = fmt.Sprintf(">= %.2f", r.low), v >= r.low
	}
	if r.high > 0 {
		bound = strings.TrimSpace(bound + fmt.Sprintf(" <= %.2f", r.high))
		pass = pass && v <= r.high
	}
	p.line(r.scenario.name, r.what, v, bound, pass, r.info)
}

func (p *paper) line(where, what string, v float64, bound string, pass, info bool) {
	verdict := "pass"
	info = info || p.unjudged
	switch {
	case info:
		verdict = "-"
	case !pass:
		verdict, p.ok = "FAIL", false
	}
	if !info {
		p.judged++
		if pass {
			p.passed++
		}
	}
	p.printf("    %-20s %-52s %7.3f  %-16s %s\n", where, what, v, bound, verdict)
}

// The bounds of the comparison with other rules.
const (
	meanBound  = 1.00
	worstBound = 1.15
)

// compare sets each of our three ways against every single rule, and row by row against the best.
func (p *paper) compare(b *book) {
	always := func(name string) func(*scenario) string { return func(*scenario) string { return name } }
	for _, way := range []struct {
		title string
		who   func(*scenario) string
		info  bool
	}{
		{"defaults, and learned on the chat rows", judged, false},
		{"defaults alone", always(nameDefault), true},
		{"learned, delay_weight 0.1", always(nameDelay), true},
	} {
		p.printf("\n## Against other rules: %s\n\n", way.title)
		for _, m := range []struct {
			name  string
			value func(*result) float64
		}{{"mean TTFT", (*result).meanTTFT}, {"mean E2E", (*result).meanE2E}} {
			for _, r := range rules() {
				p.line("all rows", m.name+", geometric mean / "+r.name, b.geometric(way.who, r.name, m.value), fmt.Sprintf("<= %.2f", meanBound),
					b.geometric(way.who, r.name, m.value) <= meanBound, way.info)
			}
			for _, s := range scenarios() {
				rival, v := b.best(s, way.who(s), m.value)
				p.line(s.name, m.name+" / the best rule, "+rival, v, fmt.Sprintf("<= %.2f", worstBound), v <= worstBound, way.info)
			}
		}
	}
}

// ratio is the median over the seeds of who's figure over the other's. fill has run both.
func (b *book) ratio(s *scenario, who, other string, value func(*result) float64) float64 {
	v, err := b.each(s, []string{who, other}, func(r ...*result) float64 { return value(r[0]) / value(r[1]) })
	if err != nil {
		panic("BUG: a run is missing: " + err.Error())
	}
	return v
}

func (b *book) geometric(who func(*scenario) string, rival string, value func(*result) float64) float64 {
	sum := 0.0
	for _, s := range scenarios() {
		sum += math.Log(b.ratio(s, who(s), rival, value))
	}
	return math.Exp(sum / float64(len(scenarios())))
}

// best returns the rule that who looks worst against in one scenario.
func (b *book) best(s *scenario, who string, value func(*result) float64) (rival string, worst float64) {
	for _, r := range rules() {
		if v := b.ratio(s, who, r.name, value); v > worst {
			rival, worst = r.name, v
		}
	}
	return rival, worst
}

// figures prints the bare figures for reading.
func (p *paper) figures(b *book) {
	p.printf("\n## Figures: mean TTFT / p99 TTFT / mean E2E in seconds, answers\n")
	names := []string{nameDefault, nameLearned, nameDelay}
	for _, r := range rules() {
		names = append(names, r.name)
	}
	for _, s := range scenarios() {
		p.printf("\n    %s\n", s.name)
		for _, name := range names {
			of := func(value func(*result) float64) float64 {
				v, err := b.each(s, []string{name}, func(r ...*result) float64 { return value(r[0]) })
				if err != nil && p.err == nil {
					p.err = err
				}
				return v
			}
			p.printf("        %-18s %9.2f %9.2f %9.2f %7.0f\n", name, of((*result).meanTTFT),
				of(func(r *result) float64 { return quantile(r.ttft, 0.99) }), of((*result).meanE2E), of(func(r *result) float64 { return float64(len(r.e2e)) }))
		}
	}
}
