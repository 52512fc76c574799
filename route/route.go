// Package route is the decision: which engine serves a request, and why. It
// picks and books in one step under the book's lock, does no I/O, reads no
// clock, and is deterministic: the same states, loads, matches and rotation
// give the same answer. A Router is safe for concurrent use.
//
// The way of a decision, file by file: candidates.go says who may serve,
// match.go what of the prompt each engine holds, cost.go what the request would
// cost there, choose.go who wins, explain.go why.
package route

import (
	"errors"
	"sync"
	"sync/atomic"

	"ramjet/engine"
	"ramjet/lease"
	"ramjet/radix"
	"ramjet/telemetry"
)

// Why no engine could be picked.
var (
	// ErrNoEngine means that none is usable, not even by failing open.
	ErrNoEngine = errors.New("no engine is usable")
	// ErrFull means that every candidate is at its in_flight limit.
	ErrFull = errors.New("every engine is at its limit of requests in flight")
	// ErrModel means that no engine serves the model.
	ErrModel = errors.New("no engine serves the model")
)

// Member is one engine in the set, with its account. Slot is its number in the
// index and in the memory, which it keeps while others come and go.
type Member struct {
	Engine  *engine.Engine
	Account *lease.Account
	Slot    int
}

// Set is an immutable list of members in configured order.
type Set struct {
	Members []Member
}

// Find returns the member with the name, nil if there is none.
func (s *Set) Find(name string) *Member {
	for i := range s.Members {
		if s.Members[i].Engine.Name == name {
			return &s.Members[i]
		}
	}
	return nil
}

// Index returns the position of e, -1 if it is not in the set.
func (s *Set) Index(e *engine.Engine) int {
	for i := range s.Members {
		if s.Members[i].Engine == e {
			return i
		}
	}
	return -1
}

// slots returns one more than the highest slot.
func (s *Set) slots() int {
	n := 0
	for i := range s.Members {
		n = max(n, s.Members[i].Slot+1)
	}
	return n
}

// Prompt is what is known of a request's prompt. Its slices must not change
// between Pick and the first token or the end of the request.
type Prompt struct {
	Tokens int64 // 0 for requests without tokens to prefill
	// Exact says that the ids are known: Sets and Chain are keys of them.
	Exact bool
	// Note says why not, in a closed word of package tokens.
	Note string
	// Fresh is a prompt that its engine computes whole, whatever it holds of it.
	Fresh bool
	// Sets are the keys of the first prompt's blocks, for each block size in
	// use: of all of it when Exact, else of as much as is known.
	Sets []KeySet
	// First is the first prompt's length in tokens, 0 if it is not known, and
	// IDs are its ids as far as they are.
	First int
	IDs   []uint32
	// Chain are chained keys of ChainTokens tokens each: of ids where they are
	// known, else fingerprints of text.
	Chain       []uint64
	ChainTokens int
}

// KeySet is a prompt's keys in blocks of one size, by radix.AppendKeys.
type KeySet struct {
	BlockTokens int
	Keys        []uint64
}

// Request is what the decision needs to know of a request.
type Request struct {
	Now     float64 // seconds on the monotonic clock of the leases
	Model   []byte  // as the engine will read it; empty = the engines' own default
	Session uint64  // hash of the session's identity, 0 if there is none
	Prompt  Prompt
	// Cap is the most tokens that an answer may have; below 1 = none is set or
	// it is malformed.
	Cap int64
	// Sequences is how many answers are generated: prompts times choices.
	// 0 for requests that generate nothing.
	Sequences int64
	// Whole says that the answer comes in one piece, not as a stream.
	Whole bool
	// Stored names the engine that made the response which the request
	// continues; "" if it continues none.
	Stored string
	// Light is a request that generates nothing, like a preflight: it books
	// nothing and no limit holds it.
	Light bool
	// Tried has the bits of the slots that were already tried.
	Tried uint64
}

// Decision is the outcome of a pick.
type Decision struct {
	Member   *Member
	Reason   telemetry.Reason
	RunnerUp string // "" when there was none
	// Match is the prompt tokens believed cached on the engine: the one in
	// use of the exact and the approximate match. A prefill in flight there
	// is not part of it.
	Match int64
	// InFlight is how many tokens of the prompt are being computed there for
	// another request.
	InFlight int64
	// Keys says by what the match was found.
	Keys telemetry.Keys
	// Slot is Member's.
	Slot int

	place int // of Member in the set
}

// MaxEngines bounds a set, so that sets of engines fit a word of bits.
const MaxEngines = radix.MaxEngines

// Router picks engines.
type Router struct {
	book     *lease.Book
	index    *radix.Index
	memory   *radix.Memory
	settings atomic.Pointer[Settings]
	set      atomic.Pointer[Set]
	turn     atomic.Uint64
	sessions sessions
	lengths  lengths // guarded by the book's lock
	scratch  sync.Pool
}

