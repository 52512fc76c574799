package benchmarks

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const resultsTitle = "# Results\n\nEvery section is written by the program named in it, as a whole; nothing here is typed by hand.\n"

// ReplaceSection puts body into doc as the section of that name, in place of an earlier one, or at the end.
func ReplaceSection(doc, name, body string) string {
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n"
	section := begin + strings.TrimSpace(body) + "\n" + end
	if doc == "" {
		doc = resultsTitle
	}
	at := strings.Index(doc, begin)
	if at >= 0 {
		if length := strings.Index(doc[at:], end); length >= 0 {
			return doc[:at] + section + doc[at+length+len(end):]
		}
	}
	return strings.TrimRight(doc, "\n") + "\n\n" + section
}

// WriteSection replaces one section of the Markdown file name.
func WriteSection(name, section, body string) error {
	old, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot update the results: %w", err)
	}
	if err := os.WriteFile(name, []byte(ReplaceSection(string(old), section, body)), 0o644); err != nil { //nolint:gosec // a document for everybody
		return fmt.Errorf("cannot update the results: %w", err)
	}
	return nil
}

// sectionOf names the section of a report: a smoke test must not replace a measurement, nor a part of one the whole.
func sectionOf(name string, quick, part bool) string {
	if quick {
		name += "-quick"
	}
	if part {
		name += "-part"
	}
	return name
}

// publish prints and saves the report.
func (b *bench) publish() (ok bool, err error) {
	lines := figures(b.records)
	text := report(b.records, lines)
	b.say("\n%s", text)
	ok = !slices.ContainsFunc(lines, func(f Figure) bool { return f.Verdict == NotMet })
	if b.cfg.Out == "" {
		return ok, nil
	}
	section := sectionOf("stream-"+b.cfg.Name, b.cfg.Quick, len(b.cfg.Skip) > 0)
	if err := b.records.write(filepath.Join(b.cfg.Results, section+".jsonl")); err != nil {
		return ok, err
	}
	return ok, WriteSection(b.cfg.Out, section, text)
}

// report renders a section.
func report(r Records, lines []Figure) string {
	var w strings.Builder
	m := r.Meta
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(&w, format, args...) }
	p("## Token streams: %s against nginx\n\n", m.Candidate)
	p("| | |\n| --- | --- |\n")
	p("| command | `%s` |\n", m.Command)
	p("| machine | %s, %d cores, %s, %s |\n", m.CPU, m.Cores, m.Kernel, m.Go)
	p("| reference | %s, 2 workers, buffering off, keep-alive to the engines |\n", m.Reference)
	p("| commit | %s |\n", m.Commit)
	p("| date | %s, took %.0f s |\n", m.Start.Format("2006-01-02 15:04 MST"), m.Seconds)
	p("| quiet? | load average %.1f before, %.1f after; %.1f %% of the CPU time stolen by other machines |\n", m.LoadStart, m.LoadEnd, 100*m.Steal)
	p("| method | %d rounds, each target once per scenario and round in random order, with one stream %d times and with short requests %d times (seed %d); 2 fake engines and the load generator are processes of their own with one P each; "+
		"every event is compared byte for byte; one event of about 200 bytes per token, one write each, every 10 ms |\n\n", m.Rounds, r.turns(scenarioC1), r.turns(scenarioShort), m.Seed)
	p("| figure | nginx | %s | %s / nginx | bound | verdict |\n| --- | --- | --- | --- | --- | --- |\n", m.Candidate, m.Candidate)
	for _, f := range lines {
		verdict := string(f.Verdict)
		if f.Note != "" {
			verdict += " (" + cell(f.Note) + ")"
		}
		p("| %s | %s | %s | %s | %s | %s |\n", f.What, f.Reference, f.Candidate, f.Compared, f.Bound, verdict)
	}
	p("\nCPU: CPU clock of the proxy and its workers over the run, requests included, divided by the tokens; ratios are the median of the rounds' own ratios, with the least and the greatest. " +
		"Added: less the direct way in the same round, median (least .. greatest). Met and not met: at least 85 %% sure for the median over the rounds (order statistics); otherwise not separable. " +
		"System calls, idle process and memory: every window or round is on one side, which of three is 75 %% sure. Fewer than three values decide nothing.")
	if m.Rounds < 4 {
		p(" With so few rounds nothing is surer than 75 %%: verdicts are indications.")
	}
	p("\n")
	p("%s%s", directLine(r), calls(r))
	p("%s", others(r))
	return w.String()
}

