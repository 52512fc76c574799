package kvevents

import (
	"fmt"
	"sync"

	"ramjet/telemetry"
)

// Answer is what one finished request shows about an engine's residency.
type Answer struct {
	Prompt   int // prompt tokens
	Output   int // generated tokens
	Reported int // cached prompt tokens that the engine reported; Unreported if it said nothing
	// Predicted is the match by exact keys when the engine was chosen, in tokens, with all rules applied; below 0 if the
	// request had no exact keys, and then its prediction proves nothing.
	Predicted int
	// Other is what Predicted would have been if the drop that is learnt were wrong (radix.Index.MatchBoth); below 0 if
	// that is not at hand.
	Other int
	// InFlight says that a prefill under way there when the engine was chosen, or one that had just ended (Feed.Pending),
	// explains more cached tokens than predicted: blocks can be hit from their allocation on, before they are announced.
	InFlight bool
	// Removed is how many blocks the engine removed, or lost in a clear, between the choice and the first token.
	Removed int
	// BlockTokens is the tokens of a block on the engine; 0 takes what the feed has learnt.
	BlockTokens int
	// Received is Feed.Received as it was when the request was sent.
	Received uint64
	// Matches are the exact matches of all engines when the engine was chosen, by slot; nil if not at hand. Wiring
	// finds swapped endpoints with them.
	Matches []int32

	receivedNow uint64
}

// Unreported is the Reported of an answer without usage.
const Unreported = -1

// Action is what an audit wants done to the residency.
type Action uint32

const (
	// ActDropDoubtful drops blocks that may be gone: fewer tokens were cached than claimed.
	ActDropDoubtful Action = 1 << iota
	// ActSetDrop sets the blocks that the engine loses per hit to Audit.Drop.
	ActSetDrop
	// ActResync reads the whole record anew.
	ActResync

	actRestarted // of Feed alone
)

// Bounds of the audit.
const (
	// auditWindow is how many answers are judged together, auditBad how many wrong ones among them end belief, and
	// auditGood how many right ones in a row restore it. So an engine that always lies is not believed after its 3rd
	// warm answer, and one wrong answer in ten, which races explain, costs nothing.
	auditWindow, auditBad, auditGood = 10, 3, 8
	// auditLearn is how many answers in a row must fit the other drop alone to call it the engine's rule.
	auditLearn = 4
	// auditSlack is the share of a prompt by which a prediction may be off for other reasons than the index's: beyond
	// it, and beyond a block, the answer is wrong.
	auditSlack = 0.05
	// auditShort is how many answers must show fewer cached tokens than claimed to drop blocks in doubt: one may be a
	// removal that was still on its way, and blocks that are dropped though they are there leave a hole at the beginning
	// of many prompts.
	auditShort = 2
	// silentLimit is how many requests without an event make `nothing received` (CONTRACT section 10, 14).
	silentLimit = 2
	// fallbackBlock stands for a block size that is not known, since no event ever came: vLLM's default.
	fallbackBlock = 16
)

// Audit compares predictions with answers, per engine. It is safe for concurrent use, has no clock and does no I/O.
type Audit struct {
	mu sync.Mutex // guards what follows

	window [auditWindow]bool // wrong ones
	at     int               // next place in window
	seen   int               // answers in window
	good   int               // right ones in a row
	short  int               // that claimed too much, since auditGood right ones in a row
	off    bool
	reason string

	drop int // blocks that a hit loses
	fits int // answers in a row that fit the other drop and not this one

	silent    int // requests in a row that must have made events and did not
	silentMax uint64

	resyncIn int // wrong answers until a resync may be asked for again
	totals   totals
}

// NewAudit returns an audit that has seen nothing.
func NewAudit() *Audit { return &Audit{} }

// Drop returns how many blocks the engine loses at the end of each hit, as learnt: 1 where vLLM up to 0.32 speculates
// with MTP or EAGLE, else 0.
func (a *Audit) Drop() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.drop
}

// Restarted forgets what was held against an engine whose process is another one.
func (a *Audit) Restarted() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgive()
	a.silent, a.resyncIn, a.totals = 0, 0, totals{}
}

func (a *Audit) forgive() {
	a.window, a.at, a.seen, a.good, a.short, a.off = [auditWindow]bool{}, 0, 0, 0, 0, false
}

