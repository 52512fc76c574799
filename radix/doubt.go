package radix

// doubt is a claim of the memory that its engine denied: one answer after
// another reported fewer cached tokens than the memory believed to be there.
// What an engine has computed it usually holds, so one denial is a block that
// was evicted meanwhile, and the answer that told of it brought it back. Two in
// a row without a word to the contrary are a rule of that engine: it caches
// nothing, only in larger blocks, or is several processes behind one address.
type doubt struct {
	key    uint64
	denied uint8  // claims in a row
	held   int32  // keys that are there, by the last denial
	upTo   int32  // keys of the longest claim that was denied; 0: the claim that ends at key
	since  uint32 // memorySlot.learnt at the last denial
}

// Bounds of doubts.
const (
	// doubtPlaces is how many an engine has at most, 6 KiB of them; a new one
	// takes the place that its key falls on.
	doubtPlaces = 256
	// doubtAfter is how many denials in a row make one.
	doubtAfter = 2
	// doubtLife is after how many prompts that the engine computed a claim is
	// made again: two wrong ones in that many are the price of finding out that
	// the engine is another one.
	doubtLife = 512
)

// Told takes an engine's word on what it held of a chain that it was asked to
// compute: held keys, where Match said claimed. first is the chain's first key,
// last the claim's last one. Claims that were denied twice in a row are not made
// again, nor, where nothing at all was held, others that begin with the same key
// and are at most half as long again: a larger block or a longer turn. A word to
// the contrary ends the latter; 512 further prompts end both. It is safe for
// concurrent use and allocates at most once an engine.
func (m *Memory) Told(slot int, first, last uint64, claimed, held int) {
	s := &m.slots[slot]
	if !s.used.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if held > 0 {
		s.trust(first)
	}
	switch {
	case claimed <= 0:
	case held >= claimed:
		s.trust(last)
	case held <= 0:
		s.deny(first, claimed, 0)
	default:
		s.deny(last, 0, held)
	}
}

// trust ends the doubt of a key, if there is one.
func (s *memorySlot) trust(key uint64) {
	if s.doubts == nil {
		return
	}
	if d := &s.doubts[key%doubtPlaces]; d.key == key {
		*d = doubt{}
	}
}

func (s *memorySlot) deny(key uint64, upTo, held int) {
	if s.doubts == nil {
		s.doubts = new([doubtPlaces]doubt)
	}
	d := &s.doubts[key%doubtPlaces]
	if d.key != key || s.learnt-d.since > doubtLife {
		*d = doubt{key: key}
	}
	d.denied = min(d.denied+1, doubtAfter)
	d.held, d.upTo, d.since = int32(held), max(d.upTo, int32(upTo)), s.learnt //nolint:gosec // keys of one prompt
}

// believed is what of a match of n keys, n > 0, is still believed.
func (s *memorySlot) believed(keys []uint64, n int) int {
	if s.doubts == nil {
		return n
	}
	if d := s.doubted(keys[0]); d != nil && d.upTo > 0 && 2*n <= 3*int(d.upTo) {
		return 0
	}
	if d := s.doubted(keys[n-1]); d != nil && d.upTo == 0 {
		return min(n, int(d.held))
	}
	return n
}

func (s *memorySlot) doubted(key uint64) *doubt {
	d := &s.doubts[key%doubtPlaces]
	if d.key != key || d.denied < doubtAfter || s.learnt-d.since > doubtLife {
		return nil
	}
	return d
}
