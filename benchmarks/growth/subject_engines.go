package growth

import (
	"math/rand/v2"

	"ramjet/route"
)

// warmTokens is the prompt of the design's bound on a decision: 20 us among 2 engines, 100 us among 40.
const warmTokens = 100_000

// engines measures a decision over the number of engines, up to as many as one Ramjet takes.
func (r *runner) engines() error {
	warm := Curve{Name: "every engine holds the prompt", Bound: 1}
	cold := Curve{Name: "no engine holds it", Bound: 1}
	for _, n := range r.plan.engines {
		warm.Points, cold.Points = append(warm.Points, Point{X: float64(n)}), append(cold.Points, Point{X: float64(n)})
	}
	rng := rand.New(rand.NewPCG(r.cfg.Seed, 2))
	var c, other chain
	c.random(rng, warmTokens/blockTokens)
	other.random(rng, warmTokens/blockTokens)
	known, unknown := request(c.ids), request(other.ids)
	for range r.plan.rounds {
		for _, i := range rng.Perm(len(r.plan.engines)) {
			n := r.plan.engines[i]
			h := newHouse(n)
			for slot := range n {
				c.store(h.index.Engine(slot), 0, len(c.hashes))
				h.memory.Learn(slot, known.Prompt.Chain, blockTokens)
			}
			for _, k := range []struct {
				curve *Curve
				q     *route.Request
			}{{&warm, known}, {&cold, unknown}} {
				t, err := each(r.plan.slice, func(int) error { return h.pick(k.q) })
				if err != nil {
					return err
				}
				k.curve.Points[i].Y = append(k.curve.Points[i].Y, t)
				r.say("%3d engines, %s: %s", n, k.curve.Name, Seconds.format(t, 3))
			}
			if err := r.ctx.Err(); err != nil {
				return err
			}
		}
	}
	r.add(Chart{
		File: "engines.svg", Title: "A decision, by the number of engines", XTitle: "engines", YTitle: "time of one decision", YUnit: Seconds,
		Text: "One `route.Pick` with its booking and release, for a prompt of 100,000 tokens in blocks of 16; index and memory are asked. " +
			"One Ramjet takes 64 engines and refuses a configuration of more (`config`), so the curve ends there." + quartile,
		Curves: []Curve{warm, cold},
	})
	return nil
}
