package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"ramjet/journal"
)

// ReplayOptions say what is decided again.
type ReplayOptions struct {
	Path string // a journal's folder, or one of its files
	// Changes name the settings that Change sets; without any the decisions
	// must come out as they were recorded.
	Changes []string
	Change  func(*journal.Settings)
	// JSON prints a replayed outcome instead of a table.
	JSON bool
	Out  io.Writer
}

// Replay decides every record of a journal again, in order and with its
// recorded inputs, and prints what would have moved. Without changes it is an
// error when a decision comes out otherwise.
func Replay(o ReplayOptions) error {
	r := replayed{Changes: o.Changes, Engines: map[string]*moveCount{}, Moves: []move{}}
	if r.Changes == nil {
		r.Changes = []string{}
	}
	sum, err := journal.Read(o.Path, func(rec *journal.Record) error {
		r.again(rec, o.Change)
		return nil
	})
	if err != nil {
		return err
	}
	if r.Files, r.Cut = sum.Files, sum.Cut; r.Cut == nil {
		r.Cut = []string{}
	}
	if sum.Records == 0 {
		return fmt.Errorf("cannot replay %s: it holds no record", o.Path)
	}
	if o.JSON {
		e := json.NewEncoder(o.Out)
		e.SetIndent("", "  ")
		err = e.Encode(&r)
	} else {
		r.print(o.Out)
	}
	if err == nil && len(o.Changes) == 0 && r.Reproduced != r.Decisions {
		err = errNotReproduced
	}
	return err
}

var errNotReproduced = errors.New("decisions came out otherwise than they were recorded: the journal is of another version of Ramjet, or one of the two is wrong")

// replayed is the outcome of a replay, in the form of --json.
type replayed struct {
	Changes []string `json:"changes"`
	Files   int      `json:"files"`
	Cut     []string `json:"cut_files"`

	Records    int `json:"records"`
	Decisions  int `json:"decisions"`  // the rest found no engine
	Reproduced int `json:"reproduced"` // the same engine for the same reason
	Moved      int `json:"moved"`

	Gained int64 `json:"cached_tokens_gained"`
	Lost   int64 `json:"cached_tokens_lost"`
	// Costs are sums over the decisions of policy latency's formula, by what
	// was recorded and by what was changed; no other sum compares the two.
	RecordedCost beforeAfter `json:"recorded_cost_s"`
	ChangedCost  beforeAfter `json:"changed_cost_s"`
	FirstToken   beforeAfter `json:"first_token_s"`
	Answer       beforeAfter `json:"answer_s"`

	Engines map[string]*moveCount `json:"engines"`
	Moves   []move                `json:"moves"`

	ahead uint64 // rotations made here less those that were recorded
	x     journal.Explanation
}

// beforeAfter is a predicted sum in seconds with the recorded choices and with
// those made here.
type beforeAfter struct {
	Before float64 `json:"before"`
	After  float64 `json:"after"`
}

func (b *beforeAfter) add(before, after float64) {
	b.Before += before
	b.After += after
}

// moveCount is how many requests an engine got.
type moveCount struct {
	Before int `json:"before"`
	After  int `json:"after"`
}

// move is one request that another engine would have got, or for another
// reason.
type move struct {
	ID           string  `json:"request_id"`
	From         string  `json:"from"`
	To           string  `json:"to"`
	ReasonBefore string  `json:"reason_before"`
	ReasonAfter  string  `json:"reason_after"`
	MatchBefore  int64   `json:"match_tokens_before"`
	MatchAfter   int64   `json:"match_tokens_after"`
	CostBefore   float64 `json:"cost_before_s"`
	CostAfter    float64 `json:"cost_after_s"`
}

