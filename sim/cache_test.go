package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// naiveCache is blockCache by its definition: lists, searched from end to end, and contents by name instead of hash.
type naiveCache struct {
	free    []int32
	refs    []int
	content []string           // by block, "" for none
	copies  map[string][]int32 // oldest first
	removed []string
}

func newNaiveCache(n int) *naiveCache {
	c := &naiveCache{refs: make([]int, n), content: make([]string, n), copies: map[string][]int32{}}
	for i := range n {
		c.free = append(c.free, int32(i))
	}
	return c
}

func (c *naiveCache) hit(names []string) int {
	n := 0
	for n < len(names) && slices.Contains(c.content, names[n]) {
		n++
	}
	return n
}

func (c *naiveCache) take(names []string) (out []int32) {
	for _, name := range names {
		id := c.copies[name][0]
		if c.refs[id] == 0 {
			at := slices.Index(c.free, id)
			c.free = slices.Delete(c.free, at, at+1)
		}
		c.refs[id]++
		out = append(out, id)
	}
	return out
}

func (c *naiveCache) alloc(n int) (out []int32) {
	for range n {
		id := c.free[0]
		c.free = c.free[1:]
		c.forget(id)
		c.refs[id] = 1
		out = append(out, id)
	}
	return out
}

func (c *naiveCache) forget(id int32) {
	name := c.content[id]
	if name == "" {
		return
	}
	c.content[id] = ""
	at := slices.Index(c.copies[name], id)
	c.copies[name] = slices.Delete(c.copies[name], at, at+1)
	c.removed = append(c.removed, name)
}

func (c *naiveCache) release(ids []int32) {
	for i := len(ids) - 1; i >= 0; i-- {
		if c.refs[ids[i]]--; c.refs[ids[i]] > 0 {
			continue
		}
		if c.content[ids[i]] != "" {
			c.free = append(c.free, ids[i])
		} else {
			c.free = slices.Insert(c.free, 0, ids[i])
		}
	}
}

func (c *naiveCache) store(id int32, name string) {
	c.content[id] = name
	c.copies[name] = append(c.copies[name], id)
}

func (c *naiveCache) evict(n int) int {
	done := 0
	for _, id := range c.free {
		if done < n && c.content[id] != "" {
			c.forget(id)
			done++
		}
	}
	return done
}

// removals collects what an observer hears, as names.
type removals struct {
	names map[uint64]string
	list  []string
}

func (r *removals) Stored(StoredBlocks)        {}
func (r *removals) Removed(_ int, hash uint64) { r.list = append(r.list, r.names[hash]) }
func (r *removals) Offloaded(_, _ []uint64)    {}
func (r *removals) Restarted()                 {}
func (r *removals) Cleared()                   {}
func (r *removals) StepEnd()                   {}
func nameHash(name string) uint64              { return chainRoot(1, name, "") }
func freeList(c *blockCache) (out []int32)     { return append(out, listFrom(c, c.head)...) }

func listFrom(c *blockCache, id int32) (out []int32) {
	for ; id != none; id = c.blocks[id].next {
		out = append(out, id)
	}
	return out
}

// TestCacheAgainstNaive makes the same random use of both: sequences of few different blocks come, grow and go in any
// order; blocks, hits, evictions and the free queue must be the same throughout.
func TestCacheAgainstNaive(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		size := 4 + r.IntN(24)
		seen := &removals{names: map[uint64]string{}}
		c, n := newBlockCache(size, seen), newNaiveCache(size)
		var open [][]int32
		for range 600 {
			switch r.IntN(10) {
			case 0:
				if got, want := c.evict(2), n.evict(2); got != want {
					t.Fatalf("seed %d: %d evicted, wanted %d", seed, got, want)
				}
			case 1, 2, 3, 4:
				if len(open) > 0 {
					i := r.IntN(len(open))
					c.release(open[i])
					n.release(open[i])
					open = slices.Delete(open, i, i+1)
				}
			default:
				if blocks := openBoth(t, r, c, n, seen); blocks != nil {
					open = append(open, blocks)
				}
			}
			if !slices.Equal(freeList(c), n.free) || !slices.Equal(seen.list, n.removed) || c.free != len(n.free) {
				t.Fatalf("seed %d: free %v, wanted %v; removed %v, wanted %v", seed, freeList(c), n.free, seen.list, n.removed)
			}
		}
		checkContents(t, c, n)
	}
}

