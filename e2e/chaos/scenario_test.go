package chaos

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// scenario is all that a run is drawn from.
type scenario struct {
	seed    uint64
	length  time.Duration
	engines int
	clients int
	sdks    bool
	wires   []string // what may befall the bytes of an answer
	leaves  []string // how clients leave
	deeds   []string // what happens to engines and to Ramjet
}

// The whole lists.
var (
	wireKinds  = []string{"cut", "reset", "stall", "slow", "slice", "corrupt"}
	leaveKinds = []string{"fin", "rst", "half"}
	deedKinds  = []string{
		"kill", "term", "freeze", "restart", "evict", "gap", "stop-events", "lie", "hold-wire", "drop-wire", "drain", "eject", "reload", "remove",
		"fault-die", "fault-reset", "fault-stall", "fault-status", "fault-refuse", "fault-slow-head", "fault-truncate", "fault-bad-chunk", "fault-error-event", "fault-abort", "fault-hung",
	}
)

func fullScenario(seed uint64, length time.Duration) scenario {
	random := rand.New(rand.NewPCG(seed, 0))
	return scenario{
		seed: seed, length: length, engines: 2 + random.IntN(4), clients: 32, sdks: true,
		wires: wireKinds, leaves: leaveKinds, deeds: deedKinds,
	}
}

func (s scenario) String() string {
	return fmt.Sprintf("RAMJET_CHAOS_SEED=%d for %v: %d engines, %d clients, SDKs %v\n  wires:  %s\n  leaving: %s\n  deeds:  %s", s.seed, s.length, s.engines, s.clients, s.sdks,
		strings.Join(s.wires, " "), strings.Join(s.leaves, " "), strings.Join(s.deeds, " "))
}

// fate is what befalls the bytes of one answer on their way from an engine.
type fate struct {
	kind  string // of wireKinds; "" = nothing
	at    int    // byte of the answer, head included
	bit   int
	pause time.Duration
}

// fates draws them: a function of the seed, the request's id and how many
// engines have been asked for it before.
type fates struct {
	seed  uint64
	kinds []string

	mu    sync.Mutex // guards asked
	asked map[string]int
}

func newFates(s scenario) *fates {
	return &fates{seed: s.seed, kinds: s.wires, asked: map[string]int{}}
}

func (f *fates) draw(id string) fate {
	f.mu.Lock()
	n := f.asked[id]
	f.asked[id]++
	f.mu.Unlock()
	random := randomOf(f.seed, fmt.Sprintf("%s/%d", id, n))
	if len(f.kinds) == 0 || calm(id) || random.IntN(100) >= 15 {
		return fate{}
	}
	return fate{
		kind: f.kinds[random.IntN(len(f.kinds))], at: random.IntN(1 << (4 + random.IntN(10))), bit: random.IntN(8),
		pause: time.Duration(100+random.IntN(4000)) * time.Millisecond,
	}
}

func randomOf(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// deed is something that happens to an engine or to Ramjet.
type deed struct {
	at     time.Duration
	kind   string
	engine int
	lasts  time.Duration
	count  int
}

// timetable draws the deeds of a run: about one a second, and none in the last
// two seconds, in which what was begun ends.
func (s scenario) timetable() (list []deed) {
	if len(s.deeds) == 0 {
		return nil
	}
	random := rand.New(rand.NewPCG(s.seed, 1))
	for at := time.Second; at < s.length-2*time.Second; at += time.Duration(300+random.IntN(1400)) * time.Millisecond {
		list = append(list, deed{at: at, kind: s.deeds[random.IntN(len(s.deeds))], engine: random.IntN(s.engines),
			lasts: time.Duration(200+random.IntN(1800)) * time.Millisecond, count: 1 + random.IntN(4)})
	}
	return list
}

// shrink looks for a smaller scenario that still fails, with at most tries
// runs: shorter, without whole lists, without SDKs, then without one kind after
// another. A failure that needs luck may not show in a run; then the larger
// scenario stays.
func shrink(s scenario, tries int, fails func(scenario) bool) scenario {
	attempt := func(change func(*scenario)) {
		smaller := s
		smaller.wires, smaller.leaves, smaller.deeds = slices.Clone(s.wires), slices.Clone(s.leaves), slices.Clone(s.deeds)
		change(&smaller)
		if smaller.String() == s.String() || tries <= 0 {
			return
		}
		if tries--; fails(smaller) {
			s = smaller
		}
	}
	attempt(func(s *scenario) { s.length = min(s.length, 15*time.Second) })
	attempt(func(s *scenario) { s.deeds = nil })
	attempt(func(s *scenario) { s.wires = nil })
	attempt(func(s *scenario) { s.leaves = nil })
	attempt(func(s *scenario) { s.sdks = false })
	attempt(func(s *scenario) { s.engines = 2 })
	// Halves, then single kinds.
	lists := map[string]func(*scenario) *[]string{
		"deeds": func(s *scenario) *[]string { return &s.deeds }, "wires": func(s *scenario) *[]string { return &s.wires }, "leaves": func(s *scenario) *[]string { return &s.leaves },
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		of := lists[name]
		for size := len(*of(&s)) / 2; size > 0; size /= 2 {
			for from := 0; from < len(*of(&s)); {
				before := len(*of(&s))
				attempt(func(s *scenario) { *of(s) = slices.Delete(*of(s), from, min(from+size, before)) })
				if len(*of(&s)) == before {
					from += size
				}
			}
		}
	}
	attempt(func(s *scenario) { s.clients = max(s.clients/4, 1) })
	return s
}
