package route

import "sync"

// sessions remembers where sessions were served last: some sixteen thousand,
// the newest of those that share a place. Every short request asks and writes,
// so a session costs one place in memory to look at, and nothing is allocated
// once the table is there.
type sessions struct {
	mu    sync.Mutex          // guards what follows
	table [][sessionWays]stay // nil before the first; a power of two
	turn  uint64
	lives [MaxEngines]uint32 // how often each engine's cache was lost
}

// stay is where a session was served last.
type stay struct {
	session uint64 // 0: none
	turn    uint64 // when, in visits
	tokens  int64
	slot    int32
	life    uint32 // of the engine's cache then
}

// A session is looked for in sessionWays places, by its hash.
const (
	sessionSets = 4096
	sessionWays = 4
)

// set returns the places of a session.
func (s *sessions) set(session uint64) *[sessionWays]stay {
	return &s.table[mix(session)&(sessionSets-1)]
}

func (s *sessions) put(session uint64, slot int, tokens int64) {
	if session == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table == nil {
		s.table = make([][sessionWays]stay, sessionSets)
	}
	set := s.set(session)
	oldest := 0
	for i := range set {
		if set[i].session == session {
			oldest = i
			break
		}
		if set[i].turn < set[oldest].turn {
			oldest = i
		}
	}
	s.turn++
	set[oldest] = stay{session: session, turn: s.turn, tokens: tokens, slot: int32(slot), life: s.lives[slot]} //nolint:gosec // below MaxEngines
}

// forget makes the engine's visits count for nothing.
func (s *sessions) forget(slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives[slot]++
}

// get returns -1 for a session that is not known.
func (s *sessions) get(session uint64) (slot int, tokens int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session == 0 || s.table == nil {
		return -1, 0
	}
	for _, v := range s.set(session) {
		if v.session == session && v.life == s.lives[v.slot] {
			return int(v.slot), v.tokens
		}
	}
	return -1, 0
}
