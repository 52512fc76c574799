package radix

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// slowMemory is the obvious twin of one engine's memory: every key by itself, with when it was last used and how deep
// it stands.
type slowMemory struct {
	capacity int64
	clock    int
	keys     map[uint64]*slowKey
}

type slowKey struct {
	used, depth int
	tokens      int64
}

func (s *slowMemory) learn(keys []uint64, keyTokens int) {
	s.clock++
	for i, k := range keys {
		if s.keys[k] == nil {
			s.keys[k] = &slowKey{tokens: int64(keyTokens)}
		}
		s.keys[k].used, s.keys[k].depth = s.clock, i
	}
	s.evict()
}

func (s *slowMemory) evict() {
	for {
		var sum int64
		var worst uint64
		for k, v := range s.keys {
			sum += v.tokens
			if w := s.keys[worst]; w == nil || v.used < w.used || v.used == w.used && v.depth > w.depth {
				worst = k
			}
		}
		if sum <= s.capacity {
			return
		}
		delete(s.keys, worst)
	}
}

func (s *slowMemory) match(keys []uint64) int {
	for i, k := range keys {
		if s.keys[k] == nil {
			return i
		}
	}
	return len(keys)
}

func (s *slowMemory) correct(keys []uint64, held int) {
	for _, k := range keys[min(held, len(keys)):] {
		delete(s.keys, k)
	}
}

// chains makes prompts that fork from each other at random places, as sessions do.
type chains struct {
	r   *rand.Rand
	all [][]uint64
}

func (c *chains) next() []uint64 {
	var keys []uint64
	if len(c.all) > 0 && c.r.IntN(8) > 0 {
		from := c.all[c.r.IntN(len(c.all))]
		keys = slices.Clone(from[:c.r.IntN(len(from)+1)])
	}
	for range c.r.IntN(9) {
		keys = append(keys, c.r.Uint64())
	}
	if len(keys) > 0 {
		c.all = append(c.all, keys)
	}
	return keys
}

func (c *chains) old() []uint64 {
	if len(c.all) == 0 {
		return nil
	}
	return c.all[c.r.IntN(len(c.all))]
}

func TestMemoryIsItsTwin(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		m, c := NewMemory(), &chains{r: r}
		var slow [3]*slowMemory
		for i := range slow {
			slow[i] = &slowMemory{capacity: int64(20 + r.IntN(1500)), keys: map[uint64]*slowKey{}}
			m.SetCapacity(i, slow[i].capacity)
		}
		for step := range 120 {
			slot := r.IntN(len(slow))
			s := slow[slot]
			switch what := r.IntN(100); {
			case what < 45:
				keys, weight := c.next(), 16
				if r.IntN(4) == 0 {
					weight = 7
				}
				m.Learn(slot, keys, weight)
				s.learn(keys, weight)
			case what < 60:
				keys := c.old()
				m.Learn(slot, keys, 16)
				s.learn(keys, 16)
			case what < 85:
				keys := c.old()
				held := r.IntN(len(keys) + 2)
				m.Correct(slot, keys, held)
				s.correct(keys, held)
			case what < 97:
				s.capacity = int64(20 + r.IntN(1500))
				m.SetCapacity(slot, s.capacity)
				s.evict()
			default:
				m.Drop(slot)
				clear(s.keys)
			}
			checkMemory(t, m, slow[:], c, fmt.Sprintf("seed %d, step %d", seed, step))
		}
	}
}

func checkMemory(t *testing.T, m *Memory, slow []*slowMemory, c *chains, where string) {
	t.Helper()
	for i, s := range slow {
		if got := m.Len(i); got != len(s.keys) {
			t.Fatalf("%s: engine %d holds %d keys, its twin %d", where, i, got, len(s.keys))
		}
	}
	var held [MaxEngines]int32
	held[MaxEngines-1] = 9
	for _, keys := range c.all {
		m.Match(keys, &held)
		for i, s := range slow {
			if want := s.match(keys); int(held[i]) != want {
				t.Fatalf("%s: engine %d matches %d of %d keys, its twin %d", where, i, held[i], len(keys), want)
			}
		}
		if held[MaxEngines-1] != 0 {
			t.Fatalf("%s: an engine that never answered matches %d", where, held[MaxEngines-1])
		}
	}
}

