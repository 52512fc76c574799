package radix

import (
	"math"
	"sync"
	"sync/atomic"
)

// GroupKind is what a KV cache group asks of a hit.
type GroupKind uint8

const (
	// GroupAttention needs every block of a hit: full and MLA attention.
	GroupAttention GroupKind = iota
	// GroupSliding needs the blocks of its window in front of the end of a hit.
	GroupSliding
	// GroupMamba needs a checkpoint at the very end of a hit.
	GroupMamba
	// GroupOther asks nothing, and its events are passed over.
	GroupOther
)

// Group is what is known of one of an engine's KV cache groups.
type Group struct {
	Index       int // the engine's number; their order is not stable
	Kind        GroupKind
	BlockTokens int
	Window      int // tokens, of a GroupSliding
	Blocks      int // resident now, copies counted once
}

// Store is one BlockStored event, or what of it belongs to one key chain.
type Store struct {
	Group int
	Kind  GroupKind
	// BlockTokens is how many tokens a block of this group holds.
	BlockTokens int
	// Window is the tokens that a GroupSliding looks back.
	Window int
	// Root is the key in front of the first block (Root of model, LoRA name and salt), where HasParent is false.
	Root uint64
	// Parent is the engine's hash of the block in front.
	Parent    uint64
	HasParent bool
	// Hashes are the engine's hashes of the blocks, in order: one for every BlockTokens of IDs, or for GroupMamba a
	// single one that names the end of IDs. Stores of other shapes are noted and given no key.
	Hashes []uint64
	IDs    []uint32
	// Lookahead is, where the engine has it in its hashes (vLLM 0.33 with MTP: lookahead_token_ids), the tokens behind
	// each block, all blocks' in a row, equally many each. Empty otherwise.
	Lookahead []uint32
	// Extra, where not nil, has a word for every block that names what its hash covers beside tokens and Root, such as
	// an image: 0 where there is nothing. No prompt of bare tokens has the key of a block with such a word.
	Extra []uint64
}

// DefaultBlocks bounds an engine's blocks while its capacity is unknown: 64 million tokens in blocks of 16, at about
// 160 MB of index.
const DefaultBlocks = 1 << 22

// Residency is what one engine holds, and the one way in for its events. Its methods may be called from any goroutine;
// those that change something wait for each other, and for the other engines of the same block size.
type Residency struct {
	index *Index
	slot  int
	drop  atomic.Int32         // blocks
	life  atomic.Pointer[life] // nil before the first block; written under mu

	_         apart
	mu        sync.Mutex // guards what follows, and life's own fields
	capacity  int        // blocks; 0: DefaultBlocks
	keys      []uint64   // scratch
	pieces    []piece    // scratch
	forgotten uint64
	odd       uint64
	_         apart
}

