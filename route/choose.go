package route

import (
	"math/bits"

	"ramjet/telemetry"
)

// choice is what one way of matching leads to.
type choice struct {
	winner, second int // -1: none
	reason         telemetry.Reason
}

// decide chooses one of the candidates, of which there is at least one, and
// notes what the other way of matching would have chosen. It leaves out the
// decision's Member.
func (p *pick) decide(x *Explanation) Decision {
	p.ready(x)
	x.Shadow = p.shadow(x)
	p.compare(x, p.used)
	for i := range x.Candidates {
		if c := &x.Candidates[i]; c.Usable {
			p.price(x, c, p.resident(c, p.used))
		} else {
			c.Match = p.resident(c, p.used)
		}
	}
	got := p.choose(x, p.used)
	x.Shadow.Agreement = p.agreement(x, got)
	c := &x.Candidates[got.winner]
	d := Decision{
		place: got.winner, Slot: c.Slot, Reason: got.reason,
		Match: c.Match, InFlight: c.MatchInFlight, Keys: p.keys(x),
	}
	if got.second >= 0 {
		d.RunnerUp = x.Candidates[got.second].Engine
		x.Margin = x.Candidates[got.second].Cost - c.Cost
	}
	return d
}

// keys says by what the match is found. A prompt without any key may still be
// known by its session.
func (p *pick) keys(x *Explanation) telemetry.Keys {
	if p.used {
		return telemetry.KeysExact
	}
	if x.basis.keyed {
		return telemetry.KeysApproximate
	}
	for i := range x.Candidates {
		if x.Candidates[i].MatchApproximate > 0 {
			return telemetry.KeysApproximate
		}
	}
	return telemetry.KeysNone
}

// resident is the match in use.
func (p *pick) resident(c *Candidate, exact bool) int64 {
	if exact {
		return c.MatchExact
	}
	return c.MatchApproximate
}

// shadow asks what the other way of matching would have chosen.
func (p *pick) shadow(x *Explanation) Shadow {
	if !p.exact {
		return Shadow{}
	}
	p.compare(x, !p.used)
	for i := range x.Candidates {
		if c := &x.Candidates[i]; c.Usable {
			p.price(x, c, p.resident(c, !p.used))
		}
	}
	got := p.choose(x, !p.used)
	return Shadow{Engine: x.Candidates[got.winner].Engine, Reason: got.reason}
}

// agreement compares the choice with the shadow's.
func (p *pick) agreement(x *Explanation, got choice) telemetry.Agreement {
	switch {
	case !p.exact:
		return telemetry.AgreementUntrusted
	case p.cold(x):
		return telemetry.AgreementCold
	case got.reason == telemetry.ReasonRotation || x.Shadow.Reason == telemetry.ReasonRotation:
		return telemetry.AgreementTie
	case x.Candidates[got.winner].Engine == x.Shadow.Engine:
		return telemetry.AgreementAgree
	}
	return telemetry.AgreementWouldMove
}

// cold reports whether no candidate holds anything of the prompt, by either
// way of matching.
func (p *pick) cold(x *Explanation) bool {
	for i := range x.Candidates {
		if c := &x.Candidates[i]; c.Usable && (c.MatchExact > 0 || c.MatchApproximate > 0) {
			return false
		}
	}
	return true
}

// choose applies the policy to priced candidates.
func (p *pick) choose(x *Explanation, exact bool) choice {
	if x.basis.stored != "" {
		for i := range x.Candidates {
			if x.Candidates[i].Usable && x.Candidates[i].Engine == x.basis.stored {
				return choice{winner: i, second: -1, reason: telemetry.ReasonStoredResponse}
			}
		}
	}
	if bits.OnesCount64(p.bits) == 1 {
		return choice{winner: bits.TrailingZeros64(p.bits), second: -1, reason: telemetry.ReasonOnlyOne}
	}
	switch p.s.Policy {
	case PolicyRoundRobin:
		return p.rotate(p.bits)
	case PolicySession:
		return p.bySession(x)
	case PolicyLeastTokens:
		return p.leastTokens(x)
	case PolicyLatency:
		return p.cheapest(x, exact)
	}
	panic("BUG: unknown policy " + string(p.s.Policy))
}

// cheapest takes the least cost, and among those that count as equal the
// order of DESIGN section 6.
func (p *pick) cheapest(x *Explanation, exact bool) choice {
	best := -1
	for i := range x.Candidates {
		if c := &x.Candidates[i]; c.Usable && (best < 0 || c.Cost < x.Candidates[best].Cost) {
			best = i
		}
	}
	// The share is of the whole cost: what computing the tokens that every candidate lacks takes from the others is left
	// out of Cost, as it is the same for all.
	whole := x.Candidates[best].Cost + missWeight*float64(p.least)/p.meanRate
	band := x.Candidates[best].Cost + max(p.s.Tie, tieShare*whole)
	ties := uint64(0)
	for i := range x.Candidates {
		if c := &x.Candidates[i]; c.Usable && c.Cost <= band {
			ties |= 1 << i
		}
	}
	if ties == 0 {
		ties = p.bits // costs that are no numbers order nothing
	}
	if bits.OnesCount64(ties) == 1 {
		second := p.runnerUp(x, best)
		return choice{winner: best, second: second, reason: p.deciding(&x.Candidates[best], &x.Candidates[second], exact)}
	}
	return p.untie(x, ties, exact)
}

