// Package lease is the load accounting: which requests hold work on which
// engine, how much, and how fast each engine was seen to do it. A Lease belongs
// to one request, is made in the same critical section as the choice of its
// engine, shrinks while the answer grows, and ends exactly once. The package
// does no I/O and reads no clock: times are seconds on one monotonic clock of
// the caller's. All methods are safe for concurrent use; those whose name ends
// in Locked want the book locked.
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

// Claim is what a request will ask of its engine.
type Claim struct {
	// Prefill is the prompt tokens to compute there.
	Prefill int64
	// Decode is the tokens that the answer is expected to hold, all choices
	// together.
	Decode int64
	// Sequences is how many answers are generated at once: prompts times
	// choices, at least 1. Each holds at least one token to its end.
	Sequences int64
	// Whole says that the answer comes in one piece, so that nobody sees when
	// its first token is there.
	Whole bool
	// Keys are the keys of the whole prompt's pieces, chained. They tell others
	// whose prompt begins alike that it is being computed there, and must not
	// change until the first token or the end.
	Keys []uint64
}

// Load is what an engine's leases add up to.
type Load struct {
	Prefill   int   // requests without a first token
	Decode    int   // requests past their first token
	Tokens    int64 // prefill tokens to compute and decode tokens to come
	Uncached  int64 // prefill tokens to compute alone
	Remaining int64 // decode tokens to come of the requests past their first token
	Sequences int64 // answers under way, of either phase
	Decoding  int64 // answers under way past their first token
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

// Account is one engine's side of the book. The zero value is an idle engine
// without a decoding profile.
type Account struct {
	load  Load
	rates Rates

	oldest, newest *Lease  // in prefill, in the order of their booking
	firstToken     float64 // when the engine last gave a first token, all older prompts having theirs
	overtook       int64   // prompt tokens of those that had theirs since, before an older one
	decoding       int64   // answers that generate, whole ones from their booking
	batchTime      float64 // integral of decoding over time
	busyTime       float64 // how long decoding was above 0
	batchAt        float64 // up to when
	counter        counter
}

// NewAccount returns the account of an idle engine with the priors of its
// decoding profile (mtp, standard or none).
func NewAccount(profile string) *Account {
	return &Account{rates: Rates{mtp: profile == "mtp"}}
}

// Lock begins a critical section in which loads can be compared and one lease
// acquired. Unlock must follow.
func (b *Book) Lock() { b.mu.Lock() }

// Unlock ends what Lock began.
func (b *Book) Unlock() { b.mu.Unlock() }

// LoadLocked returns the account's load. The book must be locked.
func (a *Account) LoadLocked() Load { return a.load }

// RatesLocked returns the engine's rates. The book must be locked while they
// are used.
func (a *Account) RatesLocked() *Rates { return &a.rates }

// Load returns the account's load.
func (b *Book) Load(a *Account) Load {
	b.mu.Lock()
	defer b.mu.Unlock()
	return a.load
}

// Rates returns a copy of what the account's engine was seen to do.
func (b *Book) Rates(a *Account) Rates {
	b.mu.Lock()
	defer b.mu.Unlock()
	return a.rates
}

// Lease is one request's claim on one engine. The zero value holds nothing.
// A Lease must not be copied while it holds something.
type Lease struct {
	book    *Book
	account *Account
	phase   Phase
	claim   Claim
	held    int64 // tokens this lease stands for in its account
	done    int64 // tokens generated so far

	older, newer *Lease // in the account's list while in prefill
	at           float64
	seen         bool    // the first token was seen when it came
	first        float64 // when the first token was there
	batchTime    float64 // the account's integral at that time
}

// AcquireLocked books c on a at the time now. The book must be locked. A lease
// that still holds something elsewhere is moved. Release must follow on every
// way out: defer it before anything can fail.
func (b *Book) AcquireLocked(l *Lease, a *Account, c Claim, now float64) {
	l.dropLocked(now)
	c.Sequences = max(c.Sequences, 1)
	c.Prefill = max(c.Prefill, 0)
	c.Decode = max(c.Decode, c.Sequences)
	l.book, l.account, l.phase, l.claim, l.done, l.at = b, a, PhasePrefill, c, 0, now
	if c.Whole {
		l.decodesLocked(now)
	}
	a.load.Prefill++
	a.load.Sequences += c.Sequences
	a.load.Uncached += c.Prefill
	l.pushLocked()
	l.holdLocked(c.Prefill + c.Decode)
}

// Decoding moves the lease to its decode phase at the time now: the first
// token is there, and with it the prefill is paid. seen says that the token
// itself was seen, not an answer that came whole; only then does it tell how
// fast the engine computes prompts. Later calls do nothing.
func (l *Lease) Decoding(now float64, seen bool) {
	if l.book == nil {
		return
	}
	l.book.mu.Lock()
	defer l.book.mu.Unlock()
	if l.phase != PhasePrefill {
		return
	}
	a := l.account
	switch {
	case !seen:
		// An answer that came whole had its first token long before, and says
		// nothing of when the engine turned to the next prompt.
	case l.followsLocked():
		// One that follows an older prompt's prefill has its first token in the
		// same step, often a moment before the older one. The engine has not
		// turned to that one just now: its rate would be beyond all measure.
		a.overtook += l.claim.Prefill
	default:
		a.rates.prefilled(l.claim.Prefill+a.overtook, now-max(l.at, a.firstToken), now)
		a.firstToken, a.overtook = now, 0
	}
	l.leavePrefillLocked()
	a.passLocked(now)
	if !l.claim.Whole {
		l.decodesLocked(now)
	}
	l.phase, l.seen, l.first, l.batchTime = PhaseDecode, seen, now, a.batchTime
	a.load.Decode++
	a.load.Decoding += l.claim.Sequences
	a.load.Remaining += l.claim.Decode
	l.holdLocked(l.claim.Decode)
}

// followsLocked reports whether a prompt that came before has no first token
// yet. Of an answer that comes whole nobody sees when it has.
func (l *Lease) followsLocked() bool {
	for o := l.older; o != nil; o = o.older {
		if !o.claim.Whole {
			return true
		}
	}
	return false
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
	left := max(l.claim.Decode-tokens, l.claim.Sequences)
	l.account.load.Remaining += left - l.held
	l.done = tokens
	l.holdLocked(left)
}

// Measured tells that the answer is whole at the time now with that many
// tokens by the engine's own count, which tells how fast the engine decodes.
// Call it before Release.
func (l *Lease) Measured(tokens int64, now float64) {
	if l.book == nil {
		return
	}
	l.book.mu.Lock()
	defer l.book.mu.Unlock()
	steps := float64(tokens)/float64(max(l.claim.Sequences, 1)) - 1
	if l.phase != PhaseDecode || !l.seen || now <= l.first {
		return
	}
	l.account.passLocked(now)
	l.account.counter.told = true
	l.account.rates.decoded(steps, now-l.first, (l.account.batchTime-l.batchTime)/(now-l.first))
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

// Release ends the lease at the time now. Later calls do nothing.
func (l *Lease) Release(now float64) {
	b := l.book
	if b == nil {
		return
	}
	b.mu.Lock()
	held := l.phase != PhaseNone
	l.dropLocked(now)
	b.mu.Unlock()
	if held && b.released != nil {
		b.released()
	}
}

func (l *Lease) holdLocked(tokens int64) {
	l.account.load.Tokens += tokens - l.held
	l.held = tokens
}

// pushLocked puts the lease behind the others in prefill.
func (l *Lease) pushLocked() {
	a := l.account
	l.older, l.newer = a.newest, nil
	if a.newest != nil {
		a.newest.newer = l
	} else {
		a.oldest = l
	}
	a.newest = l
}

// leavePrefillLocked undoes pushLocked and what the prefill weighed. The keys
// are let go of: what was computed is residency from here on.
func (l *Lease) leavePrefillLocked() {
	a := l.account
	if l.older != nil {
		l.older.newer = l.newer
	} else {
		a.oldest = l.newer
	}
	if l.newer != nil {
		l.newer.older = l.older
	} else {
		a.newest = l.older
	}
	l.older, l.newer, l.claim.Keys = nil, nil, nil
	a.load.Prefill--
	a.load.Uncached -= l.claim.Prefill
	if a.oldest == nil {
		a.overtook = 0
	}
}

func (l *Lease) dropLocked(now float64) {
	switch l.phase {
	case PhaseNone:
		return
	case PhasePrefill:
		l.leavePrefillLocked()
		l.account.overtook = 0 // which of it was beside this one is not known
	case PhaseDecode:
		l.account.load.Decode--
		l.account.load.Decoding -= l.claim.Sequences
		l.account.load.Remaining -= l.held
	}
	if l.phase == PhaseDecode || l.claim.Whole {
		l.account.passLocked(now)
		l.account.decoding -= l.claim.Sequences
	}
	l.account.load.Sequences -= l.claim.Sequences
	l.holdLocked(0)
	l.phase = PhaseNone
	l.account = nil
}

// decodesLocked counts the lease's answers as generating from now on. An answer
// that comes whole does so from its booking: when its prompt was computed
// nobody sees, and most of its life is decoding, during which it makes the
// others' tokens later like any answer.
func (l *Lease) decodesLocked(now float64) {
	l.account.passLocked(now)
	l.account.decoding += l.claim.Sequences
}

// passLocked brings the integrals of the batch up to now.
func (a *Account) passLocked(now float64) {
	if now <= a.batchAt {
		return
	}
	a.batchTime += float64(a.decoding) * (now - a.batchAt)
	if a.decoding > 0 {
		a.busyTime += now - a.batchAt
	}
	a.batchAt = now
}
