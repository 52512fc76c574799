package policy

import "math"

// What the model engines do (notes of the simulations behind the policy; the reference is 1,844 tokens/s of a plain
// engine at 32 answers).
const (
	stepBudget   = 4096 // tokens a step, prompts and answers together
	maxSequences = 128
	prefillRate  = 10_000.0 // tokens/s
	mtpPrefill   = 0.95     // of that
	stepBase     = 9.5e-3   // seconds
	stepAnswer   = 0.24e-3  // for each answer
	stepToken    = 20e-9    // for each token of their contexts
	mtpLong      = 0.80     // of MTP's gain beyond mtpLongFrom generated tokens
	mtpLongFrom  = 256
	cacheTokens  = 1_500_000
)

// mtpGain is how much faster than plain decoding MTP is at batches of 1, 2, 4 .. 128. A model's step yields that many
// tokens of each answer, whatever prompts are in it (the reading of "speed = standard x r" behind the policy's bounds);
// what a sim does instead, and how far the two are apart, TestModelKeepsTheSimsTime says.
var mtpGain = [...]float64{1.791, 1.644, 1.497, 1.350, 1.270, 1.075, 0.88, 0.72}

func mtpFaster(batch int) float64 {
	x := min(math.Log2(float64(max(batch, 1))), float64(len(mtpGain)-1))
	low := int(x)
	if low == len(mtpGain)-1 {
		return mtpGain[low]
	}
	return mtpGain[low] + (mtpGain[low+1]-mtpGain[low])*(x-float64(low))
}

// model is one engine: first come first served, prompts in chunks, one step after the other.
type model struct {
	w      *world
	slot   int
	mtp    bool
	slow   float64 // how many times slower than said
	blocks *blocks

	waiting []*flight
	running []*flight
	stored  []run // of the present step
	stepEnd func()
	stepped bool // a step is under way
	busy    float64
	batch   int // answers in the present step
	// prefilled counts how often each group's shared prefix was computed.
	prefilled map[int]float64
}

// run is blocks of one prompt that became resident in one step.
type run struct {
	f        *flight
	from, to int
}

func newModel(w *world, slot int, mtp bool, capacity int) *model {
	m := &model{w: w, slot: slot, mtp: mtp, slow: 1, blocks: newBlocks(capacity), prefilled: make(map[int]float64)}
	m.stepEnd = m.finishStep
	return m
}

func (m *model) submit(f *flight) {
	m.waiting = append(m.waiting, f)
	if !m.stepped {
		m.step()
	}
}

// step plans one step: answers first, then prompts under way, then new ones while there is room.
func (m *model) step() {
	budget, kv := stepBudget, 0.0
	m.batch = 0
	for _, f := range m.running {
		if f.computed >= f.job.in {
			m.batch++
			budget--
			kv += float64(f.job.in) + f.generated
		}
	}
	chunks := 0
	for _, f := range m.running {
		if n := min(f.job.in-f.computed, budget); n > 0 {
			m.compute(f, n)
			budget -= n
			chunks += n
		}
	}
	for budget > 0 && len(m.waiting) > 0 && len(m.running) < maxSequences && m.admit(m.waiting[0]) {
		f := m.waiting[0]
		m.waiting[0] = nil
		m.waiting = m.waiting[1:]
		m.running = append(m.running, f)
		n := min(f.job.in-f.computed, budget)
		m.compute(f, n)
		budget -= n
		chunks += n
	}
	if chunks == 0 && m.batch == 0 {
		return
	}
	rate := prefillRate
	if m.mtp {
		rate *= mtpPrefill
	}
	took := m.slow * (float64(chunks)/rate + stepBase + stepAnswer*float64(m.batch) + stepToken*kv)
	m.busy += took
	m.stepped = true
	m.w.agenda.add(m.w.now+took, m.stepEnd)
}

// admit reserves all blocks that a request will need, so that none is ever preempted.
func (m *model) admit(f *flight) bool {
	size := m.w.blockTokens
	keys := f.job.keys(size)
	n, idle := m.blocks.match(keys[:min(len(keys), (f.job.in-1)/size)])
	total := (f.job.in + f.job.out + size - 1) / size
	if total-n+idle > m.blocks.room() {
		return false
	}
	for _, key := range keys[:n] {
		f.blocks = append(f.blocks, m.blocks.pin(key))
	}
	m.blocks.reserved += total - n
	f.promised = total - n
	f.hit, f.computed = n*size, n*size
	m.w.admitted(f)
	return true
}

// compute schedules a chunk; blocks that it fills are resident from here on.
func (m *model) compute(f *flight, tokens int) {
	size := m.w.blockTokens
	f.computed += tokens
	keys := f.job.keys(size)
	from := len(f.blocks)
	for i := from; i < len(keys) && (i+1)*size <= f.computed; i++ {
		f.promised--
		if _, ok := m.blocks.byKey[keys[i]]; ok {
			m.blocks.take()
			m.blocks.private++
			f.private++
			f.blocks = append(f.blocks, -1)
			continue
		}
		f.blocks = append(f.blocks, m.blocks.store(keys[i]))
		if n := len(m.stored); n > 0 && m.stored[n-1].f == f && m.stored[n-1].to == i {
			m.stored[n-1].to++
		} else {
			m.stored = append(m.stored, run{f, i, i + 1})
		}
	}
	if f.job.group > 0 {
		// The shared prefix comes first: what of it this chunk holds was computed.
		first := f.computed - tokens
		m.prefilled[f.job.group] += float64(max(min(f.computed, f.job.shared)-first, 0)) / float64(f.job.shared)
	}
	if f.computed >= f.job.in {
		for ; f.promised > 0; f.promised-- {
			m.blocks.take()
			m.blocks.private++
			f.private++
		}
	}
}

// finishStep hands out what the step made and plans the next.
func (m *model) finishStep() {
	m.stepped = false
	gain, long := 1.0, 1.0
	if m.mtp {
		gain, long = mtpFaster(m.batch), mtpLong
	}
	kept := m.running[:0]
	for _, f := range m.running {
		switch {
		case f.computed < f.job.in:
			kept = append(kept, f)
			continue
		case f.generated == 0:
			f.generated = 1
			m.w.first(f)
		case f.generated >= mtpLongFrom:
			f.generated += gain * long
		default:
			f.generated += gain
		}
		if f.generated < float64(f.job.out) {
			kept = append(kept, f)
			continue
		}
		m.free(f)
		m.w.finish(f)
	}
	clear(m.running[len(kept):])
	m.running = kept
	m.w.publish(m)
	m.stored = m.stored[:0]
	if !m.stepped {
		m.step()
	}
}

func (m *model) free(f *flight) {
	for i := len(f.blocks) - 1; i >= 0; i-- {
		if f.blocks[i] >= 0 {
			m.blocks.unpin(f.blocks[i])
		}
	}
	m.blocks.private -= f.private
	f.blocks, f.private = nil, 0
}
