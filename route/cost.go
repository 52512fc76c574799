package route

import (
	"math"
	"math/bits"

	"ramjet/lease"
	"ramjet/telemetry"
)

// The weights of the cost. Those that DESIGN section 6 does not name were
// measured with benchmarks/policy (docs/ARCHITECTURE.md, Cost).
const (
	// A second behind others' prompts counts more than one of computing this
	// one: the same time would be better spent on an engine that is free.
	waitWeight = 1.5
	// A second of waiting for the first token counts four times a second of
	// decoding.
	decodeWeight = 0.25
	// A token computed here that another engine would not have to compute
	// counts twice its prefill again, for whom it delays and what it takes from
	// the cache. On an engine that is next to idle it delays nobody and counts
	// less: a hot prefix would else stay on one engine while the other has
	// nothing to do. Where the other engine is computing the token at this
	// moment it counts in full: that one is soon done, and followers stay
	// together (single flight).
	missWeight = 2
	busyPart   = 4    // of the usual number of answers make it count in full
	leastMiss  = 0.25 // of it, on an idle engine
	// A token computed here delays the answers under way here. It counts this
	// part of its prefill for each, and besides by where their number stands
	// around the mean. What is far from it says no more: a lone session among
	// dozens of idle engines is no crowd.
	eachWeight  = 0.04
	crowdWeight = 0.8
	crowdMost   = 0.2 // of the mean
)

// pick is one decision under way. It lives on the stack of decide. What is
// decided from stands in the explanation, so that a record can be decided
// again; set, q and m are there to find it out.
type pick struct {
	s   *Settings
	set *Set
	q   *Request
	m   *matches

	bits uint64 // the candidates
	turn uint64
	cap  int64 // of the answer; below 1 = none

	exact    bool // exact matches may be compared
	used     bool // and decide
	note     string
	length   float64 // expected tokens of one answer
	meanRate float64 // Pm: prefill rate, mean over candidates
	least    int64   // fewest tokens that a candidate has to compute
	follows  bool    // because it computes the others already
	meanHere float64 // answers under way on a candidate, mean

	measured  float64 // prefill rates of the candidates that computed prompts
	measurers int     // how many those are
}

// weigh writes down for every engine what is known of it and, for candidates,
// what does not depend on the match.
func (r *Router) weigh(p *pick, x *Explanation) {
	p.cap, p.length = p.q.Cap, r.lengths.expected(p.q.Cap)
	x.basis.turn, x.basis.length = p.turn, p.length
	var mean lease.Mean
	p.measuredRates()
	for i := range p.set.Members {
		m := &p.set.Members[i]
		x.Candidates = append(x.Candidates, Candidate{})
		c := &x.Candidates[i]
		load, rates := m.Account.LoadLocked(), m.Account.RatesLocked()
		trust, _ := m.Engine.Trust()
		*c = Candidate{
			Engine: m.Engine.Name, Slot: m.Slot, Profile: m.Engine.Settings().Profile, State: m.Engine.State(), Trust: trust,
			Usable:     p.bits&(1<<i) != 0,
			MatchExact: int64(p.m.exact[m.Slot]), MatchApproximate: int64(p.m.approximate[m.Slot]), MatchOther: int64(p.m.other[m.Slot]),
			PrefillRequests: load.Prefill, DecodeRequests: load.Decode, tokens: load.Tokens,
			PrefillRate: rates.PrefillBeside(p.others(i, rates), p.q.Now),
		}
		if !c.Usable {
			c.Note = p.why(i)
			continue
		}
		mean.Add(rates)
		if !p.q.Light && p.q.Prompt.Tokens > 0 && !p.q.Prompt.Fresh {
			c.MatchInFlight = min(m.Account.InFlightLocked(p.q.Prompt.Chain, p.q.Prompt.ChainTokens), p.q.Prompt.Tokens-1)
		}
		p.load(c, m, load, rates)
	}
	for i := range x.Candidates {
		if c := &x.Candidates[i]; c.Usable {
			c.meanStep = mean.SecondsPerToken(c.batch)
		}
	}
}

