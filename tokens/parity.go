package tokens

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// The rules by which a class of requests stops and begins to be exact.
const (
	missesToStop   = 2  // one may be a request that the engine cut or changed
	checkedOf      = 20 // while stopped, of so many requests of the class one is still counted
	equalsToResume = 20 // in a row
)

// parity is what was learnt of each class. Prepare reads it without a lock.
type parity struct {
	log     Log
	classes atomic.Pointer[map[Class]*classState]

	mu      sync.Mutex // guards adding classes, foreign, and what of a classState is not atomic
	foreign map[string]Class
	strange atomic.Uint64 // one bit for each model's number, modulo 64, that some engine's tokenizer is not ours for
}

// classState is one class.
type classState struct {
	stopped atomic.Bool   // approximate
	seen    atomic.Uint64 // requests while stopped
	proven  atomic.Bool   // some were found equal, and none different since

	// Guarded by parity.mu.
	equal, missed uint64 // in all
	misses        int    // since it last began
	run           int    // equal ones in a row while stopped

	handed handedState
}

// ClassStatus is what is known of a class, for people.
type ClassStatus struct {
	Class         Class
	Exact         bool   // its requests are routed by their ids
	Proven        bool   // some were compared and equal
	Equal, Missed uint64 // requests and probes compared
	HandoffOff    bool   // handed-over ids differed from the engine's
}

// state returns a class's state, nil when nothing was learnt of it.
func (q *parity) state(c Class) *classState {
	if list := q.classes.Load(); list != nil {
		return (*list)[c]
	}
	return nil
}

// grown returns a class's state, new if need be; q.mu is held. The number of classes is bounded by their bits.
func (q *parity) grown(c Class) *classState {
	if s := q.state(c); s != nil {
		return s
	}
	list := map[Class]*classState{}
	if old := q.classes.Load(); old != nil {
		for class, s := range *old {
			list[class] = s
		}
	}
	s := &classState{}
	list[c] = s
	q.classes.Store(&list)
	return s
}

// hopeless says why a request of the class need not be tokenized at all, "" if it must: of a stopped class one of
// checkedOf is. What makes reasoning a class of its own shows only later; it falls with the class without.
func (q *parity) hopeless(c Class) string {
	if q.isForeign(c) {
		return noteForeign
	}
	if s := q.state(c); s != nil && s.stopped.Load() && s.seen.Add(1)%checkedOf != 0 {
		return noteDrifted
	}
	return ""
}

func (q *parity) isForeign(c Class) bool { return q.strange.Load()>>(c.model()%64)&1 != 0 }

// verdict says why the ids of a class must not be used, "" if they may.
func (q *parity) verdict(c Class) string {
	if q.isForeign(c) {
		return noteForeign
	}
	for _, class := range [...]Class{c, c &^ (ClassReasoning | ClassRoles)} {
		if s := q.state(class); s != nil && s.stopped.Load() {
			return noteDrifted
		}
	}
	return ""
}

// Observe compares Prepared.Predicted with what the engine reported as its prompt tokens: usage.prompt_tokens,
// input_tokens of Responses, and for Anthropic's dialect the sum of input_tokens, cache_read_input_tokens and
// cache_creation_input_tokens. Several prompts add up, and each counts once however many choices it has, as in vLLM. A
// count below 1 says nothing.
//
// Two misses make the class approximate; twenty equal ones in a row, of the one in twenty that is still counted, make
// it exact again. Do not call it for a request whose ids were handed over: the engine counts what it was given. Safe
// for concurrent use.
func (m *Model) Observe(c Class, engine string, predicted, reported int) {
	if predicted < 1 || reported < 1 {
		return
	}
	m.parity.observe(c, engine, predicted == reported, predicted, reported, 1)
}

// observe takes one comparison of counts or of ids; weight is how many misses a miss counts for.
func (q *parity) observe(c Class, engine string, equal bool, predicted, reported, weight int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.grown(c)
	if equal {
		s.equal++
		if !s.stopped.Load() {
			s.proven.Store(true)
			return
		}
		if s.run++; s.run >= equalsToResume {
			s.misses, s.run = 0, 0
			s.stopped.Store(false)
			s.proven.Store(true)
			q.log.Info("requests of this class are routed by their token ids again", "class", c.String(), "engine", engine, "equal", s.equal, "missed", s.missed)
		}
		return
	}
	s.missed++
	s.misses += weight
	s.run = 0
	s.proven.Store(false)
	if s.misses >= missesToStop && !s.stopped.Load() {
		q.stop(s, c, engine, predicted, reported)
	}
}

// stop makes a class approximate; q.mu is held.
func (q *parity) stop(s *classState, c Class, engine string, predicted, reported int) {
	s.stopped.Store(true)
	s.proven.Store(false)
	s.run = 0
	q.log.Warn("the token ids of requests of this class differ from the engine's: they are routed approximately", "class", c.String(), "engine", engine,
		"predicted_tokens", predicted, "reported_tokens", reported, "equal", s.equal, "missed", s.missed)
}

// Forget drops what was found about an engine that is gone: its tokenizer says nothing about the others'.
func (m *Model) Forget(engine string) { m.parity.setForeign(engine, 0, false) }

// setForeign notes whether an engine's tokenizer is another than ours for a model.
func (q *parity) setForeign(engine string, c Class, foreign bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.foreign == nil {
		q.foreign = map[string]Class{}
	}
	delete(q.foreign, engine)
	if foreign {
		q.foreign[engine] = c
	}
	bits := uint64(0)
	for _, class := range q.foreign {
		bits |= 1 << (class.model() % 64)
	}
	q.strange.Store(bits)
}

// proven reports whether requests of a class were found equal, and none different since.
func (q *parity) proven(c Class) bool {
	s := q.state(c)
	return s != nil && s.proven.Load() && q.verdict(c) == ""
}

// Classes returns what is known of the classes that were compared, in the order of their names.
func (m *Model) Classes() []ClassStatus {
	list := m.parity.classes.Load()
	if list == nil {
		return nil
	}
	m.parity.mu.Lock()
	defer m.parity.mu.Unlock()
	out := make([]ClassStatus, 0, len(*list))
	for c, s := range *list {
		out = append(out, ClassStatus{Class: c, Exact: m.parity.verdict(c) == "", Proven: s.proven.Load(), Equal: s.equal, Missed: s.missed, HandoffOff: s.handed.stopped.Load()})
	}
	slices.SortFunc(out, func(a, b ClassStatus) int { return strings.Compare(a.Class.String(), b.Class.String()) })
	return out
}
