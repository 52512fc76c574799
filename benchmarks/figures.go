package benchmarks

import (
	"fmt"
	"slices"
	"strings"
)

// Figure is one line of the report.
type Figure struct {
	What      string
	Reference string // nginx's value
	Candidate string
	Compared  string // how the two compare over the rounds
	Bound     string
	Verdict   Verdict
	Note      string
}

// Bounds of the design: a ratio to nginx in the same round unless the name says otherwise.
const (
	boundCPUToken   = 1.25
	boundCPUShort   = 1.5
	boundTTFT       = 2.5
	boundOneWayP50  = 2.0
	boundOneWayP99  = 3.0
	boundSyscalls   = 5.0  // calls a token
	boundScheduler  = 0.05 // futex and nanosleep calls a token
	boundIdle       = 0.1  // per cent of a core
	boundStreamKB   = 20.0 // KB a stream
	boundAtStreams  = 9_900
	figureNotFormed = "-"
)

// figures forms the report's lines out of the records.
func figures(r Records) []Figure {
	var out []Figure
	for _, sc := range []string{scenarioC1, scenarioC16, scenarioC64} {
		out = append(out, cpuFigure(r, sc, "CPU per streamed token, "+sc[len("stream-"):], boundCPUToken, perTokenMicros, "<= 1.25 x, aim below 1.0"))
	}
	out = append(out, idleFigures(r)...)
	out = append(out, syscallFigures(r)...)
	out = append(out,
		addedFigure(r, scenarioTTFTReused, "added TTFT p50, c16, reused connections", ttftP50, boundTTFT),
		addedFigure(r, scenarioTTFTReused, "added TTFT p99, c16, reused connections", ttftP99, 0),
		addedFigure(r, scenarioTTFTNew, "added TTFT p50, c16, new connections", ttftP50, 0),
		addedFigure(r, scenarioTTFTNew, "added TTFT p99, c16, new connections", ttftP99, 0))
	for _, sc := range []string{scenarioC1, scenarioC16, scenarioC64} {
		out = append(out,
			addedFigure(r, sc, "added one-way token delay p50, "+sc[len("stream-"):], oneWayP50, boundOneWayP50),
			addedFigure(r, sc, "added one-way token delay p99, "+sc[len("stream-"):], oneWayP99, boundOneWayP99))
	}
	out = append(out, cpuFigure(r, scenarioShort, "CPU per short request, c32", boundCPUShort, perRequestMicros, "<= 1.5 x"))
	out = append(out, memoryFigures(r)...)
	return slices.DeleteFunc(out, func(f Figure) bool { return f.What == "" })
}

func perTokenMicros(r RunRecord) float64 {
	return float64(r.CPUNanos) / 1e3 / float64(max(1, r.Result.Tokens))
}
func perRequestMicros(r RunRecord) float64 {
	return float64(r.CPUNanos) / 1e3 / float64(max(1, r.Result.Requests))
}
func ttftP50(r RunRecord) float64   { return float64(r.Result.TTFT.P50) / 1e3 }
func ttftP99(r RunRecord) float64   { return float64(r.Result.TTFT.P99) / 1e3 }
func oneWayP50(r RunRecord) float64 { return float64(r.Result.OneWay.P50) / 1e3 }
func oneWayP99(r RunRecord) float64 { return float64(r.Result.OneWay.P99) / 1e3 }

// inRounds returns the records of one scenario by target and round.
func inRounds(r Records, scenario string) map[string]map[int]RunRecord {
	out := make(map[string]map[int]RunRecord)
	for _, x := range r.Runs {
		if x.Scenario != scenario {
			continue
		}
		if out[x.Target] == nil {
			out[x.Target] = make(map[int]RunRecord)
		}
		out[x.Target][x.Round] = x
	}
	return out
}

// errorsOf counts the failed requests of target in a scenario and shows one.
func errorsOf(r Records, scenario, target string) (n int64, note string) {
	first := ""
	for _, x := range r.Runs {
		if x.Scenario == scenario && x.Target == target {
			n += x.Result.Errors
			if first == "" {
				first = x.Result.FirstError
			}
		}
	}
	if n > 0 {
		note = fmt.Sprintf("%s: %d failed requests, e.g. %s", target, n, first)
	}
	return n, note
}

