package growth

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"time"

	"ramjet/engine"
	"ramjet/lease"
	"ramjet/radix"
	"ramjet/route"
	"ramjet/telemetry"
)

// blockTokens is the block size of dense models in vLLM.
const blockTokens = 16

// house is what serve builds around a decision: engines that are ready and trusted, their book, index and memory.
type house struct {
	index  *radix.Index
	memory *radix.Memory
	router *route.Router
	x      route.Explanation
	lease  lease.Lease
}

func newHouse(engines int) *house {
	h := &house{index: radix.NewIndex(), memory: radix.NewMemory()}
	set := &route.Set{}
	for i := range engines {
		name := fmt.Sprintf("e%d", i)
		e := engine.New(engine.Options{Name: name, URL: &url.URL{Scheme: "http", Host: name + ".invalid"}})
		e.SetState(telemetry.StateReady, "measured")
		e.SetTrust(telemetry.TrustExact, "measured")
		set.Members = append(set.Members, route.Member{Engine: e, Account: lease.NewAccount(""), Slot: i})
	}
	// What a configuration that sets nothing decides by.
	s := route.Settings{Policy: route.PolicyLatency, Profile: route.ProfileRule, Threshold: 256, Exact: route.ExactPercent, Percent: 100, Tie: 0.02}
	h.router = route.New(lease.NewBook(nil), h.index, h.memory, s, set)
	return h
}

// pick decides and books, and gives back.
func (h *house) pick(q *route.Request) error {
	h.x.Reset()
	if _, err := h.router.Pick(q, &h.lease, &h.x); err != nil {
		return fmt.Errorf("cannot pick an engine: %w", err)
	}
	h.lease.Release(0)
	return nil
}

// chain is a prompt of random ids with the hashes by which an engine names its blocks.
type chain struct {
	ids    []uint32
	hashes []uint64
}

// randomChain fills c, whose memory it uses. Equal rng states give equal chains.
func (c *chain) random(rng *rand.Rand, blocks int) {
	c.ids, c.hashes = slices.Grow(c.ids[:0], blocks*blockTokens)[:blocks*blockTokens], slices.Grow(c.hashes[:0], blocks)[:blocks]
	for i := range c.ids {
		c.ids[i] = rng.Uint32N(150_000) // a usual vocabulary
	}
	for i := range c.hashes {
		c.hashes[i] = rng.Uint64()
	}
}

// stepBlocks is what vLLM's chunked prefill announces at once: 2,048 tokens.
const stepBlocks = 128

// store announces the blocks from..to of c.
func (c *chain) store(r *radix.Residency, from, to int) {
	s := radix.Store{BlockTokens: blockTokens, Root: root}
	for at := from; at < to; at += stepBlocks {
		end := min(at+stepBlocks, to)
		s.Hashes, s.IDs = c.hashes[at:end], c.ids[blockTokens*at:blockTokens*end]
		if at > 0 {
			s.Parent, s.HasParent = c.hashes[at-1], true
		}
		r.Store(&s)
	}
}

var root = radix.Root("m", "", "")

// request is a chat of these ids, as the proxy would ask for it.
func request(ids []uint32) *route.Request {
	keys := radix.AppendKeys(nil, root, ids, blockTokens)
	return &route.Request{
		Prompt: route.Prompt{
			Tokens: int64(len(ids)), Exact: true, First: len(ids), IDs: ids,
			Sets:  []route.KeySet{{BlockTokens: blockTokens, Keys: keys}},
			Chain: keys[:(len(ids)-1)/blockTokens], ChainTokens: blockTokens,
		},
		Cap: 100, Sequences: 1,
	}
}

// quartile stands in the text of every chart whose figures are those of each.
const quartile = " The time is the lower quartile over slices of 150 to 300 µs, which are short against what interrupts a shared machine."

// each measures op for about d and returns its time in seconds: the lower quartile over slices that are short against what
// interrupts a shared machine. op is told how often it was called.
func each(d time.Duration, op func(i int) error) (float64, error) {
	const slice = 300 * time.Microsecond
	n, calls := 1, 0
	var took []float64
	for began := time.Now(); time.Since(began) < d || len(took) < 3; {
		at := time.Now()
		for range n {
			if err := op(calls); err != nil {
				return 0, err
			}
			calls++
		}
		used := time.Since(at)
		if used < slice/2 && n < 1<<20 {
			n *= 2 // still finding out how many make a slice
			continue
		}
		took = append(took, used.Seconds()/float64(n))
	}
	slices.Sort(took)
	return took[len(took)/4], nil
}

// mean calls op without a pause for about d and returns the time of all of it over the number of calls, in seconds. Where
// op is disturbed in bursts and the disturbance is the question, each would report the calm between them.
func mean(d time.Duration, op func(i int) error) (float64, error) {
	const most = 256 // calls between two looks at the clock, which costs a tenth of the shortest of them
	calls := 0
	began := time.Now()
	for n := 1; ; n = min(2*n, most) {
		for range n {
			if err := op(calls); err != nil {
				return 0, err
			}
			calls++
		}
		if used := time.Since(began); used >= d {
			return used.Seconds() / float64(calls), nil
		}
	}
}
