// Package lease is the load accounting: which requests hold work on which
// engine, and how much. A Lease belongs to one request, is made in the same
// critical section as the choice of its engine, shrinks while the answer
// grows, and ends exactly once. The package does no I/O and reads no clock.
// All methods are safe for concurrent use.
package lease

import "sync"

// Phase is where a request stands on its engine.
type Phase uint8

const (
	// PhaseNone is a lease that holds nothing: not begun, or ended.
	PhaseNone Phase = iota
	// PhasePrefill lasts until the first generated token.
	PhasePrefill
	// PhaseDecode lasts from the first generated token to the end.
	PhaseDecode
)

// Weight is what a request will ask of its engine.
type Weight struct {
	// Prefill is the prompt tokens to compute.
	Prefill int64
	// Decode is the tokens that the answer is expected to hold, all choices
	// together.
	Decode int64
	// Sequences is how many answers are generated at once: prompts times
	// choices, at least 1. Each holds at least one token to its end.
	Sequences int64
}

// Load is what an engine's leases add up to.
type Load struct {
	Prefill int   // requests without a first token
	Decode  int   // requests past their first token
	Tokens  int64 // prefill tokens to compute and decode tokens to come
}

// Requests returns the requests in either phase.
func (l Load) Requests() int { return l.Prefill + l.Decode }

// Book holds every account under one lock, so that a choice among engines and
// its booking are one step.
type Book struct {
	mu       sync.Mutex // guards every Account and Lease of this book
	released func()
}

// NewBook returns an empty book. released, which may be nil, is called outside
// the lock after each release, for those who wait for room.
func NewBook(released func()) *Book {
	return &Book{released: released}
}

// Account is one engine's side of the book.
type Account struct {
	load Load
}

// Lock begins a critical section in which loads can be compared and one lease
// acquired. Unlock must follow.
func (b *Book) Lock() { b.mu.Lock() }

// Unlock ends what Lock began.
func (b *Book) Unlock() { b.mu.Unlock() }

// LoadLocked returns the account's load. The book must be locked.
func (a *Account) LoadLocked() Load { return a.load }

// Load returns the account's load.
func (b *Book) Load(a *Account) Load {
	b.mu.Lock()
	defer b.mu.Unlock()
	return a.load
}

// Lease is one request's claim on one engine. The zero value holds nothing.
// A Lease must not be copied while it holds something.
type Lease struct {
	book    *Book
	account *Account
	phase   Phase
	weight  Weight
	held    int64 // tokens this lease stands for in its account
	done    int64 // tokens generated so far
}

// AcquireLocked books w on a. The book must be locked. A lease that still
// holds something elsewhere is moved. Release must follow on every way out:
// defer it before anything can fail.
func (b *Book) AcquireLocked(l *Lease, a *Account, w Weight) {
	l.dropLocked()
	if w.Sequences < 1 {
		w.Sequences = 1
	}
	l.book, l.account, l.phase, l.weight = b, a, PhasePrefill, w
	l.done = 0
	a.load.Prefill++
	l.holdLocked(max(w.Prefill, 0) + max(w.Decode, w.Sequences))
}

// Decoding moves the lease to its decode phase: the first token is there, and
// with it the prefill is paid. Later calls do nothing.
func (l *Lease) Decoding() {
	if l.book == nil {
		return
	}
	l.book.mu.Lock()
	defer l.book.mu.Unlock()
	if l.phase != PhasePrefill {
		return
	}
	l.phase = PhaseDecode
	l.account.load.Prefill--
	l.account.load.Decode++
	l.holdLocked(max(l.weight.Decode, l.weight.Sequences))
}

// Generated tells how many tokens the answer holds by now. The claim shrinks
// by them, but never below one token for each sequence that still runs.
func (l *Lease) Generated(tokens int64) {
	if l.book == nil {
		return
	}
	l.book.mu.Lock()
	defer l.book.mu.Unlock()
	if l.phase != PhaseDecode || tokens <= l.done {
		return
	}
	l.done = tokens
	l.holdLocked(max(l.weight.Decode-tokens, l.weight.Sequences))
}

// Phase returns where the lease stands.
func (l *Lease) Phase() Phase {
	if l.book == nil {
		return PhaseNone
	}
	l.book.mu.Lock()
	defer l.book.mu.Unlock()
	return l.phase
}

// Release ends the lease. Later calls do nothing.
func (l *Lease) Release() {
	b := l.book
	if b == nil {
		return
	}
	b.mu.Lock()
	held := l.phase != PhaseNone
	l.dropLocked()
	b.mu.Unlock()
	if held && b.released != nil {
		b.released()
	}
}

func (l *Lease) holdLocked(tokens int64) {
	l.account.load.Tokens += tokens - l.held
	l.held = tokens
}

func (l *Lease) dropLocked() {
	switch l.phase {
	case PhaseNone:
		return
	case PhasePrefill:
		l.account.load.Prefill--
	case PhaseDecode:
		l.account.load.Decode--
	}
	l.holdLocked(0)
	l.phase = PhaseNone
	l.account = nil
}
