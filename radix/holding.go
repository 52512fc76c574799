package radix

import (
	"math/bits"
	"slices"
	"sync/atomic"
	"unsafe"
)

// holding is which blocks of one edge one engine holds. Its engine's feed alone writes it (under Residency.mu); other
// engines' feeds see top, and readers lead, bits and marks, through atomics.
type holding struct {
	node *node
	life *life
	id   uint32        // index in life.holdings
	span atomic.Uint64 // lead and top, which so cost one atomic store where both change
	held int32         // positions held, summed over groups; a holding of none is taken out
	// bits are the groups that hold most of a prompt's blocks, attention and sliding windows; marks are the mamba
	// groups' checkpoints, one or two a prompt, sorted by position.
	bits  bitmap
	more  atomic.Pointer[[]*bitmap] // the second group of that sort and on
	marks atomic.Pointer[[]mark]
	extra int64 // bytes beside the holding itself
}

// lead is how many leading blocks every attention group holds.
func (h *holding) lead() int { return int(uint32(h.span.Load())) }

// top is one more than the last position held by any group. It is raised under the tree's lock, so that who cuts the
// edge sees it.
func (h *holding) top() int { return int(h.span.Load() >> 32) }

func (h *holding) setSpan(lead, top int) {
	if next := uint64(top)<<32 | uint64(lead); next != h.span.Load() {
		h.span.Store(next)
	}
}

const holdingBytes = int64(unsafe.Sizeof(holding{}))

// mark is a position at which the groups in the mask hold a checkpoint.
type mark struct {
	groups uint64 // by atomic functions
	at     int32
}

const markBytes = int64(unsafe.Sizeof(mark{}))

// bitmap is the positions that one group holds. The first 64 need no array: with hybrid models, whose blocks have
// hundreds of tokens, most edges are no longer.
type bitmap struct {
	word atomic.Uint64
	rest atomic.Pointer[[]atomic.Uint64]
	lead int32 // leading positions held
	held int32
	// halves are the upper halves of the names of what stands at each position, or once stood: enough to look ahead for
	// what the engine will remove next.
	halves []uint32
}

func (b *bitmap) load(word int) uint64 {
	if word == 0 {
		return b.word.Load()
	}
	if p := b.rest.Load(); p != nil && word <= len(*p) {
		return (*p)[word-1].Load()
	}
	return 0
}

func (b *bitmap) has(at int) bool { return b.load(at/64)>>(at%64)&1 != 0 }

// slot returns the word of a position, making room up to it, and the bytes that took.
func (b *bitmap) slot(word int) (*atomic.Uint64, int64) {
	if word == 0 {
		return &b.word, 0
	}
	var old []atomic.Uint64
	if p := b.rest.Load(); p != nil {
		old = *p
	}
	if word <= len(old) {
		return &old[word-1], 0
	}
	grown := make([]atomic.Uint64, max(word, len(old)+len(old)/4))
	for i := range old {
		grown[i].Store(old[i].Load())
	}
	b.rest.Store(&grown)
	bytes := 8 * int64(len(grown)-len(old))
	if old == nil {
		bytes += 24
	}
	return &grown[word-1], bytes
}

// note makes room for the names of count positions from at on, and returns the bytes that took.
func (b *bitmap) note(at, count int) int64 {
	old := cap(b.halves)
	if end := at + count; end > len(b.halves) {
		if end > old {
			next := append([]uint32(nil), make([]uint32, roomier(end))...)
			copy(next, b.halves)
			b.halves = next
		}
		b.halves = b.halves[:end]
	}
	return 4 * int64(cap(b.halves)-old)
}

// trim gives back room for names when most of it is behind the last position held, and returns the bytes that gave.
func (b *bitmap) trim(top int) int64 {
	old := cap(b.halves)
	if old < 64 || 2*top > old {
		return 0
	}
	b.halves = append([]uint32(nil), b.halves[:min(top, len(b.halves))]...)
	return 4 * int64(old-cap(b.halves))
}

// roomier is for how many a list is made that has grown to n: little more, as most of what an index takes are such
// lists, and enough that growing by ones costs each a few copies.
func roomier(n int) int { return n + min(n/8, 16+n/16) + 2 }

