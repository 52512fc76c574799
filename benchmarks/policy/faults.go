package policy

import (
	"ramjet/lease"
)

// The names of runs in which something goes wrong.
const (
	nameDoubled = "prefill rates doubled"
	nameHalved  = "prefill rates halved"
	nameSlowT   = "decode times doubled"
	nameFastT   = "decode times halved"
	nameOpposed = "prefill halved, decode halved"
	nameLate    = "events 2 s late"
	nameCut     = "trust lost at half time"
	nameKnown   = "slow engine, known"
	nameUnknown = "slow engine, unknown"
)

// slowness is how many times slower than it claims one engine is.
const slowness = 10

// taught makes rates that are wrong by these factors and stay so: first tokens are not seen. What is wrong is what the
// same engines were seen to do in base, an undisturbed run.
func taught(name string, base *result, prefill, decode float64) candidate {
	c := own(name, defaults())
	c.make = func(*world) chooser { return &ours{blinded: true} }
	c.disturb = func(w *world) {
		for i := range w.product.set.Members {
			teach(w.product.book, w.product.set.Members[i].Account, base.prefillRate[i]*prefill, base.steps[i], decode)
		}
	}
	return c
}

// teach lets an account see an engine of that prefill rate and those times per token, by bucket, times a factor.
func teach(b *lease.Book, a *lease.Account, prefill float64, steps []float64, factor float64) {
	const tokens, answer = 100_000, 101
	now := 1.0
	var l lease.Lease
	run := func(sequences int64, step float64) {
		b.Lock()
		b.AcquireLocked(&l, a, lease.Claim{Prefill: tokens, Decode: answer * sequences, Sequences: sequences}, now)
		b.Unlock()
		now += tokens / prefill
		l.Decoding(now, true)
		now += step * (answer - 1)
		l.Measured(answer*sequences, now)
		l.Release(now)
	}
	for i, step := range steps {
		run(1<<i, step*factor)
	}
	if now > taughtBy {
		panic("BUG: teaching took too long")
	}
}

// late lets events come after so many seconds.
func late(seconds float64) candidate {
	c := own(nameLate, defaults())
	c.disturb = func(w *world) { w.delay = seconds }
	return c
}

// cutAt ends the first engine's events at half time.
func cutAt() candidate {
	c := own(nameCut, defaults())
	c.disturb = func(w *world) {
		half := w.load.jobs[len(w.load.jobs)/2].at
		w.agenda.add(half, func() {
			w.product.sources[0].sever()
			w.product.settle(0, false)
		})
	}
	return c
}

// slowed makes the first engine slower than it claims. Where that is known, its rates are taught beforehand; else the
// priors of its profile are believed until its answers tell.
func slowed(name string, known bool) candidate {
	c := own(name, defaults())
	c.disturb = func(w *world) {
		w.models[0].slow = slowness
		if !known {
			return
		}
		for i := range w.product.set.Members {
			a := w.product.set.Members[i].Account
			factor := 1.0
			if i == 0 {
				factor = slowness
			}
			fresh := lease.NewAccount(w.profiles[i])
			rates := w.product.book.Rates(fresh)
			var steps []float64
			for b := 1; b <= 128; b *= 2 {
				steps = append(steps, rates.SecondsPerToken(float64(b)))
			}
			teach(w.product.book, a, prefillRate/factor, steps, factor)
		}
	}
	return c
}

// faults are loads on which something goes wrong, in E2E against the undisturbed run.
func (b *book) faults() ([]row, error) {
	var rows []row
	calm := &scenario{name: "conversation 0.15x", profiles: pair, make: conversation(0.15)}
	for _, s := range []*scenario{conv38, syn32, herd8} {
		// Everybody is taught from one and the same undisturbed run.
		base, err := b.get(s, nameDefault, b.first)
		if err != nil {
			return nil, err
		}
		for _, t := range []struct {
			name            string
			prefill, decode float64
		}{{nameDoubled, 2, 1}, {nameHalved, 0.5, 1}, {nameSlowT, 1, 2}, {nameFastT, 1, 0.5}, {nameOpposed, 0.5, 0.5}} {
			name := t.name + " " + s.name
			b.who[name] = taught(name, base, t.prefill, t.decode)
			rows = append(rows, row{what: t.name, scenario: s, who: []string{name, nameDefault}, figure: e2e, high: 1.25})
		}
		b.who[nameLate], b.who[nameCut] = late(2+eventDelay), cutAt()
		rows = append(rows,
			row{what: nameLate, scenario: s, who: []string{nameLate, nameDefault}, figure: e2e, high: 1.25},
			row{what: nameCut, scenario: s, who: []string{nameCut, nameDefault}, figure: e2e, high: 1.25})
	}
	b.who[nameKnown], b.who[nameUnknown] = slowed(nameKnown, true), slowed(nameUnknown, false)
	rows = append(rows,
		row{what: "an engine 10 x slower than it claims / known", scenario: calm, who: []string{nameUnknown, nameKnown}, figure: e2e, high: 1.25},
		row{what: "an engine 10 x slower than it claims / healthy pair", scenario: calm, who: []string{nameUnknown, nameDefault}, figure: e2e, info: true})
	return rows, nil
}
