package route

import (
	"math/bits"

	"ramjet/telemetry"
)

// choose picks one of the candidates, of which there is at least one.
func (r *Router) choose(set *Set, q *Request, candidates uint64) Decision {
	if q.Stored != "" {
		for i := range set.Members {
			if candidates&(1<<i) != 0 && set.Members[i].Engine.Name == q.Stored {
				return Decision{Member: &set.Members[i], Reason: telemetry.ReasonStoredResponse}
			}
		}
	}
	if bits.OnesCount64(candidates) == 1 {
		m := &set.Members[bits.TrailingZeros64(candidates)]
		return Decision{Member: m, Reason: telemetry.ReasonOnlyOne}
	}
	switch r.policy {
	case PolicyRoundRobin:
		return r.rotate(set, candidates)
	case PolicySession:
		return bySession(set, q.Session, candidates)
	case PolicyLatency, PolicyLeastTokens:
		return r.leastTokens(set, candidates)
	}
	panic("BUG: unknown policy " + string(r.policy))
}

// leastTokens compares the tokens that each engine's leases still stand for.
// Ties rotate: a fixed order would send everything to one of two idle engines.
func (r *Router) leastTokens(set *Set, candidates uint64) Decision {
	best, second := -1, -1
	var least, next int64
	ties := uint64(0)
	for i := range set.Members {
		if candidates&(1<<i) == 0 {
			continue
		}
		tokens := set.Members[i].Account.LoadLocked().Tokens
		switch {
		case best < 0 || tokens < least:
			second, next = best, least
			best, least, ties = i, tokens, 1<<i
		case tokens == least:
			ties |= 1 << i
			second, next = i, tokens
		case second < 0 || tokens < next:
			second, next = i, tokens
		}
	}
	if bits.OnesCount64(ties) > 1 {
		return r.rotate(set, ties)
	}
	return Decision{Member: &set.Members[best], Reason: telemetry.ReasonLoad, RunnerUp: set.Members[second].Engine.Name}
}

// rotate takes the candidates in turn.
func (r *Router) rotate(set *Set, candidates uint64) Decision {
	n := bits.OnesCount64(candidates)
	turn := int((r.turn.Add(1) - 1) % uint64(n))
	first := nth(candidates, turn)
	second := nth(candidates, (turn+1)%n)
	return Decision{
		Member:   &set.Members[first],
		Reason:   telemetry.ReasonRotation,
		RunnerUp: set.Members[second].Engine.Name,
	}
}

// nth returns the position of the n-th set bit, counted from 0.
func nth(set uint64, n int) int {
	for range n {
		set &= set - 1
	}
	return bits.TrailingZeros64(set)
}

// bySession gives each session a fixed order of engines, so that the loss of
// one engine moves only its own sessions (rendezvous hashing).
func bySession(set *Set, session, candidates uint64) Decision {
	best, second := -1, -1
	var high, next uint64
	for i := range set.Members {
		if candidates&(1<<i) == 0 {
			continue
		}
		score := mix(session ^ nameHash(set.Members[i].Engine.Name))
		switch {
		case best < 0 || score > high:
			second, next = best, high
			best, high = i, score
		case second < 0 || score > next:
			second, next = i, score
		}
	}
	return Decision{Member: &set.Members[best], Reason: telemetry.ReasonSession, RunnerUp: set.Members[second].Engine.Name}
}

// nameHash is FNV-1a, 64 bits.
func nameHash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix spreads every input bit over the word (the finaliser of splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