// Store takes in a store. A block stored twice is two copies and needs two removals. It reports whether the parent was
// never announced, which only an incomplete history explains: such blocks are noted but match nothing. s is not kept.
func (r *Residency) Store(s *Store) (unknownParent bool) {
	if len(s.Hashes) == 0 {
		// vLLM announces spans of which a mamba group keeps nothing.
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l, g := r.begin(s)
	if g == nil || g.Kind == GroupOther {
		return false
	}
	g.expect(s.Hashes)
	if placed := fits(s, l.tree, g); !placed {
		r.odd++
		l.lose(g, s.Hashes)
	} else if n, at, known := r.follow(l, g, s); n == nil && s.HasParent {
		unknownParent = !known
		l.lose(g, s.Hashes)
	} else {
		l.tree.mu.Lock()
		l.tree.sweep()
		r.place(l, len(s.Hashes), n, at)
		l.tree.mu.Unlock()
		for _, p := range r.pieces {
			l.hold(g, p.holding, p.at, s.Hashes[p.from:p.to], s.Hashes[min(p.from+foreseen, len(s.Hashes)):])
		}
		l.settle(g)
	}
	most := r.capacity
	if most == 0 {
		most = DefaultBlocks
	}
	r.forgotten += uint64(l.bound(most))
	return unknownParent
}

// fits reports whether keys can be made for a store, and compared with those of its tree.
func fits(s *Store, t *tree, g *group) bool {
	ahead := len(s.Lookahead) / len(s.Hashes)
	blocks := len(s.IDs) / t.blockTokens
	return s.BlockTokens == t.blockTokens && g.BlockTokens == t.blockTokens && g.Kind == s.Kind &&
		ahead == t.ahead && ahead*len(s.Hashes) == len(s.Lookahead) &&
		blocks*t.blockTokens == len(s.IDs) &&
		(blocks == len(s.Hashes) || g.Kind == GroupMamba && len(s.Hashes) == 1 && blocks > 1) &&
		(s.Extra == nil || len(s.Extra) == blocks)
}

// follow finds the block behind which a store stands (nil for the root) and makes the keys of its blocks. It needs no
// lock of the tree: what this engine holds stays where it is.
func (r *Residency) follow(l *life, g *group, s *Store) (n *node, at int, known bool) {
	key := s.Root
	if s.HasParent {
		if n, at, known = l.locate(g, s.Parent); n == nil {
			return nil, 0, known
		}
		key = n.run.Load().keys[at] // held, so that it is there
		if ahead := l.tree.ahead; ahead > 0 {
			key ^= aheadKey(s.IDs[:ahead])
		}
	}
	r.keys = appendStored(r.keys[:0], key, s, l.tree)
	return n, at, known
}

// piece is what of a store stands in one edge: the hashes from the from-th to before the to-th, from position at on.
type piece struct {
	holding      *holding
	at, from, to int
}

// place puts r.keys into the tree behind position at of edge n and notes in r.pieces where the last of them stand, as
// many as there are hashes. The tree must be locked; that tops are raised keeps the places afterwards.
func (r *Residency) place(l *life, hashes int, n *node, at int) {
	keys := r.keys
	skip := len(keys) - hashes // of a mamba group's span only the end is held
	r.pieces = r.pieces[:0]
	var fresh *node
	for done := 0; done < len(keys); {
		edge, from, count, made := l.tree.place(n, at, keys[done:])
		if fresh != nil && len(fresh.holdings()) == 0 {
			l.tree.free(fresh)
		}
		if fresh = nil; made {
			fresh = edge
		}
		if first := max(skip-done, 0); first < count {
			h := l.holding(edge)
			h.setSpan(h.lead(), max(h.top(), from+count))
			r.pieces = append(r.pieces, piece{h, from + first, done + first - skip, done + count - skip})
		}
		n, at, done = edge, from+count-1, done+count
	}
}

// appendStored appends the tree's keys of a store's blocks behind the key of their parent.
func appendStored(dst []uint64, key uint64, s *Store, t *tree) []uint64 {
	if t.ahead == 0 && s.Extra == nil {
		return AppendKeys(dst, key, s.IDs, t.blockTokens)
	}
	for i := 0; i < len(s.IDs); i += t.blockTokens {
		end := i + t.blockTokens
		if s.Extra != nil {
			key ^= s.Extra[i/t.blockTokens]
		}
		key = Key(key, s.IDs[i:end])
		switch {
		case t.ahead == 0:
			dst = append(dst, key)
		case end < len(s.IDs):
			dst = append(dst, key^aheadKey(s.IDs[end:end+t.ahead]))
		default:
			dst = append(dst, key^aheadKey(s.Lookahead[len(s.Lookahead)-t.ahead:]))
		}
	}
	return dst
}

// aheadKey is what the tokens behind a block add to its key, in a form that can be taken off again when the tokens of
// the block behind it are known.
func aheadKey(ids []uint32) uint64 { return Key(0x6168656164, ids) }

// begin returns the life and the group that a store belongs to, made if need be.
func (r *Residency) begin(s *Store) (*life, *group) {
	if s.BlockTokens <= 0 || s.BlockTokens > math.MaxInt32 {
		r.odd++
		return nil, nil
	}
	l := r.life.Load()
	ahead := len(s.Lookahead) / len(s.Hashes)
	if ahead > s.BlockTokens {
		r.odd++
		return nil, nil
	}
	if l != nil && s.Kind == GroupAttention && len(l.shape.Load().attention) == 0 &&
		(l.tree.blockTokens != s.BlockTokens || l.tree.ahead != ahead) {
		// Prompts are measured in blocks of attention: what another group said of a size before counts for nothing.
		r.end()
		l = nil
	}
	if l == nil {
		l = &life{slot: r.slot, tree: r.index.join(r.slot, s.BlockTokens, ahead)}
		l.shape.Store(&shape{})
		r.life.Store(l)
	}
	g := l.group(s.Group)
	if g == nil {
		if g = l.learn(s); g == nil {
			r.odd++
		}
	}
	return l, g
}

// Remove takes one copy of each block out and returns how many of them the engine never announced, or had removed
// before.
func (r *Residency) Remove(group int, hashes []uint64) (unknown int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.life.Load()
	if l == nil {
		return len(hashes)
	}
	g := l.group(group)
	if g == nil {
		return len(hashes)
	}
	if g.Kind == GroupOther {
		return 0
	}
	if len(hashes) > 1 {
		g.expect(hashes)
	}
	if l.tree.dirty.Load() {
		l.tree.mu.Lock()
		l.tree.sweep()
		l.tree.mu.Unlock()
	}
	for i, hash := range hashes {
		if i+foreseen < len(hashes) {
			g.join.fetch(half(hashes[i+foreseen]))
		}
		switch e := g.join.find(nameOf(hash)); {
		case e == nil:
			unknown++
		case e.count() > 1:
			e.copies = (e.copies - 1) | doubtful
		default:
			l.drop(g, e)
		}
	}
	return unknown
}

// DropDoubtful takes out every block that lost one copy while it had others, and returns how many those were: an engine
// that holds less than it should may be one that announces the removal of the last copy only.
func (r *Residency) DropDoubtful() (dropped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.life.Load()
	if l == nil {
		return 0
	}
	var names []uint64
	for _, g := range l.groups {
		names = names[:0]
		for i := range g.join.parts {
			for _, l := range g.join.parts[i].lines {
				for _, e := range l {
					if e.copies&doubtful != 0 {
						names = append(names, e.name)
					}
				}
			}
		}
		for _, name := range names {
			l.drop(g, g.join.find(name))
		}
		dropped += len(names)
	}
	return dropped
}

// Clear forgets all blocks, as AllBlocksCleared says; what is known of the engine's groups stays.
func (r *Residency) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.life.Load()
	if old == nil {
		return
	}
	l := &life{slot: r.slot, tree: r.index.join(r.slot, old.tree.blockTokens, old.tree.ahead)}
	l.shape.Store(old.shape.Load())
	for _, g := range old.groups {
		g.Blocks = 0
		l.groups = append(l.groups, &group{Group: g.Group, number: g.number, bit: g.bit})
	}
	r.life.Store(l)
	old.end()
}

