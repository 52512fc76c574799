package sim

import "slices"

// schedule plans one step, as vLLM V1 does (v1/core/sched/scheduler.py): running sequences first, those that decode
// before those that still prefill, then waiting ones in their order while the budget of tokens lasts. Blocks are
// allocated, and become hit-able, here: before they are computed. ok is false if there is nothing to do.
func (c *Core) schedule() (load stepLoad, ok bool) {
	budget, preempted := c.scheduleActive(c.o.MaxBatchTokens)
	for !preempted && budget > 0 && len(c.waiting) > 0 && len(c.active) < c.o.MaxSeqs && c.admit(c.waiting[0], &budget) {
		c.waiting = slices.Delete(c.waiting, 0, 1)
	}
	for _, s := range c.active {
		switch {
		case s.scheduled == 0:
			continue
		case s.decoding():
			load.decodes++
			load.kvTokens += s.computed + 1 // the token at hand is part of its context
		default:
			load.prefillTokens += s.scheduled
		}
		ok = true
	}
	return load, ok
}

// scheduleActive gives the running sequences their part of the budget, and takes the youngest ones out where blocks
// are short. It returns what is left of the budget; after a preemption nothing new is admitted in the same step.
func (c *Core) scheduleActive(budget int) (left int, preempted bool) {
	for _, decoding := range []bool{true, false} {
		for i := 0; i < len(c.active); i++ {
			s := c.active[i]
			if s.decoding() != decoding || budget == 0 {
				continue
			}
			n := c.chunk(s, min(c.wanted(s), budget))
			if n == 0 {
				continue // less than a block of budget is left to a prompt that must stop at block ends
			}
			for s.state == seqActive && !c.allocate(s, n) {
				budget += c.preempt()
				preempted = true
			}
			if s.state == seqActive {
				s.scheduled = n
				budget -= n
			}
		}
	}
	return budget, preempted
}

// decoding says whether only the last token is still to be computed and output was produced already.
func (s *Sequence) decoding() bool { return s.produced() > 0 && s.computed == len(s.tokens)-1 }

func (s *Sequence) produced() int { return len(s.tokens) - s.promptLen }

// wanted is how many tokens a running sequence has for a step: the rest of its prompt, or one and the drafts.
func (c *Core) wanted(s *Sequence) int {
	if s.decoding() {
		return 1 + c.drafts
	}
	return len(s.tokens) - s.computed
}

// allocate gives a running sequence the blocks for n more tokens, all or none.
func (c *Core) allocate(s *Sequence, n int) bool {
	c.forgetStates(s)
	if c.place(s, n) > c.cache.free {
		return false
	}
	c.extend(s, n)
	c.store(s, n)
	return true
}

// blocksFor is the number of blocks that hold what a sequence has computed, n more tokens and the drafts behind them.
func (c *Core) blocksFor(s *Sequence, n int) int {
	if s.decoding() {
		n = 1 // the others are the drafts
	}
	end := s.computed + n + c.drafts
	return (end + c.o.BlockTokens - 1) / c.o.BlockTokens
}

// admit starts a waiting sequence with what the cache holds of it, if its first chunk finds room.
func (c *Core) admit(s *Sequence, budget *int) bool {
	hits := c.lookup(s)
	hashes := s.hashes[:hits]
	loaded := c.loadable(s, hits)
	s.computed = (hits + loaded) * c.o.BlockTokens
	n := c.chunk(s, min(len(s.tokens)-s.computed, *budget))
	fresh := c.blocksFor(s, n) - hits + len(c.kinds) - 1
	if n == 0 || c.idle(hashes)+fresh > c.cache.free {
		s.computed = 0
		return false
	}
	c.hold(s, hashes)
	s.stored = hits
	c.extend(s, n)
	c.store(s, n)
	s.state, s.scheduled = seqActive, n
	*budget -= n
	c.active = append(c.active, s)
	if !s.resumed {
		c.stats.PromptTokens += uint64(len(s.tokens))
		c.stats.QueryTokens += uint64(len(s.tokens))
		c.stats.CachedTokens += uint64(hits * c.o.BlockTokens)
		c.stats.LoadedTokens += uint64(loaded * c.o.BlockTokens)
		s.mu.Lock()
		s.cached = s.computed
		s.mu.Unlock()
	}
	return true
}

