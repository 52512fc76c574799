package radix

import (
	"slices"
	"sync/atomic"
)

// life is what one engine holds from its first event to its next clear or restart. Ending it is one store: readers pass
// over holdings of the dead, and later writes take them out.
type life struct {
	slot  int
	tree  *tree
	dead  atomic.Bool
	shape atomic.Pointer[shape]

	_ apart
	// The engine's own feed alone touches these, under Residency.mu.
	groups   []*group
	holdings []*holding
	free     []uint32
	// shared counts the other hashes that stand at a place which one already held: blocks of equal tokens whose hash
	// covers more than tokens. It is all but empty.
	shared map[place]int32

	moved   []place // scratch of hold
	entries int     // of all groups, also those that stand nowhere
	bytes   atomic.Int64
}

// place is a position of one group, for shared.
type place struct {
	holding uint32
	at      uint16
	group   uint8
}

// group is one KV cache group of an engine, in the order of first sight.
type group struct {
	Group
	number uint8 // in life.groups
	bit    int   // among the bitmaps, or among the marks
	join   join
	hand   int // where bound looks next

	last   place // from which the group's last block was removed
	streak bool  // and it stood behind the one before
}

// shape is what readers need to know of an engine's groups.
type shape struct {
	marks     uint64 // the mask of all mamba groups
	sliding   []window
	attention []int // the attention groups' bitmaps
}

type window struct {
	bit    int
	blocks int // that must stand in front of a hit
}

// mostGroups is one bit of a word each; models have 1 to 20.
const mostGroups = 64

// group returns the group of that number.
func (l *life) group(number int) *group {
	for _, g := range l.groups {
		if g.Index == number {
			return g
		}
	}
	return nil
}

// learn makes a group known, or returns nil if there are too many.
func (l *life) learn(s *Store) *group {
	if len(l.groups) == mostGroups {
		return nil
	}
	g := &group{number: uint8(len(l.groups)), Group: Group{Index: s.Group, Kind: s.Kind, BlockTokens: s.BlockTokens, Window: s.Window}}
	var old shape
	if p := l.shape.Load(); p != nil {
		old = *p
	}
	next := shape{marks: old.marks, sliding: slices.Clone(old.sliding), attention: slices.Clone(old.attention)}
	for _, o := range l.groups {
		if (o.Kind == GroupMamba) == (g.Kind == GroupMamba) && o.Kind != GroupOther {
			g.bit++
		}
	}
	switch g.Kind {
	case GroupMamba:
		next.marks |= 1 << g.bit
	case GroupSliding:
		next.sliding = append(next.sliding, window{bit: g.bit, blocks: (max(s.Window, 1) - 1 + s.BlockTokens - 1) / s.BlockTokens})
	case GroupAttention:
		next.attention = append(next.attention, g.bit)
	case GroupOther:
	}
	l.groups = append(l.groups, g)
	l.shape.Store(&next)
	if g.Kind == GroupAttention {
		for _, h := range l.holdings {
			if h != nil {
				h.setSpan(h.leading(&next), h.top())
			}
		}
	}
	return g
}

// leading returns how many leading blocks all attention groups hold.
func (h *holding) leading(s *shape) int {
	if len(s.attention) == 0 {
		return 0
	}
	lead := int32(maxRun)
	for _, bit := range s.attention {
		b := h.bitmap(bit)
		if b == nil {
			return 0
		}
		lead = min(lead, b.lead)
	}
	return int(lead)
}

// holding returns the engine's holding of an edge, made if need be.
func (l *life) holding(n *node) *holding {
	for _, h := range n.holdings() {
		if h.life == l {
			return h
		}
	}
	h := &holding{node: n, life: l}
	if last := len(l.free) - 1; last >= 0 {
		h.id, l.free = l.free[last], l.free[:last]
		l.holdings[h.id] = h
	} else {
		h.id = uint32(len(l.holdings))
		old := cap(l.holdings)
		l.holdings = append(l.holdings, h)
		l.bytes.Add(8 * int64(cap(l.holdings)-old))
	}
	l.tree.attach(h)
	return h
}