// Verdict says how far predictions may be believed, by answers alone.
func (a *Audit) Verdict() (telemetry.Trust, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.off:
		return telemetry.TrustDegraded, a.reason
	case a.totals.off:
		return telemetry.TrustDegraded, a.totals.reason
	}
	return telemetry.TrustExact, ""
}

// Silence says whether requests finished that must have made events while none came; received is the count of live
// messages up to now, and the first new one ends it.
func (a *Audit) Silence(received uint64) (telemetry.Trust, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.silent == 0 || received > a.silentMax:
		return telemetry.TrustExact, ""
	case a.silent >= silentLimit:
		return telemetry.TrustBlind, "nothing received"
	}
	return telemetry.TrustDegraded, "a request filled blocks and no event came"
}

// Answer takes in one answer and says what to do about it.
func (a *Audit) Answer(x Answer) (act Action) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hear(x)
	if x.Predicted < 0 {
		return 0
	}
	a.totals.answered(x)
	if x.Reported < 0 || x.Predicted == 0 && x.Reported == 0 {
		// A cold request that was cold proves nothing: a record that knows nothing is right about it too.
		return 0
	}
	block := max(x.BlockTokens, 1)
	least := max(x.Predicted-x.Removed*block, 0)
	deviation := 0 // tokens claimed too much
	switch {
	case x.Reported < least:
		deviation = least - x.Reported
		if a.short++; a.short >= auditShort {
			act |= ActDropDoubtful
		}
	case x.Reported > x.Predicted && !x.InFlight:
		deviation = x.Predicted - x.Reported
	}
	switch fits, learnt := a.learn(x); {
	case learnt:
		a.forgive()
		return ActSetDrop
	case fits:
		return 0 // held against nobody until it is clear whose rule it is
	}
	size := max(deviation, -deviation)
	wrong := size >= block && float64(size) > auditSlack*float64(x.Prompt)
	return act | a.judge(wrong, x, deviation)
}

// learn watches for answers that fit the other drop: with a block less, or one more, than the hit that was predicted,
// counted by the rules of the engine's groups. Those that both fit tell nothing.
func (a *Audit) learn(x Answer) (fits, learnt bool) {
	switch {
	case x.Other < 0 || x.Other == x.Predicted || x.Removed > 0:
		return false, false
	case x.InFlight && x.Other > x.Predicted:
		return false, false // what was in flight explains more tokens, and never fewer
	case x.Reported != x.Other:
		a.fits = 0
		return false, false
	}
	if a.fits++; a.fits < auditLearn {
		return true, false
	}
	a.fits = 0
	a.drop = 1 - min(a.drop, 1)
	return true, true
}

func (a *Audit) judge(wrong bool, x Answer, deviation int) (act Action) {
	a.window[a.at] = wrong
	a.at = (a.at + 1) % auditWindow
	a.seen = min(a.seen+1, auditWindow)
	if !wrong {
		if a.good++; a.good >= auditGood {
			a.short = 0
			if a.off {
				a.forgive()
			}
		}
		return 0
	}
	a.good = 0
	n := 0
	for _, w := range a.window {
		if w {
			n++
		}
	}
	if n >= auditBad || a.off {
		a.off = true
		a.reason = fmt.Sprintf("predictions are off: predicted %d cached tokens of %d, and the engine reported %d", x.Predicted, x.Prompt, x.Reported)
		if a.resyncIn--; a.resyncIn <= 0 {
			// Reading the record anew cures what was missed, and is no use against an engine that lies: so not often.
			a.resyncIn = 64
			act = ActResync
		}
	}
	return act
}

// hear counts requests that must have made an event and saw none. Each that computes at least one full block stores it;
// where the engine says nothing about its cache, what it could have had is taken off.
func (a *Audit) hear(x Answer) {
	block := x.BlockTokens
	if block <= 0 {
		block = fallbackBlock
	}
	cached := x.Reported
	if cached < 0 {
		if x.InFlight || x.Predicted < 0 && x.receivedNow > 0 {
			return
		}
		cached = max(x.Predicted, 0)
	}
	if x.receivedNow > x.Received || x.receivedNow > a.silentMax {
		a.silent = 0
	}
	if x.Prompt-cached < block || x.receivedNow > x.Received {
		return
	}
	a.silent = min(a.silent+1, silentLimit)
	a.silentMax = x.receivedNow
}
