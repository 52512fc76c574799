package radix

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// Index says which engine holds which blocks, from the engines' own events.
//
// Matches may be asked for from any number of goroutines and never wait; events go in through each engine's Residency.
type Index struct {
	engines [MaxEngines]Residency

	mu    sync.Mutex // serialises changes of trees and of their members
	trees atomic.Pointer[[]*tree]
}

// NewIndex returns an empty index.
func NewIndex() *Index {
	x := &Index{}
	for i := range x.engines {
		x.engines[i].index, x.engines[i].slot = x, i
	}
	x.trees.Store(&[]*tree{})
	return x
}

// Engine returns the residency of the engine in that slot.
func (x *Index) Engine(slot int) *Residency { return &x.engines[slot] }

// join makes an engine a member of the tree of that geometry.
func (x *Index) join(slot, blockTokens, ahead int) *tree {
	x.mu.Lock()
	defer x.mu.Unlock()
	trees := *x.trees.Load()
	for _, t := range trees {
		if t.blockTokens == blockTokens && t.ahead == ahead {
			t.members.Or(1 << slot)
			return t
		}
	}
	t := &tree{blockTokens: blockTokens, ahead: ahead}
	t.members.Store(1 << slot)
	next := append(append(make([]*tree, 0, len(trees)+1), trees...), t)
	x.trees.Store(&next)
	return t
}

// leave takes an engine out of a tree, and the tree out of the index when that was the last one.
func (x *Index) leave(slot int, t *tree) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t.members.And(^uint64(1 << slot)); t.members.Load() != 0 {
		return
	}
	var next []*tree
	for _, o := range *x.trees.Load() {
		if o != t {
			next = append(next, o)
		}
	}
	x.trees.Store(&next)
}

// Empty reports whether no engine ever announced a block.
func (x *Index) Empty() bool { return len(*x.trees.Load()) == 0 }

// BlockSizes appends the distinct block sizes of all engines, in tokens.
func (x *Index) BlockSizes(dst []int) []int {
	from := len(dst)
next:
	for _, t := range *x.trees.Load() {
		for _, size := range dst[from:] {
			if size == t.blockTokens {
				continue next
			}
		}
		dst = append(dst, t.blockTokens)
	}
	return dst
}

// Bytes returns about how much memory all of it takes.
func (x *Index) Bytes() int64 {
	var n int64
	for _, t := range *x.trees.Load() {
		n += t.bytes.Load()
	}
	for i := range x.engines {
		if l := x.engines[i].life.Load(); l != nil {
			n += l.bytes.Load()
		}
	}
	return n
}

// Prompt is what a request asks for.
type Prompt struct {
	// Keys are those of all full blocks of BlockTokens tokens, from the root on: AppendKeys.
	Keys        []uint64
	BlockTokens int
	// Tokens is the prompt's length. An engine always computes the last token, so that a prompt that ends with a block
	// does not hit that one. 0: the prompt goes on behind Keys.
	Tokens int
	// IDs are the prompt's tokens. Only engines whose hashes cover tokens behind a block need them, and match nothing
	// without.
	IDs []uint32
}

// Match is MatchPrompt for a prompt that goes on behind its keys, whose ids are not at hand.
func (x *Index) Match(keys []uint64, blockTokens int, tokens *[MaxEngines]int32) {
	x.MatchPrompt(&Prompt{Keys: keys, BlockTokens: blockTokens}, tokens)
}

// MatchPrompt sets tokens[slot], for every engine with blocks of this size, to the tokens of the longest hit that the
// prompt has there; other slots stay as they are. It waits for nobody and allocates nothing while the prompt's way
// through the tree has fewer than 64 edges.
func (x *Index) MatchPrompt(p *Prompt, tokens *[MaxEngines]int32) { x.MatchBoth(p, tokens, nil) }

// MatchBoth is MatchPrompt that also sets other[slot] to what the hit would be if the engine's learnt drop (SetDrop) were
// wrong: 0 instead of any, 1 instead of 0. An answer that fits it alone speaks for the other drop. other may be nil.
func (x *Index) MatchBoth(p *Prompt, tokens, other *[MaxEngines]int32) {
	for _, t := range *x.trees.Load() {
		if t.blockTokens == p.BlockTokens {
			x.match(t, p, tokens, other)
		}
	}
}

// step is an edge on a prompt's way: its first count keys are the prompt's from the from-th on.
type step struct {
	held  []*holding
	from  int
	count int
}

// A prompt's way through an edge is read anew if the edge was cut meanwhile; after that many times its engines are
// taken to hold nothing there, which errs on the safe side.
const mostReads = 8

func (x *Index) match(t *tree, p *Prompt, tokens, other *[MaxEngines]int32) {
	members := t.members.Load()
	limit := t.limit(p)
	var leads [MaxEngines]int32
	var room [64]step
	steps := room[:0]
	for at, going := 0, members; at < limit && going != 0; {
		n := t.starts.get(t.key(p, at))
		if n == nil {
			break
		}
		s, on := t.step(n, p, at, limit, going, &leads)
		steps = append(steps, s)
		going = on
		at += s.count
	}
	longest := limit
	if p.Tokens > 0 {
		longest = min(longest, (p.Tokens-1)/p.BlockTokens)
	}
	for ; members != 0; members &= members - 1 {
		slot := bits.TrailingZeros64(members)
		r := &x.engines[slot]
		l := r.life.Load()
		if l == nil || l.tree != t {
			continue
		}
		lead, drop := int(leads[slot]), int(r.drop.Load())
		tokens[slot] = int32(l.hit(steps, l.bounds(lead, longest, drop)) * p.BlockTokens)
		if other == nil {
			continue
		}
		if drop > 0 {
			drop = 0
		} else {
			drop = 1
		}
		other[slot] = int32(l.hit(steps, l.bounds(lead, longest, drop)) * p.BlockTokens)
	}
}