// set holds count positions from at on and returns how many were not held, and the bytes that took.
func (b *bitmap) set(at, count int) (added int, bytes int64) {
	for end := at + count; at < end; {
		n := min(end-at, 64-at%64)
		mask := ^uint64(0) >> (64 - n) << (at % 64)
		w, grown := b.slot(at / 64)
		bytes += grown
		old := w.Load()
		added += bits.OnesCount64(mask &^ old)
		w.Store(old | mask)
		at += n
	}
	b.held += int32(added)
	for added > 0 {
		w := b.load(int(b.lead)/64) >> (b.lead % 64)
		ones := bits.TrailingZeros64(^w)
		b.lead += int32(ones)
		if ones == 0 || b.lead%64 != 0 {
			break
		}
	}
	return added, bytes
}

func (b *bitmap) clear(at int) {
	w, _ := b.slot(at / 64)
	w.Store(w.Load() &^ (1 << (at % 64)))
	b.held--
	b.lead = min(b.lead, int32(at))
}

// top returns one more than the last position held below limit.
func (b *bitmap) top(limit int) int {
	for w := (limit - 1) / 64; w >= 0 && b.held > 0; w-- {
		if x := b.load(w); x != 0 {
			return w*64 + bits.Len64(x)
		}
	}
	return 0
}

// bitmap returns the positions of the i-th group of that sort, nil if it never held any here.
func (h *holding) bitmap(i int) *bitmap {
	if i == 0 {
		return &h.bits
	}
	if p := h.more.Load(); p != nil && i <= len(*p) {
		return (*p)[i-1]
	}
	return nil
}

// bitmapFor makes room for the i-th group.
func (h *holding) bitmapFor(i int) *bitmap {
	if b := h.bitmap(i); b != nil {
		return b
	}
	var more []*bitmap
	if p := h.more.Load(); p != nil {
		more = slices.Clone(*p)
	}
	for len(more) < i {
		more = append(more, &bitmap{})
		h.extra += int64(unsafe.Sizeof(bitmap{})) + 8
	}
	h.more.Store(&more)
	return more[i-1]
}

func (h *holding) checkpoints() []mark {
	if p := h.marks.Load(); p != nil {
		return *p
	}
	return nil
}

// mark sets or clears a group's checkpoint and reports whether that changed anything.
func (h *holding) mark(at int, group uint64, on bool) bool {
	marks := h.checkpoints()
	i, found := slices.BinarySearchFunc(marks, int32(at), func(m mark, at int32) int { return int(m.at - at) })
	var old uint64
	if found {
		old = marks[i].groups
	}
	next := old | group
	if !on {
		next = old &^ group
	}
	switch {
	case next == old:
		return false
	case found && next != 0:
		atomic.StoreUint64(&marks[i].groups, next)
		return true
	case found:
		marks = slices.Delete(slices.Clone(marks), i, i+1)
		h.extra -= markBytes
	default:
		// A list of its own, as readers keep the old one.
		grown := make([]mark, 0, len(marks)+1)
		grown = append(append(grown, marks[:i]...), mark{at: int32(at), groups: next})
		marks = append(grown, marks[i:]...)
		h.extra += markBytes
	}
	h.marks.Store(&marks)
	return true
}

// below returns one more than the last position under limit that holds checkpoints of all groups, or 0.
func (h *holding) below(limit int, all uint64) int {
	marks := h.checkpoints()
	i, _ := slices.BinarySearchFunc(marks, int32(limit), func(m mark, at int32) int { return int(m.at - at) })
	for i--; i >= 0; i-- {
		if atomic.LoadUint64(&marks[i].groups)&all == all {
			return int(marks[i].at) + 1
		}
	}
	return 0
}

// last returns one more than the last position held below limit.
func (h *holding) last(limit int) int {
	top := h.bits.top(limit)
	if p := h.more.Load(); p != nil {
		for _, b := range *p {
			top = max(top, b.top(limit))
		}
	}
	if marks := h.checkpoints(); len(marks) > 0 {
		top = max(top, int(marks[len(marks)-1].at)+1)
	}
	return top
}