// hold notes that group g holds hashes at consecutive positions of h. Mamba groups hold checkpoints, others bits. ahead
// are the hashes that come behind, of this edge and of others.
func (l *life) hold(g *group, h *holding, at int, hashes, ahead []uint64) {
	extra := h.extra
	var b *bitmap
	if g.Kind != GroupMamba {
		b = h.bitmapFor(g.bit)
		h.extra += b.note(at, len(hashes))
	}
	used, room := g.join.used, g.join.room
	for i, hash := range hashes {
		if i < len(ahead) {
			g.join.fetch(half(ahead[i]))
		}
		name := nameOf(hash)
		e := g.join.put(name)
		if b != nil {
			b.halves[at+i] = uint32(name >> 32)
		}
		switch {
		case e.copies == 0:
			l.stand(g, h, b, e, at+i)
		case e.holding == nowhere:
			l.stand(g, h, b, e, at+i)
		case e.holding != h.id || int(e.at) != at+i:
			// The engine says something else of this hash than before: the last word counts.
			l.moved = append(l.moved, place{e.holding, e.at, g.number})
			g.Blocks--
			e.copies = 0
			l.stand(g, h, b, e, at+i)
		}
		if e.count() < mostCopies {
			e.copies++
		}
	}
	l.count(g, used, room)
	if b != nil {
		added, bytes := b.set(at, len(hashes))
		h.held += int32(added)
		h.extra += bytes
		if g.Kind == GroupAttention {
			h.setSpan(h.leading(l.shape.Load()), h.top())
		}
	}
	if h.extra != extra {
		l.tree.bytes.Add(h.extra - extra)
	}
}

// settle takes the hashes that hold found elsewhere from their old places.
func (l *life) settle(g *group) {
	for _, p := range l.moved {
		l.leave(g, p)
	}
	l.moved = l.moved[:0]
}

// stand gives the entry a place: a mark, or a bit that hold sets for all of them together.
func (l *life) stand(g *group, h *holding, b *bitmap, e *entry, at int) {
	e.holding, e.at = h.id, uint16(at)
	g.Blocks++
	var taken bool
	if b != nil {
		taken = b.has(at)
	} else if taken = !h.mark(at, 1<<g.bit, true); !taken {
		h.held++
	}
	if taken {
		if l.shared == nil {
			l.shared = map[place]int32{}
		}
		l.shared[place{h.id, uint16(at), g.number}]++
		l.bytes.Add(sharedBytes)
	}
}

// leave takes a group's block from its place, unless another hash stands there too, and the holding out of the tree
// when that was its last. The tree must not be locked: others wait only where its edges change.
func (l *life) leave(g *group, p place) {
	if n := l.shared[p]; n > 0 {
		l.bytes.Add(-sharedBytes)
		if l.shared[p]--; n == 1 {
			delete(l.shared, p)
		}
		return
	}
	h := l.holdings[p.holding]
	h.held--
	if h.held == 0 {
		h.span.Store(0) // readers that stand here see it go at once
		l.holdings[p.holding] = nil
		l.free = append(l.free, p.holding)
		l.tree.mu.Lock()
		l.tree.detach(h)
		l.tree.mu.Unlock()
		return
	}
	extra := h.extra
	lead, top := h.lead(), h.top()
	last := int(p.at)+1 == top
	if g.Kind == GroupMamba {
		h.mark(int(p.at), 1<<g.bit, false)
	} else {
		b := h.bitmap(g.bit)
		b.clear(int(p.at))
		g.foresee(p, b)
		if g.Kind == GroupAttention {
			lead = h.leading(l.shape.Load())
		}
		if last {
			top = h.last(top)
			h.extra -= b.trim(top)
		}
	}
	if last && g.Kind == GroupMamba {
		top = h.last(top)
	}
	h.setSpan(lead, top)
	if h.extra != extra {
		l.tree.bytes.Add(h.extra - extra)
	}
	if last && 2*top <= h.node.run.Load().len() {
		l.tree.mu.Lock()
		l.tree.shrink(h.node)
		l.tree.mu.Unlock()
	}
}

