package growth

import (
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"time"

	"ramjet/route"
)

// Chains of the index: sessions of 16,000 tokens. So many of them are asked for in turn that their keys do not stay in the
// processor's nearest caches, unless the index itself has fewer.
const (
	chainBlocks = 1000
	askedChains = 512
)

// indexSize measures decision, memory and writing over the number of blocks in the index.
func (r *runner) indexSize() error {
	hit := Curve{Name: "an engine holds the prompt", Bound: 1}
	miss := Curve{Name: "no engine holds it", Bound: 1}
	write := Curve{Name: "one block stored"}
	memory := Curve{Name: "heap per block"}
	curves := []*Curve{&hit, &miss, &write, &memory}
	for _, n := range r.plan.blocks {
		for _, c := range curves {
			c.Points = append(c.Points, Point{X: float64(n)})
		}
	}
	rng := rand.New(rand.NewPCG(r.cfg.Seed, 3))
	for range r.plan.rounds {
		for _, i := range rng.Perm(len(r.plan.blocks)) {
			s, err := sizeOf(r.plan.blocks[i], r.plan.slice, rng.Uint64())
			if err != nil {
				return err
			}
			for k, v := range []float64{s.hit, s.miss, s.write, s.bytes} {
				curves[k].Points[i].Y = append(curves[k].Points[i].Y, v)
			}
			r.say("%8d blocks: hit %s, miss %s, write %s, %.0f bytes a block", r.plan.blocks[i],
				Seconds.format(s.hit, 3), Seconds.format(s.miss, 3), Seconds.format(s.write, 3), s.bytes)
			if err := r.ctx.Err(); err != nil {
				return err
			}
		}
	}
	text := "Two engines hold sessions of 16,000 tokens (1,000 blocks of 16), half each; no two begin alike. "
	r.add(Chart{
		File: "index-decision.svg", Title: "A decision, by the size of the index", XTitle: "blocks in the index", YTitle: "time of one decision", YUnit: Seconds,
		Text: text + "One `route.Pick` with its booking and release, for up to 512 of these sessions in turn, and for as many that nobody holds; " +
			"the approximate memory is empty." + quartile,
		Curves: []Curve{hit, miss},
	}, Chart{
		File: "index-write.svg", Per: true, Title: "A write, by the size of the index", XTitle: "blocks in the index at the end", YTitle: "time per block", YUnit: Seconds,
		Text:   text + "The whole index is built by stores of 128 blocks; making random ids is left out.",
		Curves: []Curve{write},
	}, Chart{
		File: "index-memory.svg", Per: true, Title: "Memory, by the size of the index", XTitle: "blocks in the index", YTitle: "heap per block and engine", YUnit: Bytes,
		Text: text + "What the live heap holds more than before, after a collection. An exponent of 0 is memory in proportion to the blocks.", Curves: []Curve{memory},
	})
	return nil
}

type indexFigures struct{ hit, miss, write, bytes float64 }

// sizeOf builds an index of so many blocks and measures it.
func sizeOf(blocks int, slice time.Duration, seed uint64) (f indexFigures, err error) {
	rng := rand.New(rand.NewPCG(seed, 4))
	chains := max(2, blocks/chainBlocks)
	length := blocks / chains
	var c chain
	asked := func(rng *rand.Rand) []*route.Request {
		list := make([]*route.Request, min(askedChains, chains))
		for i := range list {
			c.random(rng, length)
			list[i] = request(c.ids)
			list[i].Prompt.IDs = nil // these engines' hashes cover no token behind a block, and c is used again
		}
		return list
	}
	unknown, known := asked(rng), asked(rand.New(rand.NewPCG(seed, 5)))
	h := newHouse(2)
	for slot := range 2 {
		h.index.Engine(slot).SetCapacity(2 * blocks)
	}
	before := liveHeap()
	var wrote time.Duration
	again := rand.New(rand.NewPCG(seed, 5)) // the first chains are those asked for
	for i := range chains {
		if i == len(known) {
			again = rng
		}
		c.random(again, length)
		began := time.Now()
		c.store(h.index.Engine(i%2), 0, length)
		wrote += time.Since(began)
	}
	f.write = wrote.Seconds() / float64(chains*length)
	f.bytes = (liveHeap() - before) / float64(chains*length)
	if f.hit, err = each(slice, func(i int) error { return h.pick(known[i%len(known)]) }); err != nil {
		return f, err
	}
	if got := h.x.Candidates[0].Match + h.x.Candidates[1].Match; got == 0 {
		panic("BUG: the index does not know what was stored")
	}
	if f.miss, err = each(slice, func(i int) error { return h.pick(unknown[i%len(unknown)]) }); err != nil {
		return f, err
	}
	runtime.KeepAlive(h)
	debug.FreeOSMemory() // the next size begins with a heap as this one did
	return f, nil
}

func liveHeap() float64 {
	runtime.GC()
	runtime.GC() // what lay in a sync.Pool survives the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