// Drop forgets everything of an engine that restarted or left, also its groups and block size; its capacity and drop
// stay. It takes the same time however much that was: what is left over is taken away by later writes.
func (r *Residency) Drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
}

func (r *Residency) end() {
	old := r.life.Load()
	if old == nil {
		return
	}
	r.life.Store(nil)
	r.index.leave(r.slot, old.tree)
	old.end()
}

// SetCapacity bounds how many blocks, of all groups together, the engine can hold: beyond it blocks are forgotten by
// chance, which Forgotten counts. 0 stands for DefaultBlocks.
func (r *Residency) SetCapacity(blocks int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.capacity = max(blocks, 0)
}

// SetDrop sets how many blocks the engine loses at the end of each hit: 1 where vLLM up to 0.32 speculates with MTP or
// EAGLE, else 0.
func (r *Residency) SetDrop(blocks int) { r.drop.Store(int32(max(blocks, 0))) }

// Blocks returns how many blocks the engine holds, over all groups, copies counted once.
func (r *Residency) Blocks() (blocks int) {
	for _, g := range r.Groups() {
		blocks += g.Blocks
	}
	return blocks
}

// BlockTokens returns the tokens of a block, or 0 before the first one.
func (r *Residency) BlockTokens() int {
	if l := r.life.Load(); l != nil {
		return l.tree.blockTokens
	}
	return 0
}

// Lookahead returns how many tokens behind a block its hash covers.
func (r *Residency) Lookahead() int {
	if l := r.life.Load(); l != nil {
		return l.tree.ahead
	}
	return 0
}

// Groups returns what is known of the engine's groups, in the order of first sight.
func (r *Residency) Groups() (groups []Group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.life.Load(); l != nil {
		for _, g := range l.groups {
			groups = append(groups, g.Group)
		}
	}
	return groups
}

// Forgotten returns how many blocks were forgotten because the engine announced more than it can hold: anything but 0
// says that removals were lost.
func (r *Residency) Forgotten() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forgotten
}

// Odd returns how many stores could not be given keys, as their tokens do not fit their hashes or their block size not
// the engine's.
func (r *Residency) Odd() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.odd
}
