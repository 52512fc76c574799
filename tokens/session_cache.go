package tokens

import (
	"slices"
	"sync"
	"unsafe"
)

// entry is one thing that the cache holds:
//
//   - a segment: the ids of a text between two cuts, wherever it stands;
//   - a node: the ids of a text from its beginning up to a place, of which it holds those behind its parent's;
//   - a mark: what the first items of a conversation became (mark is set).
//
// ids, parent, total, closed and mark never change, so that they are read without the lock.
type entry struct {
	key        hash128
	prev, next *entry // in the list of what may be evicted; nil outside
	parent     *entry
	kids       int // nodes whose parent this is
	size       int // bytes of memory
	used       uint64
	total      int  // ids of a node with its parents
	closed     bool // a node's text ends with a cut token, so that any text may follow
	ids        []uint32
	mark       *mark
	keys       []keyRun
}

// mark says what the first items of a conversation became.
type mark struct {
	node  hash128  // the ids of their text up to the generation prompt, or of another part of it
	tail  []uint32 // what follows when they are the whole conversation
	shape Shape
	grows bool // node is the text without the generation prompt, so that RenderFrom's text may follow
}

// keyRun is the keys of the blocks that end within a node.
type keyRun struct {
	root  uint64
	block int
	keys  []uint64
}

// maxKeyRuns is how many pairs of root and block size a node keeps keys for: engines of one model have one or two
// block sizes, and a node that many cache salts share is not worth more.
const maxKeyRuns = 4

// The memory of an entry beside its ids: a slot of the map has 24 bytes and a control byte, at a load of 7/16 at worst.
const (
	entryBytes = int(unsafe.Sizeof(entry{})) + 64
	markBytes  = int(unsafe.Sizeof(mark{}))
	runBytes   = int(unsafe.Sizeof(keyRun{}))
)

// sliceBytes is what n elements take: the allocator rounds up by at most an eighth.
func sliceBytes(n, each int) int { return n*each + n*each/8 + 8 }

// cache holds entries up to a limit in bytes and drops the least recently used. A node is dropped before its parent:
// a parent lives as long as its last child, and what lives is counted.
//
// One lock is enough: a request takes it some ten times for less than a microsecond together.
type cache struct {
	limit int

	mu      sync.Mutex // guards what follows, and of all entries prev, next, kids, size, used and keys
	entries map[hash128]*entry
	list    entry // ring of what may be evicted; next is the most recent
	bytes   int
	clock   uint64
	evicted uint64
}

func newCache(limit int) *cache {
	c := &cache{limit: limit, entries: map[hash128]*entry{}}
	c.list.next, c.list.prev = &c.list, &c.list
	return c
}

// segment returns the ids of a segment, nil if it is not known. They must not be changed.
func (c *cache) segment(key hash128) []uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil {
		c.touch(e)
		return e.ids
	}
	return nil
}

// lookups is how many entries are looked for with the lock held once: some 20 us, so that a body of a million parts
// holds up nobody else.
const lookups = 256

// deepest returns the last of parts whose end is a known node.
func (c *cache) deepest(parts []part) (i int, node *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(parts) - 1; i >= 0; i-- {
		if i%lookups == 0 {
			c.mu.Unlock()
			c.mu.Lock()
		}
		if e := c.entries[parts[i].state]; e != nil {
			c.touch(e)
			return i, e
		}
	}
	return -1, nil
}

// known returns the last of states that is a node, -1 if none is.
func (c *cache) known(states []hash128) (n int, node *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := len(states) - 1; n >= 0; n-- {
		if n%lookups == 0 {
			c.mu.Unlock()
			c.mu.Lock()
		}
		if e := c.entries[states[n]]; e != nil {
			c.touch(e)
			return n, e
		}
	}
	return -1, nil
}

// longest returns the last of states, from most down to least, that is known, and its node.
func (c *cache) longest(states []hash128, most, least int, grows bool) (n int, m *mark, node *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := most; n >= least; n-- {
		if n%lookups == 0 {
			c.mu.Unlock()
			c.mu.Lock()
		}
		e := c.entries[states[n]]
		if e == nil || grows && !e.mark.grows {
			continue
		}
		if node := c.entries[e.mark.node]; node != nil {
			c.touch(e)
			c.touch(node)
			return n, e.mark, node
		}
		c.drop(e) // its node is gone
	}
	return -1, nil, nil
}

