package proxy

import (
	"sync"

	"github.com/zeebo/xxh3"
)

// storedLimit bounds each of the two generations of remembered responses. At
// about 32 bytes an entry the whole memory stays below 8 MB.
const storedLimit = 50_000

// stored remembers which engine made which response, for vLLM keeps responses
// in the process that made them. Two generations make a bounded memory that
// forgets the oldest half at a time without keeping an order.
type stored struct {
	mu       sync.Mutex // guards both maps
	young    map[uint64]string
	previous map[uint64]string
}

// note remembers that engine made the response id.
func (s *stored) note(id []byte, engine string) {
	if len(id) == 0 {
		return
	}
	h := xxh3.Hash(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.young == nil {
		s.young = make(map[uint64]string)
	}
	s.young[h] = engine
	if len(s.young) >= storedLimit {
		s.previous, s.young = s.young, nil
	}
}

// engine returns who made the response id, "" if nobody remembers.
func (s *stored) engine(id []byte) string {
	if len(id) == 0 {
		return ""
	}
	h := xxh3.Hash(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if name, ok := s.young[h]; ok {
		return name
	}
	return s.previous[h]
}

// forget drops what a restarted engine lost.
func (s *stored) forget(engine string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range []map[uint64]string{s.young, s.previous} {
		for h, name := range m {
			if name == engine {
				delete(m, h)
			}
		}
	}
}
