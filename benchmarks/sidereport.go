package benchmarks

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// publish prints the report and saves it with the raw records beside it. Without a router for language models the
// records are saved and the results are not.
func (s *side) publish() error {
	text := sideReport(s.records)
	s.say("\n%s", text)
	if s.cfg.Out == "" {
		return nil
	}
	broken := slices.ContainsFunc(s.records.Parts, func(p PartRecord) bool { return p.Error != "" })
	section := sectionOf("side", s.cfg.Quick, len(s.cfg.Skip) > 0 || broken)
	if err := s.records.write(filepath.Join(s.cfg.Results, section+".jsonl")); err != nil {
		return err
	}
	if !s.cfg.skips(partStreams) && !routerRan(s.records) {
		return errNoRouter
	}
	return WriteSection(s.cfg.Out, section, text)
}

// routerRan says whether a packaged router was measured.
func routerRan(r Records) bool {
	return slices.ContainsFunc(r.Contenders, func(c ContenderRecord) bool {
		return c.Router && slices.ContainsFunc(r.Runs, func(x RunRecord) bool { return x.Target == c.Name && x.Result.Requests > x.Result.Errors })
	})
}

func sideReport(r Records) string {
	var w strings.Builder
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(&w, format, args...) }
	m := r.Meta
	p("## Side by side\n\n| | |\n| --- | --- |\n")
	reportHead(p, m, r.Parts)
	p("| quiet? | load average %.1f before, %.1f after; %.1f %% of the CPU time stolen by other machines |\n", m.LoadStart, m.LoadEnd, 100*m.Steal)
	p("| method | %d rounds, every target once per load and round in random order (seed %d); engines, load generator and proxies are processes of their own, engines and generator with one P each; "+
		"streams come from 2 fake engines, one event of about 200 bytes per token and 10 ms, and are compared byte for byte; prompts and the throughput at reference speed go to 2 simulated engines |\n\n", m.Rounds, m.Seed)
	p("| system | version | set up | |\n| --- | --- | --- | --- |\n")
	for _, c := range r.Contenders {
		state := "measured"
		if c.Reason != "" {
			state = string(NotMeasured) + ", or not to the end: " + cell(c.Reason)
		}
		p("| %s | %s | %s | %s |\n", c.Name, cell(c.Version), c.SetUp, state)
	}
	p("\nA rival's cell: its median, then ours / theirs as the median of the paired rounds (least .. greatest); where what is compared is not above 0 in every round, the difference. " +
		"Better and worse: ours, at least 85 %% sure for the median over the rounds (order statistics; with 3 rounds 75 %%), otherwise not separable, as is every comparison with requests or streams that failed. " +
		"Direct: the engines without a proxy, as it is, also where the others are what is added to it.\n")
	for _, s := range subjects(r) {
		p("\n%s", s.render())
	}
	p("%s%s%s\n%s\n", ownerTable(r), mixedTable(r), routeTable(r), barSource)
	return w.String()
}

// render makes the Markdown table of a subject.
func (s Subject) render() string {
	var w strings.Builder
	head := append([]string{"figure", "ours", Direct}, s.Rivals...)
	head = append(head, "bar")
	rule := strings.Repeat("| --- ", len(head)) + "|"
	_, _ = fmt.Fprintf(&w, "### %s\n\n%s\n\n| %s |\n%s\n", s.Title, s.About, strings.Join(head, " | "), rule)
	for _, l := range s.Lines {
		direct := l.Direct
		if direct == "" {
			direct = figureNotFormed
		}
		_, _ = fmt.Fprintf(&w, "| %s | %s | %s | %s | %s |\n", l.What, l.Ours, direct, strings.Join(l.Cells, " | "), l.Bar)
	}
	return w.String()
}

// ownerTable shows the throughput that the way through a proxy costs.
func ownerTable(r Records) string {
	list := losses(r)
	if len(list) == 0 {
		return ""
	}
	var w strings.Builder
	_, _ = fmt.Fprintf(&w, "\n### Throughput at reference speed\n\nEach stream asks for %d tokens of an engine at the calibrated speed, directly and through the proxy, in pairs. Loss: added seconds of a request "+
		"over its direct duration in the same round. Raw: tokens a second of whole runs. In brackets the interval that holds the median over the rounds with at least 85 %%.\n\n"+
		"| streams | through | pairs | direct, s | added, ms | loss | bound | verdict | raw loss |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n", referenceTokens)
	for _, l := range list {
		verdict := string(l.Verdict)
		if l.Target != r.Meta.Candidate {
			verdict = "shown"
		}
		if l.Note != "" {
			verdict += " (" + cell(l.Note) + ")"
		}
		_, _ = fmt.Fprintf(&w, "| %d | %s | %d | %.3f | %+.2f (%+.2f .. %+.2f) | %+.3f %% (%+.3f .. %+.3f) | <= %g %% | %s | %+.2f %% (%+.2f .. %+.2f) |\n",
			l.Streams, l.Target, l.Added.N, l.Direct, 1e3*l.Added.Median, 1e3*l.Added.Low, 1e3*l.Added.High,
			l.Share.Median, l.Share.Low, l.Share.High, l.Bound, verdict, l.Raw.Median, l.Raw.Low, l.Raw.High)
	}
	return w.String()
}

// routeTable shows the time of a decision.
func routeTable(r Records) string {
	by := make(map[int][]float64)
	for _, x := range r.Routes {
		by[x.Engines] = append(by[x.Engines], x.Nanos/1e3)
	}
	if len(by) == 0 {
		return ""
	}
	var w strings.Builder
	_, _ = fmt.Fprintf(&w, "\n### Route time\n\nThe whole decision about a prompt of 100,000 tokens that every engine holds (`go test -run '^$' -bench '^%s$' ./route`). No rival reports its own; %s.\n\n"+
		"| engines | median | least .. greatest | bound | verdict | goal | verdict |\n| --- | --- | --- | --- | --- | --- | --- |\n", routeBenchmark, routePublished)
	for _, n := range slices.Sorted(maps.Keys(by)) {
		s := spreadOf(by[n])
		bound, goal, v1, v2 := "-", "-", "shown", ""
		if b, ok := routeBars[n]; ok {
			bound, v1 = fmt.Sprintf("<= %g us", b.bound), string(judge(s, b.bound))
			goal, v2 = fmt.Sprintf("<= %g us", b.goal), string(judge(s, b.goal))
		}
		_, _ = fmt.Fprintf(&w, "| %d | %.1f us | %.1f .. %.1f us | %s | %s | %s | %s |\n", n, s.Median, s.Min, s.Max, bound, v1, goal, v2)
	}
	return w.String()
}

// reportHead prints the rows with which every report of several parts begins.
func reportHead(p func(format string, args ...any), m Meta, all []PartRecord) {
	p("| command | `%s` |\n", m.Command)
	p("| machine | %s, %d cores, %s, %s |\n", m.CPU, m.Cores, m.Kernel, m.Go)
	p("| commit | %s |\n", m.Commit)
	var parts []string
	for _, x := range all {
		part := fmt.Sprintf("%s %.0f s", x.Name, x.Seconds)
		if x.Cut != "" {
			part += ", " + x.Cut
		}
		if x.Error != "" {
			part += ", failed: " + cell(x.Error)
		}
		parts = append(parts, part)
	}
	p("| date | %s, took %.0f s (%s) |\n", m.Start.Format("2006-01-02 15:04 MST"), m.Seconds, strings.Join(parts, ", "))
}
