package policy

import (
	"ramjet/kvevents"
	"ramjet/lease"
)

// job is one request as a trace tells it.
type job struct {
	at      float64 // arrival in seconds; of a session's: the wait after the answer before
	in, out int     // tokens
	limit   int64   // cap on the answer, 0 for none
	session uint64
	words   []uint64 // content of each full block of the prompt
	chain   []uint64 // their keys
	like    *job     // the session's request before, whose prompt begins alike
	group   int      // which new prefix is shared, 0 for none
	shared  int      // its tokens
}

// flight is a job under way.
type flight struct {
	job  *job
	slot int
	at   float64 // arrival

	// What was believed when it was placed.
	match, uncached int
	leads           bool   // it counts for the lead on a new prefix
	leadKey         uint64 // of that prefix

	// On its engine.
	hit, computed     int // prompt tokens
	generated         float64
	blocks            []int32 // -1: a copy without a key
	promised, private int
	firstAt           float64

	lease     lease.Lease
	predicted int
	followed  bool // a prefill in flight there explained more
	sent, mid mark
	user      *user
}

// mark is kvevents.Feed's Mark.
type mark struct{ received, removed uint64 }

// chooser places requests. Its methods are told everything a proxy sees.
type chooser interface {
	pick(w *world, f *flight) (slot int)
	first(w *world, f *flight)
	done(w *world, f *flight)
}

// world is one run.
type world struct {
	*scenario
	load    *workload
	product *product
	models  []*model
	chooser chooser
	agenda  agenda
	now     float64
	scratch result

	blockTokens int
	delay       float64 // of events
}

// eventDelay is how late an engine's events are believed to be, in seconds.
const eventDelay = 0.05

// user is one closed loop: the next request is sent some time after the answer before.
type user struct {
	jobs []*job
	next int
}

// play runs a workload under one chooser.
func play(s *scenario, load *workload, c candidate) (*result, error) {
	p, err := newProduct(s.profiles, cacheTokens/load.blockTokens, load.blockTokens, c.settings)
	if err != nil {
		return nil, err
	}
	defer p.close()
	w := &world{scenario: s, load: load, product: p, blockTokens: load.blockTokens, delay: eventDelay}
	for i, profile := range s.profiles {
		w.models = append(w.models, newModel(w, i, profile == profileMTP, cacheTokens/load.blockTokens))
	}
	w.scratch.begin(len(w.models))
	w.chooser = c.make(w)
	if c.disturb != nil {
		c.disturb(w)
	}
	for _, j := range load.jobs {
		w.agenda.add(j.at, func() { w.arrive(&flight{job: j}) })
	}
	for _, jobs := range load.users {
		u := &user{jobs: jobs}
		w.agenda.add(jobs[0].at, func() { w.sendNext(u) })
	}
	for {
		e, ok := w.agenda.next()
		if !ok || load.until > 0 && e.at > load.until {
			break
		}
		w.now = e.at
		p.at(e.at)
		e.do()
	}
	return w.scratch.end(w), nil
}

func (w *world) sendNext(u *user) {
	j := u.jobs[u.next]
	u.next++
	w.arrive(&flight{job: j, user: u})
}

func (w *world) arrive(f *flight) {
	f.at = w.now
	f.slot = w.chooser.pick(w, f)
	w.scratch.placed(f)
	w.models[f.slot].submit(f)
}

// admitted notes what a request hit, and what it computes though another engine has it.
func (w *world) admitted(f *flight) {
	best := f.hit
	keys := f.job.keys(w.blockTokens)
	for _, m := range w.models {
		if m.slot != f.slot {
			n, _ := m.blocks.match(keys)
			best = max(best, min(n*w.blockTokens, f.job.in-1))
		}
	}
	w.scratch.hit += float64(f.hit)
	w.scratch.prompt += float64(f.job.in)
	w.scratch.duplicate += float64(best - f.hit)
}

func (w *world) first(f *flight) {
	f.firstAt = w.now
	w.scratch.ttft = append(w.scratch.ttft, w.now-f.at)
	w.chooser.first(w, f)
}

func (w *world) finish(f *flight) {
	w.scratch.e2e = append(w.scratch.e2e, w.now-f.at)
	w.scratch.last = w.now
	w.chooser.done(w, f)
	if u := f.user; u != nil && u.next < len(u.jobs) {
		w.agenda.add(w.now+u.jobs[u.next].at, func() { w.sendNext(u) })
	}
}

// publish tells what a step changed, some time later.
func (w *world) publish(m *model) {
	if len(m.stored) == 0 && len(m.blocks.evicted) == 0 {
		return
	}
	b := payload(epoch+w.now, uint64(m.slot+1)<<32, m.blocks.evicted, m.stored, w.blockTokens) //nolint:gosec // few engines
	m.blocks.evicted = m.blocks.evicted[:0]
	late := w.delay > 1
	w.agenda.add(w.now+w.delay, func() {
		w.product.sources[m.slot].send(b)
		if late {
			w.product.settle(m.slot, false)
		}
	})
}

// audit tells a feed how an answer compares with what was predicted.
func (w *world) audit(f *flight) {
	w.product.feeds[f.slot].Answered(kvevents.Answer{
		Prompt: f.job.in, Output: f.job.out, Reported: f.hit, Predicted: f.predicted, InFlight: f.followed,
		Removed: int(f.mid.removed - f.sent.removed), Received: f.sent.received, //nolint:gosec // few
	})
}
