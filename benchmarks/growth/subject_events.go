package growth

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"ramjet/benchmarks/lab"
	"ramjet/radix"
)

// keptChains is how many chains the fed engine holds: 256 sessions of 1,000 blocks, 4 M tokens. Beyond that the oldest is
// removed as vLLM does, its last block first, so that half of all operations are removals.
const keptChains = 256

// events measures a decision while another engine's feed writes into the index at a rate.
func (r *runner) events() error {
	pick := Curve{Name: "decision beside the feed"}
	op := Curve{Name: "one block operation of the feed"}
	got := make([][]float64, len(r.plan.rates))
	for _, rate := range r.plan.rates {
		pick.Points, op.Points = append(pick.Points, Point{X: float64(rate)}), append(op.Points, Point{X: float64(rate)})
	}
	rng := rand.New(rand.NewPCG(r.cfg.Seed, 6))
	h := newHouse(3)
	var c chain
	c.random(rng, warmTokens/blockTokens)
	for slot := range 2 {
		c.store(h.index.Engine(slot), 0, len(c.hashes))
	}
	q := request(c.ids)
	f := newFeed(h.index.Engine(2), rng)
	for range r.plan.rounds {
		for _, i := range rng.Perm(len(r.plan.rates)) {
			done := make(chan feedFigures, 1)
			var stop atomic.Bool
			go func() { done <- f.run(r.plan.rates[i], &stop) }()
			t, err := mean(r.plan.window, func(int) error { return h.pick(q) })
			stop.Store(true)
			fed := <-done
			if err != nil {
				return err
			}
			pick.Points[i].Y, op.Points[i].Y = append(pick.Points[i].Y, t), append(op.Points[i].Y, fed.each)
			got[i] = append(got[i], fed.rate)
			r.say("%8d operations/s wanted, %s done: decision %s, operation %s", r.plan.rates[i], Count.format(fed.rate, 3), Seconds.format(t, 3), Seconds.format(fed.each, 3))
			if err := r.ctx.Err(); err != nil {
				return err
			}
		}
	}
	for i, rates := range got { // what was done, not what was wanted
		pick.Points[i].X, op.Points[i].X = lab.SpreadOf(rates).Median, lab.SpreadOf(rates).Median
	}
	r.add(Chart{
		File: "events.svg", Per: true, Title: "Decision and feed, by the rate of cache events", XTitle: "block operations a second, stores and removals", YTitle: "time", YUnit: Seconds,
		Text: "One engine's feed stores (128 blocks at once) and removes (one by one) while decisions about a prompt of 100,000 tokens, warm on two other engines, are made without a pause. " +
			"Both times are those of the whole window over what was done in it: the feed works in bursts, and the calm between them is not what is asked. Rates are those that were reached; up to 1 M a second were asked for. Decoding the events is not part of it.",
		Curves: []Curve{pick, op},
	})
	return nil
}

// feed writes into one engine's part of the index.
type feed struct {
	to     *radix.Residency
	chains []chain // made before, so that making them costs the feed nothing
	at     int     // block operations of the chain under way: stored ones first, then removed ones of the oldest
	next   int
	filled int
}

// spareChains are there beside the kept ones, so that one is not stored again right after it was removed.
const spareChains = 64

func newFeed(to *radix.Residency, rng *rand.Rand) *feed {
	f := &feed{to: to, chains: make([]chain, keptChains+spareChains)}
	for i := range f.chains {
		f.chains[i].random(rng, chainBlocks)
	}
	for ; f.filled < keptChains; f.filled++ { // full from the beginning, so that all rates find the same index
		f.chains[f.filled].store(to, 0, chainBlocks)
	}
	f.next = f.filled
	return f
}

type feedFigures struct{ rate, each float64 }

// run does rate operations a second until it is stopped, in pieces of a millisecond, and catches up when it was kept from it.
func (f *feed) run(rate int, stop *atomic.Bool) (fig feedFigures) {
	began := time.Now()
	done := 0
	var busy time.Duration
	for !stop.Load() {
		due := int(float64(rate) * time.Since(began).Seconds())
		if due-done < 2*stepBlocks {
			time.Sleep(time.Millisecond)
			continue
		}
		at := time.Now()
		for end := done + min(due-done, rate/100+2*stepBlocks); done < end; {
			done += f.step()
		}
		busy += time.Since(at)
	}
	if done > 0 {
		fig.rate, fig.each = float64(done)/time.Since(began).Seconds(), busy.Seconds()/float64(done)
	}
	return fig
}

// step stores the next blocks of the newest chain and removes as many of the oldest.
func (f *feed) step() (operations int) {
	n := len(f.chains)
	newest, oldest := &f.chains[f.next%n], &f.chains[(f.next+n-keptChains)%n]
	end := min(f.at+stepBlocks, chainBlocks)
	newest.store(f.to, f.at, end)
	for i := f.at; i < end; i++ {
		k := chainBlocks - 1 - i
		f.to.Remove(0, oldest.hashes[k:k+1])
	}
	operations = 2 * (end - f.at)
	if f.at = end; f.at == chainBlocks {
		f.at, f.next = 0, f.next+1
	}
	return operations
}
