// Package route is the decision: which engine serves a request, and why. It
// picks and books in one step under the book's lock, does no I/O, reads no
// clock, and is deterministic: the same states, loads and rotation give the
// same answer. A Router is safe for concurrent use.
package route

import (
	"errors"
	"sync/atomic"

	"ramjet/engine"
	"ramjet/lease"
	"ramjet/telemetry"
)

// Policy says how engines are compared. The list is closed (CONTRACT
// section 1).
type Policy string

// The policies.
const (
	PolicyLatency     Policy = "latency"
	PolicyLeastTokens Policy = "least-tokens"
	PolicyRoundRobin  Policy = "round-robin"
	PolicySession     Policy = "session"
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

// Member is one engine in the set, with its account.
type Member struct {
	Engine  *engine.Engine
	Account *lease.Account
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

// Request is what the decision needs to know of a request.
type Request struct {
	Model   []byte // as the engine will read it; empty = the engines' own default
	Session uint64 // hash of the session's identity
	Weight  lease.Weight
	// Stored names the engine that made the response which the request
	// continues; "" if it continues none.
	Stored string
	// Light is a request that generates nothing, like a preflight: it books
	// nothing and no limit holds it.
	Light bool
	// Tried has bit i set when member i was already tried.
	Tried uint64
}

// Decision is the outcome of a pick.
type Decision struct {
	Member   *Member
	Reason   telemetry.Reason
	RunnerUp string // "" when there was none
}

// MaxEngines bounds a set, so that sets of engines fit a word of bits.
const MaxEngines = 64

// Router picks engines.
type Router struct {
	book   *lease.Book
	policy Policy
	set    atomic.Pointer[Set]
	turn   atomic.Uint64
}

// New returns a router over set that books in book.
func New(book *lease.Book, policy Policy, set *Set) *Router {
	r := &Router{book: book, policy: policy}
	r.SetMembers(set)
	return r
}

// SetMembers replaces the set of engines.
func (r *Router) SetMembers(set *Set) {
	if len(set.Members) > MaxEngines {
		panic("BUG: more engines than a set can hold")
	}
	r.set.Store(set)
}

// Members returns the present set.
func (r *Router) Members() *Set { return r.set.Load() }

// Pick chooses an engine for q and books its weight on l in the same critical
// section. The caller must release l on every way out. It allocates nothing.
func (r *Router) Pick(q *Request, l *lease.Lease) (Decision, error) {
	set := r.set.Load()
	r.book.Lock()
	defer r.book.Unlock()
	bits, open, err := r.candidates(set, q)
	if err != nil {
		return Decision{}, err
	}
	d := r.choose(set, q, bits)
	if open {
		d.Reason = telemetry.ReasonFailOpen
	}
	if !q.Light {
		r.book.AcquireLocked(l, d.Member.Account, q.Weight)
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

// candidates returns the engines that may serve q: the usable ones, else the
// suspect ones. Only where there is none of either, tried or not, it fails
// open to all that are not draining: a request that moves must not walk
// through a warm-up or an ejection.
func (r *Router) candidates(set *Set, q *Request) (bits uint64, open bool, err error) {
	if bits := makers(set, q); bits != 0 {
		if bits = r.withRoom(set, q, bits); bits == 0 {
			return 0, false, ErrFull
		}
		return bits, false, nil
	}
	var usable, suspect, rest uint64
	served, working := false, false
	for i := range set.Members {
		e := set.Members[i].Engine
		if len(q.Model) > 0 && e.Models() != nil && !e.Models().Serves(q.Model) {
			continue
		}
		served = true
		state := e.State()
		working = working || state == telemetry.StateReady || state == telemetry.StateSlowStart || state == telemetry.StateSuspect
		if q.Tried&(1<<i) != 0 {
			continue
		}
		switch state {
		case telemetry.StateReady, telemetry.StateSlowStart:
			usable |= 1 << i
		case telemetry.StateSuspect:
			suspect |= 1 << i
		case telemetry.StateDraining:
		case telemetry.StateDown, telemetry.StateWarming, telemetry.StateEjected:
			rest |= 1 << i
		}
	}
	switch {
	case usable != 0:
		bits = usable
	case suspect != 0:
		bits = suspect
	case rest != 0 && !working:
		bits, open = rest, true
	case !served:
		return 0, false, ErrModel
	default:
		return 0, false, ErrNoEngine
	}
	if bits = r.withRoom(set, q, bits); bits == 0 {
		return 0, false, ErrFull
	}
	return bits, open, nil
}

// makers returns the engine that made the response which q continues, while it
// may still answer: no other engine has it.
func makers(set *Set, q *Request) uint64 {
	if q.Stored == "" {
		return 0
	}
	for i := range set.Members {
		e := set.Members[i].Engine
		if e.Name != q.Stored || q.Tried&(1<<i) != 0 {
			continue
		}
		switch e.State() {
		case telemetry.StateReady, telemetry.StateSlowStart, telemetry.StateSuspect, telemetry.StateWarming:
			return 1 << i
		case telemetry.StateDown, telemetry.StateEjected, telemetry.StateDraining:
			return 0
		}
	}
	return 0
}

func (r *Router) withRoom(set *Set, q *Request, bits uint64) uint64 {
	if q.Light {
		return bits
	}
	for i := range set.Members {
		m := &set.Members[i]
		limit := m.Engine.InFlight
		if bits&(1<<i) != 0 && limit > 0 && m.Account.LoadLocked().Requests() >= limit {
			bits &^= 1 << i
		}
	}
	return bits
}
