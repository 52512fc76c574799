package lease

import "sort"

// floorOfOldest is the share of the oldest prefill that stays, however long it
// takes: it is not done before its first token (DESIGN section 6).
const floorOfOldest = 0.05

// QueueLocked returns the prompt tokens that the engine has still to compute
// for requests without a first token, at the time now: what they brought, less
// what it did at its rate since the later of the oldest one's dispatch and its
// last first token. The book must be locked.
func (a *Account) QueueLocked(now float64) float64 {
	if a.oldest == nil {
		return 0
	}
	oldest := float64(a.oldest.claim.Prefill)
	done := a.rates.Prefill() * max(now-max(a.oldest.at, a.firstToken), 0)
	return float64(a.load.Uncached) - min(done, (1-floorOfOldest)*oldest)
}

// InFlightLocked returns how many tokens of the prompt with these keys, of
// keyTokens tokens each, are being computed on the engine for requests without
// a first token. Keys chain, so that equal keys at one place mean equal prompts
// up to there, whatever a key was taken to stand for when the other request
// came: how many tokens a text makes is learnt all the time. The book must be
// locked. It allocates nothing.
func (a *Account) InFlightLocked(keys []uint64, keyTokens int) int64 {
	if len(keys) == 0 {
		return 0
	}
	best := 0
	for l := a.oldest; l != nil; l = l.newer {
		best = max(best, common(l.claim.Keys, keys, best))
	}
	return int64(best) * int64(keyTokens)
}

// common returns how many leading keys x and y share, or least if it is not
// more.
func common(x, y []uint64, least int) int {
	n := min(len(x), len(y))
	if n <= least || x[least] != y[least] {
		return least
	}
	return least + sort.Search(n-least, func(i int) bool { return x[least+i] != y[least+i] })
}
