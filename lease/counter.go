package lease

import "math"

// counter is what an engine's own total of generated tokens said last, and what
// its leases had gone through by then.
type counter struct {
	begun     bool
	tokens    float64
	batchTime float64 // the account's integrals
	busyTime  float64
	told      bool // an answer brought its own count since
	ignored   int  // how many readings are yet to be passed over
	pause     int  // how many the last odd one cost, less those that were learnt from since
}

// foreignShare is by how much an engine may report more requests in its batch
// than are booked before it is taken to serve others too: its figure is a
// moment old.
const foreignShare = 1.25

// Of totals that cannot be one process's: behind an address with several, each
// reading is another one's, and the difference of two is no work that anybody
// did. A restart makes one go back once, and costs the least pause; readings
// that jump back and forth cost twice as many each time, so that next to nothing
// is learnt there. The first ones are passed over until it would have shown.
const (
	firstPause = 8
	leastPause = 4
	mostPause  = 256
	// fastestAnswer is more tokens a second than any engine generates of one
	// answer: the fastest that sell that speed reach about 3,000.
	fastestAnswer = 5000
)

// Counted tells the engine's own total of generated tokens since its start, and
// how many requests it says are in its batch (below 0: not said), at the time
// now. Where answers bring no count of their own, the time of a token is learnt
// from what the total grew by while leases were decoding (DESIGN section 6).
// A span says nothing when the engine began anew in it, or serves others too:
// their tokens are in the total and not in the book. Nor does one between two
// processes behind one address.
func (b *Book) Counted(a *Account, tokens, running, now float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a.passLocked(now)
	before := a.counter
	a.counter = counter{begun: true, tokens: tokens, batchTime: a.batchTime, busyTime: a.busyTime}
	grown, busy := tokens-before.tokens, a.busyTime-before.busyTime
	foreign := running > max(float64(a.load.Sequences)*foreignShare, float64(a.load.Sequences)+1)
	work := a.batchTime - before.batchTime // of all answers, in seconds
	odd := before.begun && (grown < 0 || !foreign && busy > 0 && grown > fastestAnswer*work)
	if a.counter.passOver(&before, odd) || !before.begun || before.told || foreign || !(grown > 0) || math.IsInf(grown, 0) || busy <= 0 {
		return
	}
	a.counter.pause = max(a.counter.pause-1, 0)
	a.rates.Observed(grown, busy, work/busy)
}

// passOver reports whether a reading says nothing because it, or one not long
// before, could not be the same process's as the one before it.
func (c *counter) passOver(before *counter, odd bool) bool {
	c.pause, c.ignored = before.pause, max(before.ignored-1, 0)
	switch {
	case !before.begun:
		c.ignored = firstPause
	case odd:
		c.pause = min(max(2*before.pause, leastPause), mostPause)
		c.ignored = c.pause
	}
	return odd || before.ignored > 0
}
