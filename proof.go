package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
	"ramjet/tokens"
)

// proof is how far one engine is proven: that its ids are ours, and which it
// reads.
type proof struct {
	e      *engine.Engine
	slot   int
	proven atomic.Bool // until its process is another one
	gone   context.Context
	leave  context.CancelFunc

	mu      sync.Mutex // guards what follows
	ignored int        // times in a row that ids were not used by it though it had read them
	pause   time.Time  // until when it is not asked again for that

	busy bool      // questions are under way; belongs to run
	last time.Time // when the last ones ended; belongs to run
}

// Pauses of an engine that passes the questions and ignores the ids of
// requests: the n-th is twice as long as the one before.
const (
	firstPause = time.Minute
	mostPause  = time.Hour
)

// fail notes that the engine did not use its ids, and says until when it is
// left in peace. One that behaved for twice the longest pause begins anew.
func (f *proof) fail(now time.Time) (until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.pause) > 2*mostPause {
		f.ignored = 0
	}
	f.pause = now.Add(min(firstPause<<min(f.ignored, 8), mostPause))
	f.ignored++
	return f.pause
}

// forgive forgets what another process did.
func (f *proof) forgive() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ignored, f.pause = 0, time.Time{}
}

// paused returns how long the engine is left in peace yet.
func (f *proof) paused(now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pause.Sub(now)
}

// setEngines replaces the engines. One that stays is not asked again.
func (p *prompts) setEngines(members []*member) {
	old := *p.engines.Load()
	var next []*proof
	stays := map[*engine.Engine]bool{}
	for _, m := range members {
		stays[m.engine] = true
		f := find(old, m.slot)
		if f == nil || f.e != m.engine {
			f = &proof{e: m.engine, slot: m.slot}
			f.gone, f.leave = context.WithCancel(context.Background())
		}
		next = append(next, f)
	}
	p.engines.Store(&next)
	for _, f := range old {
		if !stays[f.e] {
			f.leave()
			p.forget(f.slot)
			if m := p.model; m != nil {
				m.Forget(f.e.Name)
			}
		}
	}
	p.look()
}

func find(list []*proof, slot int) *proof {
	for _, f := range list {
		if f.slot == slot {
			return f
		}
	}
	return nil
}

// forget drops what is known of the engine in a slot.
func (p *prompts) forget(slot int) {
	if h := p.handoff.Load(); h != nil {
		h.Reset(slot)
	}
	p.mute.And(^(uint64(1) << slot))
}

// lost notes that an engine's process is another one.
func (p *prompts) lost(slot int) {
	p.forget(slot)
	if f := find(*p.engines.Load(), slot); f != nil {
		f.forgive()
		f.proven.Store(false)
		p.look()
	}
}

// ignored notes that an engine did not use the ids that it was given. It is
// proven anew, but less often each time: its answers to the questions told
// something else.
func (p *prompts) ignored(slot int) {
	f := find(*p.engines.Load(), slot)
	if f == nil {
		return
	}
	until := f.fail(time.Now())
	f.proven.Store(false)
	p.log.Info("the engine is asked again whether it reads token ids", "engine", f.e.Name, "at", until.UTC().Format(time.RFC3339))
	p.look()
}

// look lets run look at every engine.
func (p *prompts) look() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Of the questions to engines.
const (
	probeEvery  = time.Second // how often engines are looked at that were not proven yet
	probeAtOnce = 4           // how many are asked at once: one that hangs must not keep the others
	proveLimit  = time.Minute // to one engine
)

// run proves each engine once it serves, and anew when its cache was lost:
// that means another process, which may serve another model.
func (p *prompts) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if p.source != nil {
		wg.Go(func() { p.source.Run(ctx) })
	}
	ended := make(chan *proof, probeAtOnce)
	asked := 0 // engines that questions are under way to
	for {
		if p.search {
			p.find()
		}
		// Once all is proven nothing ticks, so that an idle Ramjet sleeps.
		var again <-chan time.Time
		due, wait := p.due(time.Now())
		for _, f := range due[:min(len(due), probeAtOnce-asked)] {
			asked++
			f.busy = true
			f.proven.Store(true) // a loss meanwhile undoes it
			chats := p.chats
			wg.Go(func() {
				if !p.prove(ctx, f, chats) {
					f.proven.Store(false)
				}
				ended <- f
			})
		}
		if wait > 0 {
			again = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case f := <-ended:
			f.busy, f.last = false, time.Now()
			asked--
		case <-p.wake:
		case <-again:
		}
	}
}

// due returns the engines to ask now, and when to look again if nothing
// happens before, 0 for never.
func (p *prompts) due(now time.Time) (due []*proof, wait time.Duration) {
	if p.search {
		wait = probeEvery
	}
	for _, f := range *p.engines.Load() {
		if f.busy || f.proven.Load() {
			continue
		}
		left := max(f.paused(now), f.last.Add(probeEvery).Sub(now))
		if left <= 0 && f.e.Models() != nil && up(f.e.State()) {
			due = append(due, f)
			continue
		}
		if left <= 0 {
			left = probeEvery // it does not serve yet
		}
		if wait == 0 || left < wait {
			wait = left
		}
	}
	return due, wait
}

// up reports whether an engine answers.
func up(s telemetry.State) bool {
	return s == telemetry.StateReady || s == telemetry.StateSlowStart || s == telemetry.StateWarming
}

// unlearn forgets what an engine that left meanwhile answered. It was noted by
// name, which another may bear by now: that one is asked again.
func (p *prompts) unlearn(name string) {
	p.model.Forget(name)
	for _, f := range *p.engines.Load() {
		if f.e.Name == name {
			f.proven.Store(false)
		}
	}
}

// prove compares our ids with the engine's and finds out whether it reads
// ids. It reports whether the engine could be asked.
func (p *prompts) prove(ctx context.Context, f *proof, chats string) bool {
	ctx, cancel := context.WithTimeout(ctx, proveLimit)
	defer cancel()
	defer context.AfterFunc(f.gone, cancel)()
	e, model := f.e, ""
	var served []string
	if models := e.Models(); models != nil && len(models.IDs) > 0 {
		served, model = models.IDs, models.IDs[0]
	}
	r := p.model.ProbeParity(ctx, e, e.Name, served...)
	if f.gone.Err() != nil {
		p.unlearn(e.Name)
		return true
	}
	switch r.Verdict {
	case tokens.VerdictNoTokenizer:
		return true
	case tokens.VerdictUnreachable:
		p.log.Throttled("parity "+e.Name, telemetry.LevelWarn, "token ids could not be compared", "engine", e.Name, "result", compared(r, chats))
		return false
	case tokens.VerdictOK:
		p.log.Info("token ids compared", "engine", e.Name, "result", compared(r, chats))
	case tokens.VerdictDiffers, tokens.VerdictForeign:
		p.log.Warn("token ids compared", "engine", e.Name, "result", compared(r, chats))
	}
	h := p.handoff.Load()
	if h == nil {
		return true
	}
	status, err := h.ProbeHandoff(ctx, e, f.slot, e.Name, model)
	if err != nil {
		if f.gone.Err() == nil {
			p.log.Throttled("handoff "+e.Name, telemetry.LevelWarn, "the engine could not be asked whether it reads token ids", "engine", e.Name, "error", err.Error())
		}
		return false
	}
	p.log.Info("handing over token ids", "engine", e.Name, "chat", status.Chat, "completions", status.Completions, "messages", status.Messages, "note", status.Why)
	return true
}
