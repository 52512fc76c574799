package kvevents

import "fmt"

// Bounds of the comparison in aggregate.
const (
	// totalsPrompt is the least prompt tokens of a window: fewer say little, as requests begin in one window and end in
	// the next.
	totalsPrompt = 20_000
	// totalsForeign is the share of an engine's prompt tokens that may come from others than us in a window that counts.
	totalsForeign = 0.1
	// totalsSlack is the share of the prompt tokens by which the engine's hits may differ from what was predicted.
	totalsSlack = 0.1
	// totalsBad and totalsGood are the windows in a row that end and restore belief.
	totalsBad, totalsGood = 2, 2
)

// totals compares in aggregate: vllm:prefix_cache_hits_total and _queries_total count tokens, and the former is the sum
// of what answers report (vLLM 0.32: 1,184 of 1,184).
type totals struct {
	prompt, predicted int // tokens of our answers without usage in this window
	reported          int // tokens of prompts whose answers did carry usage: nothing is left to find out then

	hits, queries float64 // at the beginning of this window
	begun         bool
	bad, good     int
	off           bool
	reason        string
}

func (t *totals) answered(x Answer) {
	t.prompt += x.Prompt
	t.predicted += x.Predicted
	if x.Reported >= 0 {
		t.reported += x.Prompt
	}
}

// Totals takes in the engine's counters and judges the window that they end, if enough came in it.
func (a *Audit) Totals(hits, queries float64) (act Action) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := &a.totals
	if !t.begun || hits < t.hits || queries < t.queries {
		*t = totals{hits: hits, queries: queries, begun: true, off: t.off, reason: t.reason}
		return 0
	}
	h, q := hits-t.hits, queries-t.queries
	if q < totalsPrompt && t.prompt < totalsPrompt {
		return 0
	}
	predicted, prompt := float64(t.predicted), float64(t.prompt)
	counts := q > 0 && prompt > 0 && prompt > q*(1-totalsForeign) && prompt < q*(1+totalsForeign) && t.reported < t.prompt/2
	t.hits, t.queries, t.prompt, t.predicted, t.reported = hits, queries, 0, 0, 0
	switch difference := predicted - h; {
	case !counts:
		return 0
	case max(difference, -difference) <= totalsSlack*q:
		t.bad = 0
		if t.good++; t.good >= totalsGood {
			t.off = false
		}
		return 0
	default:
		if difference > 0 {
			act = ActDropDoubtful
		}
	}
	t.good = 0
	if t.bad++; t.bad >= totalsBad {
		t.off = true
		t.reason = fmt.Sprintf("predictions are off: predicted %.0f cached tokens of %.0f, and the engine counted %.0f", predicted, q, h)
	}
	return act
}
