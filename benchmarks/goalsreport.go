package benchmarks

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// publish prints the report and saves it with the raw records beside it. ok says whether no goal and no bound of the design
// is missed. What was lost is an error, and does not replace a whole report; where nothing was measured, nothing is saved.
func (g *goalsBench) publish() (ok bool, err error) {
	subjects := slices.DeleteFunc(slices.Clone(g.subjects), func(s goalSubject) bool { return g.cfg.skips(s.name) || g.cfg.skips(partGoals) })
	text := goalsReport(g.records, subjects, g.plan)
	g.say("\n%s", text)
	ok = !slices.ContainsFunc(subjects, func(s goalSubject) bool {
		return slices.ContainsFunc(s.goals, func(x goal) bool { return g.records.misses(s, x) || g.records.misses(s, x.designed()) })
	})
	lost := g.records.lostRuns()
	if len(g.records.Benches) == 0 {
		return false, errors.Join(errNothing, lost)
	}
	if g.cfg.Out == "" {
		return ok, lost
	}
	broken := len(g.records.Lost) > 0 || slices.ContainsFunc(g.records.Parts, func(p PartRecord) bool { return p.Error != "" })
	section := sectionOf("goals", g.cfg.Quick, len(g.cfg.Skip) > 0 || broken)
	if err := writeLines(filepath.Join(g.cfg.Results, section+".jsonl"), g.records.lines()); err != nil {
		return ok, err
	}
	return ok, errors.Join(WriteSection(g.cfg.Out, section, text), lost)
}

func (r goalRecords) misses(s goalSubject, g goal) bool {
	v, _ := r.verdict(s, g)
	return v == NotMet
}

var errNothing = errors.New("nothing was measured, and the results are not written")

// lostRuns names the processes that failed; nil without one.
func (r goalRecords) lostRuns() error {
	var list []error
	for _, x := range r.Lost {
		list = append(list, fmt.Errorf("not measured, or not to the end: %s: %s", x.Run, x.Reason))
	}
	return errors.Join(list...)
}

func goalsReport(r goalRecords, subjects []goalSubject, plan goalsPlan) string {
	var w strings.Builder
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(&w, format, args...) }
	m := r.Meta
	p("## Goals\n\n| | |\n| --- | --- |\n")
	reportHead(p, m, r.Parts)
	p("| quiet? | load average %.1f before, %.1f after (this measurement's own load included); %.1f %% of the CPU time stolen by other machines |\n", m.LoadStart, m.LoadEnd, 100*m.Steal)
	var inputs []string
	for _, x := range r.Inputs {
		sum := "missing"
		if x.SHA256 != "" {
			sum = x.SHA256[:12]
		}
		inputs = append(inputs, x.Name+" "+sum)
	}
	p("| inputs | sha256 of .tools/: %s |\n", strings.Join(inputs, ", "))
	p("| method | %d rounds, one process for each command below in a round, in random order (seed %d), %s a benchmark; the binaries are built once, with `CGO_ENABLED=0 -trimpath -pgo=%s` as `make build` does |\n\n",
		m.Rounds, m.Seed, plan.each, pgoFile)
	p("%s", "Met and not met: at least 85 % sure for the median over the rounds (order statistics; with 3 rounds 75 %, and fewer decide nothing); otherwise not separable. Where a median misses its goal, the benchmark ran once more under pprof. "+
		"What is missed while other processes have more than "+percent(disturbed)+" of the machine is not separable either. "+
		"Beside a figure: medians of what the same process printed; xxh3 of 1 MiB is what the machine itself did then.\n")
	for _, s := range subjects {
		p("\n%s", s.render(r, plan))
	}
	if plan.pairs == 0 || slices.ContainsFunc(r.Parts, func(x PartRecord) bool { return x.Name == partPGO }) {
		p("%s", gainTable(r, plan))
	}
	return w.String()
}

// render makes the table of a subject, and what stands in the way of its missed goals.
func (s goalSubject) render(r goalRecords, plan goalsPlan) string {
	var w strings.Builder
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(&w, format, args...) }
	p("### %s\n\n%s\n\n", s.title, s.about)
	for _, run := range s.runs {
		p("    %s\n", run.typed(plan.each.String()))
	}
	if len(s.runs) > 0 {
		p("\n")
	}
	p("| figure | median | least .. greatest | rounds | goal | verdict | the design's bound | verdict | beside |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, g := range s.goals {
		f := r.figure(s, g)
		judged := r.judged(s, g)
		if why := r.why(s, g); f.N == 0 && why != "" {
			judged += ": " + cell(why)
		}
		judged += " | " + r.judged(s, g.designed())
		if f.N == 0 {
			p("| %s | - | - | 0 | %s | |\n", g.what, judged)
			continue
		}
		p("| %s | %s %s | %s .. %s | %d | %s | %s |\n", g.what, number(f.Median), g.unit, number(f.Min), number(f.Max), f.N, judged, g.besides(r, s))
	}
	var none []string
	for _, m := range missedGoals(r, []goalSubject{s}) {
		text := m.render(r)
		if text == "" {
			none = append(none, m.goal.what)
		}
		p("%s", text)
	}
	if len(none) > 0 {
		p("\nMissed, and not profiled: %s.\n", strings.Join(none, "; "))
	}
	return w.String()
}

