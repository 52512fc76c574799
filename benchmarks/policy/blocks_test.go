package policy

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// twin is a cache that searches lists: idle keys in the order in which they will be evicted.
type twin struct {
	capacity, private int
	users             map[uint64]int
	idle              []uint64
}

func (c *twin) pin(key uint64) {
	if c.users[key] == 0 {
		c.idle = slices.DeleteFunc(c.idle, func(k uint64) bool { return k == key })
	}
	c.users[key]++
}

func (c *twin) unpin(key uint64) {
	if c.users[key]--; c.users[key] == 0 {
		delete(c.users, key)
		c.idle = append(c.idle, key)
	}
}

func (c *twin) take() (evicted []uint64) {
	if len(c.users)+len(c.idle)+c.private == c.capacity {
		evicted, c.idle = append(evicted, c.idle[0]), c.idle[1:]
	}
	return evicted
}

// TestBlocksAgainstATwin: what is evicted, what is found and what is free, over random lives.
func TestBlocksAgainstATwin(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	b, c := newBlocks(30), &twin{capacity: 30, users: map[uint64]int{}}
	type life struct {
		keys    []uint64
		at      []int32
		private int
	}
	var lives []life
	for step := range 20_000 {
		if len(lives) > 0 && rng.IntN(2) == 0 {
			i := rng.IntN(len(lives))
			l := lives[i]
			lives = slices.Delete(lives, i, i+1)
			for k := len(l.keys) - 1; k >= 0; k-- {
				b.unpin(l.at[k])
				c.unpin(l.keys[k])
			}
			b.private -= l.private
			c.private -= l.private
			continue
		}
		var want []uint64
		from := rng.Uint64N(8) * 100
		for k := range rng.Uint64N(8) + 1 {
			want = append(want, from+k)
		}
		n, idle := b.match(want)
		if len(want)+1-n+idle > b.room() {
			continue
		}
		l := life{}
		for _, key := range want[:n] {
			l.at, l.keys = append(l.at, b.pin(key)), append(l.keys, key)
			c.pin(key)
		}
		b.reserved += len(want) + 1 - n
		b.evicted = b.evicted[:0]
		var evicted []uint64
		for _, key := range want[n:] {
			if _, ok := b.byKey[key]; ok { // its parent was evicted, it was not
				evicted = append(evicted, c.take()...)
				b.take()
				b.private, c.private, l.private = b.private+1, c.private+1, l.private+1
				continue
			}
			evicted = append(evicted, c.take()...)
			l.at, l.keys = append(l.at, b.store(key)), append(l.keys, key)
			c.users[key]++
		}
		evicted = append(evicted, c.take()...)
		b.take()
		b.private, c.private, l.private = b.private+1, c.private+1, l.private+1
		lives = append(lives, l)
		if !slices.Equal(b.evicted, evicted) {
			t.Fatalf("step %d: evicted %v, want %v", step, b.evicted, evicted)
		}
		if len(b.byKey) != len(c.users)+len(c.idle) || b.pinned != len(c.users) || b.private != c.private || b.reserved != 0 {
			t.Fatalf("step %d: %d cached, %d pinned, %d private, %d reserved; twin %d, %d, %d", step,
				len(b.byKey), b.pinned, b.private, b.reserved, len(c.users)+len(c.idle), len(c.users), c.private)
		}
	}
}
