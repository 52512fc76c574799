package route

import "ramjet/radix"

// matches is what of one prompt each engine is believed to hold, in tokens.
type matches struct {
	exact       [MaxEngines]int32 // by the engines' own events
	other       [MaxEngines]int32 // by the same, if the drop that was learnt is wrong
	approximate [MaxEngines]int32 // by what their answers left there
	chunks      [MaxEngines]int32 // scratch of the memory
	prompt      radix.Prompt      // scratch of the index
}

// match asks the index and the memory. It needs no lock, so that a long prompt
// keeps nobody waiting.
func (r *Router) match(set *Set, q *Request) *matches {
	m := r.scratch.Get().(*matches) //nolint:forcetypeassert // nothing else is put there
	n := set.slots()
	clear(m.exact[:n])
	clear(m.other[:n])
	clear(m.approximate[:n])
	if q.Light || q.Prompt.Tokens == 0 || q.Prompt.Fresh {
		return m
	}
	for i := range q.Prompt.Sets {
		m.prompt = radix.Prompt{
			Keys: q.Prompt.Sets[i].Keys, BlockTokens: q.Prompt.Sets[i].BlockTokens, Tokens: q.Prompt.First, IDs: q.Prompt.IDs,
		}
		r.index.MatchBoth(&m.prompt, &m.exact, &m.other)
	}
	if len(q.Prompt.Chain) > 0 {
		clear(m.chunks[:n])
		r.memory.Match(q.Prompt.Chain, &m.chunks)
		for i := range n {
			m.approximate[i] = m.chunks[i] * int32(q.Prompt.ChainTokens) //nolint:gosec // a chunk is some hundred tokens
		}
	}
	m.prompt = radix.Prompt{}
	if !q.Prompt.Exact {
		// Ids of the beginning alone tell something, but prove nothing.
		for i := range n {
			m.approximate[i] = max(m.approximate[i], m.exact[i])
		}
	}
	r.keepTogether(n, q, m)
	// An engine computes the last token at least, whatever it holds.
	most := int32(min(q.Prompt.Tokens-1, 1<<30)) //nolint:gosec // bounded
	for i := range n {
		m.exact[i] = min(m.exact[i], most)
		m.other[i] = min(m.other[i], most)
		m.approximate[i] = min(m.approximate[i], most)
	}
	return m
}

// keepTogether lets a session return to where it was when nothing else is
// known of it: its prompt is shorter than one chunk of text. What generates
// nothing, like embeddings, leaves nothing to return to.
func (r *Router) keepTogether(n int, q *Request, m *matches) {
	if q.Sequences == 0 || q.Prompt.Exact || len(q.Prompt.Chain) > 0 {
		return
	}
	if slot, tokens := r.sessions.get(q.Session); slot >= 0 && slot < n {
		m.approximate[slot] = int32(min(tokens, q.Prompt.Tokens, 1<<30)) //nolint:gosec // bounded
	}
}
