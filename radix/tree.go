package radix

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// maxRun is how many blocks an edge holds at most, as entry.at has 16 bits: at 16 tokens a block a million tokens.
const maxRun = 1 << 16

// apart keeps what readers look at on other cache lines than what every event writes: without it a read costs a fifth
// more while anybody writes. Two lines, as processors fetch them in pairs.
type apart [128]byte

// tree is the radix tree of one block size. An edge is a run of keys that follow each other; a prompt that leaves a run
// half-way goes on in an edge of its own.
//
// Where a textbook would cut the run in two at every fork, runs here stay whole and an edge is found by its first key:
// a chained key stands for all in front of it, so that a key names one place of one tree, and needs no pointer from
// its parent. A block's place (edge, position) so never moves while anybody holds it, which is what makes a 16-byte
// entry of a join table possible and readers simple: they see runs grow at the end, never split under them.
type tree struct {
	blockTokens int
	ahead       int           // tokens behind a block that are part of its hash: 0 before vLLM 0.33
	members     atomic.Uint64 // engines whose blocks stand here; written under Index.mu
	starts      starts        // edges by first key

	_       apart
	mu      sync.Mutex // makes one engine at a time the writer; readers take no lock
	garbage [][]*holding
	dirty   atomic.Bool // there is garbage
	bytes   atomic.Int64
}

// node is an edge: a run of keys and who holds which of them.
type node struct {
	first uint64
	run   atomic.Pointer[run]
	held  atomic.Pointer[[]*holding] // replaced, never changed
}

// run is an edge's keys: the first used of the array. They never change; each word behind them is written once, before
// used says that it is there.
type run struct {
	keys []uint64 // as long as there is room
	used atomic.Int32
	cut  uint32 // how often the edge was cut short: only then may a position change its key
}

// newRun copies keys to an array with room for n.
func newRun(keys []uint64, n int, cut uint32) *run {
	room := append([]uint64(nil), make([]uint64, n)...) // what the allocator rounds up to is used too
	r := &run{keys: room[:cap(room)], cut: cut}
	r.used.Store(int32(copy(room, keys)))
	return r
}

func (r *run) len() int { return int(r.used.Load()) }

// all returns the keys that are there now.
func (r *run) all() []uint64 { return r.keys[:r.used.Load()] }

func (r *run) bytes() int64 { return 8 * int64(len(r.keys)) }

const (
	nodeBytes = int64(unsafe.Sizeof(node{}) + unsafe.Sizeof(run{}) + 24)
	refBytes  = 8
)

// place finds or makes room for keys behind position at of edge n (nil: the root). It returns the edge in which they
// begin, where, and how many of them lie there, at least one. fresh tells that the edge was made.
func (t *tree) place(n *node, at int, keys []uint64) (edge *node, from, count int, fresh bool) {
	if n != nil {
		if old := n.run.Load().all(); at+1 < len(old) {
			if c := common(old[at+1:], keys); c > 0 && old[at+1] == keys[0] {
				return n, at + 1, c, false
			}
		}
	}
	if next := t.starts.find(keys[0]); next != nil {
		return next, 0, common(next.run.Load().all(), keys), false
	}
	// A key inside a run has its parent in front of it there, and the parents of these are new: looking among the
	// first keys is enough.
	c := 1
	for c < len(keys) && t.starts.find(keys[c]) == nil {
		c++
	}
	if n != nil {
		r := n.run.Load()
		if at+1 < r.len() && t.need(n) <= at+1 {
			r = t.cut(n, at+1)
		}
		if at+1 == r.len() && at+1 < maxRun {
			c = min(c, maxRun-at-1)
			t.grow(n, r, keys[:c])
			return n, at + 1, c, false
		}
	}
	c = min(c, maxRun)
	edge = &node{first: keys[0]}
	r := newRun(keys[:c], c, 0)
	edge.run.Store(r)
	t.bytes.Add(nodeBytes + r.bytes() + t.starts.put(edge))
	return edge, 0, c, true
}

// grow appends keys to an edge. Readers of the old state do not look behind its end.
func (t *tree) grow(n *node, r *run, keys []uint64) {
	old := r.len()
	all := old + len(keys)
	if all <= len(r.keys) {
		copy(r.keys[old:], keys)
		r.used.Store(int32(all))
		return
	}
	next := newRun(r.keys[:old], roomier(all), r.cut)
	copy(next.keys[old:], keys)
	next.used.Store(int32(all))
	t.bytes.Add(next.bytes() - r.bytes())
	n.run.Store(next)
}

// cut forgets the keys of an edge from position at on, which nobody holds. Their room is not used again, as readers
// may still look at it.
func (t *tree) cut(n *node, at int) *run {
	r := n.run.Load()
	next := newRun(r.keys[:at], at, r.cut+1)
	t.bytes.Add(next.bytes() - r.bytes())
	n.run.Store(next)
	return next
}

// need returns how many keys of an edge somebody needs.
func (t *tree) need(n *node) int {
	top := 0
	for _, h := range n.holdings() {
		if !h.life.dead.Load() {
			top = max(top, h.top())
		}
	}
	return top
}

func (n *node) holdings() []*holding {
	if p := n.held.Load(); p != nil {
		return *p
	}
	return nil
}

// attach makes h known to readers of its edge.
func (t *tree) attach(h *holding) {
	old := h.node.holdings()
	held := append(make([]*holding, 0, len(old)+1), old...)
	held = append(held, h)
	h.node.held.Store(&held)
	t.bytes.Add(refBytes + holdingBytes)
}

// detach undoes attach, and frees an edge that nobody holds.
func (t *tree) detach(h *holding) {
	n := h.node
	old := n.holdings()
	t.bytes.Add(-refBytes - holdingBytes - h.extra)
	if len(old) == 1 {
		n.held.Store(nil)
		t.free(n)
		return
	}
	held := make([]*holding, 0, len(old)-1)
	for _, o := range old {
		if o != h {
			held = append(held, o)
		}
	}
	n.held.Store(&held)
	t.shrink(n)
}

// free takes an edge without holdings out of the tree. Edges that hang on it stay: their blocks are still there and
// can be hit again once somebody stores what leads to them.
func (t *tree) free(n *node) {
	t.bytes.Add(-nodeBytes - n.run.Load().bytes() + t.starts.remove(n))
}

// shrink gives back the end of a run when nobody needs half of it.
func (t *tree) shrink(n *node) {
	if have := n.run.Load().len(); have >= 8 {
		if need := t.need(n); 2*need <= have {
			t.cut(n, max(need, 1))
		}
	}
}

// sweepEach is how many leftovers of dropped engines a write takes away. An event leads to one or two edges, so that an
// engine that comes back has cleaned up behind itself before it is full again.
const sweepEach = 4

// sweep takes some leftovers of dropped engines out, so that dropping one costs nothing at once.
func (t *tree) sweep() {
	for range sweepEach {
		last := len(t.garbage) - 1
		if last < 0 {
			t.dirty.Store(false)
			return
		}
		list := t.garbage[last]
		if len(list) == 0 {
			t.garbage = t.garbage[:last]
			continue
		}
		h := list[len(list)-1]
		list[len(list)-1] = nil
		t.garbage[last] = list[:len(list)-1]
		if h != nil {
			t.detach(h)
		}
	}
}
