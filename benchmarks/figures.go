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

// Bounds of the design: a ratio to nginx in the same round unless the name says otherwise. That on the idle process is
// a goal of our own: the design states none.
const (
	boundCPUToken   = 1.25
	boundCPUShort   = 1.5
	boundTTFT       = 2.5
	boundOneWayP50  = 2.0
	boundOneWayP99  = 3.0
	boundSyscalls   = 5.0  // calls a token
	boundScheduler  = 0.05 // futex and nanosleep calls a token
	goalIdle        = 0.1  // per cent of a core
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
	return out
}

// unmeasured stands for a figure that nobody looked at: a bound must not vanish with it.
func (r Records) unmeasured(what, part, bound string) Figure {
	f := Figure{What: what, Reference: figureNotFormed, Candidate: figureNotFormed, Compared: figureNotFormed, Bound: bound, Verdict: NotMeasured, Note: "not a part of this call"}
	for _, p := range r.Parts {
		if p.Name == part && p.Error != "" {
			f.Note = p.Error
		}
	}
	return f
}

// ratioOf is the candidate's median over nginx's, where that is above 0.
func ratioOf(candidate, reference Spread) string {
	if candidate.N == 0 || reference.Median <= 0 {
		return figureNotFormed
	}
	return fmt.Sprintf("%.2f x", candidate.Median/reference.Median)
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

// withErrors makes a figure fail when the candidate's requests did. Where those of one of the others that it is compared
// with did, nothing is separable: what was not done took no time.
func (f Figure) withErrors(r Records, scenario string, others ...string) Figure {
	failed, note := errorsOf(r, scenario, r.Meta.Candidate)
	if failed > 0 {
		f.Verdict, f.Note = NotMet, note
	}
	for _, other := range others {
		if _, note := errorsOf(r, scenario, other); note != "" {
			f.Note = strings.TrimPrefix(f.Note+"; "+note, "; ")
			if failed == 0 && f.Verdict != "" {
				f.Verdict = NotSeparable
			}
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
		return r.unmeasured(what, partStreams, text)
	}
	s := spreadOf(ratios)
	return Figure{
		What: what, Reference: fmt.Sprintf("%.1f us", spreadOf(ref).Median), Candidate: fmt.Sprintf("%.1f us", spreadOf(cand).Median),
		Compared: fmt.Sprintf("%.2f x (%.2f .. %.2f)", s.Median, s.Min, s.Max), Bound: text, Verdict: judge(s, bound),
	}.withErrors(r, scenario, Nginx)
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
	text := "aim: not worse than nginx"
	if bound > 0 {
		text = fmt.Sprintf("<= %g x nginx's", bound)
	}
	if len(margins) == 0 {
		return r.unmeasured(what, partStreams, text)
	}
	sr, sc := spreadOf(ref), spreadOf(cand)
	f := Figure{
		What: what, Reference: fmt.Sprintf("%+.0f us (%+.0f .. %+.0f)", sr.Median, sr.Min, sr.Max),
		Candidate: fmt.Sprintf("%+.0f us (%+.0f .. %+.0f)", sc.Median, sc.Min, sc.Max), Compared: ratioOf(sc, sr), Bound: text,
	}
	if bound > 0 {
		if f.Verdict = judge(spreadOf(margins), 0); sr.Median <= 0 {
			f.Verdict = NotSeparable // nginx's own cost is below the noise: there is nothing to multiply
		}
	}
	return f.withErrors(r, scenario, Nginx, Direct)
}

// idleFigures shows what the proxies use while nobody asks them anything, and what is left of one stream's tokens without
// it. The bound on a token stays on the whole: whoever runs one stream pays for the engine checks, too.
func idleFigures(r Records) []Figure {
	const what, whatLeft = "CPU of the idle process, of one core", "CPU per streamed token, c1, less the idle process's"
	bound := fmt.Sprintf("<= %g %%, a goal, not the design's", goalIdle)
	percent := make(map[string][]float64)
	for _, x := range r.Idle {
		percent[x.Target] = append(percent[x.Target], 100*x.share())
	}
	s, ref := windows(percent[r.Meta.Candidate]), windows(percent[Nginx])
	if s.N == 0 {
		return []Figure{r.unmeasured(whatLeft, partIdle, "shown"), r.unmeasured(what, partIdle, bound)}
	}
	idle := map[string]float64{Nginx: ref.Median / 100, r.Meta.Candidate: s.Median / 100}
	left := cpuFigure(r, scenarioC1, whatLeft, 0, func(x RunRecord) float64 {
		return perTokenMicros(x) - idle[x.Target]*1e6*x.Result.Seconds/float64(max(1, x.Result.Tokens))
	}, "shown")
	if left.Verdict != NotMeasured {
		left.Verdict = ""
	}
	return []Figure{left, {
		What: what, Reference: fmt.Sprintf("%.3f %%", ref.Median), Candidate: fmt.Sprintf("%.3f %% (%.3f .. %.3f)", s.Median, s.Min, s.Max),
		Compared: ratioOf(s, ref), Bound: bound, Verdict: judge(s, goalIdle),
	}}
}

// windows is the spread of a few looks at the same thing: all of them have to be within the bound.
func windows(values []float64) Spread {
	s := spreadOf(values)
	s.Low, s.High = s.Min, s.Max
	return s
}

func syscallFigures(r Records) []Figure {
	const what, whatScheduler, whatPlain = "system calls per token, c1, less the idle process's", "of these futex and nanosleep",
		"the same as a plain difference, with credit for idle calls that traffic displaces"
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
	line := func(what string, ref, cand []float64, bound float64, format string) Figure {
		text := fmt.Sprintf("<= %g", bound)
		if len(cand) == 0 {
			return r.unmeasured(what, partSyscalls, text)
		}
		sr, sc := windows(ref), windows(cand)
		f := Figure{
			What: what, Reference: fmt.Sprintf(format, sr.Median), Candidate: fmt.Sprintf(format+" ("+format+" .. "+format+")", sc.Median, sc.Min, sc.Max),
			Compared: ratioOf(sc, sr), Bound: text, Verdict: judge(sc, bound),
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
	plain := r.unmeasured(whatPlain, partSyscalls, "shown")
	if len(candPlain) > 0 {
		plain = Figure{What: whatPlain, Reference: figureNotFormed, Candidate: fmt.Sprintf("%.2f", spreadOf(candPlain).Median), Compared: figureNotFormed, Bound: "shown"}
	}
	return []Figure{
		line(what, refTotal, candTotal, boundSyscalls, "%.2f"),
		line(whatScheduler, refSched, candSched, boundScheduler, "%.3f"),
		plain,
	}
}

// memoryFigures has a line for each number of streams that the candidate held, and one for that of the bound.
func memoryFigures(r Records) []Figure {
	own := r
	own.Memory = slices.DeleteFunc(slices.Clone(r.Memory), func(x MemoryRecord) bool { return x.Target != r.Meta.Candidate })
	var out []Figure
	for _, want := range stepsOf(own) {
		out = append(out, memoryFigure(r, want))
	}
	return out
}

func memoryFigure(r Records, want int) Figure {
	what, bound := "resident memory per open stream, "+memoryName(want), "shown"
	if want == boundAtStreams {
		bound = fmt.Sprintf("<= %g KB", boundStreamKB)
	}
	ours, fell := heldBy(r, r.Meta.Candidate, want)
	theirs, fewer := heldBy(r, Nginx, want)
	sc, sr := windows(inOrder(ours)), windows(inOrder(theirs))
	f := r.unmeasured(what, partMemory, bound)
	if sc.N > 0 {
		pairs := spreadOf(ratios(ours, theirs))
		f.Candidate, f.Note, f.Verdict = fmt.Sprintf("%.1f KB (%.1f .. %.1f), %.1f MB in all", sc.Median, sc.Min, sc.Max, spreadOf(inAll(r, want)).Median/1e6), "", ""
		if pairs.N > 0 {
			f.Compared = fmt.Sprintf("%.2f x (%.2f .. %.2f)", pairs.Median, pairs.Min, pairs.Max)
		}
		if want == boundAtStreams {
			f.Verdict = judge(sc, boundStreamKB)
		}
	}
	if sr.N > 0 {
		f.Reference = fmt.Sprintf("%.1f KB", sr.Median) + fewer
	}
	if fell != "" {
		f.Verdict, f.Note = NotMet, strings.Trim(fell, " ()")
	}
	return f
}

// inAll is what the candidate's process had with so many streams, round by round.
func inAll(r Records, want int) (out []float64) {
	for _, x := range r.Memory {
		if x.Target == r.Meta.Candidate && x.Streams.Want == want {
			out = append(out, float64(x.RSSBytes))
		}
	}
	return out
}