// put adds an entry and returns it, or the one that is already there. It returns nil where the entry may not be kept:
// it is too large, or its parent is gone.
func (c *cache) put(e *entry) *entry {
	e.size = entryBytes + sliceBytes(cap(e.ids), 4)
	if e.mark != nil {
		e.size += markBytes + sliceBytes(cap(e.mark.tail), 4)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.entries[e.key]
	if old != nil && e.mark == nil {
		c.touch(old)
		return old
	}
	if e.size > c.limit/4 || e.parent != nil && c.entries[e.parent.key] != e.parent {
		return nil
	}
	if old != nil {
		c.drop(old) // a mark's node may be another one by now
	}
	if p := e.parent; p != nil {
		if p.kids++; p.kids == 1 {
			p.unlink()
		}
	}
	c.entries[e.key] = e
	c.bytes += e.size
	c.link(e)
	c.shrink()
	return e
}

// runsOf appends for each node its keys for a root and block size, nil where they are not known.
func (c *cache) runsOf(dst [][]uint64, nodes []*entry, root uint64, block int) [][]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range nodes {
		var keys []uint64
		for i := range e.keys {
			if e.keys[i].root == root && e.keys[i].block == block {
				keys = e.keys[i].keys
				break
			}
		}
		dst = append(dst, keys)
	}
	return dst
}

// putRun keeps a node's keys, instead of the oldest if there are too many.
func (c *cache) putRun(node *entry, run keyRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[node.key] != node {
		return
	}
	for i := range node.keys {
		if node.keys[i].root == run.root && node.keys[i].block == run.block {
			return
		}
	}
	grown := runBytes + sliceBytes(cap(run.keys), 8)
	if len(node.keys) == maxKeyRuns {
		grown -= runBytes + sliceBytes(cap(node.keys[0].keys), 8)
		copy(node.keys, node.keys[1:])
		node.keys[maxKeyRuns-1] = run
	} else {
		kept := make([]keyRun, len(node.keys), len(node.keys)+1)
		copy(kept, node.keys)
		node.keys = append(kept, run)
	}
	node.size += grown
	c.bytes += grown
	c.shrink()
}

// clear forgets everything.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.entries)
	c.list.next, c.list.prev = &c.list, &c.list
	c.bytes = 0
}

// shrink evicts until the limit is kept.
func (c *cache) shrink() {
	for c.bytes > c.limit && c.list.prev != &c.list {
		c.evicted++
		c.drop(c.list.prev)
	}
}

// drop removes an entry that no other one needs.
func (c *cache) drop(e *entry) {
	e.unlink()
	delete(c.entries, e.key)
	c.bytes -= e.size
	p := e.parent
	if p == nil {
		return
	}
	if p.kids--; p.kids > 0 {
		return
	}
	if p.used <= e.used {
		c.linkOldest(p) // what it was kept for was the oldest of all
	} else {
		c.link(p)
	}
}

// touch makes an entry the most recent one.
func (c *cache) touch(e *entry) {
	if e.next != nil {
		e.unlink()
		c.link(e)
		return
	}
	c.clock++
	e.used = c.clock
}

func (c *cache) link(e *entry) {
	c.clock++
	e.used = c.clock
	e.prev, e.next = &c.list, c.list.next
	e.prev.next, e.next.prev = e, e
}

func (c *cache) linkOldest(e *entry) {
	e.prev, e.next = c.list.prev, &c.list
	e.prev.next, e.next.prev = e, e
}

func (e *entry) unlink() {
	if e.next != nil {
		e.prev.next, e.next.prev = e.next, e.prev
		e.prev, e.next = nil, nil
	}
}

// appendIDs appends all ids of a node.
func (e *entry) appendIDs(dst []uint32) []uint32 {
	start := len(dst)
	dst = slices.Grow(dst, e.total)[:start+e.total]
	for ; e != nil; e = e.parent {
		copy(dst[start+e.total-len(e.ids):], e.ids)
	}
	return dst
}
