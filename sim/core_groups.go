package sim

import "slices"

// The groups of layers of a model that share its blocks. A plain model has one group of full attention. A hybrid one
// (vLLM's mamba_cache_mode "align") has groups of recurrent layers besides: such a group keeps whole states and no
// tokens, so it has one block for the running state and keeps a copy, a checkpoint, only at chosen block boundaries.
// What can be hit is a run of attention blocks that ends where every mamba group has a checkpoint.

// Kinds of groups, by vLLM's names (kv_cache_spec_kind).
const (
	kindAttention = "full_attention"
	kindMamba     = "mamba"
)

// groupsOf reads CoreOptions.Hybrid; ok is false if it is neither empty nor mamba groups with one of attention.
func groupsOf(hybrid string) (kinds []string, attention int, ok bool) {
	if hybrid == "" {
		return []string{kindAttention}, 0, true
	}
	attention = -1
	for i, c := range hybrid {
		switch {
		case c == 'm':
			kinds = append(kinds, kindMamba)
		case c == 'a' && attention < 0:
			attention = i
			kinds = append(kinds, kindAttention)
		default:
			return nil, 0, false
		}
	}
	return kinds, attention, attention >= 0 && len(kinds) > 1
}

// hybrid says whether there are mamba groups.
func (c *Core) hybrid() bool { return len(c.kinds) > 1 }

// dropped is how many blocks a hit loses: the draft layer needs the hidden states of the block behind it (vLLM up to
// 0.32). Since 0.33 block hashes cover the tokens behind a block instead, and nothing is dropped.
func (c *Core) dropped() int {
	if c.mtp && c.o.Lookahead == 0 {
		return 1
	}
	return 0
}

// lookup says how many blocks of a waiting sequence can be hit, and, for hybrids, where its checkpoints will be kept.
func (c *Core) lookup(s *Sequence) (hits int) {
	size, length := c.o.BlockTokens, len(s.tokens)
	// The last token is always computed, since its output is needed: at most length-1 tokens can hit.
	last := min(length-1, length-c.o.Lookahead) / size
	if !c.hybrid() {
		return max(c.cache.hit(0, s.hashesFor(last))-c.dropped(), 0)
	}
	// The block that is dropped may hold the prompt's last token (vLLM 0.32 v1/core/kv_cache_coordinator.py).
	run := last
	if c.dropped() > 0 {
		run = length / size
	}
	hashes := s.hashesFor(run)
	run = max(c.cache.hit(int32(c.attention), hashes)-c.dropped(), 0)
	for hits = run; hits > 0 && !c.checkpoint(hashes[hits-1]); {
		hits--
	}
	// Kept: the boundary from which a repetition of the prompt would go on, and the end of an attention run that could
	// not be used for want of a checkpoint, where the next sibling will fork off (prefix_cache_retention_interval 0).
	s.keep = append(s.keep[:0], max(last-c.dropped(), 0), max(length/size-c.dropped(), 0)*c.dropped(), 0)
	if run > hits {
		s.keep[2] = run
	}
	slices.Sort(s.keep)
	return hits
}

// checkpoint says whether every mamba group holds the state at the end of the block with this hash.
func (c *Core) checkpoint(hash uint64) bool {
	for g, kind := range c.kinds {
		if kind == kindMamba && !c.cache.holds(int32(g), hash) {
			return false
		}
	}
	return true
}

// chunk is how many of n tokens a prompt's next step may compute: a mamba group's state can be kept only where a step
// ends, so steps end at the boundaries to be kept, and before those at a block's end.
func (c *Core) chunk(s *Sequence, n int) int {
	if !c.hybrid() || s.computed >= len(s.tokens) || s.decoding() {
		return n
	}
	for _, k := range s.keep {
		if at := k * c.o.BlockTokens; at > s.computed && s.computed+n >= at {
			return at - s.computed
		} else if at > s.computed {
			return n / c.o.BlockTokens * c.o.BlockTokens
		}
	}
	return n
}

// place says how many more blocks a sequence needs for its next n tokens, in all groups together. In the mamba groups
// that is one each where the state goes on into another block.
func (c *Core) place(s *Sequence, n int) int {
	fresh := max(c.blocksFor(s, n)-len(s.blocks[c.attention]), 0)
	if c.hybrid() && c.statesFor(s, n) > c.states(s) {
		fresh += len(c.kinds) - 1
	}
	return fresh
}

// statesFor is the number of places in a mamba group's list after n more tokens; the last one is the running state's.
func (c *Core) statesFor(s *Sequence, n int) int {
	if s.decoding() {
		n = 1 // the drafts' states are not kept
	}
	return (s.computed + n + c.o.BlockTokens - 1) / c.o.BlockTokens
}

