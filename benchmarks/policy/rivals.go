package policy

import (
	"math"
	"sort"

	"ramjet/radix"
)

// seat is what a rule's own book says of an engine.
type seat struct {
	requests int
	prefill  int // uncached tokens of requests without a first token
	units    int // of the original's load
	early    []*flight
	active   map[uint64]int // blocks in use, and by how many requests
}

// board is the book that all rules share: counted by themselves at once, with residency from the same index that the
// product uses.
type board struct {
	rule  rule
	seats []seat
	held  [radix.MaxEngines]int32
	turn  int
	lead  map[uint64]*leader // of new prefixes, for the original's single flight
}

// rule is one other router's decision: the least value wins, ties go in turn unless it says otherwise.
type rule struct {
	name string
	// choose returns the slot.
	choose func(b *board, w *world, f *flight) int
	blocks bool // active blocks are counted
}

// rules are re-implementations of decisions alone, from their sources as the notes on the simulations cite them.
func rules() []rule {
	return []rule{
		{name: "round-robin", choose: func(b *board, w *world, _ *flight) int { b.turn++; return b.turn % len(w.models) }},
		{name: "least-requests", choose: (*board).leastRequests},
		{name: "llm-d 2:1:1", choose: (*board).precise},
		{name: "dynamo", choose: (*board).dynamo, blocks: true},
		{name: "smg cache_aware", choose: (*board).cacheAware},
		{name: "original", choose: (*board).original},
		{name: "lmetric", choose: (*board).lmetric},
		{name: "strict", choose: (*board).strict},
	}
}

func newBoard(w *world, r rule) *board {
	b := &board{rule: r, seats: make([]seat, len(w.models)), lead: make(map[uint64]*leader)}
	for i := range b.seats {
		b.seats[i].active = make(map[uint64]int)
	}
	return b
}

func (b *board) pick(w *world, f *flight) int {
	clear(b.held[:len(w.models)])
	keys := f.job.keys(w.blockTokens)
	w.product.index.MatchPrompt(&radix.Prompt{Keys: keys, BlockTokens: w.blockTokens, Tokens: f.job.in}, &b.held)
	slot := b.rule.choose(b, w, f)
	f.match = int(b.held[slot])
	f.uncached = max(f.job.in-f.match, 1)
	s := &b.seats[slot]
	s.requests++
	s.prefill += f.uncached
	s.units += units(f.uncached)
	s.early = append(s.early, f)
	if b.rule.blocks {
		for _, key := range keys {
			s.active[key]++
		}
	}
	return slot
}

func (b *board) first(_ *world, f *flight) {
	s := &b.seats[f.slot]
	s.prefill -= f.uncached
	for i, other := range s.early {
		if other == f {
			s.early = append(s.early[:i], s.early[i+1:]...)
			break
		}
	}
}

func (b *board) done(w *world, f *flight) {
	s := &b.seats[f.slot]
	s.requests--
	s.units -= units(f.uncached)
	b.ended(f)
	if b.rule.blocks {
		for _, key := range f.job.keys(w.blockTokens) {
			if s.active[key]--; s.active[key] == 0 {
				delete(s.active, key)
			}
		}
	}
}

// least takes the engine with the least value, and equal ones in turn.
func (b *board) least(value func(slot int) float64) int {
	best := math.Inf(1)
	var ties []int
	for i := range b.seats {
		switch v := value(i); {
		case v < best:
			best, ties = v, append(ties[:0], i)
		case v == best:
			ties = append(ties, i)
		}
	}
	b.turn++
	return ties[b.turn%len(ties)]
}

func (b *board) leastRequests(*world, *flight) int {
	return b.least(func(i int) float64 { return float64(b.seats[i].requests) })
}

// precise is llm-d's precise prefix scorer with weights 2 prefix, 1 queue, 1 cache use. Queue and use are the engines'
// own at this very moment, which flatters it: it scrapes them.
func (b *board) precise(w *world, f *flight) int {
	low, high := math.MaxInt, 0
	for _, m := range w.models {
		low, high = min(low, len(m.waiting)), max(high, len(m.waiting))
	}
	return b.least(func(i int) float64 {
		queue := 1.0
		if high > low {
			queue = float64(high-len(w.models[i].waiting)) / float64(high-low)
		}
		return -(2*float64(b.held[i])/float64(f.job.in) + queue + 1 - w.models[i].blocks.usage())
	})
}

