package chaos

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// ends is the closed list of words for the end of a request.
var ends = []string{
	"done", "client-gone-waiting", "client-gone-streaming", "client-stalled", "rejected", "shed", "timed-out", "engine-unreachable",
	"engine-error", "engine-died", "engine-stalled", "engine-bad-response", "drained", "internal",
}

// witness is what was seen on the wires between Ramjet and its engines.
type witness struct {
	mu      sync.Mutex // guards the following
	bodies  map[string][][32]byte
	tainted map[string]bool
	strikes map[string]int
}

func newWitness() *witness {
	return &witness{bodies: map[string][][32]byte{}, tainted: map[string]bool{}, strikes: map[string]int{}}
}

func (w *witness) arrived(id string, sum [32]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bodies[id] = append(w.bodies[id], sum)
}

func (w *witness) taint(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tainted[id] = true
}

func (w *witness) struck(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.strikes[kind]++
}

// line is what the ledger reads of an access line.
type line struct {
	ID       string `json:"id"`
	End      string `json:"end"`
	Status   int    `json:"status"`
	Attempts int    `json:"attempts"`
}

// figures is what the process holds.
type figures struct {
	leases, leaseTokens  float64
	goroutines           int
	descriptors          int            // without sockets to engines
	upstream             int            // sockets to engines
	heap                 int            // bytes in use after a collection
	index, cached        map[string]int // blocks by engine: in the index, and in its cache
	requests, linesInLog int
}

// books are all that a run left behind, from which it is judged.
type books struct {
	outcomes []outcome
	lines    []line
	witness  *witness
	body     func(o *outcome) []byte // of its request
	expected func(path string, body []byte) (string, error)
	before   figures
	after    figures
	output   string // what the process printed that is no access line
}

// violation is one broken promise.
type violation struct {
	rule string
	what string
}

func (v violation) String() string { return v.rule + ": " + v.what }

// The rules. Each has a case in TestLedgerSees.
const (
	ruleOnce      = "every request ends exactly once"
	ruleWord      = "the end is one of the closed words"
	ruleKnown     = "no line without a request"
	ruleText      = "an answer that says success is the engine's text"
	rulePart      = "what was delivered of an unfinished answer is its beginning"
	ruleOwn       = "an answer carries its request's id"
	ruleBody      = "an engine gets the body that was sent"
	ruleAgree     = "client and access line agree"
	ruleSilent    = "no stream ends as if all were well without its end"
	ruleHang      = "nobody waits for ever"
	ruleCounted   = "requests counted = lines written"
	ruleLeases    = "leases back to nothing"
	ruleResources = "goroutines, descriptors and buffers back to their base"
	ruleIndex     = "the index is what the engines hold"
	ruleCrash     = "no panic and no data race"
)

// judge finds every violation. The answers are many, and what each must be has
// to be asked: several are judged at once.
func (b *books) judge() (found []violation) {
	var mu sync.Mutex // guards found
	report := func(rule, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, violation{rule, fmt.Sprintf(format, args...)})
	}
	b.judgeLines(report)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(b.outcomes); i = int(next.Add(1)) - 1 {
				b.judgeAnswer(&b.outcomes[i], report)
			}
		})
	}
	wg.Wait()
	b.judgeFigures(report)
	return found
}

// judgeLines compares the clients' view with the access log.
func (b *books) judgeLines(report func(rule, format string, args ...any)) {
	byID := map[string][]line{}
	for _, l := range b.lines {
		byID[l.ID] = append(byID[l.ID], l)
		if !slices.Contains(ends, l.End) {
			report(ruleWord, "%s ended %q", l.ID, l.End)
		}
	}
	known := map[string]bool{}
	for i := range b.outcomes {
		o := &b.outcomes[i]
		known[o.ID] = true
		lines := byID[o.ID]
		// Who resets right away takes the request back from the kernel's own
		// buffers; a request that was not sent whole may be none at all.
		may := o.Left == "rst" && o.Status == 0 || !o.Sent
		if len(lines) > 1 || len(lines) == 0 && !may {
			report(ruleOnce, "%s has %d lines: %v (%s); before it %s", o.ID, len(lines), lines, o, b.previous(o))
		}
		if len(lines) == 1 {
			b.agree(o, lines[0], report)
		}
	}
	for id := range byID {
		if ours(id) && !known[id] {
			report(ruleKnown, "%s: %v", id, byID[id])
		}
	}
}

