package sim

import (
	"context"
	"slices"
	"sync"
)

// Sequence is one submitted job. Next is for one goroutine at a time; Abort and Cached for any.
type Sequence struct {
	core *Core
	job  Job

	mu      sync.Mutex // guards what the reader sees:
	pending []uint32   // tokens that Next has not returned yet
	spare   []uint32   // what Next returned last, for the tokens after the next ones
	read    bool       // Next has returned tokens
	cached  int
	done    bool
	reason  string
	err     error
	news    chan struct{} // capacity 1: pending or done changed

	// The rest belongs to the scheduler.
	tokens    []uint32 // prompt and output
	promptLen int
	maxTokens int
	endAt     int // index of the output token that ends the turn, -1 without one
	key       uint64
	accept    acceptance
	state     seqState
	blocks    [][]int32 // by group
	hashes    []uint64  // of the full blocks of tokens, as far as they were needed
	computed  int       // tokens whose KV is in blocks
	stored    int       // blocks that hold content
	scheduled int       // tokens of the step in progress
	keep      []int     // hybrid: block boundaries at which its prompt leaves checkpoints, ascending; 0 for none
	lastState int       // hybrid: place of the state that the running one was made from, -1 for none
	stateful  bool      // hybrid: has a running state
	resumed   bool      // was preempted before: its hits are no news
}

type seqState uint8

const (
	seqWaiting seqState = iota
	seqActive
	seqDone
)

func newSequence(c *Core, j Job) *Sequence {
	s := &Sequence{core: c, job: j, maxTokens: j.MaxTokens, endAt: -1, lastState: -1, news: make(chan struct{}, 1)}
	s.blocks = make([][]int32, len(c.kinds))
	s.tokens = append(make([]uint32, 0, len(j.Prompt)+min(max(j.MaxTokens, 16), 4096)), j.Prompt...)
	s.promptLen, s.job.Prompt = len(s.tokens), nil
	s.key = PromptHash(s.tokens)
	s.accept.key = draw(c.o.Seed, s.key, drawAcceptance, 0)
	if j.NaturalStop && !j.IgnoreEOS {
		s.endAt = max(NaturalLength(c.o.Seed, s.key)-1, j.MinTokens)
	}
	return s
}

// Next blocks until there are new tokens, the sequence's end or ctx's end. It returns all tokens that were produced
// since the last call, so a slow reader gets several steps at once, as from vLLM. After the end it keeps returning the
// end. Errors: ctx's, ErrStopped, ErrPromptTooLong, ErrEmptyPrompt.
func (s *Sequence) Next(ctx context.Context) (Output, error) {
	for {
		if out, ok, err := s.poll(); ok {
			return out, err
		}
		select {
		case <-s.news:
		case <-ctx.Done():
			return Output{}, ctx.Err()
		}
	}
}

// poll returns what there is to return without waiting. Tokens that came before an error are handed over first.
func (s *Sequence) poll() (Output, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 && !s.done {
		return Output{}, false, nil
	}
	if len(s.pending) == 0 && s.err != nil {
		return Output{}, true, s.err
	}
	out := Output{Tokens: s.pending, First: !s.read && len(s.pending) > 0}
	if s.done && s.err == nil {
		out.Finished, out.FinishReason = true, s.reason
	}
	s.read = s.read || out.First
	s.pending, s.spare = s.spare[:0], s.pending
	return out, true, nil
}

// Cached is the number of prompt tokens taken from the prefix cache; valid after the first output.
func (s *Sequence) Cached() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cached
}

// Abort ends the sequence with FinishAbort, unless it has ended. Its blocks are freed within one step; full ones stay
// cached.
func (s *Sequence) Abort() {
	s.mu.Lock()
	done := s.done
	s.mu.Unlock()
	if !done {
		s.core.post(func() { s.core.drop(s, FinishAbort, nil) })
	}
}

// deliver hands tokens to the reader; reason other than "" ends the sequence.
func (s *Sequence) deliver(tokens []uint32, reason string) {
	s.mu.Lock()
	s.pending = append(s.pending, tokens...)
	if reason != "" {
		s.done, s.reason = true, reason
	}
	s.mu.Unlock()
	s.signal()
}

// end tells the reader of an end without further tokens.
func (s *Sequence) end(reason string, err error) {
	s.mu.Lock()
	s.done, s.reason, s.err = true, reason, err
	s.mu.Unlock()
	s.signal()
}

func (s *Sequence) signal() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// produce appends the next output tokens, at most n, and says why they end the sequence, "" if they do not.
func (s *Sequence) produce(n int) (made []uint32, reason string) {
	from := len(s.tokens)
	for range n {
		at := s.produced()
		token := TokenAt(s.core.o.Seed, s.key, at)
		if at == s.endAt {
			token = EndOfTurn()
		}
		s.tokens = append(s.tokens, token)
		switch {
		case at == s.endAt, at+1 >= s.job.MinTokens && slices.Contains(s.job.StopTokens, token):
			return s.tokens[from:], FinishStop
		case at+1 >= s.maxTokens:
			return s.tokens[from:], FinishLength
		}
	}
	return s.tokens[from:], ""
}

// hashesFor returns the chain of the sequence's first n full blocks.
func (s *Sequence) hashesFor(n int) []uint64 {
	if len(s.hashes) >= n {
		return s.hashes[:n]
	}
	parent := chainRoot(s.core.root, s.job.LoRA, s.job.Salt)
	if k := len(s.hashes); k > 0 {
		parent = s.hashes[k-1]
	}
	size, ahead := s.core.o.BlockTokens, s.core.o.Lookahead
	for k := len(s.hashes); k < n; k++ {
		end := (k + 1) * size
		parent = hashBlock(parent, s.tokens[k*size:end], s.tokens[end:end+ahead])
		s.hashes = append(s.hashes, parent)
	}
	return s.hashes
}
