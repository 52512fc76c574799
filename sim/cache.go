package sim

import (
	"math/bits"
	"slices"
)

// none is the absent block in the lists of blockCache.
const none = int32(-1)

// blockCache is the KV cache of one engine: a fixed number of blocks, each referenced by sequences or standing in the
// free queue, and each holding content under a hash or nothing. A free block keeps its content until it is allocated
// again, least recently freed first; blocks without content are allocated before all others (vLLM 0.32
// v1/core/block_pool.py; so recorded, too). Not safe for concurrent use.
type blockCache struct {
	blocks     []block
	head, tail int32              // free queue: head is allocated next
	free       int                // its length
	byKey      map[blockKey]int32 // the oldest copy of a content; further copies follow by block.twin
	cached     int                // blocks that hold content
	observer   Observer           // may be nil
	lastOnly   func() bool        // CoreOptions.LastCopy
}

// blockKey names a content: the chain's hash up to its end, in one of the model's cache groups. Groups share the blocks
// and the hashes, not the contents (vLLM v1/core/kv_cache_utils.py puts the group behind the hash).
type blockKey struct {
	hash  uint64
	group int32
}

type block struct {
	key        blockKey
	twin       int32 // next copy of the same content
	prev, next int32 // free queue; meaningless while refs > 0
	refs       int32 // sequences that use it
	cached     bool  // holds content under key
}

func newBlockCache(n int, o Observer) *blockCache {
	c := &blockCache{blocks: make([]block, n), head: none, tail: none, byKey: map[blockKey]int32{}, observer: o}
	for i := range c.blocks {
		c.blocks[i].twin = none
		c.pushFree(int32(i))
	}
	return c
}

// hit returns how many of the hashes, from the first on, a group holds. vLLM looks up whole blocks only.
func (c *blockCache) hit(group int32, hashes []uint64) int {
	for n, h := range hashes {
		if !c.holds(group, h) {
			return n
		}
	}
	return len(hashes)
}

func (c *blockCache) holds(group int32, hash uint64) bool {
	_, ok := c.byKey[blockKey{hash, group}]
	return ok
}

// idle is how many of the held blocks of hashes stand in the free queue: taking them uses up free blocks.
func (c *blockCache) idle(group int32, hashes []uint64) (n int) {
	for _, h := range hashes {
		if c.blocks[c.byKey[blockKey{h, group}]].refs == 0 {
			n++
		}
	}
	return n
}

// take appends the blocks in which a group holds hashes, each referenced once more.
func (c *blockCache) take(dst []int32, group int32, hashes []uint64) []int32 {
	for _, h := range hashes {
		id := c.byKey[blockKey{h, group}]
		if c.blocks[id].refs == 0 {
			c.unlinkFree(id)
		}
		c.blocks[id].refs++
		dst = append(dst, id)
	}
	return dst
}

// alloc appends n referenced blocks without content, the least recently freed ones; the caller knows that there is
// room.
func (c *blockCache) alloc(dst []int32, n int) []int32 {
	for range n {
		id := c.head
		c.unlinkFree(id)
		c.forget(id)
		c.blocks[id].refs = 1
		dst = append(dst, id)
	}
	return dst
}

// release drops one reference of each block. Those without any join the free queue from the last to the first, so
// that of one chain the tail is evicted first and a prefix stays usable the longest. A block without content goes in
// front.
func (c *blockCache) release(ids []int32) {
	for _, id := range slices.Backward(ids) {
		if id == none {
			continue // a place whose state was given up before
		}
		c.blocks[id].refs--
		switch b := &c.blocks[id]; {
		case b.refs > 0:
		case b.cached:
			c.pushFree(id)
		default:
			c.unshiftFree(id)
		}
	}
}