// states is the length of the mamba groups' lists; they are of one length.
func (c *Core) states(s *Sequence) int {
	if c.attention == 0 {
		return len(s.blocks[1])
	}
	return len(s.blocks[0])
}

// forgetStates frees the state that the last but one step left, which nothing needs any more: a checkpoint stays
// cached in the free queue.
func (c *Core) forgetStates(s *Sequence) {
	if s.lastState < 0 || s.lastState >= (s.computed+c.o.BlockTokens-1)/c.o.BlockTokens-1 {
		return
	}
	for g, kind := range c.kinds {
		if list := s.blocks[g]; kind == kindMamba && list[s.lastState] != none {
			c.cache.release(list[s.lastState : s.lastState+1])
			list[s.lastState] = none
		}
	}
}

// hold takes the blocks of a hit: the attention group's all, of a mamba group's the one at the end.
func (c *Core) hold(s *Sequence, hashes []uint64) {
	s.lastState, s.stateful = -1, false
	for g, kind := range c.kinds {
		s.blocks[g] = s.blocks[g][:0]
		if kind == kindAttention {
			s.blocks[g] = c.cache.take(s.blocks[g], int32(g), hashes)
		} else if n := len(hashes); n > 0 {
			for range n - 1 {
				s.blocks[g] = append(s.blocks[g], none)
			}
			s.blocks[g] = c.cache.take(s.blocks[g], int32(g), hashes[n-1:])
		}
	}
}

// idle is how many free blocks hold would take out of the queue.
func (c *Core) idle(hashes []uint64) (n int) {
	for g, kind := range c.kinds {
		part := hashes
		if kind == kindMamba && len(part) > 0 {
			part = part[len(part)-1:]
		}
		n += c.cache.idle(int32(g), part)
	}
	return n
}

// extend allocates what place has counted, group by group.
func (c *Core) extend(s *Sequence, n int) {
	states := 0
	if c.hybrid() {
		states = c.statesFor(s, n)
		if before := c.states(s); states > before {
			if s.stateful || before > 0 {
				s.lastState = before - 1
			}
			s.stateful = true
		}
	}
	for g, kind := range c.kinds {
		if kind == kindAttention {
			s.blocks[g] = c.cache.alloc(s.blocks[g], max(c.blocksFor(s, n)-len(s.blocks[g]), 0))
			continue
		}
		if states <= len(s.blocks[g]) {
			continue
		}
		for len(s.blocks[g]) < states-1 {
			s.blocks[g] = append(s.blocks[g], none)
		}
		s.blocks[g] = c.cache.alloc(s.blocks[g], 1)
	}
}

// store gives the blocks that will be full after n more tokens their content; drafts do not count, they may be wrong.
// With lookahead a block also waits for the tokens behind it.
func (c *Core) store(s *Sequence, n int) {
	end := min(s.computed+n, len(s.tokens))
	full := min(end, len(s.tokens)-c.o.Lookahead) / c.o.BlockTokens
	if full <= s.stored {
		return
	}
	hashes := s.hashesFor(full)
	for g, kind := range c.kinds {
		at := hashes[s.stored:]
		if kind == kindAttention {
			for i, h := range at {
				c.cache.store(s.blocks[g][s.stored+i], blockKey{h, int32(g)})
			}
		} else if at = at[len(at):]; end == full*c.o.BlockTokens && slices.Contains(s.keep, full) {
			at = hashes[full-1:]
			c.cache.store(s.blocks[g][full-1], blockKey{at[0], int32(g)})
		}
		c.announce(s, g, at, full)
	}
	c.offload(hashes[s.stored:])
	s.stored = full
}

// announce tells the observer of the blocks of one group that became hit-able.
func (c *Core) announce(s *Sequence, group int, hashes []uint64, full int) {
	if c.o.Observer == nil {
		return
	}
	size := c.o.BlockTokens
	e := StoredBlocks{
		Group: group, Kind: c.kinds[group], First: s.stored == 0, Hashes: hashes, BlockTokens: size,
		Tokens: s.tokens[s.stored*size : full*size], Salt: s.job.Salt, LoRA: s.job.LoRA, Session: s.job.Session,
	}
	if s.stored > 0 {
		e.Parent, e.HasParent = s.hashes[s.stored-1], true
	}
	if c.o.Lookahead > 0 && len(hashes) > 0 {
		e.Lookahead = c.o.Lookahead
		e.Behind = s.tokens[(full-len(hashes)+1)*size : full*size+c.o.Lookahead]
	}
	c.o.Observer.Stored(e)
}
