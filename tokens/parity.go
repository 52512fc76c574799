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

	mu      sync.Mutex                // guards adding classes, foreign, and what of a classState is not atomic
	foreign map[string]modelBits      // by engine, the models that its tokenizer is not ours for
	strange [modelWords]atomic.Uint64 // all of these
}

// classState is one class.
type classState struct {
	stopped atomic.Bool   // approximate
	seen    atomic.Uint64 // requests while stopped
	agrees  atomic.Bool   // some were found equal, and none different since
	proven  atomic.Bool   // their very ids were, since it last began
	sure    atomic.Bool   // so were so many in a row that they outweigh what is known of other classes

	// Guarded by parity.mu.
	equal, missed uint64 // in all
	misses        int    // since it last began
	run           int    // equal ones in a row

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

// modelWords hold a bit for each number of a model.
const modelWords = (lastName + 64) / 64

// modelBits are models, by a bit for the number of each.
type modelBits [modelWords]uint64

// bitOf says where a model's bit is.
func (c Class) bitOf() (word int, bit uint64) { return c.model() / 64, 1 << (c.model() % 64) }

func (b *modelBits) add(c Class) {
	word, bit := c.bitOf()
	b[word] |= bit
}

func (q *parity) isForeign(c Class) bool {
	word, bit := c.bitOf()
	return q.strange[word].Load()&bit != 0
}

func (q *parity) isStopped(c Class) bool {
	s := q.state(c)
	return s != nil && s.stopped.Load()
}

// verdict says why the ids of a class must not be used, "" if they may.
func (q *parity) verdict(c Class) string {
	switch {
	case q.isForeign(c):
		return noteForeign
	case q.isStopped(c), q.isStopped(c &^ (ClassReasoning | ClassRoles)), q.inherits(c):
		return noteDrifted
	}
	return ""
}

// inherits reports whether a class that was hardly compared is to be taken for wrong, because what it consists of is:
// the plainest of its endpoint's, or one with a single of its bits. Ids that the client gave depend on none of it.
func (q *parity) inherits(c Class) bool {
	if c&ClassIDs != 0 {
		return false
	}
	if s := q.state(c); s != nil && (s.proven.Load() || s.sure.Load()) {
		return false
	}
	const bits = Class(1)<<classModel - 1 - classEndpoint
	plain := c &^ bits
	if q.isStopped(plain) {
		return true
	}
	for left := c & bits; left != 0; left &= left - 1 {
		if q.isStopped(plain | left&-left) {
			return true
		}
	}
	return false
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
	m.parity.observe(c, comparison{engine: engine, equal: predicted == reported, predicted: predicted, reported: reported})
}

// comparison is one of counts or of ids.
type comparison struct {
	engine              string
	equal               bool
	ids                 bool // each was compared: one that differs is enough to stop, and none to prove
	predicted, reported int  // how many there are
}

func (q *parity) observe(c Class, got comparison) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.grown(c)
	if got.equal {
		q.agree(s, c, got)
		return
	}
	s.missed++
	s.misses++
	s.run = 0
	s.agrees.Store(false)
	s.sure.Store(false)
	if (got.ids || s.misses >= missesToStop) && !s.stopped.Load() {
		q.stop(s, c, got)
	}
}

// agree takes an equal comparison; q.mu is held.
func (q *parity) agree(s *classState, c Class, got comparison) {
	s.equal++
	if s.run++; s.stopped.Load() {
		if s.run < equalsToResume {
			return
		}
		s.misses = 0
		s.stopped.Store(false)
		q.log.Info("requests of this class are routed by their token ids again", "class", c.String(), "engine", got.engine, "equal", s.equal, "missed", s.missed)
	}
	s.agrees.Store(true)
	if got.ids {
		s.proven.Store(true)
	}
	if s.run >= equalsToResume {
		s.sure.Store(true)
	}
}

// stop makes a class approximate; q.mu is held.
func (q *parity) stop(s *classState, c Class, got comparison) {
	s.stopped.Store(true)
	s.proven.Store(false)
	q.log.Warn("the token ids of requests of this class differ from the engine's: they are routed approximately", "class", c.String(), "engine", got.engine,
		"predicted_tokens", got.predicted, "reported_tokens", got.reported, "equal", s.equal, "missed", s.missed)
}

// Forget drops what was found about an engine that is gone: its tokenizer says nothing about the others'.
func (m *Model) Forget(engine string) { m.parity.setForeign(engine, modelBits{}) }

// setForeign notes the models that an engine's tokenizer is another than ours for.
func (q *parity) setForeign(engine string, models modelBits) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.foreign == nil {
		q.foreign = map[string]modelBits{}
	}
	delete(q.foreign, engine)
	if models != (modelBits{}) {
		q.foreign[engine] = models
	}
	for word := range q.strange {
		bits := uint64(0)
		for _, models := range q.foreign {
			bits |= models[word]
		}
		q.strange[word].Store(bits)
	}
}

// mayHand reports whether the ids of a class may be handed over: some were found equal one by one, none of its
// comparisons failed since, and no handed-over ids ever differed.
func (q *parity) mayHand(c Class) bool {
	s := q.state(c)
	return s != nil && s.proven.Load() && s.agrees.Load() && !s.handed.stopped.Load() && q.verdict(c) == ""
}

// mayTry reports whether nothing keeps the ids of a class from being handed over but that only counts were compared.
func (q *parity) mayTry(c Class) bool {
	s := q.state(c)
	return s != nil && !s.proven.Load() && s.agrees.Load() && !s.handed.stopped.Load() && q.verdict(c) == ""
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
		out = append(out, ClassStatus{Class: c, Exact: m.parity.verdict(c) == "", Proven: s.agrees.Load(), Equal: s.equal, Missed: s.missed, HandoffOff: s.handed.stopped.Load()})
	}
	slices.SortFunc(out, func(a, b ClassStatus) int { return strings.Compare(a.Class.String(), b.Class.String()) })
	return out
}
