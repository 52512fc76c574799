package tokens

import (
	"math/rand/v2"
	"runtime"
	"testing"
)

// check counts everything again.
func (c *cache) check(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes, leaves := 0, 0
	kids := map[*entry]int{}
	for key, e := range c.entries {
		if e.key != key {
			t.Error("an entry under another key")
		}
		size := entryBytes + sliceBytes(cap(e.ids), 4)
		if e.mark != nil {
			size += markBytes + sliceBytes(cap(e.mark.tail), 4)
		}
		for _, run := range e.keys {
			size += runBytes + sliceBytes(cap(run.keys), 8)
		}
		if size != e.size {
			t.Errorf("an entry of %d bytes counts as %d", size, e.size)
		}
		bytes += size
		if e.parent != nil {
			kids[e.parent]++
			if c.entries[e.parent.key] != e.parent {
				t.Error("a parent was dropped before its child")
			}
			if e.total != e.parent.total+len(e.ids) {
				t.Errorf("a node of %d ids behind %d ends at %d", len(e.ids), e.parent.total, e.total)
			}
		}
	}
	for _, e := range c.entries {
		if e.kids != kids[e] {
			t.Errorf("an entry has %d children, counted %d", e.kids, kids[e])
		}
		if (e.next != nil) != (e.kids == 0) {
			t.Error("what has children must not be evicted, everything else must")
		}
		if e.kids == 0 {
			leaves++
		}
	}
	for e := c.list.next; e != &c.list; e = e.next {
		if leaves--; e.next.prev != e || c.entries[e.key] != e {
			t.Fatal("the list is broken")
		}
	}
	if leaves != 0 {
		t.Errorf("%d leaves are not in the list", leaves)
	}
	if bytes != c.bytes || bytes > c.limit {
		t.Errorf("%d bytes, counted as %d, limit %d", bytes, c.bytes, c.limit)
	}
}

func testKey(i int) hash128 { return hash128{Lo: uint64(i)} }

// TestOldestLeafGoes: a chain loses its end first, and what is used stays.
func TestOldestLeafGoes(t *testing.T) {
	t.Parallel()
	one := entryBytes + sliceBytes(10, 4)
	c := newCache(5*one + 10)
	ids := make([]uint32, 10)
	a := c.put(&entry{key: testKey(1), ids: ids, total: 10})
	b := c.put(&entry{key: testKey(2), ids: ids, total: 20, parent: a})
	c.put(&entry{key: testKey(3), ids: ids, total: 30, parent: b})
	c.put(&entry{key: testKey(4), ids: ids})
	c.put(&entry{key: testKey(5), ids: ids})
	for i, gone := range []int{3, 2, 1, 5} {
		if i == 1 && c.segment(testKey(4)) == nil {
			t.Fatal("4 is gone")
		}
		c.put(&entry{key: testKey(10 + i), ids: ids})
		c.check(t)
		if c.entries[testKey(gone)] != nil || len(c.entries) != 5 {
			t.Errorf("step %d: %d should be gone of %d entries", i, gone, len(c.entries))
		}
	}
	if c.put(&entry{key: testKey(99), ids: ids, parent: b}) != nil {
		t.Error("a child of what is gone was kept")
	}
	if c.put(&entry{key: testKey(98), ids: make([]uint32, c.limit)}) != nil {
		t.Error("what is larger than the cache was kept")
	}
	c.check(t)
}

// TestCacheKeepsItsLimit under random use, and counts what it really takes.
func TestCacheKeepsItsLimit(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	const limit = 8 << 20
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c := newCache(limit)
	var last [16]*entry
	for i := range 200_000 {
		at := r.IntN(len(last))
		e := &entry{key: testKey(i), ids: make([]uint32, r.IntN(60)), parent: last[at]}
		switch r.IntN(4) {
		case 0:
			e.parent = nil
		case 1:
			e.parent, e.mark = nil, &mark{tail: make([]uint32, r.IntN(8))}
		}
		e.total = len(e.ids)
		if e.parent != nil {
			e.total += e.parent.total
		}
		if n := c.put(e); n != nil && n.mark == nil {
			last[at] = n
			c.putRun(n, keyRun{root: uint64(i), block: 16, keys: make([]uint64, r.IntN(5))})
		} else if n == nil {
			last[at] = nil
		}
		if i%50_000 == 0 {
			c.check(t)
		}
	}
	c.check(t)
	if c.evicted == 0 {
		t.Fatal("nothing was evicted")
	}
	clear(last[:])
	runtime.GC()
	runtime.ReadMemStats(&after)
	real := int(after.HeapAlloc) - int(before.HeapAlloc)
	if real > limit+limit/4 || real < limit/3 {
		t.Errorf("a cache of %d bytes takes %d", c.bytes, real)
	}
	t.Logf("%d entries, %d bytes by its own count, %d by the heap", len(c.entries), c.bytes, real)
	runtime.KeepAlive(c)
}

// TestRunsAreFew: a node keeps the keys of the last roots only.
func TestRunsAreFew(t *testing.T) {
	t.Parallel()
	c := newCache(1 << 20)
	n := c.put(&entry{key: testKey(1), ids: make([]uint32, 10), total: 10})
	for root := range uint64(20) {
		c.putRun(n, keyRun{root, 16, []uint64{root}})
		c.putRun(n, keyRun{root, 16, []uint64{root + 1000}}) // is there already
		c.check(t)
	}
	for root := range uint64(20) {
		keys := c.runsOf(nil, []*entry{n}, root, 16)[0]
		if known := root >= 20-maxKeyRuns; known != (keys != nil) || known && keys[0] != root {
			t.Errorf("root %d: keys %v", root, keys)
		}
	}
}
