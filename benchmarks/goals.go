package benchmarks

import (
	"fmt"
	"strings"
)

// goal is a figure of one of the product's own benchmarks, and what it was asked to reach.
type goal struct {
	what    string
	bench   string // without the number of processors
	metric  string // as go test prints it
	unit    string
	per     float64  // how much of the metric is one of unit
	bound   float64  // 0: shown, without a verdict
	design  float64  // the design's own bound, of the same kind; 0: it states none
	least   bool     // the bounds are the least, not the most
	beside  []string // more of what the same run prints
	missing string   // why it cannot be measured here
}

// goalSubject is one table: goals of one package.
type goalSubject struct {
	name  string // as Config.Skip calls it
	title string
	about string
	runs  []goRun // one process each in a round
	goals []goal
	// focus and ignore are pprof's: a profile is to show what the benchmark times, not what it sets up.
	focus, ignore string
}

// designed is g with the design's bound in place of the goal.
func (g goal) designed() goal {
	g.bound = g.design
	return g
}

// runOf is the process that g comes from.
func (s goalSubject) runOf(g goal) (goRun, bool) {
	name, _, _ := strings.Cut(g.bench, "/")
	for _, r := range s.runs {
		if strings.Contains(r.bench+r.test, "^"+name+"$") {
			return r, true
		}
	}
	return goRun{}, false
}

// verdict compares the rounds' figures with what was asked for.
func (g goal) verdict(s Spread) Verdict {
	switch {
	case s.N == 0:
		return NotMeasured
	case g.bound == 0:
		return ""
	case !g.least:
		return judge(s, g.bound)
	}
	return judge(Spread{N: s.N, Median: -s.Median, Min: -s.Max, Max: -s.Min, Low: -s.High, High: -s.Low}, -g.bound)
}

// short is how many times as fast it had to be for the median to be at the bound; not above 1, it is there.
func (g goal) short(s Spread) float64 {
	switch {
	case s.N == 0 || g.bound == 0:
		return 0
	case g.least:
		return g.bound / max(s.Median, 1e-9)
	}
	return s.Median / g.bound
}

// asked is the goal in words.
func (g goal) asked() string {
	switch {
	case g.bound == 0:
		return "shown"
	case g.least:
		return fmt.Sprintf(">= %g %s", g.bound, g.unit)
	}
	return fmt.Sprintf("<= %g %s", g.bound, g.unit)
}

// InputRecord is a file that a benchmark reads and that is no part of the repository.
type InputRecord struct {
	Kind   string `json:"kind"` // "input"
	Name   string `json:"name"`
	SHA256 string `json:"sha256,omitempty"` // empty: the file is missing
}

// LostRecord is a process that could not be run, or not to the end.
type LostRecord struct {
	Kind   string `json:"kind"` // "lost"
	Run    string `json:"run"`
	Reason string `json:"reason"`
}

// goalRecords are all raw results of one call.
type goalRecords struct {
	Meta     Meta
	Inputs   []InputRecord
	Parts    []PartRecord
	Lost     []LostRecord
	Benches  []BenchRecord
	Profiles []ProfileRecord
}

// of are the records of a benchmark, in their order.
func (r goalRecords) of(part, build, pkg, bench string) (list []BenchRecord) {
	for _, x := range r.Benches {
		if x.Part == part && x.Build == build && x.Package == pkg && x.Name == bench {
			list = append(list, x)
		}
	}
	return list
}

// spreadOfMetric is a metric over the rounds, in units of per.
func spreadOfMetric(list []BenchRecord, metric string, per float64) Spread {
	var v []float64
	for _, x := range list {
		if m, ok := x.Metrics[metric]; ok {
			v = append(v, m/per)
		}
	}
	return spreadOf(v)
}

// figure is g's over the rounds.
func (r goalRecords) figure(s goalSubject, g goal) Spread {
	run, ok := s.runOf(g)
	if !ok || g.missing != "" {
		return Spread{}
	}
	return spreadOfMetric(r.of(partGoals, pgoFile, run.pkg, g.bench), g.metric, g.per)
}

// disturbed is the share of the machine from which other processes' work may be what a benchmark misses its goal by.
const disturbed = 0.1

// verdict compares g with what was asked for. Rounds that all ran beside the same other work agree with one another and
// are all too slow: nothing that is missed then can be told from that.
func (r goalRecords) verdict(s goalSubject, g goal) (v Verdict, note string) {
	v = g.verdict(r.figure(s, g))
	if others := r.others(s, g); v == NotMet && others > disturbed {
		return NotSeparable, fmt.Sprintf("others used %.0f %% of the machine", 100*others)
	}
	return v, ""
}

// others is the share of the machine that other processes had while g was measured, over the rounds.
func (r goalRecords) others(s goalSubject, g goal) float64 {
	run, ok := s.runOf(g)
	if !ok || run.test != "" { // bytes do not grow with the time that they take
		return 0
	}
	var v []float64
	for _, x := range r.of(partGoals, pgoFile, run.pkg, g.bench) {
		v = append(v, x.Others)
	}
	return spreadOf(v).Median
}

// why says what kept g from being measured.
func (r goalRecords) why(s goalSubject, g goal) string {
	if g.missing != "" {
		return g.missing
	}
	if run, ok := s.runOf(g); ok {
		for _, x := range r.Lost {
			if x.Run == run.key() {
				return x.Reason
			}
		}
	}
	return ""
}

// lines are the records as they are saved.
func (r goalRecords) lines() []any {
	out := []any{r.Meta}
	for _, x := range r.Inputs {
		out = append(out, x)
	}
	for _, x := range r.Parts {
		out = append(out, x)
	}
	for _, x := range r.Lost {
		out = append(out, x)
	}
	for _, x := range r.Benches {
		out = append(out, x)
	}
	for _, x := range r.Profiles {
		out = append(out, x)
	}
	return out
}