// dynamo is its KV router's cost: prompt tokens to compute, queued ones included, and blocks in use with this request's.
func (b *board) dynamo(w *world, f *flight) int {
	keys := f.job.keys(w.blockTokens)
	return b.least(func(i int) float64 {
		s := &b.seats[i]
		blocks := len(s.active)
		for _, key := range keys {
			if s.active[key] == 0 {
				blocks++
			}
		}
		return float64(s.prefill+f.job.in-int(b.held[i])) + float64(blocks*w.blockTokens)
	})
}

// cacheAware is smg's rule fed by events: the shortest queue once the counts differ by more than 32 and by 10 %, else
// the highest overlap, then the least load.
func (b *board) cacheAware(*world, *flight) int {
	low, high := math.MaxInt, 0
	for i := range b.seats {
		low, high = min(low, b.seats[i].requests), max(high, b.seats[i].requests)
	}
	if high-low > 32 && float64(high) > 1.1*float64(low) {
		return b.least(func(i int) float64 { return float64(b.seats[i].requests) })
	}
	return b.least(func(i int) float64 { return -float64(b.held[i])*1e6 + float64(b.seats[i].requests) })
}

// The original's score counts chunks of 2 KB, 512 tokens here, and load in units of 32 KB.
const (
	chunkTokens = 512
	chunkCap    = 32
	unitTokens  = 8192
	mostUnits   = 8
	unitWeight  = 4
	leadChunks  = 8
)

func units(uncached int) int { return min(max((uncached+unitTokens-1)/unitTokens, 1), mostUnits) }

// leader is the engine that a new prefix is computed on, as long as requests with it are under way.
type leader struct{ slot, members int }

// original is the score of the router that Ramjet replaces: overlap up to 32 chunks less 4 for each load unit, then the
// deeper overlap, then the profile. Cold requests follow the leader of their first 16 KB unless it is more than a unit
// busier.
func (b *board) original(w *world, f *flight) int {
	cold := true
	for i := range b.seats {
		cold = cold && b.held[i] < chunkTokens
	}
	key, keyed := leadKey(w, f)
	l := b.lead[key]
	if cold && keyed && l != nil {
		idlest := math.MaxInt
		for i := range b.seats {
			idlest = min(idlest, b.seats[i].units)
		}
		if b.seats[l.slot].units-idlest <= 1 {
			l.members++
			f.leads, f.leadKey = true, key
			return l.slot
		}
	}
	slot := b.least(func(i int) float64 {
		chunks := int(b.held[i]) / chunkTokens
		score := float64(min(chunks, chunkCap) - unitWeight*b.seats[i].units)
		preferred := 0.0
		if w.profiles[i] == prefers(f.job.limit) {
			preferred = 1
		}
		return -(score + float64(chunks)*1e-4 + preferred*1e-5)
	})
	if cold && keyed && l == nil {
		b.lead[key] = &leader{slot: slot, members: 1}
		f.leads, f.leadKey = true, key
	}
	return slot
}

func prefers(limit int64) string {
	if limit > 0 && limit <= 256 {
		return profileMTP
	}
	return profileStandard
}

func leadKey(w *world, f *flight) (uint64, bool) {
	n := leadChunks * chunkTokens / w.blockTokens
	if keys := f.job.keys(w.blockTokens); len(keys) >= n {
		return keys[n-1], true
	}
	return 0, false
}

// ended lets go of a lead.
func (b *board) ended(f *flight) {
	if !f.leads {
		return
	}
	l := b.lead[f.leadKey]
	if l.members--; l.members == 0 {
		delete(b.lead, f.leadKey)
	}
}

// lmetric is LMetric: tokens to compute if sent there, times the batch it would make.
func (b *board) lmetric(_ *world, f *flight) int {
	return b.least(func(i int) float64 {
		s := &b.seats[i]
		return float64(s.prefill+max(f.job.in-int(b.held[i]), 1)) * float64(s.requests+1)
	})
}

// strict is cache, then load, then profile, each absolute. What is being computed counts as cached.
func (b *board) strict(w *world, f *flight) int {
	keys := f.job.keys(w.blockTokens)
	return b.least(func(i int) float64 {
		held := int(b.held[i])
		for _, other := range b.seats[i].early {
			theirs := other.job.keys(w.blockTokens)
			n := sort.Search(min(len(keys), len(theirs)), func(k int) bool { return keys[k] != theirs[k] })
			held = max(held, min(n*w.blockTokens, f.job.in-1))
		}
		preferred := 1.0
		if w.profiles[i] == prefers(f.job.limit) {
			preferred = 0
		}
		load := b.seats[i].prefill + 300*b.seats[i].requests
		return -float64(held)*1e9 + float64(load)*10 + preferred
	})
}
