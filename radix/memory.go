package radix

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// MaxEngines is how many engines Memory and Index can tell apart: their slots are 0 to MaxEngines-1, one bit of a word
// each.
const MaxEngines = 64

// DefaultMemoryTokens is the capacity of an engine's memory while its own is unknown: about what a 70B model leaves of
// an 8 x 80 GB machine, and rather too large, as a memory of half the true cache costs hits (0.65 to 0.50 on the
// KV-cache trace) while one 4 to 16 times too large costs 9 % at most.
const DefaultMemoryTokens = 1 << 20

// Memory is what is known of engines that publish no events: which chained keys their answers must have left there.
// Per engine it holds a set of keys, refreshed and evicted as the engine's own cache would be: least recently used
// first, and of one prompt the deepest key first, so that prefixes stay. Keys of different kinds (blocks of 16 tokens,
// fingerprints of 2 KB of text) may stand side by side; each weighs the tokens that it stands for.
//
// All methods are safe for concurrent use. Those of one engine wait for each other, matches run side by side.
type Memory struct {
	slots [MaxEngines]memorySlot
}

// NewMemory returns a memory of nothing.
func NewMemory() *Memory { return &Memory{} }

// memorySlot is one engine's set. Keys that follow each other in a chain lie together in runs, so that a prompt of
// 6,250 keys costs a handful of steps and not 6,250: a run is found by its first key, and as a chained key stands for
// everything in front of it, equality within a run is a prefix that can be searched by halves. A prompt that leaves a
// run half-way goes on in a run of its own, found by its first key too.
type memorySlot struct {
	mu       sync.RWMutex // guards what follows
	capacity int64        // tokens; 0: DefaultMemoryTokens
	tokens   int64        // that all keys stand for
	keys     int
	space    int64                 // words of all runs' capacities
	starts   map[uint64]*memoryRun // by first key
	lru      memoryRun             // head of the ring: next is the most recent run, prev the least
	holes    bool                  // keys may be held whose parents are not
	learnt   uint32                // prompts, wrapping around
	doubts   *[doubtPlaces]doubt   // by key; nil: none

	used atomic.Bool // false while there is nothing: an engine that never answered costs a match no lock
}

// memoryRun is keys that follow each other, used equally recently: the first most, the last least.
type memoryRun struct {
	keys       []uint64
	keyTokens  int64
	prev, next *memoryRun
}

// memoryRunBytes is what a run costs beside its keys: itself and its place in the map.
const memoryRunBytes = 48 + 32

// SetCapacity sets how many tokens the engine can hold and evicts what is beyond; 0 stands for DefaultMemoryTokens.
func (m *Memory) SetCapacity(slot int, tokens int64) {
	s := &m.slots[slot]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.capacity = max(tokens, 0)
	s.evict()
}

// Learn notes that the engine holds all of a chain: keys from the root on, of keyTokens tokens each. They become its
// most recently used ones, and the least recently used ones make room for them. keys is not kept.
func (m *Memory) Learn(slot int, keys []uint64, keyTokens int) {
	if keyTokens <= 0 {
		panic("BUG: a key stands for at least one token")
	}
	if len(keys) == 0 {
		return
	}
	s := &m.slots[slot]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starts == nil {
		s.starts = map[uint64]*memoryRun{}
		s.lru.prev, s.lru.next = &s.lru, &s.lru
		s.used.Store(true)
	}
	s.learnt++
	// Each run of the chain goes behind the one before it in the ring, so that the first ends as the most recent.
	at := &s.lru
	for len(keys) > 0 {
		r := s.starts[keys[0]]
		if r == nil {
			n := s.absent(keys)
			r = s.extend(at, keys[:n], int64(keyTokens))
			keys = keys[n:]
		} else {
			n := common(r.keys, keys)
			if n < len(r.keys) {
				s.split(r, n)
			}
			keys = keys[n:]
		}
		if r != at {
			r.unlink()
			r.link(at)
			at = r
		}
	}
	s.evict()
}

// absent returns how many leading keys are not held; the first is not.
func (s *memorySlot) absent(keys []uint64) int {
	if !s.holes {
		return len(keys)
	}
	n := 1
	for n < len(keys) && s.starts[keys[n]] == nil {
		n++
	}
	return n
}

// extend adds keys behind the run at: to its end where they weigh the same, else as a new run.
func (s *memorySlot) extend(at *memoryRun, keys []uint64, keyTokens int64) *memoryRun {
	s.tokens += keyTokens * int64(len(keys))
	s.keys += len(keys)
	if at != &s.lru && at.keyTokens == keyTokens {
		s.space -= int64(cap(at.keys))
		at.keys = append(at.keys, keys...)
		s.space += int64(cap(at.keys))
		return at
	}
	r := &memoryRun{keys: append([]uint64(nil), keys...), keyTokens: keyTokens}
	r.prev, r.next = r, r
	s.space += int64(cap(r.keys))
	s.starts[keys[0]] = r
	return r
}