// preempt sends the sequence that was admitted last back to the head of the queue, without its blocks; it returns the
// tokens that the sequence had in this step.
func (c *Core) preempt() int {
	last := len(c.active) - 1
	s := c.active[last]
	c.active = c.active[:last]
	n := s.scheduled
	c.free(s)
	s.state, s.resumed = seqWaiting, true
	c.waiting = slices.Insert(c.waiting, 0, s)
	c.stats.Preempted++
	return n
}

// free takes a sequence's blocks away.
func (c *Core) free(s *Sequence) {
	for g := range s.blocks {
		c.cache.release(s.blocks[g])
		s.blocks[g] = s.blocks[g][:0]
	}
	s.computed, s.stored, s.scheduled, s.lastState, s.stateful = 0, 0, 0, -1, false
}

// leave is free for a sequence that is over. While CoreOptions.Lie says so, what it alone had cached is lost without a
// word.
func (c *Core) leave(s *Sequence) {
	if s.stored == 0 || c.o.Lie == nil || !c.o.Lie() {
		c.free(s)
		return
	}
	ids := slices.Concat(s.blocks...)
	c.free(s)
	for _, id := range ids {
		if id != none && c.cache.blocks[id].refs == 0 {
			c.cache.lose(id)
		}
	}
}

// drop ends a sequence from outside the step.
func (c *Core) drop(s *Sequence, reason string, err error) {
	var list *[]*Sequence
	switch s.state {
	case seqDone:
		return
	case seqWaiting:
		list = &c.waiting
	case seqActive:
		list = &c.active
	}
	if i := slices.Index(*list, s); i >= 0 {
		*list = slices.Delete(*list, i, i+1)
	}
	c.leave(s)
	s.state = seqDone
	if reason != "" {
		c.stats.Aborted++
	}
	s.end(reason, err)
}

// complete is the end of a step: what was scheduled is computed, and finished sequences leave. The observer is told
// first: vLLM's batch of events is at a subscriber before the step's tokens are at their clients.
func (c *Core) complete() {
	c.stats.Steps++
	if c.o.Observer != nil {
		c.o.Observer.StepEnd()
	}
	kept := c.active[:0]
	for _, s := range c.active {
		if c.advance(s) {
			kept = append(kept, s)
		}
	}
	clear(c.active[len(kept):])
	c.active = kept
}

// advance takes the step's result for one sequence and says whether it goes on.
func (c *Core) advance(s *Sequence) bool {
	n, tokens := s.scheduled, 1
	s.scheduled = 0
	switch {
	case n == 0:
		return true
	case s.decoding() && c.mtp:
		tokens = s.accept.next(s.produced())
		c.countDrafts(tokens - 1)
	case s.decoding():
	default:
		s.computed += n
		c.stats.PrefillTokens += uint64(n)
		if s.computed < len(s.tokens) {
			return true
		}
		s.computed-- // the new token makes it a decoding sequence, of which all but the last token are computed
	}
	made, reason := s.produce(tokens)
	s.computed += len(made)
	c.stats.OutputTokens += uint64(len(made))
	if reason != "" {
		c.leave(s)
		s.state = seqDone
		c.stats.Finished++
	}
	s.deliver(made, reason)
	return reason == ""
}

func (c *Core) countDrafts(accepted int) {
	c.stats.Drafts++
	c.stats.DraftTokens += draftTokens
	c.stats.AcceptedTokens += uint64(accepted)
	for i := range accepted {
		c.stats.AcceptedPerPos[i]++
	}
}
