package policy

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ramjet/sim"
)

// The engines of package sim keep real time. In a bubble of testing/synctest that is as virtual as the model engines'
// own, so that both can play one list of requests in the same seconds, and be compared.

const (
	simBlock = 16 // tokens: vLLM's default, and that of the sims in use
	// glance is how often answers are looked at: what a sim made is noticed so much later at most.
	glance = time.Millisecond
	// aside keeps arrivals off the ends of steps, which fall on multiples of 20 ns: what comes first of two things at one
	// moment, the engines need not agree about.
	aside = 7 * time.Nanosecond
)

// simulated is one engine of package sim in a world.
type simulated struct {
	core  *sim.Core
	under []*underway // in the order of arrival

	mu     sync.Mutex // guards what the core's goroutine leaves
	seen   map[uint64]place
	open   []run  // blocks of the load's size that were stored in the present step
	ended  bool   // a step has, since the last look
	stored []told // in steps that have ended
	lost   bool   // a block was evicted
	of     map[uint64]*job
}

// place is where in a prompt an engine's block stands.
type place struct {
	end  int    // tokens up to its end
	word uint64 // content of the load's block that it is part of
}

// told is what one step stored.
type told struct {
	at   time.Time
	runs []run
}

// underway is one request on a sim.
type underway struct {
	f      *flight
	seq    *sim.Sequence
	tokens int
}

// Stored implements sim.Observer: what completes a block of the load's size becomes a run of a job that has it. Blocks that
// hold a part of an answer are left out, for no prompt of these loads asks for them.
func (s *simulated) Stored(b sim.StoredBlocks) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := place{}
	if b.HasParent {
		at = s.seen[b.Parent]
	}
	for i, hash := range b.Hashes {
		if at.end%mooncakeBlock == 0 {
			at.word = uint64(b.Tokens[i*b.BlockTokens]) | uint64(b.Tokens[i*b.BlockTokens+1])<<32
		}
		at.end += b.BlockTokens
		s.seen[hash] = at
		if j, n := s.of[at.word], at.end/mooncakeBlock; at.end%mooncakeBlock == 0 && j != nil {
			s.open = append(s.open, run{&flight{job: j}, n - 1, n})
		}
	}
}

// StepEnd implements sim.Observer.
func (s *simulated) StepEnd() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if len(s.open) > 0 {
		s.stored = append(s.stored, told{time.Now(), s.open})
		s.open = nil
	}
}

// take returns whether a step has ended since the last time, and what was stored.
func (s *simulated) take(t *testing.T) (ended bool, stored []told) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		t.Fatal("a sim evicted blocks: this load is too large for what is compared here")
	}
	ended, stored = s.ended, s.stored
	s.ended, s.stored = false, nil
	return ended, stored
}

// Removed implements sim.Observer.
func (s *simulated) Removed(int, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = true
}

// Cleared implements sim.Observer.
func (s *simulated) Cleared() {}

// Offloaded implements sim.Observer.
func (s *simulated) Offloaded([]uint64, []uint64) {}

// Restarted implements sim.Observer.
func (s *simulated) Restarted() {}

// ids is the prompt of a job: its words with zeros behind, as keys takes them, and an end that no other job has.
func (j *job) ids() []uint32 {
	ids := make([]uint32, j.in)
	for i, word := range j.words {
		ids[i*mooncakeBlock], ids[i*mooncakeBlock+1] = uint32(word), uint32(word>>32) //nolint:gosec // the two halves
	}
	for k := len(j.words) * mooncakeBlock; k < j.in; k++ {
		ids[k] = uint32(mix(j.session+uint64(k)) >> 40) //nolint:gosec // an index
	}
	return ids
}