// store gives a block its content. A content that is already held gets a second copy: vLLM does not merge them.
func (c *blockCache) store(id int32, key blockKey) {
	b := &c.blocks[id]
	b.key, b.cached, b.twin = key, true, none
	c.cached++
	first, ok := c.byKey[key]
	if !ok {
		c.byKey[key] = id
		return
	}
	for c.blocks[first].twin != none {
		first = c.blocks[first].twin
	}
	c.blocks[first].twin = id
}

// forget drops a block's content, if it has any, and tells the observer.
func (c *blockCache) forget(id int32) {
	if !c.lose(id) || c.observer == nil {
		return
	}
	key := c.blocks[id].key
	if _, stays := c.byKey[key]; stays && c.lastOnly != nil && c.lastOnly() {
		return
	}
	c.observer.Removed(int(key.group), key.hash)
}

// lose drops a block's content without a word and says whether it had any.
func (c *blockCache) lose(id int32) bool {
	b := &c.blocks[id]
	if !b.cached {
		return false
	}
	if first := c.byKey[b.key]; first != id {
		for c.blocks[first].twin != id {
			first = c.blocks[first].twin
		}
		c.blocks[first].twin = b.twin
	} else if b.twin != none {
		c.byKey[b.key] = b.twin
	} else {
		delete(c.byKey, b.key)
	}
	b.cached, b.twin = false, none
	c.cached--
	return true
}

// evict drops the content of up to n unreferenced blocks, least recently freed first, and returns how many.
func (c *blockCache) evict(n int) int {
	done := 0
	for id := c.head; id != none && done < n; id = c.blocks[id].next {
		if c.blocks[id].cached {
			c.forget(id)
			done++
		}
	}
	return done
}

// reset drops all content, unless a block is in use.
func (c *blockCache) reset() bool {
	if c.free != len(c.blocks) {
		return false
	}
	for i := range c.blocks {
		c.blocks[i].cached, c.blocks[i].twin = false, none
	}
	clear(c.byKey)
	c.cached = 0
	return true
}

func (c *blockCache) pushFree(id int32) {
	b := &c.blocks[id]
	b.prev, b.next = c.tail, none
	if c.tail == none {
		c.head = id
	} else {
		c.blocks[c.tail].next = id
	}
	c.tail = id
	c.free++
}

// unshiftFree puts a block at the head of the free queue.
func (c *blockCache) unshiftFree(id int32) {
	b := &c.blocks[id]
	b.prev, b.next = none, c.head
	if c.head == none {
		c.tail = id
	} else {
		c.blocks[c.head].prev = id
	}
	c.head = id
	c.free++
}

func (c *blockCache) unlinkFree(id int32) {
	b := &c.blocks[id]
	if b.prev == none {
		c.head = b.next
	} else {
		c.blocks[b.prev].next = b.next
	}
	if b.next == none {
		c.tail = b.prev
	} else {
		c.blocks[b.next].prev = b.prev
	}
	c.free--
}

// mix stirs b into a: one 64 by 64 bit multiplication, folded.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xd1b54a32d192ed03)
	return hi ^ lo ^ bits.RotateLeft64(a, 23)
}

// hashTokens continues a chain of hashes over token ids.
func hashTokens(parent uint64, tokens []uint32) uint64 {
	h := mix(parent, uint64(len(tokens)))
	for _, t := range tokens {
		h = mix(h, uint64(t))
	}
	return mix(h, 0x2545f4914f6cdd1d)
}

// hashBlock continues a chain over one block's tokens and the tokens behind it that its hash covers too.
func hashBlock(parent uint64, tokens, behind []uint32) uint64 {
	h := hashTokens(parent, tokens)
	if len(behind) > 0 {
		h = hashTokens(h, behind)
	}
	return h
}

// chainRoot is the parent of the first block: sequences with another adapter or salt have all their blocks apart.
func chainRoot(seed uint64, lora, salt string) uint64 {
	h := seed
	for _, s := range []string{lora, salt} {
		h = mix(h, uint64(len(s)))
		for i := range len(s) {
			h = mix(h, uint64(s[i]))
		}
	}
	return h
}