// bounds returns how many of lead blocks can be hit of a prompt with longest blocks in front of its last token, if drop
// are lost. With one group the block that holds the last token is not looked up, and blocks are lost of what is found;
// with several that block may be the one that is lost (vLLM 0.32 v1/core/kv_cache_coordinator.py, the unitary and the
// hybrid coordinator).
func (l *life) bounds(lead, longest, drop int) int {
	if s := l.shape.Load(); s.marks == 0 && len(s.sliding) == 0 && len(s.attention) < 2 {
		return min(lead, longest) - drop
	}
	return min(lead-drop, longest)
}

// hit returns how many of that many leading blocks the engine's groups let a prompt use.
func (l *life) hit(steps []step, blocks int) int {
	if s := l.shape.Load(); blocks > 0 && (s.marks != 0 || len(s.sliding) > 0) {
		blocks = l.usable(s, steps, blocks)
	}
	return max(blocks, 0)
}

// limit returns how many of a prompt's blocks can be looked up.
func (t *tree) limit(p *Prompt) int {
	if t.ahead == 0 {
		return len(p.Keys)
	}
	return min(len(p.Keys), max(len(p.IDs)-t.ahead, 0)/t.blockTokens)
}

// key returns the tree's key of a prompt's block.
func (t *tree) key(p *Prompt, i int) uint64 {
	if t.ahead == 0 {
		return p.Keys[i]
	}
	end := (i + 1) * t.blockTokens
	return p.Keys[i] ^ aheadKey(p.IDs[end:end+t.ahead])
}

// step follows a prompt into an edge: it adds to leads what each engine in going holds of it, and returns those that
// hold all of it.
func (t *tree) step(n *node, p *Prompt, at, limit int, going uint64, leads *[MaxEngines]int32) (s step, on uint64) {
	for range mostReads {
		r := n.run.Load()
		s = step{held: n.holdings(), from: at, count: t.common(r.all(), p, at, limit)}
		var found [MaxEngines]int32
		on = 0
		var seen uint64
		for _, h := range s.held {
			bit := uint64(1) << h.life.slot
			if going&bit == 0 || h.life.dead.Load() {
				continue
			}
			lead := min(h.lead(), s.count)
			found[h.life.slot] = int32(lead)
			seen |= bit
			if lead == s.count {
				on |= bit
			}
		}
		if n.run.Load().cut != r.cut {
			continue
		}
		for ; seen != 0; seen &= seen - 1 {
			slot := bits.TrailingZeros64(seen)
			leads[slot] += found[slot]
		}
		return s, on
	}
	return step{from: at, count: limit - at}, 0
}

// common is common for a prompt whose keys are made on the way.
func (t *tree) common(keys []uint64, p *Prompt, at, limit int) int {
	if t.ahead == 0 {
		return common(keys, p.Keys[at:limit])
	}
	n := min(len(keys), limit-at)
	if keys[n-1] == t.key(p, at+n-1) {
		return n
	}
	low, high := 0, n-1
	for low < high {
		if mid := (low + high) / 2; keys[mid] == t.key(p, at+mid) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// usable returns the longest hit of at most blocks blocks at which every group has what it needs: a checkpoint of each
// mamba group, and the blocks of each sliding window.
func (l *life) usable(s *shape, steps []step, blocks int) int {
	for blocks > 0 {
		if s.marks != 0 {
			if blocks = l.checkpoint(s.marks, steps, blocks); blocks == 0 {
				return 0
			}
		}
		hole := -1
		for _, w := range s.sliding {
			if hole = l.hole(w, steps, blocks); hole >= 0 {
				break
			}
		}
		if hole < 0 {
			return blocks
		}
		blocks = hole // the missing block must not be in the window: the hit ends in front of it
	}
	return 0
}

// of returns the engine's holding of an edge, or nil.
func (l *life) of(s *step) *holding {
	for _, h := range s.held {
		if h.life == l {
			return h
		}
	}
	return nil
}

// checkpoint returns the last position, of at most blocks, at which all mamba groups hold a checkpoint.
func (l *life) checkpoint(all uint64, steps []step, blocks int) int {
	for i := len(steps) - 1; i >= 0; i-- {
		s := &steps[i]
		if s.from >= blocks {
			continue
		}
		if h := l.of(s); h != nil {
			if at := h.below(min(blocks-s.from, s.count), all); at > 0 {
				return s.from + at
			}
		}
	}
	return 0
}

// hole returns the last block that a sliding window misses in front of the end of a hit, or -1.
func (l *life) hole(w window, steps []step, blocks int) int {
	first := max(blocks-w.blocks, 0)
	for i := len(steps) - 1; i >= 0; i-- {
		s := &steps[i]
		if s.from >= blocks {
			continue
		}
		var b *bitmap
		if h := l.of(s); h != nil {
			b = h.bitmap(w.bit)
		}
		for at := min(blocks, s.from+s.count) - 1; at >= max(s.from, first); at-- {
			if b == nil || !b.has(at-s.from) {
				return at
			}
		}
		if s.from <= first {
			break
		}
	}
	return -1
}
