package benchmarks

import (
	"fmt"
	"slices"
	"strings"
)

// Names of figures; with a scenario they identify a line and its bar.
const (
	figureCPUToken   = "CPU per token"
	figureTTFT50     = "added TTFT p50"
	figureTTFT99     = "added TTFT p99"
	figureOneWay50   = "added token delay p50"
	figureOneWay99   = "added token delay p99"
	figureCPURequest = "CPU per request"
	figureRate       = "answers per second"
	figureCPUPrompt  = "CPU per prompt"
	figureWhole50    = "whole request p50"
	figureMemory     = "memory per stream"
)

// Verdicts on a rival in the same rounds.
const (
	Better Verdict = "better"
	Worse  Verdict = "worse"
)

// Subject is one table of the side-by-side.
type Subject struct {
	Title  string
	About  string
	Ours   []string // names of our columns: with more than one, every line is there for each
	Rivals []string
	Lines  []Line
}

// Line is one figure of one load: ours, and what each rival did in the same rounds.
type Line struct {
	What   string
	Ours   string
	Direct string   // the engines without a proxy, as they are; empty where there is no such figure
	Cells  []string // one a rival
	Bar    string
}

// measureOf is how a figure is read from a run.
type measureOf struct {
	figure string
	unit   string
	value  func(RunRecord) float64
	// added takes the direct way of the same round out.
	added bool
	// more is better, as with a rate.
	more bool
	// proxied figures are those of a process between client and engine: the direct way has none.
	proxied bool
}

var (
	cpuToken   = measureOf{figure: figureCPUToken, unit: "us", value: perTokenMicros, proxied: true}
	cpuRequest = measureOf{figure: figureCPURequest, unit: "us", value: perRequestMicros, proxied: true}
	cpuPrompt  = measureOf{figure: figureCPUPrompt, unit: "us", value: perRequestMicros, proxied: true}
	whole50    = measureOf{figure: figureWhole50, unit: "us", value: func(r RunRecord) float64 { return float64(r.Result.Whole.P50) / 1e3 }}
	addTTFT50  = measureOf{figure: figureTTFT50, unit: "us", value: ttftP50, added: true}
	addTTFT99  = measureOf{figure: figureTTFT99, unit: "us", value: ttftP99, added: true}
	addOne50   = measureOf{figure: figureOneWay50, unit: "us", value: oneWayP50, added: true}
	addOne99   = measureOf{figure: figureOneWay99, unit: "us", value: oneWayP99, added: true}
	rate       = measureOf{figure: figureRate, unit: "/s", value: func(r RunRecord) float64 {
		return float64(r.Result.Requests-r.Result.Errors) / max(r.Result.Seconds, 1e-9)
	}, more: true}
)

// rivalsOf lists who is measured beside us, in the order of the report.
func rivalsOf(r Records) (out []string) {
	for _, c := range r.Contenders {
		if !c.Ours {
			out = append(out, c.Name)
		}
	}
	return out
}

// subjects forms the tables that compare with rivals.
func subjects(r Records) []Subject {
	own, rivals := r.Meta.Candidate, rivalsOf(r)
	table := func(title, about string, scenarios []string, figures ...measureOf) Subject {
		s := Subject{Title: title, About: about, Rivals: rivals, Ours: []string{own}}
		for _, f := range figures {
			for _, sc := range scenarios {
				if l, ok := lineOf(r, sc, own, rivals, f); ok {
					s.Lines = append(s.Lines, l)
				}
			}
		}
		return s
	}
	streamed := []string{scenarioC1, scenarioC16, scenarioC64}
	out := []Subject{
		table("CPU per streamed token", "CPU clock of the proxy and its workers over a run, requests included, by tokens.", streamed, cpuToken),
		table("Added time to the first token", "Less the direct way in the same round.", []string{scenarioTTFTReused, scenarioTTFTNew}, addTTFT50, addTTFT99),
		table("Added delay of a token", "Engine's write to client's read, less the direct way in the same round.", streamed, addOne50, addOne99),
		table("Short answers", "32 connections ask for answers of two tokens as fast as they come.", []string{scenarioShort}, rate, cpuRequest),
		memorySubject(r, rivals),
		promptSubject(r, "Long prompts", r.Meta.Candidate+exactly+" has the engines' tokenizer, follows their events, and takes whatever time a prompt's token ids need (by default it gives up after 20 ms); "+
			r.Meta.Candidate+approximates+" has neither tokenizer nor events. Cold: every prompt is new. Returning: a known conversation with two new messages of 100 bytes at its end. "+
			"Answers have two tokens; the engines tokenize, keep a cache and publish its events.", namesOf(lengths, CorpusCold, CorpusTurns), cpuPrompt, whole50),
		promptSubject(r, "Corpora", "hot64: 64 prompts; cold: all new; mixed90: nine of ten from the 64; short and long prefix: an eighth and seven eighths are the same in all; "+
			"cjk: cold Chinese text.", namesOf(corpusSizes, corpora...), cpuPrompt),
	}
	return slices.DeleteFunc(out, func(s Subject) bool { return len(s.Lines) == 0 })
}

func namesOf(sizes []int, corpora ...string) (out []string) {
	for _, corpus := range corpora {
		for _, n := range sizes {
			out = append(out, promptCell{corpus: corpus, bytes: n}.scenario())
		}
	}
	return out
}

// promptSubject has a line for each of our two ways to know a prompt.
func promptSubject(r Records, title, about string, scenarios []string, figures ...measureOf) Subject {
	s := Subject{Title: title, About: about, Rivals: rivalsOf(r), Ours: []string{r.Meta.Candidate + exactly, r.Meta.Candidate + approximates}}
	for _, f := range figures {
		for _, sc := range scenarios {
			for _, own := range s.Ours {
				if l, ok := lineOf(r, sc, own, s.Rivals, f); ok {
					l.What += ", " + own
					s.Lines = append(s.Lines, l)
				}
			}
		}
	}
	return s
}

// lineOf compares one of ours with every rival in one scenario.
func lineOf(r Records, scenario, own string, rivals []string, m measureOf) (Line, bool) {
	by := inRounds(r, scenario)
	ours := m.values(by, own)
	if len(ours) == 0 {
		return Line{}, false
	}
	s := spreadOf(inOrder(ours))
	l := Line{What: m.figure + ", " + scenario, Ours: m.show(s)}
	if m.figure == figureCPUPrompt {
		l.Ours += decided(by[own])
	}
	failed, note := errorsOf(r, scenario, own)
	if failed > 0 {
		l.Ours += " (" + cell(note) + ")"
	}
	// What is added to a way that failed is no addition.
	base, _ := errorsOf(r, scenario, Direct)
	if l.Direct = m.directly(by[Direct]); l.Direct != "" && base > 0 {
		l.Direct += fmt.Sprintf(" (%d requests failed)", base)
	}
	lame := failed > 0 || m.added && base > 0
	for _, rival := range rivals {
		theirs := m.values(by, rival)
		n, _ := errorsOf(r, scenario, rival)
		text := m.compare(ours, theirs, lame || n > 0)
		if n > 0 {
			text += fmt.Sprintf(" (%d of its requests failed)", n)
		}
		l.Cells = append(l.Cells, text)
	}
	reference, _ := errorsOf(r, scenario, Nginx)
	var asked []string
	for _, b := range barsOf(scenario, m.figure, own) {
		v := b.judge(s, ratios(ours, m.values(by, Nginx)))
		switch {
		case failed > 0:
			v = NotMet
		case m.added && base > 0, b.ofNginx && reference > 0:
			v = NotSeparable
		}
		asked = append(asked, b.text(m.unit)+": "+string(v))
	}
	l.Bar = strings.Join(asked, "; ")
	return l, true
}

// directly shows what the engines do without a proxy.
func (m measureOf) directly(runs map[int]RunRecord) string {
	if m.proxied || len(runs) == 0 {
		return ""
	}
	var v []float64
	for _, x := range runs {
		v = append(v, m.value(x))
	}
	return m.show(spreadOf(v))
}

// decided says how our own prompts were routed, and how long keys and decision took.
func decided(runs map[int]RunRecord) string {
	seen, exact := 0, 0
	var took []float64
	for _, x := range runs {
		if x.Decisions != nil && x.Decisions.Seen > 0 {
			seen, exact = seen+x.Decisions.Seen, exact+x.Decisions.Exact
			took = append(took, float64(x.Decisions.Route.P50)/1e3)
		}
	}
	if seen == 0 {
		return ""
	}
	return fmt.Sprintf(", %.0f %% by exact keys, routed in %s us", 100*float64(exact)/float64(seen), number(spreadOf(took).Median))
}

// judge holds our own values, or the paired ratios to nginx, against the bar.
func (b bar) judge(own Spread, toNginx []float64) Verdict {
	if b.ofNginx {
		return judge(spreadOf(toNginx), b.most)
	}
	return judge(own, b.most)
}

// values reads a target's figure by round; with added, only rounds that have a direct run.
func (m measureOf) values(by map[string]map[int]RunRecord, name string) map[int]float64 {
	out := make(map[int]float64)
	for round, x := range by[name] {
		v := m.value(x)
		if m.added {
			d, ok := by[Direct][round]
			if !ok {
				continue
			}
			v -= m.value(d)
		}
		out[round] = v
	}
	return out
}

func (m measureOf) show(s Spread) string { return number(s.Median) + " " + m.unit }

// compare forms a rival's cell: its median, the paired ratio ours / theirs with least and greatest, and the verdict.
// What a proxy adds may be nothing or less in the noise of a round; then the paired difference stands there. Where
// requests of either failed, nothing is separable: what was not done took no time.
func (m measureOf) compare(ours, theirs map[int]float64, failed bool) string {
	if len(theirs) == 0 {
		return string(NotMeasured)
	}
	text := m.show(spreadOf(inOrder(theirs)))
	if len(ours) == 0 {
		return text
	}
	verdict := func(s Spread, even float64) Verdict {
		if failed {
			return NotSeparable
		}
		return separate(s, even, m.more)
	}
	pairs := ratios(ours, theirs)
	if len(pairs) == common(ours, theirs) && len(pairs) > 0 {
		s := spreadOf(pairs)
		return fmt.Sprintf("%s: %.2f x (%.2f .. %.2f) %s", text, s.Median, s.Min, s.Max, verdict(s, 1))
	}
	var differences []float64
	for round, v := range ours {
		if t, ok := theirs[round]; ok {
			differences = append(differences, v-t)
		}
	}
	s := spreadOf(differences)
	return fmt.Sprintf("%s: %+.0f %s (%+.0f .. %+.0f) %s", text, s.Median, m.unit, s.Min, s.Max, verdict(s, 0))
}

// ratios pairs by round; rounds in which either is not above 0 have no ratio.
func ratios(ours, theirs map[int]float64) (out []float64) {
	for round, v := range ours {
		if t := theirs[round]; t > 0 && v > 0 {
			out = append(out, v/t)
		}
	}
	return out
}

func common(a, b map[int]float64) (n int) {
	for round := range a {
		if _, ok := b[round]; ok {
			n++
		}
	}
	return n
}

func inOrder(by map[int]float64) []float64 {
	out := make([]float64, 0, len(by))
	for _, v := range by {
		out = append(out, v)
	}
	slices.Sort(out)
	return out
}

// separate says whether we are better than a rival: the whole interval for the median must lie on one side of even.
func separate(s Spread, even float64, more bool) Verdict {
	less := Better
	greater := Worse
	if more {
		less, greater = Worse, Better
	}
	switch {
	case s.N == 0:
		return NotMeasured
	case s.N < fewest:
		return NotSeparable
	case s.High < even:
		return less
	case s.Low > even:
		return greater
	}
	return NotSeparable
}

// number prints a figure with as many digits as it can carry.
func number(v float64) string {
	switch a := max(v, -v); {
	case a >= 1000:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