// measuredRates adds up what the candidates that have computed prompts do.
func (p *pick) measuredRates() {
	for i := range p.set.Members {
		if rates := p.set.Members[i].Account.RatesLocked(); p.bits&(1<<i) != 0 && rates.Computed() {
			p.measured += rates.Prefill()
			p.measurers++
		}
	}
}

// others is what the other candidates that have computed prompts do on average,
// 0 if none has. An engine that has computed none is taken to do as much: with
// the prior, one of two fast engines would get all new prompts once it was seen
// to be faster.
func (p *pick) others(i int, rates *lease.Rates) float64 {
	total, n := p.measured, p.measurers
	if p.bits&(1<<i) != 0 && rates.Computed() {
		total, n = total-rates.Prefill(), n-1
	}
	if n == 0 {
		return 0
	}
	return total / float64(n)
}

// ready puts the settings to what was written down: whether exact matches
// decide, and how fast each engine is taken to decode.
func (p *pick) ready(x *Explanation) {
	p.exact, p.note = p.comparable(x)
	p.used = p.exact && x.Cohort.In
	if p.exact && !p.used {
		p.note = noteOf(p.s.Exact)
	}
	total := 0.0
	for i := range x.Candidates {
		c := &x.Candidates[i]
		if !c.Usable {
			continue
		}
		total += c.PrefillRate
		c.step = c.SecondsPerToken
		if p.s.Policy == PolicyLatency && p.s.Profile != ProfileLearned {
			// Every engine decodes as fast as they do on average at its batch,
			// so that the cost compares cache and load alone; profiles decide
			// ties only (the owner's rule, DESIGN section 6).
			c.step = c.meanStep
		}
	}
	p.meanRate = total / float64(max(bits.OnesCount64(p.bits), 1))
}

// load writes down what the engine's present work means for the request.
func (p *pick) load(c *Candidate, m *Member, load lease.Load, rates *lease.Rates) {
	sequences := max(p.q.Sequences, 1)
	queue := m.Account.QueueLocked(p.q.Now)
	c.QueueTokens = int64(queue)
	c.batch = float64(load.Sequences + sequences)
	c.SecondsPerToken = rates.SecondsPerToken(c.batch)
	c.stepGrowth = max(c.SecondsPerToken-rates.SecondsPerToken(float64(load.Sequences)), 0)
	c.Wait = queue / c.PrefillRate
	c.decoding = float64(load.Decoding)
	c.remaining = min(float64(load.Remaining), p.length*c.decoding)
}

// compare finds what the cost takes the candidates by: the fewest tokens that
// one of them has to compute, and how many answers are under way on average.
func (p *pick) compare(x *Explanation, exact bool) {
	p.least, p.follows, p.meanHere = math.MaxInt64, false, 0
	for i := range x.Candidates {
		c := &x.Candidates[i]
		if !c.Usable {
			continue
		}
		match := p.resident(c, exact)
		if u := c.uncached(x, match); u < p.least {
			p.least, p.follows = u, c.MatchInFlight > match
		}
		p.meanHere += c.here(x)
	}
	p.meanHere /= float64(max(bits.OnesCount64(p.bits), 1))
}

// here is how many answers are under way on the engine without the request.
func (c *Candidate) here(x *Explanation) float64 { return c.batch - float64(max(x.basis.sequences, 1)) }

// uncached is the prompt tokens to compute there for the given resident match.
func (c *Candidate) uncached(x *Explanation, match int64) int64 {
	u := int64(x.PromptTokens) - max(match, c.MatchInFlight)
	if x.PromptTokens > 0 {
		u = max(u, 1)
	}
	return u
}

