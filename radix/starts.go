package radix

import "sync/atomic"

// starts finds edges by their first key. Readers take no lock: a slot changes from empty to an edge, to a grave, to
// another edge, and a table that grows is copied and replaced.
type starts struct {
	slots atomic.Pointer[[]atomic.Pointer[node]] // a power of two
	seen  []uint64                               // bits, of the keys that the table holds or held; for those who hold the tree's lock
	used  int                                    // edges
	taken int                                    // edges and graves; never all slots, so that every search ends
	grave node                                   // stands where an edge was
}

const (
	leastStarts = 16
	// seenBits is how many bits each slot has in seen: one in 64 is set at most, so that few who ask for another key look
	// further, and a processor foresees that.
	seenBits  = 64
	slotBytes = 8 + seenBits/8
)

// bit returns the word and the mask of a key in seen.
func (s *starts) bit(key uint64) (*uint64, uint64) {
	m := key * 0x9e3779b97f4a7c15
	return &s.seen[m>>32&uint64(len(s.seen)-1)], 1 << (m >> 26 & 63)
}

func startsHome(key uint64, slots []atomic.Pointer[node]) int {
	return int((key * 0x9e3779b97f4a7c15) >> 32 & uint64(len(slots)-1))
}

// get returns the edge that begins with key, or nil.
func (s *starts) get(key uint64) *node {
	p := s.slots.Load()
	if p == nil {
		return nil
	}
	slots := *p
	for i := startsHome(key, slots); ; i = (i + 1) & (len(slots) - 1) {
		n := slots[i].Load()
		if n == nil {
			return nil
		}
		if n.first == key && n != &s.grave {
			return n
		}
	}
}

// find is get for the one who holds the tree's lock: a store asks for each of its keys, and nearly all are none.
func (s *starts) find(key uint64) *node {
	if len(s.seen) == 0 {
		return nil
	}
	if word, mask := s.bit(key); *word&mask == 0 {
		return nil
	}
	return s.get(key)
}

// put adds an edge whose first key is not there yet and returns by how many bytes the table grew.
func (s *starts) put(n *node) int64 {
	var grown int64
	if p := s.slots.Load(); p == nil || 4*(s.taken+1) > 3*len(*p) {
		grown = s.resize()
	}
	slots := *s.slots.Load()
	i := startsHome(n.first, slots)
	for {
		old := slots[i].Load()
		if old == nil {
			s.taken++
			break
		}
		if old == &s.grave {
			break
		}
		i = (i + 1) & (len(slots) - 1)
	}
	s.used++
	word, mask := s.bit(n.first)
	*word |= mask
	slots[i].Store(n)
	return grown
}

// remove takes an edge out, if it is there, and returns by how many bytes the table grew.
func (s *starts) remove(n *node) int64 {
	p := s.slots.Load()
	if p == nil {
		return 0
	}
	slots := *p
	for i := startsHome(n.first, slots); ; i = (i + 1) & (len(slots) - 1) {
		switch slots[i].Load() {
		case nil:
			return 0
		case n:
			slots[i].Store(&s.grave)
			s.used--
			if len(slots) > leastStarts && 8*s.used < len(slots) {
				return s.resize()
			}
			return 0
		}
	}
}

// resize makes a table without graves of which a quarter to a half is used.
func (s *starts) resize() int64 {
	var old []atomic.Pointer[node]
	if p := s.slots.Load(); p != nil {
		old = *p
	}
	n := leastStarts
	for n < 2*(s.used+1) {
		n *= 2
	}
	slots := make([]atomic.Pointer[node], n)
	s.seen = make([]uint64, n*seenBits/64)
	for i := range old {
		e := old[i].Load()
		if e == nil || e == &s.grave {
			continue
		}
		k := startsHome(e.first, slots)
		for slots[k].Load() != nil {
			k = (k + 1) & (n - 1)
		}
		slots[k].Store(e)
		word, mask := s.bit(e.first)
		*word |= mask
	}
	s.taken = s.used
	s.slots.Store(&slots)
	return slotBytes * int64(n-len(old))
}
