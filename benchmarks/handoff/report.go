package handoff

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"

	"ramjet/benchmarks/lab"
)

// Meta says how the figures were made.
type Meta struct {
	Command string `json:"command"`
	VLLM    string `json:"vllm"`
	Python  string `json:"python"`
	Flags   string `json:"ramjet_flags"`
	Rounds  int    `json:"rounds"`
	Seed    uint64 `json:"seed"`
	lab.Machine
	asking string // HOST:PORT of the router that asks
}

func linesOf(text []byte) iter.Seq[string] { return strings.Lines(string(text)) }

// versions asks the server and its Python.
func (r *runner) versions(folder string) error {
	resp, err := http.Get(r.engine + "/version")
	if err != nil {
		return fmt.Errorf("cannot ask for vLLM's version: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("cannot ask for vLLM's version: %w", err)
	}
	var v struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("cannot ask for vLLM's version: %w", err)
	}
	out, err := exec.CommandContext(r.ctx, filepath.Join(folder, "venv", "bin", "python"), "--version").Output()
	if err != nil {
		return fmt.Errorf("cannot ask for Python's version: %w", err)
	}
	r.meta.VLLM, r.meta.Python = v.Version, strings.TrimSpace(string(out))
	return nil
}

// publish prints the report and saves it.
func (r *runner) publish() (ok bool, err error) {
	doc, ok := report(r.meta, r.visits)
	r.say("\n%s", doc)
	if r.cfg.Out == "" {
		return ok, nil
	}
	var raw strings.Builder
	enc := json.NewEncoder(&raw)
	if err := enc.Encode(r.meta); err != nil {
		return ok, err
	}
	for _, v := range r.visits {
		if err := enc.Encode(v); err != nil {
			return ok, err
		}
	}
	if err := lab.Save(filepath.Join(filepath.Dir(r.cfg.Out), "results", "handoff.jsonl"), raw.String()); err != nil {
		return ok, err
	}
	return ok, lab.Save(r.cfg.Out, doc)
}

// The design's bounds for a conversation of 93,000 tokens that comes back, one request at a time, against direct.
const (
	boundTokens = 90_000
	boundFirst  = 0.5
	boundAPI    = 0.35
)

// figure is one of the things compared.
type figure struct {
	title string
	value func(Visit) float64
	text  func(float64) string
	bound float64 // 0: none
}

var figures = []figure{
	{"First token", func(v Visit) float64 { return lab.SpreadOf(v.First).Median }, millis, boundFirst},
	{"CPU of the engine's API process, a request", func(v Visit) float64 { return v.API }, millis, boundAPI},
	{"Requests a second", Visit.rate, func(v float64) string { return fmt.Sprintf("%.2f", v) }, 0},
	{"CPU of the router, a request", func(v Visit) float64 { return v.Router }, millis, 0},
}

func millis(v float64) string { return fmt.Sprintf("%.1f ms", 1e3*v) }

// cell is one length and one number at once.
type cell struct{ wanted, atOnce int }

// cells lists what was visited, in order.
func cells(visits []Visit) (list []cell) {
	seen := map[cell]bool{}
	for _, v := range visits {
		if c := (cell{v.Wanted, v.AtOnce}); !seen[c] {
			seen[c] = true
			list = append(list, c)
		}
	}
	return list
}

// report renders the whole document; ok is false when a bound is not met.
func report(m Meta, visits []Visit) (doc string, ok bool) {
	var w strings.Builder
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(&w, format, args...) }
	p("# Handing token ids over\n\nWritten by the command below, as a whole; nothing here is typed by hand. Raw figures: [results/handoff.jsonl](results/handoff.jsonl).\n\n")
	p("| | |\n| --- | --- |\n| command | `%s` |\n%s", m.Command, m.Rows())
	p("| engine | vLLM %s (CPU build) on %s, Qwen3 of one layer with the vocabulary and chat template of Qwen3, prefix caching, blocks of %d |\n", m.VLLM, m.Python, blockTokens)
	p("| ways | direct; asking: a router that posts every chat to /tokenize, reads the ids and then passes it on; ramjet: `%s` |\n", m.Flags)
	p("| method | a conversation in the engine's cache comes back with one new short message, answered by one token; %d rounds, ways in random order in each (seed %d), %d requests a visit for each at once; "+
		"every request's conversation was cached, and every one through Ramjet was sent with its ids |\n\n", m.Rounds, m.Seed, perVisit)
	p("Figures are medians over the rounds, ratios medians of the rounds' own ratios (least .. greatest). A bound is met, or not, where every round is on that side, of three at least. The model computes next to nothing, so this is what the engine's API process and the way to it take; a large model's own time comes on top of all three ways.\n")
	ok = true
	for _, f := range figures {
		p("\n## %s\n\n| tokens | at once | direct | asking | ramjet | ramjet / direct | ramjet / asking | bound | verdict |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n", f.title)
		for _, c := range cells(visits) {
			p("%s\n", f.row(c, visits, &ok))
		}
	}
	return w.String(), ok
}

// row compares the ways in one cell.
func (f figure) row(c cell, visits []Visit, ok *bool) string {
	by := map[string]map[int]float64{Direct: {}, Asking: {}, Ramjet: {}}
	var prompt []float64
	for _, v := range visits {
		if v.Wanted == c.wanted && v.AtOnce == c.atOnce {
			by[v.Way][v.Round] = f.value(v)
			prompt = append(prompt, v.Prompt)
		}
	}
	ratio := func(other string) lab.Spread {
		var r []float64
		for round, v := range by[Ramjet] {
			if o := by[other][round]; o > 0 {
				r = append(r, v/o)
			}
		}
		return lab.SpreadOf(r)
	}
	show := func(s lab.Spread) string {
		if s.N == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f (%.2f .. %.2f)", s.Median, s.Min, s.Max)
	}
	median := func(way string) string {
		var all []float64
		for _, v := range by[way] {
			all = append(all, v)
		}
		if s := lab.SpreadOf(all); s.Max > 0 {
			return f.text(s.Median)
		}
		return "-"
	}
	direct := ratio(Direct)
	bound, verdict := "-", "shown"
	if f.bound > 0 && c.atOnce == 1 && c.wanted >= boundTokens {
		bound = fmt.Sprintf("<= %g x direct", f.bound)
		verdict = direct.Against(f.bound)
		*ok = *ok && verdict != lab.NotMet
	}
	return fmt.Sprintf("| %.0f | %d | %s | %s | %s | %s | %s | %s | %s |", lab.SpreadOf(prompt).Median, c.atOnce,
		median(Direct), median(Asking), median(Ramjet), show(direct), show(ratio(Asking)), bound, verdict)
}
