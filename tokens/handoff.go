package tokens

import (
	"sync"
	"sync/atomic"

	"ramjet/wire"
)

// handedState is what is known of handing over a class's ids.
type handedState struct {
	sent    atomic.Uint64
	stopped atomic.Bool
}

// HandoffCounts takes what is counted for ramjet_handoff_total; the outcomes are those of HandoffOutcomes. It must be
// safe for concurrent use and allocate nothing.
type HandoffCounts interface {
	Handoff(engine, outcome string)
}

// The outcomes of CONTRACT 10.18.
const (
	handoffSent        = "sent"        // ids went with a request
	handoffProbed      = "probed"      // an engine was found to read them
	handoffMismatch    = "mismatch"    // a sample differed from the engine's own ids
	handoffStopped     = "stopped"     // so that its class is not handed over any more
	handoffUnsupported = "unsupported" // an engine was found not to read them
)

// HandoffOutcomes is the closed list of outcomes.
func HandoffOutcomes() []string {
	return []string{handoffSent, handoffProbed, handoffMismatch, handoffStopped, handoffUnsupported}
}

// MaxHandoffEngines is one more than the highest slot of an engine.
const MaxHandoffEngines = 64

// HandoffOptions are what a Handoff works with.
type HandoffOptions struct {
	Model     *Model
	MinTokens int // a shorter prompt is not worth it (handoff.min_tokens)
	// Unproven is told that an engine was found not to use what it was given, so that it must be probed again before it
	// is given more. It is called on the way of a request and must not block. Nil: nobody is told.
	Unproven func(slot int)
	Log      Log // nil: nobody is told
	Counts   HandoffCounts
}

// Handoff decides which requests carry their token ids to the engine, so that it need not render and tokenize again.
// It hands over nothing before ProbeHandoff found that an engine reads the ids, and nothing of a class of which no
// ids were compared. It is safe for concurrent use.
type Handoff struct {
	o     HandoffOptions
	slots [MaxHandoffEngines]atomic.Pointer[engineForms] // nil: unknown; mu is held to store

	mu     sync.Mutex // guards resets
	resets [MaxHandoffEngines]uint64
}

type noHandoffCounts struct{}

func (noHandoffCounts) Handoff(string, string) {}

// NewHandoff makes a Handoff. It starts nothing.
func NewHandoff(o HandoffOptions) *Handoff {
	if o.Log == nil {
		o.Log = noLog{}
	}
	if o.Counts == nil {
		o.Counts = noHandoffCounts{}
	}
	return &Handoff{o: o}
}

// Plan returns the ids that are to go with a request to an engine, and counts them as sent; ok is false where none
// are, and always for a nil Handoff. slot numbers the engine. peek is the reading of the body that p was prepared for. The splice's ids are p's: it holds as long as they do.
// It allocates nothing.
func (h *Handoff) Plan(slot int, p *Prepared, peek *wire.Peeked) (s wire.TokenSplice, ok bool) {
	f := h.slot(slot)
	e := p.Class.Endpoint()
	if !f.reads(e) || !h.may(p, peek) {
		return wire.TokenSplice{}, false
	}
	h.o.Counts.Handoff(f.name, handoffSent)
	return wire.TokenSplice{Form: f.forms[e], IDs: p.IDs}, true
}

// neverHanded are classes whose ids an engine would not use, or that gain nothing, or that nobody can compare: /tokenize
// knows no tool_choice, by which some engines leave the tools out.
const neverHanded = ClassMedia | ClassPrompts | ClassIDs | ClassNoTools

// may holds every guard that does not depend on the engine.
func (h *Handoff) may(p *Prepared, peek *wire.Peeked) bool {
	return h.could(p, peek) && h.o.Model.parity.mayHand(p.Class)
}

// could is may without what is known of the class.
func (h *Handoff) could(p *Prepared, peek *wire.Peeked) bool {
	if !p.Exact || len(p.Ends) != 1 || len(p.IDs) < max(h.o.MinTokens, 1) || p.guards != 0 || p.Class&neverHanded != 0 {
		return false
	}
	return !peek.Echo && !peek.KVTransfer && !peek.Media
}

// reads reports whether an engine reads the ids of an endpoint's requests.
func (f *engineForms) reads(e Endpoint) bool {
	return f != nil && e < handoffEndpoints && f.forms[e] != wire.TokenNone
}