// again decides one record.
func (r *replayed) again(rec *journal.Record, change func(*journal.Settings)) {
	r.Records++
	if !rec.Decided() {
		return
	}
	r.Decisions++
	s := rec.Settings()
	if change != nil {
		change(&s)
	}
	// Turns go on from where the changed decisions left them, or round-robin
	// would stand still where few decisions rotated.
	x := &r.x
	rec.Again(&s, rec.Rotation()+r.ahead, x)
	if x.Rotated() {
		r.ahead++
	}
	if rec.Rotated() {
		r.ahead--
	}
	from, to := string(rec.Engine), string(x.Engine)
	r.engine(from).Before++
	r.engine(to).After++
	was, would := x.Candidate(from), x.Candidate(to)
	r.RecordedCost.add(rec.Candidate(from).Cost, rec.Candidate(to).Cost)
	r.ChangedCost.add(was.Cost, would.Cost)
	r.FirstToken.add(was.Wait+was.Prefill, would.Wait+would.Prefill)
	length := max(float64(rec.ExpectedOutput), 0)
	r.Answer.add(was.Wait+was.Prefill+length*was.SecondsPerToken, would.Wait+would.Prefill+length*would.SecondsPerToken)
	if from == to && rec.Reason == x.Reason {
		r.Reproduced++
		return
	}
	if from != to {
		r.Moved++
		r.Gained += max(would.Match-was.Match, 0)
		r.Lost += max(was.Match-would.Match, 0)
	}
	r.Moves = append(r.Moves, move{
		ID: string(rec.RequestID), From: from, To: to, ReasonBefore: string(rec.Reason), ReasonAfter: string(x.Reason),
		MatchBefore: was.Match, MatchAfter: would.Match, CostBefore: was.Cost, CostAfter: would.Cost,
	})
}

func (r *replayed) engine(name string) *moveCount {
	if r.Engines[name] == nil {
		r.Engines[name] = &moveCount{}
	}
	return r.Engines[name]
}

// shownMoves is how many of the moved requests people are shown.
const shownMoves = 10

// print writes the outcome for a terminal 100 columns wide.
func (r *replayed) print(out io.Writer) {
	fmt.Fprintf(out, "%d decisions in %d files", r.Decisions, r.Files)
	if n := r.Records - r.Decisions; n > 0 {
		fmt.Fprintf(out, ", and %d requests that no engine could take", n)
	}
	fmt.Fprintln(out)
	for _, name := range r.Cut {
		fmt.Fprintf(out, "%s ends early: it is being written, or its writer was killed\n", name)
	}
	if len(r.Changes) == 0 {
		fmt.Fprintf(out, "decided again with the recorded settings: reproduced %d/%d\n", r.Reproduced, r.Decisions)
	}
	for _, c := range r.Changes {
		fmt.Fprintf(out, "decided again with %s\n", c)
	}
	fmt.Fprintf(out, "\nmoved requests  %d (%.1f %%)\ncached tokens   gained %d, lost %d\n\n", r.Moved, 100*float64(r.Moved)/max(float64(r.Decisions), 1), r.Gained, r.Lost)
	fmt.Fprintf(out, "%-36s %12s %12s\n", "predicted, mean of a request", "before", "after")
	for _, row := range []struct {
		what string
		v    beforeAfter
	}{
		{"cost by the recorded settings", r.RecordedCost}, {"cost by the settings given", r.ChangedCost},
		{"first token", r.FirstToken}, {"whole answer", r.Answer},
	} {
		n := max(float64(r.Decisions), 1)
		fmt.Fprintf(out, "%-36s %12s %12s\n", row.what, precise(row.v.Before/n), precise(row.v.After/n))
	}
	for _, name := range sortedNames(r.Engines) {
		fmt.Fprintf(out, "%-36s %12d %12d\n", "requests of engine "+name, r.Engines[name].Before, r.Engines[name].After)
	}
	r.printMoves(out)
	if len(r.Changes) > 0 {
		fmt.Fprintln(out, "\nEach request meets the loads and caches of its time: what a move would have changed for later ones is not known.")
	}
}

func (r *replayed) printMoves(out io.Writer) {
	if len(r.Moves) == 0 {
		return
	}
	fmt.Fprintln(out)
	for _, m := range r.Moves[:min(len(r.Moves), shownMoves)] {
		fmt.Fprintf(out, "%s: %s (%s, match %d) to %s (%s, match %d), cost %s to %s\n", m.ID, m.From, m.ReasonBefore, m.MatchBefore,
			m.To, m.ReasonAfter, m.MatchAfter, precise(m.CostBefore), precise(m.CostAfter))
	}
	if n := len(r.Moves) - shownMoves; n > 0 {
		fmt.Fprintf(out, "and %d more (--json lists all)\n", n)
	}
}

// precise writes seconds so that small differences show.
func precise(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.2f ms", v*1000)
	}
	return fmt.Sprintf("%.2f s", v)
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