// New returns a router over set that books in book, asks index and memory
// where prompts are cached, and decides by s.
func New(book *lease.Book, index *radix.Index, memory *radix.Memory, s Settings, set *Set) *Router {
	r := &Router{book: book, index: index, memory: memory}
	r.scratch.New = func() any { return &matches{} }
	r.SetMembers(set)
	r.SetSettings(s)
	return r
}

// SetMembers replaces the set of engines.
func (r *Router) SetMembers(set *Set) {
	if len(set.Members) > MaxEngines || set.slots() > MaxEngines {
		panic("BUG: more engines than a set can hold")
	}
	taken := uint64(0)
	for i := range set.Members {
		if taken&(1<<set.Members[i].Slot) != 0 {
			panic("BUG: two engines have one slot")
		}
		taken |= 1 << set.Members[i].Slot
	}
	r.set.Store(set)
}

// Members returns the present set.
func (r *Router) Members() *Set { return r.set.Load() }

// SetSettings replaces what decisions go by.
func (r *Router) SetSettings(s Settings) { r.settings.Store(&s) }

// Settings returns what decisions go by at present.
func (r *Router) Settings() Settings { return *r.settings.Load() }

// BlockSizes appends the sizes, in tokens, of the blocks that engines are known
// to keep: those in which Prompt.Sets is wanted.
func (r *Router) BlockSizes(dst []int) []int { return r.index.BlockSizes(dst) }

// Pick chooses an engine for q, books its claim on l in the same critical
// section, and writes down in x why. The caller must release l on every way
// out. It allocates nothing once x has room for a candidate an engine.
func (r *Router) Pick(q *Request, l *lease.Lease, x *Explanation) (Decision, error) {
	return r.decide(q, l, x)
}

// Explain is Pick without booking: what Pick would choose at this moment.
func (r *Router) Explain(q *Request, x *Explanation) (Decision, error) {
	return r.decide(q, nil, x)
}

func (r *Router) decide(q *Request, l *lease.Lease, x *Explanation) (Decision, error) {
	set, s := r.set.Load(), r.settings.Load()
	m := r.match(set, q)
	defer r.scratch.Put(m)
	r.book.Lock()
	defer r.book.Unlock()
	bits, open, err := r.candidates(set, q)
	if err != nil {
		if q.Tried == 0 { // else the record keeps the decision that was tried last
			x.begin(s, q)
		}
		return Decision{}, err
	}
	x.begin(s, q)
	turn := r.turn.Load()
	p := pick{s: s, set: set, q: q, m: m, bits: bits, turn: turn, note: q.Prompt.Note}
	r.weigh(&p, x)
	d := p.decide(x)
	d.Member = &set.Members[d.place]
	// A browser's preflight takes no turn: one before each request would leave
	// every other turn, that is one engine of two, to the requests.
	rotated := d.Reason == telemetry.ReasonRotation && !q.Light
	x.basis.rotated = rotated
	if open {
		d.Reason, x.basis.open = telemetry.ReasonFailOpen, true
	}
	x.chosen(&p, &d)
	if l == nil {
		return d, nil
	}
	if rotated {
		r.turn.Add(1)
	}
	if !q.Light {
		r.book.AcquireLocked(l, d.Member.Account, p.claim(d), q.Now)
		if q.Sequences > 0 && !q.Prompt.Exact && len(q.Prompt.Chain) == 0 {
			r.sessions.put(q.Session, d.Slot, q.Prompt.Tokens)
		}
	}
	return d, nil
}

// CanPick reports whether Pick would find an engine for q at this moment. It
// books nothing.
func (r *Router) CanPick(q *Request) bool {
	r.book.Lock()
	defer r.book.Unlock()
	_, _, err := r.candidates(r.set.Load(), q)
	return err == nil
}

// Learnt notes that the engine has computed a prompt: its keys are in its cache
// from here on, as far as the memory can know.
func (r *Router) Learnt(m *Member, p *Prompt) {
	if len(p.Chain) > 0 && r.set.Load().Index(m.Engine) >= 0 {
		r.memory.Learn(m.Slot, p.Chain, p.ChainTokens)
	}
}

// Forget drops what is remembered of an engine whose cache was lost.
func (r *Router) Forget(m *Member) {
	r.memory.Drop(m.Slot)
	r.sessions.forget(m.Slot)
}

// Answered notes how long an answer became, which tells what to expect of
// others: tokens of one sequence, under a cap below 1 when there was none.
func (r *Router) Answered(limit, tokens int64) {
	r.book.Lock()
	defer r.book.Unlock()
	r.lengths.add(limit, tokens)
}

// Counted tells an engine's own total of generated tokens and how many requests
// it says are in its batch, below 0 if it does not say: where answers bring no
// usage, the time of a token is learnt from these.
func (r *Router) Counted(e *engine.Engine, tokens, running, now float64) {
	set := r.set.Load()
	if i := set.Index(e); i >= 0 && tokens >= 0 {
		r.book.Counted(set.Members[i].Account, tokens, running, now)
	}
}