// openBoth admits one sequence to both caches, if there is room, and returns its blocks.
func openBoth(t *testing.T, r *rand.Rand, c *blockCache, n *naiveCache, seen *removals) []int32 {
	t.Helper()
	names, hashes, name := []string{}, []uint64{}, ""
	for range 1 + r.IntN(5) {
		name += fmt.Sprint(r.IntN(2))
		names, hashes = append(names, name), append(hashes, nameHash(name))
		seen.names[nameHash(name)] = name
	}
	hits := c.hit(3, hashes)
	if want := n.hit(names); hits != want {
		t.Fatalf("%d hits for %v, wanted %d", hits, names, want)
	}
	fresh := len(names) - hits + r.IntN(2) // one more may be open-ended
	need := fresh
	for _, name := range names[:hits] {
		if n.refs[n.copies[name][0]] == 0 {
			need++
		}
	}
	if got, want := c.idle(3, hashes[:hits])+fresh, need; got != want {
		t.Fatalf("%d free blocks needed, wanted %d", got, want)
	} else if need > len(n.free) {
		return nil
	}
	blocks := c.alloc(c.take(nil, 3, hashes[:hits]), fresh)
	if want := append(n.take(names[:hits]), n.alloc(fresh)...); !slices.Equal(blocks, want) {
		t.Fatalf("blocks %v, wanted %v", blocks, want)
	}
	for i := hits; i < len(names); i++ {
		c.store(blocks[i], blockKey{hashes[i], 3})
		n.store(blocks[i], names[i])
	}
	return blocks
}

func checkContents(t *testing.T, c *blockCache, n *naiveCache) {
	t.Helper()
	held := 0
	for id, name := range n.content {
		b := c.blocks[id]
		if b.cached != (name != "") || b.cached && b.key != (blockKey{nameHash(name), 3}) || int(b.refs) != n.refs[id] {
			t.Errorf("block %d is %+v, wanted %q with %d references", id, b, name, n.refs[id])
		}
		if name != "" {
			held++
		}
	}
	if c.cached != held {
		t.Errorf("%d blocks with content, wanted %d", c.cached, held)
	}
}

func TestCacheReset(t *testing.T) {
	t.Parallel()
	c := newBlockCache(3, nil)
	blocks := c.alloc(nil, 2)
	c.store(blocks[0], blockKey{1, 0})
	c.store(blocks[1], blockKey{1, 1})
	if !c.holds(0, 1) || !c.holds(1, 1) || c.holds(2, 1) || c.hit(1, []uint64{1, 1, 2}) != 2 {
		t.Error("a content is not what two groups hold")
	}
	if c.reset() {
		t.Error("reset while blocks are in use")
	}
	c.release(blocks)
	if !c.reset() || c.hit(0, []uint64{1}) != 0 || c.cached != 0 {
		t.Error("not empty after a reset")
	}
	if got := c.alloc(nil, 3); len(got) != 3 {
		t.Errorf("blocks %v after a reset", got)
	}
}

// TestHashChain: a block's hash depends on every token, on their order, on what stands before it, on salt and adapter.
func TestHashChain(t *testing.T) {
	t.Parallel()
	seen := map[uint64]string{}
	note := func(what string, h uint64) {
		if other, twice := seen[h]; twice {
			t.Errorf("%s and %s have one hash", what, other)
		}
		seen[h] = what
	}
	for _, root := range []uint64{chainRoot(1, "", ""), chainRoot(1, "a", ""), chainRoot(1, "", "a"), chainRoot(1, "ab", "c"), chainRoot(1, "a", "bc"), chainRoot(2, "", "")} {
		for _, tokens := range [][]uint32{{0}, {0, 0}, {1, 2}, {2, 1}, {1, 2, 0}, {1 << 31, 5}} {
			note(fmt.Sprint(root, tokens), hashTokens(root, tokens))
		}
	}
	first, second := hashTokens(7, []uint32{1, 2}), hashTokens(7, []uint32{1, 2})
	if first != second {
		t.Error("two hashes of one block")
	}
}