// withErrors makes a figure fail when the candidate's requests did, and says so for the others.
func (f Figure) withErrors(r Records, scenario string) Figure {
	if n, note := errorsOf(r, scenario, r.Meta.Candidate); n > 0 {
		f.Verdict, f.Note = NotMet, note
	}
	for _, other := range []string{Nginx, Direct} {
		if _, note := errorsOf(r, scenario, other); note != "" {
			f.Note = strings.TrimPrefix(f.Note+"; "+note, "; ")
		}
	}
	return f
}

// cpuFigure compares CPU by the median of the ratios of the rounds.
func cpuFigure(r Records, scenario, what string, bound float64, value func(RunRecord) float64, text string) Figure {
	by := inRounds(r, scenario)
	var ref, cand, ratios []float64
	for round, c := range by[r.Meta.Candidate] {
		n, ok := by[Nginx][round]
		if !ok || value(n) == 0 {
			continue
		}
		ref, cand = append(ref, value(n)), append(cand, value(c))
		ratios = append(ratios, value(c)/value(n))
	}
	if len(ratios) == 0 {
		return Figure{}
	}
	s := spreadOf(ratios)
	return Figure{
		What: what, Reference: fmt.Sprintf("%.1f us", spreadOf(ref).Median), Candidate: fmt.Sprintf("%.1f us", spreadOf(cand).Median),
		Compared: fmt.Sprintf("%.2f x (%.2f .. %.2f)", s.Median, s.Min, s.Max), Bound: text, Verdict: judge(s, bound),
	}.withErrors(r, scenario)
}

// addedFigure compares what each proxy adds to the direct way in the same round. The ratio of two small differences has
// no useful spread (nginx's may be 0 or less), so the bound is judged on candidate - bound x nginx, round by round; with
// bound 0 the figure is shown and not judged.
func addedFigure(r Records, scenario, what string, value func(RunRecord) float64, bound float64) Figure {
	by := inRounds(r, scenario)
	var ref, cand, margins []float64
	for round, c := range by[r.Meta.Candidate] {
		n, ok1 := by[Nginx][round]
		d, ok2 := by[Direct][round]
		if !ok1 || !ok2 {
			continue
		}
		addedRef, addedCand := value(n)-value(d), value(c)-value(d)
		ref, cand = append(ref, addedRef), append(cand, addedCand)
		margins = append(margins, addedCand-bound*addedRef)
	}
	if len(margins) == 0 {
		return Figure{}
	}
	sr, sc := spreadOf(ref), spreadOf(cand)
	f := Figure{
		What: what, Reference: fmt.Sprintf("%+.0f us (%+.0f .. %+.0f)", sr.Median, sr.Min, sr.Max),
		Candidate: fmt.Sprintf("%+.0f us (%+.0f .. %+.0f)", sc.Median, sc.Min, sc.Max), Compared: figureNotFormed,
		Bound: "aim: not worse than nginx", Verdict: "",
	}
	if sr.Median > 0 {
		f.Compared = fmt.Sprintf("%.2f x", sc.Median/sr.Median)
	}
	if bound > 0 {
		f.Bound = fmt.Sprintf("<= %g x nginx's", bound)
		if f.Verdict = judge(spreadOf(margins), 0); sr.Median <= 0 {
			f.Verdict = NotSeparable // nginx's own cost is below the noise: there is nothing to multiply
		}
	}
	return f.withErrors(r, scenario)
}

// idleFigures shows what the proxies use while nobody asks them anything, and what is left of one stream's tokens without
// it. The bound on a token stays on the whole: whoever runs one stream pays for the engine checks, too.
func idleFigures(r Records) []Figure {
	shares := make(map[string][]float64)
	for _, x := range r.Idle {
		shares[x.Target] = append(shares[x.Target], x.share())
	}
	cand := shares[r.Meta.Candidate]
	if len(cand) == 0 {
		return nil
	}
	percent := make([]float64, len(cand))
	for i := range cand {
		percent[i] = 100 * cand[i]
	}
	s := spreadOf(percent)
	s.Low, s.High = s.Min, s.Max // a few windows: all of them have to be within the bound
	idle := map[string]float64{Nginx: spreadOf(shares[Nginx]).Median, r.Meta.Candidate: spreadOf(cand).Median}
	left := cpuFigure(r, scenarioC1, "CPU per streamed token, c1, less the idle process's", 0, func(x RunRecord) float64 {
		return perTokenMicros(x) - idle[x.Target]*1e6*x.Result.Seconds/float64(max(1, x.Result.Tokens))
	}, "shown")
	left.Verdict = ""
	return []Figure{left, {
		What: "CPU of the idle process, of one core", Reference: fmt.Sprintf("%.3f %%", 100*idle[Nginx]), Candidate: fmt.Sprintf("%.3f %%", s.Median),
		Compared: fmt.Sprintf("%.3f .. %.3f %%", s.Min, s.Max), Bound: fmt.Sprintf("<= %g %%", boundIdle), Verdict: judge(s, boundIdle),
	}}
}