// cell keeps a text inside its table cell.
func cell(s string) string {
	return strings.NewReplacer("|", "/", "\n", " ").Replace(s)
}

// directLine gives the absolute figures of the direct way, the scale on which "added" has to be read.
func directLine(r Records) string {
	var parts []string
	for _, sc := range []string{scenarioTTFTReused, scenarioTTFTNew} {
		if v := medianOver(r, sc, Direct, ttftP50); v > 0 {
			parts = append(parts, fmt.Sprintf("TTFT p50 / p99 in %s %.0f / %.0f us", sc, v, medianOver(r, sc, Direct, ttftP99)))
		}
	}
	for _, sc := range []string{scenarioC1, scenarioC16, scenarioC64} {
		if v := medianOver(r, sc, Direct, oneWayP50); v > 0 {
			parts = append(parts, fmt.Sprintf("one-way p50 / p99 in %s %.0f / %.0f us", sc, v, medianOver(r, sc, Direct, oneWayP99)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "\nDirect way, absolute: " + strings.Join(parts, ", ") + ".\n"
}

func medianOver(r Records, scenario, target string, value func(RunRecord) float64) float64 {
	var v []float64
	for _, x := range inRounds(r, scenario)[target] {
		v = append(v, value(x))
	}
	return spreadOf(v).Median
}

// calls lists the system calls per token by name.
func calls(r Records) string {
	var w strings.Builder
	for _, target := range []string{Nginx, r.Meta.Candidate} {
		sum, windows, idle, idleSeconds := make(map[string]float64), 0, int64(0), 0.0
		for _, x := range r.Syscalls {
			if x.Target != target {
				continue
			}
			windows++
			idle, idleSeconds = 0, x.IdleSeconds
			for name, v := range x.PerToken {
				sum[name] += v
			}
			for _, n := range x.IdleCalls {
				idle += n
			}
		}
		if windows == 0 {
			continue
		}
		names := slices.Collect(maps.Keys(sum))
		slices.SortFunc(names, func(a, b string) int {
			if sum[a] != sum[b] {
				if sum[a] > sum[b] {
					return -1
				}
				return 1
			}
			return strings.Compare(a, b)
		})
		var parts []string
		for _, name := range names {
			parts = append(parts, fmt.Sprintf("%s %.3f", name, sum[name]/float64(windows)))
		}
		_, _ = fmt.Fprintf(&w, "\nSystem calls per token of %s (mean of %d windows): %s; idle it makes %.1f a second.\n",
			target, windows, strings.Join(parts, ", "), float64(idle)/idleSeconds)
	}
	return w.String()
}

// others gives the ratios of further targets.
func others(r Records) string {
	names := make(map[string]bool)
	for _, x := range r.Runs {
		if x.Target != Nginx && x.Target != Direct && x.Target != r.Meta.Candidate {
			names[x.Target] = true
		}
	}
	var w strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		other := r
		other.Meta.Candidate = name
		var parts []string
		for _, f := range figures(other) {
			if f.Verdict == NotMeasured {
				continue
			}
			part := fmt.Sprintf("%s: %s, %s", f.What, f.Candidate, f.Compared)
			if f.Note != "" {
				part += " (" + f.Note + ")"
			}
			parts = append(parts, part)
		}
		_, _ = fmt.Fprintf(&w, "\n%s in the same rounds (ratio to nginx): %s.\n", name, strings.Join(parts, "; "))
	}
	return w.String()
}

// turns is how often the candidate was visited in a round of a scenario.
func (r Records) turns(scenario string) int {
	n := 0
	for i := range r.Runs {
		if r.Runs[i].Scenario == scenario && r.Runs[i].Target == r.Meta.Candidate {
			n++
		}
	}
	return n / max(r.Meta.Rounds, 1)
}