// simulate is play with engines of package sim. The world has no models, and closed loops are not played.
func simulate(t *testing.T, s *scenario, load *workload, c candidate) *result {
	t.Helper()
	// Outside of the bubble, where what the feeds do takes no virtual time.
	p, err := newProduct(s.profiles, cacheTokens/load.blockTokens, load.blockTokens, c.settings)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	w := &world{scenario: s, load: load, product: p, blockTokens: load.blockTokens, delay: eventDelay}
	w.scratch.begin(len(s.profiles))
	w.chooser = c.make(w)
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var cores sync.WaitGroup
		defer cores.Wait()
		defer stop()
		of := map[uint64]*job{}
		for _, j := range load.jobs {
			for _, word := range j.words {
				of[word] = j
			}
		}
		var sims []*simulated
		for i, profile := range s.profiles {
			m := &simulated{of: of, seen: map[uint64]place{}}
			m.core = sim.NewCore(sim.CoreOptions{
				Profile: profile, BlockTokens: simBlock, KVBlocks: cacheTokens / simBlock, MaxBatchTokens: stepBudget, MaxSeqs: maxSequences, Seed: uint64(i + 1), Observer: m, //nolint:gosec // small
			})
			cores.Go(func() { _ = m.core.Run(ctx) })
			sims = append(sims, m)
		}
		w.run(t, sims)
	})
	return w.scratch.end(w)
}

// run lets time pass until every job is answered.
func (w *world) run(t *testing.T, sims []*simulated) {
	t.Helper()
	for _, j := range w.load.jobs {
		w.agenda.add(j.at, func() {
			f := &flight{job: j, at: w.now}
			f.slot = w.chooser.pick(w, f)
			w.scratch.placed(f)
			m := sims[f.slot]
			m.under = append(m.under, &underway{f: f, seq: m.core.Submit(sim.Job{Prompt: j.ids(), MaxTokens: j.out})})
			synctest.Wait() // an idle engine begins at once, with the first of several
		})
	}
	began := time.Now()
	time.Sleep(aside)
	for len(w.scratch.e2e) < len(w.load.jobs) {
		w.now = time.Since(began).Seconds()
		w.product.at(w.now)
		for slot, m := range sims {
			ended, stored := m.take(t)
			if !ended {
				continue
			}
			w.look(t, m)
			for _, s := range stored {
				w.agenda.add(s.at.Sub(began).Seconds()+w.delay, func() {
					w.product.sources[slot].send(payload(epoch+w.now, uint64(slot+1)<<32, nil, s.runs, w.blockTokens)) //nolint:gosec // few engines
				})
			}
		}
		for len(w.agenda.heap) > 0 && w.agenda.heap[0].at <= w.now {
			e, _ := w.agenda.next()
			e.do()
		}
		time.Sleep(glance)
		synctest.Wait()
	}
}

// look takes what an engine has made since the last time.
func (w *world) look(t *testing.T, m *simulated) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // Next is not to wait
	kept := m.under[:0]
	for _, u := range m.under {
		out, err := u.seq.Next(ctx)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		u.tokens += len(out.Tokens)
		if out.First {
			u.f.hit = u.seq.Cached()
			w.scratch.hit += float64(u.f.hit)
			w.scratch.prompt += float64(u.f.job.in)
			w.first(u.f)
		}
		if u.tokens > 0 {
			u.f.lease.Generated(int64(u.tokens))
		}
		if out.Finished {
			w.finish(u.f)
			continue
		}
		kept = append(kept, u)
	}
	clear(m.under[len(kept):])
	m.under = kept
}

// timed is what a client of one engine saw of each request, seconds after it was sent.
type timed struct {
	*ours
	began, ended map[*job]float64
}

func (m *timed) done(w *world, f *flight) {
	m.began[f.job], m.ended[f.job] = f.firstAt-f.at, w.now-f.at
	m.ours.done(w, f)
}

// onGlances moves arrivals to moments at which simulate looks.
func onGlances(load *workload) *workload {
	for _, j := range load.jobs {
		j.at = (time.Duration(math.Ceil(j.at/glance.Seconds()))*glance + aside).Seconds()
	}
	return load
}