// judged are the two cells of a bound, what was asked and whether it is met.
func (r goalRecords) judged(s goalSubject, g goal) string {
	v, note := r.verdict(s, g)
	verdict := string(v)
	if note != "" {
		verdict += " (" + note + ")"
	}
	return g.asked() + " | " + verdict
}

// besides is what the runs of g printed besides it.
func (g goal) besides(r goalRecords, s goalSubject) string {
	run, ok := s.runOf(g)
	if !ok {
		return ""
	}
	list := r.of(partGoals, pgoFile, run.pkg, g.bench)
	var parts []string
	for _, metric := range g.beside {
		if x := spreadOfMetric(list, metric, 1); x.N > 0 {
			parts = append(parts, number(x.Median)+" "+metric)
		}
	}
	var v []float64
	for _, x := range list {
		if micros, ok := calibrationMicros(x); ok {
			v = append(v, micros)
		}
	}
	if x := spreadOf(v); x.N > 0 {
		parts = append(parts, fmt.Sprintf("xxh3 of 1 MiB %s us", number(x.Median)))
	}
	return strings.Join(parts, ", ")
}

// render shows the profile of a missed goal; without one it is empty.
func (m missed) render(r goalRecords) string {
	at := slices.IndexFunc(r.Profiles, func(x ProfileRecord) bool { return x.Package == m.run.pkg && x.Bench == m.goal.bench })
	if at < 0 {
		return ""
	}
	x := r.Profiles[at]
	if x.Error != "" {
		return fmt.Sprintf("\n%s: no profile: %s.\n", m.goal.what, cell(x.Error))
	}
	shown := 0.0
	for _, f := range x.Functions {
		shown += f.Share
	}
	what := m.goal.what + " may miss its goal."
	if v, _ := r.verdict(m.subject, m.goal); v == NotMet {
		times := m.goal.short(r.figure(m.subject, m.goal))
		what = fmt.Sprintf("%s has to become %.2f times as fast: %.0f %% of its time has to go.", m.goal.what, times, 100*(1-1/times))
	}
	var w strings.Builder
	_, _ = fmt.Fprintf(&w, "\n%s Of %s of samples of `%s`, these hold %.0f %%:\n\n| function | itself | of all |\n| --- | --- | --- |\n", what, x.Total, x.Bench, shown)
	for _, f := range x.Functions {
		_, _ = fmt.Fprintf(&w, "| `%s` | %s | %.1f %% |\n", cell(f.Name), f.Flat, f.Share)
	}
	return w.String()
}

// gainTable says what the profile of the build is good for.
func gainTable(r goalRecords, plan goalsPlan) string {
	var w strings.Builder
	_, _ = fmt.Fprintf(&w, "\n### Profile-guided build\n\nThe way of a request, built with `-pgo=%s` and with `-pgo=%s`, one right after the other. Saved: of the time without, in the pairs of the rounds. "+
		"The rule is to build with a profile that gains more than %g %%.\n", pgoOff, pgoFile, leastGain)
	if plan.pairs == 0 {
		return w.String() + "\nNot measured: only the full call builds everything twice.\n"
	}
	micros := func(s Spread) string {
		switch {
		case s.N == 0:
			return ""
		case s.Median < 10:
			return fmt.Sprintf("%.0f ns", 1e3*s.Median)
		}
		return number(s.Median) + " us"
	}
	_, _ = fmt.Fprintf(&w, "\n| benchmark | | without | with | saved | least .. greatest | rounds | more than %g %%? |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n", leastGain)
	for _, x := range gains(r) {
		name := ""
		if x.bench != "" {
			name = "`" + x.bench + "`"
		}
		_, _ = fmt.Fprintf(&w, "| %s | %s | %s | %s | %+.1f %% | %+.1f .. %+.1f | %d | %s |\n",
			x.what, name, micros(x.without), micros(x.with), x.saved.Median, x.saved.Min, x.saved.Max, x.saved.N, x.verdict)
	}
	for _, p := range pathBenches {
		if reason := r.leftOut(p); reason != "" {
			_, _ = fmt.Fprintf(&w, "\nNot measured, or not to the end: %s, %s.\n", p.what, cell(reason))
		}
	}
	return w.String()
}

// leftOut says why a stretch of the way of a request was not compared.
func (r goalRecords) leftOut(p pathBench) string {
	for _, x := range r.Inputs {
		if p.vocabulary && x.Name == vocabularyFile(sessionVocabulary) && x.SHA256 == "" {
			return x.Name + " is missing (`make vocab` fetches it)"
		}
	}
	for _, x := range r.Lost {
		if strings.HasPrefix(x.Run, p.pkg+" ") && strings.Contains(x.Run, alone(p.bench)) {
			return x.Reason
		}
	}
	return ""
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }
