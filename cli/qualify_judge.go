package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// qualified is what of an Explanation counts here.
type qualified struct {
	ID     string  `json:"request_id"`
	Tokens int     `json:"prompt_tokens"`
	Keys   string  `json:"keys"`
	Note   *string `json:"keys_note"`
	Engine string  `json:"engine"`

	Candidates []matched `json:"candidates"`
	Shadow     *struct {
		Engine    *string `json:"engine"`
		Agreement string  `json:"agreement"`
	} `json:"shadow"`
	Result *struct {
		End    string `json:"end"`
		Prompt *int   `json:"prompt_tokens"`
		Cached *int   `json:"cached_tokens"`
	} `json:"result"`
}

type matched struct {
	Engine     string `json:"engine"`
	Match      int    `json:"match_tokens"`
	MatchExact int    `json:"match_exact_tokens"`
	InFlight   int    `json:"match_in_flight_tokens"`
}

// winner is what was known of the chosen engine.
func (x *qualified) winner() matched {
	for _, c := range x.Candidates {
		if c.Engine == x.Engine {
			return c
		}
	}
	return matched{}
}

// reported is the cached tokens by the engine's own count, -1 if it told none.
func (x *qualified) reported() int {
	if x.Result == nil || x.Result.Cached == nil {
		return -1
	}
	return *x.Result.Cached
}

// undecided are the notes of prompts whose ids are known, though exact keys did
// not decide.
var undecided = []string{"an engine's cache is not known exactly", "exact routing is off", "exact routing only shadows", "outside the cohort"}

// foreign is the note of prompts whose tokenizer is another model's.
const foreign = "foreign tokenizer"

// tokenized reports whether the ids of the prompt are known, and why not.
func (x *qualified) tokenized() (ok bool, why string) {
	if x.Keys == "exact" {
		return true, ""
	}
	if x.Note == nil {
		return false, "no reason is told"
	}
	return slices.Contains(undecided, *x.Note), *x.Note
}

// duplicate is the prompt tokens that were computed though another engine holds
// them.
func (x *qualified) duplicate() int {
	w, elsewhere := x.winner(), 0
	for _, c := range x.Candidates {
		if c.Engine != x.Engine {
			elsewhere = max(elsewhere, c.Match)
		}
	}
	return max(elsewhere-max(w.Match, w.InFlight), 0)
}

// qualifyTally counts what became of the requests of a run.
type qualifyTally struct {
	Requests  int // that were answered and explained, and count
	Learning  int // that were sent before and do not
	Errors    int
	Tokenized int
	Equal     int // match is what the engine reported
	Prompt    int // tokens
	Duplicate int
	Agreement map[string]int

	Engines    map[string]*engineTally
	notes      map[string]int
	firstError string
	counted    int // otherwise by the engine
	miscount   string
	moves      string
}

// engineTally is what one engine did.
type engineTally struct {
	Requests int `json:"requests"`
	Match    int `json:"match_tokens"`
	Reported int `json:"cached_tokens"`
	Wrong    int `json:"wrong"`      // answers that report another match
	Untold   int `json:"unreported"` // answers that report none
	first    string
}

func newTally() qualifyTally {
	return qualifyTally{
		Agreement: map[string]int{"agree": 0, "would-move": 0, "tie": 0, "cold": 0, "untrusted": 0},
		Engines:   map[string]*engineTally{}, notes: map[string]int{},
	}
}

func (t *qualifyTally) failed(id string, err error) {
	t.Errors++
	if t.firstError == "" {
		t.firstError = id + ": " + err.Error()
	}
}

// add takes in one request.
func (t *qualifyTally) add(x *qualified) {
	t.Requests++
	w := x.winner()
	e := t.Engines[x.Engine]
	if e == nil {
		e = &engineTally{}
		t.Engines[x.Engine] = e
	}
	e.Requests++
	t.Prompt += x.Tokens
	t.Duplicate += x.duplicate()
	t.agreement(x)
	tokenized, why := x.tokenized()
	if !tokenized {
		t.notes[why]++
		return
	}
	if x.Result == nil || x.Result.Prompt == nil || *x.Result.Prompt != x.Tokens {
		t.miscounted(x)
		return
	}
	t.Tokenized++
	e.Match += w.MatchExact
	switch reported := x.reported(); {
	case reported < 0:
		e.Untold++
	case reported == w.MatchExact:
		t.Equal++
		e.Reported += reported
	default:
		e.Reported += reported
		e.Wrong++
		if e.first == "" {
			e.first = fmt.Sprintf("%s: %d by its events, %d reported", x.ID, w.MatchExact, reported)
		}
	}
}

func (t *qualifyTally) miscounted(x *qualified) {
	if x.Result == nil || x.Result.Prompt == nil {
		t.notes["the engine reported no prompt tokens"]++
		return
	}
	t.counted++
	if t.miscount == "" {
		t.miscount = fmt.Sprintf("%s: %d here, %d at engine %s", x.ID, x.Tokens, *x.Result.Prompt, x.Engine)
	}
}

func (t *qualifyTally) agreement(x *qualified) {
	word := "untrusted"
	if x.Shadow != nil {
		word = x.Shadow.Agreement
	}
	t.Agreement[word]++
	if word == "would-move" && t.moves == "" && x.Shadow.Engine != nil {
		t.moves = fmt.Sprintf("%s: %s, and %s the other way", x.ID, x.Engine, *x.Shadow.Engine)
	}
}

// verdict is the outcome of a run, in the form of --json.
type verdict struct {
	URL       string                  `json:"url"`
	OK        bool                    `json:"ok"`
	Requests  int                     `json:"requests"`
	Learning  int                     `json:"requests_before"`
	Checks    []checked               `json:"checks"`
	Agreement map[string]int          `json:"agreement"`
	Engines   map[string]*engineTally `json:"engines"`
	Problems  []string                `json:"problems"`
	Notes     []string                `json:"notes"`
}

// checked is one bound.
type checked struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Got  int    `json:"got"`
	Of   int    `json:"of"`
	line string
}

// mostDuplicate is the share of all prompt tokens that may be computed though
// another engine holds them: other people's load moves a session now and then.
const mostDuplicate = 0.05

// judge puts the bounds to what was counted.
func (t *qualifyTally) judge(engines []engineOf) verdict {
	all := t.Requests + t.Errors
	a := t.Agreement
	compared := a["agree"] + a["would-move"]
	v := verdict{Requests: all, Learning: t.Learning, Agreement: a, Engines: t.Engines, Problems: []string{}, Notes: []string{}}
	v.check("tokenized", t.Tokenized, all, t.Tokenized == all, "")
	v.check("exact agrees with approximate", a["agree"], compared, a["would-move"] == 0 && a["untrusted"] == 0 && compared > 0,
		fmt.Sprintf(" (apart: %d ties, %d cold, %d untrusted)", a["tie"], a["cold"], a["untrusted"]))
	v.check("match equals reported", t.Equal, all, t.Equal == all, "")
	v.Checks = append(v.Checks,
		checked{"duplicate prefill tokens", float64(t.Duplicate) <= mostDuplicate*float64(t.Prompt), t.Duplicate, t.Prompt, fmt.Sprintf("duplicate prefill tokens %d of %d", t.Duplicate, t.Prompt)},
		checked{"errors", t.Errors == 0, t.Errors, all, fmt.Sprintf("errors %d", t.Errors)})
	v.OK = !slices.ContainsFunc(v.Checks, func(c checked) bool { return !c.OK })
	t.explainEngines(&v, engines)
	t.explainRest(&v, compared)
	v.OK = v.OK && len(v.Problems) == 0
	return v
}

func (v *verdict) check(name string, got, of int, ok bool, more string) {
	v.Checks = append(v.Checks, checked{name, ok, got, of, fmt.Sprintf("%s %d/%d%s", name, got, of, more)})
}

// explainEngines says what is wrong with each engine.
func (t *qualifyTally) explainEngines(v *verdict, engines []engineOf) {
	for i := range engines {
		e := &engines[i]
		n := t.Engines[e.Name]
		if n == nil {
			n = &engineTally{}
			v.Engines[e.Name] = n
		}
		switch {
		case n.Wrong > 0:
			v.problem("engine %s lies about its cache: %d of %d answers report another number of cached tokens than its events say (%s)", e.Name, n.Wrong, n.Requests, n.first)
		case n.Untold > 0:
			v.problem("engine %s does not report cached tokens (vLLM: --enable-prompt-tokens-details), so nothing is proven", e.Name)
		}
		switch {
		case e.Trust == "blind":
			v.problem("engine %s has no events that can be used: %s", e.Name, e.TrustReason)
		case e.Trust == "degraded":
			v.problem("the events of engine %s are not believed: %s", e.Name, e.TrustReason)
		case n.Requests == 0:
			v.Notes = append(v.Notes, fmt.Sprintf("engine %s (%s) served none of the requests: nothing is known of it", e.Name, e.State))
		}
	}
}

// explainRest says what else is wrong.
func (t *qualifyTally) explainRest(v *verdict, compared int) {
	if t.counted > 0 {
		v.problem("tokens do not match: for %d requests the engine counted other prompt tokens (%s); tokenizer or chat template are not the model's", t.counted, t.miscount)
	}
	for _, why := range sortedNames(t.notes) {
		if why == foreign {
			v.problem("tokens do not match: the tokenizer is not the model's, found by comparing with the engines' /tokenize (%d requests)", t.notes[why])
			continue
		}
		v.problem("tokens are not known for %d requests: %s", t.notes[why], why)
	}
	if t.moves != "" {
		v.problem("exact and approximate routing chose different engines for %d requests (%s)", t.Agreement["would-move"], t.moves)
	}
	if compared == 0 && t.Requests > 0 && len(v.Problems) == 0 {
		v.problem("exact and approximate routing could not be compared: every decision was a tie, cold or untrusted")
	}
	if t.firstError != "" {
		v.problem("%d requests failed (%s)", t.Errors, t.firstError)
	}
	if t.Learning > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("%d requests before those were not counted: they teach how much of a hit an engine computes again", t.Learning))
	}
}

func (v *verdict) problem(format string, args ...any) {
	v.Problems = append(v.Problems, fmt.Sprintf(format, args...))
}

// failed names the bounds that were not met, for one line.
func (v *verdict) failed() string {
	if len(v.Problems) > 0 {
		return v.Problems[0]
	}
	var names []string
	for _, c := range v.Checks {
		if !c.OK {
			names = append(names, c.line)
		}
	}
	return strings.Join(names, ", ")
}

// print writes the bounds, one a line, then what is wrong.
func (v *verdict) print(out io.Writer) {
	fmt.Fprintf(out, "%d requests to %s\n", v.Requests, v.URL)
	for _, name := range sortedNames(v.Engines) {
		e := v.Engines[name]
		fmt.Fprintf(out, "engine %s: %d requests, %d cached tokens by its events, %d reported\n", name, e.Requests, e.Match, e.Reported)
	}
	fmt.Fprintln(out)
	for _, c := range v.Checks {
		word := "ok  "
		if !c.OK {
			word = "FAIL"
		}
		fmt.Fprintln(out, word, c.line)
	}
	for _, p := range v.Problems {
		fmt.Fprintln(out, "problem:", p)
	}
	for _, n := range v.Notes {
		fmt.Fprintln(out, "note:", n)
	}
}
