package kvevents

import (
	"fmt"
	"sync"
)

const (
	// wiringPrints is how many batches are remembered over all engines, to see whether two feeds get the same.
	wiringPrints = 4096
	// wiringSame is how many equal batches in a row make it certain: each holds the time when it was made, to the
	// nanosecond.
	wiringSame = 3
	// wiringFits is how many wrong answers must fit another engine's record exactly to suspect that endpoints are
	// swapped.
	wiringFits = 3
)

// Wiring looks across engines for endpoints that are wired wrongly: two feeds that get one publisher's events, and feeds
// whose events are another engine's (case C26). No field of the protocol shows either. It is safe for concurrent use.
type Wiring struct {
	mu    sync.Mutex // guards what follows
	names []string   // by slot
	seen  map[uint64]int
	ring  [wiringPrints]uint64
	at    int
	same  map[[2]int]int // pairs of slots: equal batches in a row
	fits  map[[2]int]int // answers of the first that fit the record of the second and not its own
	twins map[int]int    // slot: whose events it gets too
}

// NewWiring returns a wiring for engines by slot.
func NewWiring(names []string) *Wiring {
	return &Wiring{names: names, seen: make(map[uint64]int), same: make(map[[2]int]int), fits: make(map[[2]int]int), twins: make(map[int]int)}
}

// SetName names the engine of a slot, and forgets what was held against the one before.
func (w *Wiring) SetName(slot int, name string) {
	w.Forget(slot)
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.names) <= slot {
		w.names = append(w.names, "")
	}
	w.names[slot] = name
	for print, of := range w.seen {
		if of == slot {
			delete(w.seen, print)
		}
	}
}

// Saw notes the fingerprint of a live batch that a slot's feed received.
func (w *Wiring) Saw(slot int, print uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	other, ok := w.seen[print]
	if !ok {
		delete(w.seen, w.ring[w.at])
		w.ring[w.at] = print
		w.at = (w.at + 1) % wiringPrints
		w.seen[print] = slot
		return
	}
	if other == slot {
		return
	}
	pair := [2]int{min(slot, other), max(slot, other)}
	if w.same[pair]++; w.same[pair] >= wiringSame {
		w.twins[slot], w.twins[other] = other, slot
	}
}

// Same says, for people, that a slot's feed gets another engine's events too, or "".
func (w *Wiring) Same(slot int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	other, ok := w.twins[slot]
	if !ok {
		return ""
	}
	return fmt.Sprintf("the same events come for engine %s: both have one events endpoint", w.name(other))
}

// Answer notes an answer of a slot's engine, if it has the matches of all.
func (w *Wiring) Answer(slot int, x Answer) {
	if slot >= len(x.Matches) || x.Reported < 0 || x.Predicted < 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for other, match := range x.Matches {
		if other == slot || other >= len(w.names) {
			continue
		}
		pair := [2]int{slot, other}
		// That neither holds anything fits whatever is wrong.
		own, fits := x.Predicted == x.Reported, int(match) == x.Reported && x.Reported > 0
		switch {
		case own && !fits:
			w.fits[pair] = 0
		case !own && fits && !x.InFlight && x.Removed == 0:
			w.fits[pair]++
		case !own && !fits:
			w.fits[pair] = max(w.fits[pair]-1, 0)
		}
	}
}

// Hint says, for people, whose record fits a slot's answers better than its own, or "".
func (w *Wiring) Hint(slot int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	best, most := -1, wiringFits-1
	for other := range w.names {
		if n := w.fits[[2]int{slot, other}]; n > most {
			best, most = other, n
		}
	}
	if best < 0 {
		return ""
	}
	return fmt.Sprintf("the answers fit the events of engine %s; are the endpoints swapped?", w.name(best))
}

// Forget forgets what was held against a slot, after its endpoints changed.
func (w *Wiring) Forget(slot int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range []map[[2]int]int{w.same, w.fits} {
		for pair := range m {
			if pair[0] == slot || pair[1] == slot {
				delete(m, pair)
			}
		}
	}
	if other, ok := w.twins[slot]; ok {
		delete(w.twins, slot)
		delete(w.twins, other)
	}
}

func (w *Wiring) name(slot int) string {
	if slot < len(w.names) {
		return w.names[slot]
	}
	return fmt.Sprint(slot)
}
