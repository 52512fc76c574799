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
			load.kvTokens += s.computed
		default:
			load.prefills++
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
			n := min(c.wanted(s), budget)
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
	fresh := c.blocksFor(s, n) - len(s.blocks)
	if fresh > c.cache.free {
		return false
	}
	s.blocks = c.cache.alloc(s.blocks, max(fresh, 0))
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

// store gives the blocks that will be full after n more tokens their content; drafts do not count, they may be wrong.
func (c *Core) store(s *Sequence, n int) {
	full := min(s.computed+n, len(s.tokens)) / c.o.BlockTokens
	if full <= s.stored {
		return
	}
	hashes := s.hashesFor(full)
	for i := s.stored; i < full; i++ {
		c.cache.store(s.blocks[i], hashes[i])
	}
	if c.o.Observer != nil {
		e := StoredBlocks{Hashes: hashes[s.stored:], Salt: s.job.Salt, LoRA: s.job.LoRA}
		e.Tokens = s.tokens[s.stored*c.o.BlockTokens : full*c.o.BlockTokens]
		if s.stored > 0 {
			e.Parent, e.HasParent = hashes[s.stored-1], true
		}
		c.o.Observer.Stored(e)
	}
	s.stored = full
}

// admit starts a waiting sequence with what the cache holds of it, if its first chunk finds room.
func (c *Core) admit(s *Sequence, budget *int) bool {
	// The last token is always computed, since its output is needed: at most len-1 tokens can hit.
	hashes := s.hashesFor((len(s.tokens) - 1) / c.o.BlockTokens)
	hits := c.cache.hit(hashes)
	if c.mtp && hits > 0 {
		hits-- // the draft layer needs the hidden states of the last hit block (vLLM up to 0.32)
	}
	s.computed = hits * c.o.BlockTokens
	n := min(len(s.tokens)-s.computed, *budget)
	fresh := c.blocksFor(s, n) - hits
	if !c.cache.room(hashes[:hits], fresh) {
		s.computed = 0
		return false
	}
	s.blocks = c.cache.take(s.blocks[:0], hashes[:hits])
	s.blocks = c.cache.alloc(s.blocks, fresh)
	s.stored = hits
	c.store(s, n)
	s.state, s.scheduled = seqActive, n
	*budget -= n
	c.active = append(c.active, s)
	if !s.resumed {
		c.stats.PromptTokens += uint64(len(s.tokens))
		c.stats.QueryTokens += uint64(len(s.tokens))
		c.stats.CachedTokens += uint64(s.computed)
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
	c.cache.release(s.blocks)
	s.blocks, s.computed, s.stored, s.scheduled = s.blocks[:0], 0, 0, 0
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
	c.free(s)
	s.state = seqDone
	if reason != "" {
		c.stats.Aborted++
	}
	s.end(reason, err)
}

// complete is the end of a step: what was scheduled is computed, and finished sequences leave.
func (c *Core) complete() {
	c.stats.Steps++
	kept := c.active[:0]
	for _, s := range c.active {
		if c.advance(s) {
			kept = append(kept, s)
		}
	}
	clear(c.active[len(kept):])
	c.active = kept
	if c.o.Observer != nil {
		c.o.Observer.StepEnd()
	}
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
		c.free(s)
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
