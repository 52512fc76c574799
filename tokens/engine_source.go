package tokens

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// EngineSourceOptions bound an EngineSource.
type EngineSourceOptions struct {
	// Pick returns the engine to ask for a model, nil when all are saturated or none serves it. It is called when a
	// question's turn comes, not when the request is there. Safe for concurrent use.
	Pick func(model string) Asker
	// Wanted says whether the ids of a prompt of about that many tokens are worth asking for; nil: always. It is called
	// for each request and must cost next to nothing. Safe for concurrent use.
	Wanted func(tokens int) bool
	// Concurrency is the most questions at once, over all engines. 0: 2. An engine's tokenizing runs in the process
	// that also serves its requests.
	Concurrency int
	// Timeout is how long a question may take. 0: 10 s.
	Timeout time.Duration
	// Queue is how many questions may wait; more are dropped. 0: 16. Each holds a copy of its conversation.
	Queue int
	// QueueBytes is how long the conversations of all questions may be that wait or are under way; more are dropped,
	// but one of any length is taken. 0: 32 MiB.
	QueueBytes int
	// Cache is the memory in bytes for the ids (tokens.cache).
	Cache int
	// Counts counts for ramjet_tokenize_total; nil counts nothing.
	Counts Counts
}

// EngineSource fetches the ids of conversations from the engines' own /tokenize, where there is no local tokenizer or
// what it makes cannot be relied on. No request waits for it: the ids are for the conversation's next turn. It asks
// for chat completions only, whose next turn can be recognised by its messages and whose prompt /tokenize makes as
// well; never for media, which the engine would fetch once more. It is safe for concurrent use. Run it, and cancel
// Run's context at the end.
type EngineSource struct {
	o      EngineSourceOptions
	hashes *Source // names conversations by their items; has no tokenizer
	cache  *cache
	queue  chan question

	mu    sync.Mutex      // guards what follows
	asked map[hash128]int // bytes of the questions that wait or are under way
	held  int             // all of these
}

// question is a conversation whose ids are to be fetched.
type question struct {
	model  string
	body   []byte
	key    hash128   // of all its items
	states []hash128 // of the items before, for what is known already
}

// NewEngineSource makes an EngineSource.
func NewEngineSource(o EngineSourceOptions) *EngineSource {
	if o.Concurrency <= 0 {
		o.Concurrency = 2
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Queue <= 0 {
		o.Queue = 16
	}
	if o.QueueBytes <= 0 {
		o.QueueBytes = 32 << 20
	}
	if o.Counts == nil {
		o.Counts = noCounts{}
	}
	return &EngineSource{o: o, hashes: &Source{seed: rand.Uint64()}, cache: newCache(o.Cache), queue: make(chan question, o.Queue), asked: map[hash128]int{}}
}

// memory is where the ids are kept, for a Source that shares it; nil without an EngineSource. All that they keep has
// names by seeds of their own.
func (s *EngineSource) memory() *cache {
	if s == nil {
		return nil
	}
	return s.cache
}

func (s *EngineSource) wanted(tokens int) bool { return s.o.Wanted == nil || s.o.Wanted(tokens) }

// Run asks until ctx ends, and returns when nothing of it is left.
func (s *EngineSource) Run(ctx context.Context) {
	var all sync.WaitGroup
	for range s.o.Concurrency {
		all.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case q := <-s.queue:
					s.o.Counts.Tokenized(sourceEngine, s.answer(ctx, q))
				}
			}
		})
	}
	all.Wait()
}

// askable are the notes of what an engine knows though we do not. With the others it would refuse the request, cut
// the prompt, fetch media, or take as long as we did.
var askable = []string{noteNoTokenizer, noteDrifted, noteForeign, noteNoTemplate, noteThinking, noteTools, "big integer", "deep value", "model renderer",
	errUnsupported.Error(), errFailed.Error(), errClock.Error(), errTooMuch.Error()}

// worthAsking is the share of a conversation's text behind the known prefix from which its ids are fetched anew, and
// leastNew the bytes: below them the blocks that the prefix names are most of what there is to know.
const (
	worthAsking = 8
	leastNew    = 2 << 10
)

// help finds the longest beginning of p's conversation whose ids are known, and queues a question if much is new. p's
// conversation is still open. It allocates only for a question.
func (s *EngineSource) help(p *Prepared, model []byte) {
	c := &p.scr.conv
	if p.Class.Endpoint() != EndpointChat || p.Class&ClassMedia != 0 || len(c.items) == 0 || !slices.Contains(askable, p.Note) {
		return
	}
	s.hashes.itemStates(&p.scr, int64(p.Class.model()))
	states := p.scr.states
	n, node := s.cache.known(states)
	fresh := 0
	for _, item := range c.items[max(n, 0):] {
		fresh += item.End - item.Start
	}
	if node != nil {
		p.Prefix = node.appendIDs(p.Prefix)
		p.Note = notePrefix
		s.o.Counts.Tokenized(sourceEngine, outcomeFound)
		if fresh < max(leastNew, p.Bytes/worthAsking) {
			return
		}
	}
	s.ask(p, model, states)
}

// ask queues a question unless the queue is full or the same is waiting.
func (s *EngineSource) ask(p *Prepared, model []byte, states []hash128) {
	key := states[len(states)-1]
	room, waiting := s.reserve(key, len(p.scr.conv.body))
	if waiting {
		return
	}
	if room {
		if body, ok := p.scr.conv.appendTokenize(nil, string(model), nil, true); ok {
			select {
			case s.queue <- question{string(model), body, key, slices.Clone(states)}:
				return
			default:
			}
		}
		s.forget(key)
	}
	s.o.Counts.Tokenized(sourceEngine, outcomeDropped)
}

// reserve notes a question about a body of n bytes, which what is asked hardly exceeds, if there is room for it.
func (s *EngineSource) reserve(key hash128, n int) (room, waiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waiting = s.asked[key]; waiting {
		return false, true
	}
	if len(s.queue) == cap(s.queue) || s.held > 0 && s.held+n > s.o.QueueBytes {
		return false, false
	}
	s.asked[key] = n
	s.held += n
	return true, false
}

func (s *EngineSource) forget(key hash128) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held -= s.asked[key]
	delete(s.asked, key)
}

// answer asks an engine and keeps the ids.
func (s *EngineSource) answer(ctx context.Context, q question) (outcome string) {
	defer s.forget(q.key)
	a := s.o.Pick(q.model)
	if a == nil {
		return outcomeDropped
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	ids, err := askIDs(ctx, a, q.body)
	if err != nil {
		return outcomeFailed
	}
	// What an earlier turn has in common is kept once.
	_, parent := s.cache.known(q.states[:len(q.states)-1])
	if parent != nil && (parent.total > len(ids) || !slices.Equal(parent.appendIDs(nil), ids[:parent.total])) {
		parent = nil
	}
	from := 0
	if parent != nil {
		from = parent.total
	}
	if s.cache.put(&entry{key: q.key, parent: parent, total: len(ids), ids: slices.Clone(ids[from:])}) == nil {
		return outcomeDropped
	}
	return outcomeKept
}