// price puts the cost on a candidate for the given resident match. It is the
// formula of DESIGN section 6, with the weights above.
func (p *pick) price(x *Explanation, c *Candidate, match int64) {
	c.Match, c.Uncached = match, c.uncached(x, match)
	u := float64(c.Uncached)
	c.Prefill = u / c.PrefillRate
	c.Decode = 0
	if x.basis.sequences > 0 {
		c.Decode = p.length * c.step
	}
	c.Delay = c.Prefill*c.decoding + c.remaining*c.stepGrowth
	here, crowd := c.here(x), 0.0
	if p.meanHere > 0 {
		crowd = here / p.meanHere
	}
	c.miss = missWeight * float64(c.Uncached-p.least) / p.meanRate
	if !p.follows {
		c.miss *= min(max(busyPart*crowd, leastMiss), 1)
	}
	c.crowd = u / p.meanRate * (eachWeight*here + crowdWeight*min(max(crowd-1+crowdMost, 0), 2*crowdMost))
	c.Cost = waitWeight*c.Wait + c.Prefill + decodeWeight*c.Decode + c.miss + c.crowd + p.s.DelayWeight*c.Delay
}

// comparable reports whether the exact matches of all candidates can be
// compared, and if not, why.
func (p *pick) comparable(x *Explanation) (ok bool, note string) {
	if !x.basis.known {
		return false, p.note
	}
	if p.s.Exact == ExactOff {
		return false, noteOff
	}
	for i := range x.Candidates {
		if c := &x.Candidates[i]; c.Usable && c.Trust != telemetry.TrustExact {
			return false, noteTrust
		}
	}
	return true, ""
}

// The words of keys_note beside those of package tokens.
const (
	noteTrust  = "an engine's cache is not known exactly"
	noteOff    = "exact routing is off"
	noteShadow = "exact routing only shadows"
	noteCohort = "outside the cohort"
	notePrompt = "no prompt to match"
)

// Notes are all words that keys_note may hold beside those of package tokens.
// The list is closed.
func Notes() []string { return []string{noteTrust, noteOff, noteShadow, noteCohort, notePrompt} }

func noteOf(e Exact) string {
	switch e {
	case ExactOff:
		return noteOff
	case ExactShadow:
		return noteShadow
	case ExactPercent:
	}
	return noteCohort
}

// why says for people why member i is no candidate.
func (p *pick) why(i int) string {
	e := p.set.Members[i].Engine
	switch {
	case len(p.q.Model) > 0 && e.Models() != nil && !e.Models().Serves(p.q.Model):
		return "does not serve the model"
	case p.q.Tried&(1<<p.set.Members[i].Slot) != 0:
		return "tried already"
	case p.q.Stored != "" && e.Name != p.q.Stored:
		return "did not make the stored response"
	}
	switch e.State() {
	case telemetry.StateReady:
		return "at its limit of requests"
	case telemetry.StateSlowStart:
		return "holds its share of the slow start already"
	case telemetry.StateSuspect:
		return "suspect while others are usable"
	case telemetry.StateDown, telemetry.StateWarming, telemetry.StateEjected, telemetry.StateDraining:
	}
	return e.State().String()
}

// claim is what the decision books.
func (p *pick) claim(d Decision) lease.Claim {
	q := p.q
	c := lease.Claim{
		Prefill:   max(q.Prompt.Tokens-max(d.Match, d.InFlight), min(q.Prompt.Tokens, 1)),
		Sequences: max(q.Sequences, 1), Whole: q.Whole && q.Sequences > 0, Keys: q.Prompt.Chain,
	}
	c.Decode = product(int64(p.length), q.Sequences)
	return c
}

// largestClaim is more tokens than an engine computes in its life, and few
// enough for the claims of all requests to be added up.
const largestClaim = 1 << 44

// product multiplies two numbers that are not negative, up to largestClaim.
func product(a, b int64) int64 {
	if a > 0 && b > largestClaim/a {
		return largestClaim
	}
	return a * b
}