// TestModelKeepsTheSimsTime: a model engine and a sim of the same profile begin and end every answer of one list of requests
// at the same moments. With predicted tokens they mean the same speed and make it otherwise: a model's step yields r(n)
// tokens (notes of the simulations behind the policy, "MTP speed = standard x r"), a sim's 2.5 and takes that much
// longer, and a sim drops the last block of a hit. So there the means are compared. Beside nothing but long prompts the
// two are further apart, by up to 13 %: a step that is long for a prompt's sake yields the sim's answers more.
func TestModelKeepsTheSimsTime(t *testing.T) {
	t.Parallel()
	seed := func() *rand.Rand { return rand.New(rand.NewPCG(1, 1)) }
	for _, c := range []struct {
		what    string
		profile string
		load    *workload
		far     float64 // how far the means of whole answers may be apart; 0: moments are compared
	}{
		{"a hot prefix", profileStandard, first(single(4)(lengths(), seed(), true), 40), 0},
		{"documents, more than it can do", profileStandard, first(hot(4, false)(lengths(), seed(), true), 30), 0},
		{"a herd", profileStandard, first(hot(2, true)(lengths(), seed(), true), 40), 0},
		{"more than may run at once", profileStandard, burst(300, 700, 40)(nil, nil, false), 0},
		{"decoding 32", profileStandard, burst(32, 64, 512)(nil, nil, false), 0},
		{"a hot prefix", profileMTP, first(single(4)(lengths(), seed(), true), 40), 0.05},
		{"a herd", profileMTP, first(hot(2, true)(lengths(), seed(), true), 40), 0.1},
		{"documents, more than it can do", profileMTP, first(hot(4, false)(lengths(), seed(), true), 30), 0.15},
		{"more than may run at once", profileMTP, burst(300, 700, 40)(nil, nil, false), 0.15},
		{"decoding 8", profileMTP, burst(8, 64, 256)(nil, nil, false), 0.02},
		{"decoding 32", profileMTP, burst(32, 64, 512)(nil, nil, false), 0.02},
	} {
		load := onGlances(c.load)
		model, sims := alone(t, c.profile, load)
		apart, whole, wholeSims := 0.0, 0.0, 0.0
		for _, j := range load.jobs {
			apart = max(apart, math.Abs(sims.began[j]-model.began[j]), math.Abs(sims.ended[j]-model.ended[j]))
			whole += model.ended[j] / float64(len(load.jobs))
			wholeSims += sims.ended[j] / float64(len(load.jobs))
		}
		t.Logf("%s, %s: %d answers whole after %.4f s, those of the sim after %.4f s; %.6f s apart at most", c.what, c.profile, len(load.jobs), whole, wholeSims, apart)
		switch {
		case c.far == 0 && apart > glance.Seconds()+1e-5:
			t.Errorf("%s, %s: an answer of the sim began or ended %.4f s from that of the model", c.what, c.profile, apart)
		case c.far > 0 && math.Abs(wholeSims/whole-1) > c.far:
			t.Errorf("%s, %s: answers whole after %.3f s, those of the sim after %.3f s", c.what, c.profile, whole, wholeSims)
		}
	}
}

// alone plays a load on one engine, a model and a sim.
func alone(t *testing.T, profile string, load *workload) (model, sims *timed) {
	t.Helper()
	s := &scenario{name: "alone", profiles: []string{profile}}
	clients := func() (*timed, candidate) {
		m := &timed{ours: &ours{}, began: map[*job]float64{}, ended: map[*job]float64{}}
		return m, candidate{name: nameDefault, settings: defaults(), make: func(*world) chooser { return m }}
	}
	model, c := clients()
	if _, err := play(s, load, c); err != nil {
		t.Fatal(err)
	}
	sims, c = clients()
	simulate(t, s, load, c)
	if len(model.ended) != len(load.jobs) || len(sims.ended) != len(load.jobs) {
		t.Fatalf("%d requests, %d answers, %d of the sim", len(load.jobs), len(model.ended), len(sims.ended))
	}
	return model, sims
}

// TestSimsAgree plays the herds and the hot prefix on pairs of model engines and on pairs of sims: requests go the same
// ways within a tenth, and take the same time within a tenth.
func TestSimsAgree(t *testing.T) {
	t.Parallel()
	for _, profiles := range [][]string{{profileStandard, profileStandard}, pair} {
		for _, c := range []struct {
			*scenario
			seconds float64
		}{{herd8, 40}, {single8, 30}} {
			load := first(c.make(lengths(), rand.New(rand.NewPCG(1, 1)), false), c.seconds)
			runs := virtualRuns(t, profiles, load, 0, 3)
			s, own := counted(0)
			simulate(t, &scenario{name: c.name, profiles: profiles}, load, own)
			got := s.figures()
			t.Logf("%s on %v: virtual %+v, .., sims %+v", c.name, profiles, runs[0], got)
			compareChoices(t, got, runs)
			compareTimes(t, got, runs)
		}
	}
}