// split makes what follows the first n keys of r a run of its own, just less recent than r.
func (s *memorySlot) split(r *memoryRun, n int) {
	rest := &memoryRun{keys: append([]uint64(nil), r.keys[n:]...), keyTokens: r.keyTokens}
	s.space += int64(cap(rest.keys))
	rest.link(r)
	s.starts[rest.keys[0]] = rest
	r.keys = r.keys[:n]
	s.trim(r)
}

// trim gives back room that a run no longer needs.
func (s *memorySlot) trim(r *memoryRun) {
	if len(r.keys) >= cap(r.keys)/2 {
		return
	}
	s.space -= int64(cap(r.keys))
	r.keys = append([]uint64(nil), r.keys...)
	s.space += int64(cap(r.keys))
}

func (r *memoryRun) unlink() {
	r.prev.next, r.next.prev = r.next, r.prev
}

// link puts r behind at, as just less recent.
func (r *memoryRun) link(at *memoryRun) {
	r.prev, r.next = at, at.next
	at.next.prev, at.next = r, r
}

// evict forgets the least recently used keys, in each run the last first, until the rest fits. A key is always less
// recent than its parent, as whoever uses it uses its parent too; so what goes never leaves a hole.
func (s *memorySlot) evict() {
	capacity := s.capacity
	if capacity == 0 {
		capacity = DefaultMemoryTokens
	}
	for s.tokens > capacity {
		r := s.lru.prev
		n := min((s.tokens-capacity+r.keyTokens-1)/r.keyTokens, int64(len(r.keys)))
		s.cut(r, len(r.keys)-int(n))
	}
}

// cut forgets the keys of r from the n-th on.
func (s *memorySlot) cut(r *memoryRun, n int) {
	gone := len(r.keys) - n
	s.tokens -= int64(gone) * r.keyTokens
	s.keys -= gone
	if n > 0 {
		r.keys = r.keys[:n]
		s.trim(r)
		return
	}
	s.space -= int64(cap(r.keys))
	r.unlink()
	if s.starts[r.keys[0]] == r {
		delete(s.starts, r.keys[0])
	}
}

// Match sets held[slot], for every slot, to how many leading keys of the chain that engine holds, as far as it did not
// deny that (Told). It changes no recency and allocates nothing.
func (m *Memory) Match(keys []uint64, held *[MaxEngines]int32) {
	for i := range m.slots {
		s := &m.slots[i]
		if !s.used.Load() {
			held[i] = 0
			continue
		}
		s.mu.RLock()
		n := 0
		for n < len(keys) {
			r := s.starts[keys[n]]
			if r == nil {
				break
			}
			n += common(r.keys, keys[n:])
		}
		if n > 0 {
			n = s.believed(keys, n)
		}
		s.mu.RUnlock()
		held[i] = int32(n)
	}
}

// Correct takes the engine's word that it held only the first held keys of the chain: the other ones of keys are
// forgotten. Other prompts' keys behind forgotten ones stay, unreachable until the chain is learnt again, as an
// engine's own blocks do.
func (m *Memory) Correct(slot int, keys []uint64, held int) {
	s := &m.slots[slot]
	if !s.used.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := 0; n < len(keys); {
		r := s.starts[keys[n]]
		if r == nil {
			n++
			continue
		}
		c := common(r.keys, keys[n:])
		if keep := held - n; keep < c {
			s.holes = true
			if c < len(r.keys) {
				s.split(r, c)
			}
			s.cut(r, max(keep, 0))
		}
		n += c
	}
}

// Drop forgets everything of an engine that restarted or left; its capacity stays.
func (m *Memory) Drop(slot int) {
	s := &m.slots[slot]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used.Store(false)
	s.starts, s.lru = nil, memoryRun{}
	s.tokens, s.keys, s.space, s.holes, s.doubts = 0, 0, 0, false, nil
}

// Len returns how many keys the engine is thought to hold.
func (m *Memory) Len(slot int) int {
	s := &m.slots[slot]
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.keys
}

// Bytes returns about how much memory all of it takes.
func (m *Memory) Bytes() int64 {
	var n int64
	for i := range m.slots {
		s := &m.slots[i]
		s.mu.RLock()
		n += 8*s.space + memoryRunBytes*int64(len(s.starts))
		if s.doubts != nil {
			n += int64(unsafe.Sizeof(*s.doubts))
		}
		s.mu.RUnlock()
	}
	return n
}

// common returns how many leading keys a and b share. Both are parts of chains, where equal keys have equal keys in
// front of them: it compares the last ones first and searches by halves.
func common(a, b []uint64) int {
	n := min(len(a), len(b))
	if n == 0 || a[n-1] == b[n-1] {
		return n
	}
	low, high := 0, n-1 // a[:low] is shared, a[high] is not
	for low < high {
		if mid := (low + high) / 2; a[mid] == b[mid] {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}