// previous tells the request before one of the same client.
func (b *books) previous(o *outcome) string {
	cut := strings.LastIndex(o.ID, "-")
	n, err := strconv.Atoi(o.ID[cut+1:])
	if err != nil {
		return "nothing"
	}
	id := fmt.Sprintf("%s-%d", o.ID[:cut], n-1)
	for i := range b.outcomes {
		if b.outcomes[i].ID == id {
			return b.outcomes[i].String()
		}
	}
	return "nothing"
}

// agree compares what a client saw with what the log says of it.
func (b *books) agree(o *outcome, l line, report func(rule, format string, args ...any)) {
	left := o.Left != "" || o.Hung || !o.Sent
	switch {
	case b.witness.tainted[o.ID] || left:
	case o.SDK && o.Stream && o.Success && l.End == "engine-died":
		// An SDK stops at the dialect's own end, and never learns that the engine died between that and the last chunk.
	case o.Success != (l.End == "done") && !(l.End == "done" && o.Status != 200):
		report(ruleAgree, "the log says %s, the client saw %s", l.End, o)
	case o.Status != 0 && o.Status != l.Status:
		report(ruleAgree, "the log says status %d, the client saw %s", l.Status, o)
	case strings.HasPrefix(l.End, "client-gone"):
		report(ruleAgree, "the log says %s of a client that stayed: %s", l.End, o)
	}
}

// judgeAnswer compares an answer with what it must be.
func (b *books) judgeAnswer(o *outcome, report func(rule, format string, args ...any)) {
	if b.witness.tainted[o.ID] {
		return // a byte of it was changed on the wire, and TCP would have sworn by it
	}
	body := b.body(o)
	if sum := sha256.Sum256(body); !o.SDK {
		for _, got := range b.witness.bodies[o.ID] {
			if got != sum {
				report(ruleBody, "%s arrived as another body (%s, %.200s)", o.ID, o.Path, body)
			}
		}
	}
	if o.HeadID != "" && o.HeadID != o.ID {
		report(ruleOwn, "%s was answered as %q", o.ID, o.HeadID)
	}
	if o.Hung {
		report(ruleHang, "%s", o)
	}
	if o.Stream && o.Whole && o.Status == 200 && o.Left == "" && !o.Success && o.Code == "" {
		report(ruleSilent, "%s", o)
	}
	if o.Text == "" && !o.Success {
		return
	}
	want, err := b.expected(o.Path, body)
	switch {
	case err != nil:
		report(ruleText, "%s: what it should be is not known: %v", o.ID, err)
	case o.Success && sha256.Sum256([]byte(o.Text)) != sha256.Sum256([]byte(want)):
		report(ruleText, "%s (%s, stream %v) got %q, want %q", o.ID, o.Path, o.Stream, o.Text, want)
	case !strings.HasPrefix(want, o.Text):
		report(rulePart, "%s (%s) got %q of %q", o.ID, o.Path, o.Text, want)
	}
}

// heapRoom is by how many bytes the live heap may grow in a run: what is
// remembered of prompts, of decisions and of blocks is bounded, but not empty.
const heapRoom = 96 << 20

func (b *books) judgeFigures(report func(rule, format string, args ...any)) {
	now, base := &b.after, &b.before
	if now.requests != now.linesInLog {
		report(ruleCounted, "%d requests are counted, %d lines written", now.requests, now.linesInLog)
	}
	if now.leases != 0 || now.leaseTokens != 0 {
		report(ruleLeases, "%v leases of %v tokens are held", now.leases, now.leaseTokens)
	}
	if now.goroutines > base.goroutines || now.descriptors > base.descriptors || now.upstream > base.upstream || now.heap > base.heap+heapRoom {
		report(ruleResources, "%s, were %s", now, base)
	}
	for engine, blocks := range now.cached {
		if now.index[engine] != blocks {
			report(ruleIndex, "engine %s holds %d blocks, the index %d", engine, blocks, now.index[engine])
		}
	}
	for _, trace := range []string{"WARNING: DATA RACE", "panic", "fatal error:", "BUG:", "\ngoroutine "} {
		if i := strings.Index(b.output, trace); i >= 0 {
			report(ruleCrash, "%.4000s", b.output[max(0, i-200):])
			break
		}
	}
}

func (f *figures) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d connections to engines, %d KiB of heap", f.goroutines, f.descriptors, f.upstream, f.heap>>10)
}

func (o *outcome) String() string {
	return fmt.Sprintf("%s %s (%d of its connection) stream=%v: sent %v, status %d, whole %v, success %v, code %q, left %q, %d bytes of text, %v, %s", o.ID, o.Path, o.Nth, o.Stream, o.Sent, o.Status, o.Whole, o.Success, o.Code, o.Left, len(o.Text), o.Took, o.Problem)
}