// TestMemoryKeepsPrefixes says by hand what the twin says by chance.
func TestMemoryKeepsPrefixes(t *testing.T) {
	t.Parallel()
	var held [MaxEngines]int32
	match := func(m *Memory, keys ...uint64) int32 {
		m.Match(keys, &held)
		return held[0]
	}
	t.Run("the least recent chain loses its deepest keys", func(t *testing.T) {
		m := NewMemory()
		m.SetCapacity(0, 80)
		m.Learn(0, []uint64{1, 2, 3}, 16)
		m.Learn(0, []uint64{1, 2, 4, 5}, 16)
		m.Learn(0, []uint64{6}, 16)
		if a, b, c := match(m, 1, 2, 3), match(m, 1, 2, 4, 5), match(m, 6); a != 2 || b != 4 || c != 1 {
			t.Errorf("matches %d, %d, %d of the chains, wanted 2, 4, 1", a, b, c)
		}
	})
	t.Run("a prompt larger than the engine keeps its head", func(t *testing.T) {
		m := NewMemory()
		m.SetCapacity(0, 40)
		m.Learn(0, []uint64{1, 2, 3, 4}, 16)
		if got := match(m, 1, 2, 3, 4); got != 2 || m.Len(0) != 2 {
			t.Errorf("matches %d of %d keys, wanted 2 of 2", got, m.Len(0))
		}
	})
	t.Run("keys weigh what they stand for", func(t *testing.T) {
		m := NewMemory()
		m.SetCapacity(0, 1000)
		m.Learn(0, []uint64{1, 2, 3}, 500)
		m.Learn(0, []uint64{11, 12}, 16)
		if a, b := match(m, 1, 2, 3), match(m, 11, 12); a != 1 || b != 2 {
			t.Errorf("matches %d and %d, wanted 1 and 2", a, b)
		}
	})
	t.Run("what is corrected takes its siblings out of reach until it is learnt again", func(t *testing.T) {
		m := NewMemory()
		m.Learn(0, []uint64{1, 2, 3, 4}, 16)
		m.Learn(0, []uint64{1, 2, 3, 5}, 16)
		m.Correct(0, []uint64{1, 2, 3, 4}, 1)
		if got := match(m, 1, 2, 3, 5); got != 1 || m.Len(0) != 2 {
			t.Fatalf("matches %d of %d keys, wanted 1 of 2", got, m.Len(0))
		}
		m.Learn(0, []uint64{1, 2, 3}, 16)
		if got := match(m, 1, 2, 3, 5); got != 4 {
			t.Errorf("matches %d, wanted all 4", got)
		}
	})
	t.Run("a default capacity", func(t *testing.T) {
		m := NewMemory()
		m.Learn(0, []uint64{1, 2, 3}, DefaultMemoryTokens/2)
		if got := match(m, 1, 2, 3); got != 2 {
			t.Errorf("matches %d, wanted 2", got)
		}
	})
	t.Run("a key of nothing is a bug", func(t *testing.T) {
		defer func() {
			if recover() == nil {
				t.Error("a key of no token passed")
			}
		}()
		NewMemory().Learn(0, []uint64{1}, 0)
	})
}

func TestMemoryBytesComeBack(t *testing.T) {
	t.Parallel()
	m, r := NewMemory(), rand.New(rand.NewPCG(3, 3))
	c := &chains{r: r}
	m.SetCapacity(0, 16*300)
	for range 20_000 {
		m.Learn(0, c.next(), 16)
	}
	if got, most := m.Bytes(), int64(300*(8*2+memoryRunBytes)); got > most {
		t.Errorf("300 keys take %d bytes, more than %d", got, most)
	}
	m.SetCapacity(0, 1)
	if got := m.Bytes(); got != 0 {
		t.Errorf("nothing takes %d bytes", got)
	}
}

func TestMemoryTogether(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			c := &chains{r: rand.New(rand.NewPCG(uint64(g), 9))}
			var held [MaxEngines]int32
			for i := range 400 {
				keys := c.next()
				m.Learn(i%3, keys, 16)
				m.Match(keys, &held)
				m.Correct(i%3, keys, i%7)
				if i%100 == 99 {
					m.Drop(i % 3)
				}
				if n := m.Bytes(); n < 0 {
					t.Errorf("%d bytes", n)
				}
			}
		})
	}
	all.Wait()
}