// foreseen is how many removals and stores ahead entries are fetched: as many as pass while one line comes from main
// memory, and no more than a processor fetches at once.
const foreseen = 12

// foresee fetches the entries that will be removed next, where the last two were neighbours: engines evict a prompt's
// last block first.
func (g *group) foresee(p place, b *bitmap) {
	follows := g.last.holding == p.holding && int(g.last.at) == int(p.at)+1
	g.last = p
	if !follows {
		g.streak = false
		return
	}
	from, to := int(p.at)-foreseen, int(p.at)-foreseen+1
	if !g.streak {
		g.streak = true
		to = int(p.at)
	}
	for i := max(from, 0); i < to; i++ {
		g.join.fetch(b.halves[i])
	}
}

// expect fetches the entries of the first hashes to come.
func (g *group) expect(hashes []uint64) {
	for _, hash := range hashes[:min(foreseen, len(hashes))] {
		g.join.fetch(half(hash))
	}
}

// put returns the entry of a name, new or not.
func (l *life) put(g *group, name uint64) *entry {
	used, room := g.join.used, g.join.room
	e := g.join.put(name)
	l.count(g, used, room)
	return e
}

// drop takes an entry out with all its copies.
func (l *life) drop(g *group, e *entry) {
	p := place{e.holding, e.at, g.number}
	used, room := g.join.used, g.join.room
	g.join.remove(e.name)
	l.count(g, used, room)
	if p.holding != nowhere {
		g.Blocks--
		l.leave(g, p)
	}
}

func (l *life) count(g *group, used, room int) {
	l.entries += g.join.used - used
	if room != g.join.room {
		l.bytes.Add(lineBytes * int64(g.join.room-room))
	}
}

// lose notes hashes that cannot be given a key.
func (l *life) lose(g *group, hashes []uint64) {
	for _, hash := range hashes {
		e := l.put(g, nameOf(hash))
		if e.copies == 0 {
			e.holding = nowhere
		}
		if e.count() < mostCopies {
			e.copies++
		}
	}
}

// locate returns where the block of that hash stands, by the group's own blocks first: a boundary of one prefix has
// the same hash in every group.
func (l *life) locate(g *group, hash uint64) (n *node, at int, known bool) {
	name := nameOf(hash)
	e := g.join.find(name)
	if e == nil || e.holding == nowhere {
		known = e != nil
		for _, o := range l.groups {
			if f := o.join.find(name); f != nil {
				e, known = f, true
				if f.holding != nowhere {
					break
				}
			}
		}
	}
	if e == nil || e.holding == nowhere {
		return nil, 0, known
	}
	return l.holdings[e.holding].node, int(e.at), true
}

// bound forgets blocks until no more are known than the engine can hold: which ones is chance, as the engine has
// shown that removals were lost.
func (l *life) bound(most int) (forgotten int) {
	for l.entries > most {
		var g *group
		for _, o := range l.groups {
			if g == nil || o.join.used > g.join.used {
				g = o
			}
		}
		g.hand++
		if e := g.join.any(g.hand); e.copies != 0 {
			l.drop(g, e)
			forgotten++
		}
	}
	return forgotten
}

// sharedBytes is about what an entry of shared takes.
const sharedBytes = 32

// end makes the life one of the dead and leaves its holdings to later writes.
func (l *life) end() {
	l.dead.Store(true)
	l.tree.mu.Lock()
	defer l.tree.mu.Unlock()
	l.tree.garbage = append(l.tree.garbage, l.holdings)
	l.tree.dirty.Store(true)
	// The holdings lead here as long as they are not swept; the tables need not wait for that.
	l.groups, l.holdings, l.free, l.shared, l.moved = nil, nil, nil, nil, nil
}