// untie orders equal costs: more cached tokens, the profile rule, fewer tokens
// in flight, rotation.
func (p *pick) untie(x *Explanation, ties uint64, exact bool) choice {
	reason := matchReason(exact)
	for step, key := range [...]func(*Candidate) int64{
		func(c *Candidate) int64 { return max(c.Match, c.MatchInFlight) },
		func(c *Candidate) int64 { return p.preferred(x, c) },
		func(c *Candidate) int64 { return -c.tokens },
	} {
		kept := most(x, ties, key)
		if kept == ties {
			continue
		}
		if bits.OnesCount64(kept) > 1 {
			ties = kept // what follows chooses among these
			continue
		}
		winner := bits.TrailingZeros64(kept)
		c := &x.Candidates[winner]
		switch step {
		case 0:
			if c.MatchInFlight > c.Match {
				reason = telemetry.ReasonSingleFlight
			}
		case 1:
			reason = telemetry.ReasonProfile
		case 2:
			reason = telemetry.ReasonLoad
		}
		return choice{winner: winner, second: p.closest(x, ties&^kept, winner), reason: reason}
	}
	return p.rotate(ties)
}

// preferred is 1 for engines of the profile that the owner's rule prefers.
func (p *pick) preferred(x *Explanation, c *Candidate) int64 {
	if p.s.Profile == ProfileRule && x.basis.sequences > 0 && c.Profile == p.s.prefers(p.cap) {
		return 1
	}
	return 0
}

// most keeps the candidates with the largest key.
func most(x *Explanation, set uint64, key func(*Candidate) int64) uint64 {
	kept, largest := uint64(0), int64(0)
	for i := range x.Candidates {
		if set&(1<<i) == 0 {
			continue
		}
		switch k := key(&x.Candidates[i]); {
		case kept == 0 || k > largest:
			kept, largest = 1<<i, k
		case k == largest:
			kept |= 1 << i
		}
	}
	return kept
}

// deciding is the term that made the winner beat the runner-up: the one whose
// difference is largest.
func (p *pick) deciding(w, second *Candidate, exact bool) telemetry.Reason {
	match := second.Prefill + second.miss - w.Prefill - w.miss
	load := waitWeight*(second.Wait-w.Wait) + second.crowd - w.crowd + p.s.DelayWeight*(second.Delay-w.Delay)
	decode := decodeWeight * (second.Decode - w.Decode)
	switch {
	case match >= load && match >= decode:
		if w.Uncached == second.Uncached {
			return telemetry.ReasonLoad // the same prompt, computed faster
		}
		if w.MatchInFlight > w.Match {
			return telemetry.ReasonSingleFlight
		}
		return matchReason(exact)
	case decode > load && p.s.Profile == ProfileLearned && w.Profile != second.Profile && w.batch >= second.batch:
		return telemetry.ReasonProfile // it wins in spite of a larger batch
	}
	return telemetry.ReasonLoad
}

func matchReason(exact bool) telemetry.Reason {
	if exact {
		return telemetry.ReasonExact
	}
	return telemetry.ReasonApproximate
}

// runnerUp is the cheapest other candidate.
func (p *pick) runnerUp(x *Explanation, winner int) int {
	return p.closest(x, p.bits&^(1<<winner), winner)
}

func (p *pick) closest(x *Explanation, set uint64, winner int) int {
	second := -1
	for i := range x.Candidates {
		if set&(1<<i) != 0 && i != winner && (second < 0 || x.Candidates[i].Cost < x.Candidates[second].Cost) {
			second = i
		}
	}
	return second
}

// leastTokens compares the tokens that each engine's leases still stand for.
// Ties rotate: a fixed order would send everything to one of two idle engines.
func (p *pick) leastTokens(x *Explanation) choice {
	least := most(x, p.bits, func(c *Candidate) int64 { return -c.tokens })
	if bits.OnesCount64(least) > 1 {
		return p.rotate(least)
	}
	winner := bits.TrailingZeros64(least)
	next := most(x, p.bits&^least, func(c *Candidate) int64 { return -c.tokens })
	return choice{winner: winner, second: bits.TrailingZeros64(next), reason: telemetry.ReasonLoad}
}

// rotate takes the candidates in turn.
func (p *pick) rotate(set uint64) choice {
	n := bits.OnesCount64(set)
	turn := int(p.turn % uint64(n)) //nolint:gosec // below 64
	return choice{winner: nth(set, turn), second: nth(set, (turn+1)%n), reason: telemetry.ReasonRotation}
}

// nth returns the position of the n-th set bit, counted from 0.
func nth(set uint64, n int) int {
	for range n {
		set &= set - 1
	}
	return bits.TrailingZeros64(set)
}

// bySession gives each session a fixed order of engines, so that the loss of
// one engine moves only its own sessions (rendezvous hashing). Requests without
// a session belong nowhere and are taken in turn.
func (p *pick) bySession(x *Explanation) choice {
	if x.Session == 0 {
		return p.rotate(p.bits)
	}
	c := choice{winner: -1, second: -1, reason: telemetry.ReasonSession}
	var high, next uint64
	for i := range x.Candidates {
		if !x.Candidates[i].Usable {
			continue
		}
		score := mix(uint64(x.Session) ^ nameHash(x.Candidates[i].Engine))
		switch {
		case c.winner < 0 || score > high:
			c.second, next = c.winner, high
			c.winner, high = i, score
		case c.second < 0 || score > next:
			c.second, next = i, score
		}
	}
	return c
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