func syscallFigures(r Records) []Figure {
	var refTotal, candTotal, candPlain, refSched, candSched []float64
	var failed int64
	behind := 0
	for _, x := range r.Syscalls {
		switch x.Target {
		case Nginx:
			refTotal, refSched = append(refTotal, x.total()), append(refSched, x.scheduler())
		case r.Meta.Candidate:
			candTotal, candSched = append(candTotal, x.total()), append(candSched, x.scheduler())
			candPlain = append(candPlain, x.difference())
			failed += x.Errors
			if !x.keptPace() {
				behind++
			}
		}
	}
	if len(candTotal) == 0 {
		return nil
	}
	line := func(what string, ref, cand []float64, bound float64, format string) Figure {
		sr, sc := spreadOf(ref), spreadOf(cand)
		sc.Low, sc.High = sc.Min, sc.Max // a few windows: all of them have to be within the bound
		f := Figure{
			What: what, Reference: fmt.Sprintf(format, sr.Median), Candidate: fmt.Sprintf(format, sc.Median),
			Compared: fmt.Sprintf(format+" .. "+format, sc.Min, sc.Max), Bound: fmt.Sprintf("<= %g", bound), Verdict: judge(sc, bound),
		}
		if behind > 0 && f.Verdict == Met {
			f.Verdict = NotSeparable
			f.Note = fmt.Sprintf("in %d of %d windows the traced proxy fell behind the pace and put tokens together", behind, len(cand))
		}
		if failed > 0 {
			f.Verdict, f.Note = NotMet, fmt.Sprintf("%d streams failed under strace", failed)
		}
		return f
	}
	return []Figure{
		line("system calls per token, c1, less the idle process's", refTotal, candTotal, boundSyscalls, "%.2f"),
		line("of these futex and nanosleep", refSched, candSched, boundScheduler, "%.3f"),
		{
			What: "the same as a plain difference, with credit for idle calls that traffic displaces", Reference: figureNotFormed,
			Candidate: fmt.Sprintf("%.2f", spreadOf(candPlain).Median), Compared: figureNotFormed, Bound: "shown",
		},
	}
}

func memoryFigures(r Records) []Figure {
	var out []Figure
	at := func(target string, want int) (MemoryRecord, bool) {
		for _, x := range r.Memory {
			if x.Target == target && x.Streams.Want == want {
				return x, true
			}
		}
		return MemoryRecord{}, false
	}
	for _, x := range r.Memory {
		if x.Target != r.Meta.Candidate {
			continue
		}
		want := x.Streams.Want
		kb := x.perStream() / 1e3
		f := Figure{
			What: fmt.Sprintf("resident memory per open stream, %d streams", want), Candidate: fmt.Sprintf("%.1f KB", kb),
			Compared: fmt.Sprintf("%.1f MB in all", float64(x.RSSBytes)/1e6), Bound: "shown", Reference: figureNotFormed,
		}
		if ref, ok := at(Nginx, want); ok {
			f.Reference = fmt.Sprintf("%.1f KB", ref.perStream()/1e3)
		}
		if want == boundAtStreams {
			f.Bound = fmt.Sprintf("<= %g KB", boundStreamKB)
			f.Verdict = judge(spreadOf([]float64{kb}), boundStreamKB)
		}
		if x.Streams.Live != int64(want) || x.Streams.Errors > 0 {
			f.Verdict = NotMet
			f.Note = fmt.Sprintf("%d of %d streams run, %d failed: %s", x.Streams.Live, want, x.Streams.Errors, x.Streams.First)
		}
		out = append(out, f)
	}
	return out
}
