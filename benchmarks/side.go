package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// side is one side-by-side in progress, owned by one goroutine.
type side struct {
	*bench
	plan sidePlan
	all  []*contender
	// due is when the part in progress has to begin its last round; zero without a limit. cut says where it did.
	due time.Time
	cut string
}

// Side measures Ramjet beside nginx, HAProxy, Go's ReverseProxy and routers for language models out of packages, in
// interleaved rounds, and publishes a table per subject. A rival that does not start, or ends, stands in the report with
// its reason, and the rest goes on; without our own binary, or without any router, there is nothing to publish.
func Side(ctx context.Context, cfg Config) error {
	b, err := prepare(ctx, cfg)
	if err != nil {
		return err
	}
	defer b.stop()
	s := &side{bench: b}
	rounds, most := b.records.Meta.Rounds, MaxStreams(b.files)
	if cfg.Quick {
		s.plan = quickSide(rounds, most)
	} else {
		s.plan = fullSide(rounds, most)
	}
	stolen, all := stealTicks()
	start := time.Now()
	s.all = b.contenders()
	failed := s.measure()
	if ctx.Err() != nil {
		return failed
	}
	m := &b.records.Meta
	m.Seconds, m.LoadEnd = time.Since(start).Seconds(), loadAverage()
	if st, a := stealTicks(); a > all {
		m.Steal = float64(st-stolen) / float64(a-all)
	}
	for _, c := range s.all {
		b.records.Contenders = append(b.records.Contenders, ContenderRecord{
			Kind: "contender", Name: c.name, Version: c.version, SetUp: c.set, Ours: c.ours, Router: c.router, Reason: c.reason,
		})
	}
	return errors.Join(failed, s.publish())
}

// measure returns what parts failed; the rest of the records is valid all the same.
func (s *side) measure() error {
	var failed []error
	begin := time.Now()
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{partStreams, s.streams},
		{partMemory, s.memory},
		{partPrompts, func() error { return s.promptCells(s.plan.prompts, s.plan.rounds) }},
		{partCorpora, func() error { return s.promptCells(s.plan.corpora, s.plan.corporaRounds) }},
		{partOwner, s.owner},
		{partMixed, s.mixed},
		{partRoute, s.routeTime},
	} {
		if s.cfg.skips(part.name) {
			continue
		}
		start := time.Now()
		s.cut, s.due = "", time.Time{}
		if share, ok := s.plan.due[part.name]; ok {
			s.due = begin.Add(share)
		}
		err := part.run()
		rec := PartRecord{Kind: "part", Name: part.name, Seconds: time.Since(start).Seconds(), Cut: s.cut}
		if s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		if err != nil { // the other parts stand by themselves
			rec.Error = err.Error()
			failed = append(failed, fmt.Errorf("%s: %w", part.name, err))
		}
		s.records.Parts = append(s.records.Parts, rec)
		s.say("part %s took %.0f s %s%s", part.name, rec.Seconds, rec.Cut, rec.Error)
	}
	return errors.Join(failed...)
}

// running starts every contender that can still be had in front of engines, and returns what stops them.
func (s *side) running(all []*contender, engines []string) (up []*contender, stop func(), err error) {
	stop = func() {
		for _, c := range up {
			c.target.stop()
			c.target = nil
		}
	}
	for _, c := range all {
		if c.reason != "" {
			continue
		}
		if c.target, err = s.startBefore(c.start, engines); err != nil {
			if err := s.lost(c, err); err != nil {
				stop()
				return nil, nil, err
			}
			continue
		}
		c.target.name = c.name
		up = append(up, c)
		s.say("%-18s %s, %d processes", c.name, c.target.addresses[0], len(c.target.pids))
	}
	return up, stop, nil
}

// lost notes why a rival is not measured any more; losing our own binary ends the call.
func (s *side) lost(c *contender, why error) error {
	if c.ours || s.ctx.Err() != nil {
		return errors.Join(why, s.ctx.Err())
	}
	c.reason = why.Error()
	s.say("%s is not measured from here on: %s", c.name, c.reason)
	return nil
}

// inRounds visits every contender, and the engines themselves where a scenario asks for that, in random order: once per
// scenario, round and turn. It leaves out those that are lost.
func (s *side) inRounds(up []*contender, engines []string, rounds int, scenarios []scenario) error {
	direct := &contender{name: Direct, ours: true, target: &target{name: Direct, addresses: engines}} // without the engines there is nothing
	for round := 1; round <= rounds && !s.late(round, rounds); round++ {
		for _, sc := range scenarios {
			visit := slices.Clone(up)
			if sc.direct {
				visit = append(visit, direct)
			}
			for turn := range max(1, sc.turns) {
				s.rng.Shuffle(len(visit), func(i, j int) { visit[i], visit[j] = visit[j], visit[i] })
				for _, c := range visit {
					if err := s.tryVisit(sc.pair(round, turn), sc, c); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// tryVisit measures c unless it is lost, and goes on without it when that fails.
func (s *side) tryVisit(pair int, sc scenario, c *contender) error {
	if c.reason != "" {
		return nil
	}
	if p := sc.spec.Prompts; p != nil && p.Corpus == CorpusTurns {
		// What others sent since the last round may have driven the conversation out of the engines' caches: nothing returns then.
		if err := s.known(c, sc.spec); err != nil || c.reason != "" {
			return err
		}
		time.Sleep(settleEvents)
	}
	if err := s.visit(pair, sc, c.target); err != nil {
		return s.lost(c, err)
	}
	return nil
}

// settleEvents is far longer than the events of one load need to be taken in.
const settleEvents = 200 * time.Millisecond

// late says whether a part has to end before the given round, because its time is over. The first round is always made.
func (s *side) late(round, rounds int) bool {
	if round == 1 || s.due.IsZero() || time.Now().Before(s.due) {
		return false
	}
	s.cut = fmt.Sprintf("out of time after %d of %d rounds", round-1, rounds)
	return true
}

func (s *side) streams() error {
	engines := s.engineAddresses()
	up, stop, err := s.running(s.all, engines)
	if err != nil {
		return err
	}
	defer stop()
	for _, c := range up { // pools, caches and pages as after some traffic
		if _, err := s.load(LoadSpec{Mode: ModeStream, Targets: c.target.addresses, Streams: 64, Requests: 1, Tokens: 5, PaceMicros: pace}); err != nil {
			return err
		}
	}
	return s.inRounds(up, engines, s.plan.rounds, s.plan.streams)
}

// memory holds streams through a fresh instance of every contender.
func (s *side) memory() error {
	if len(s.plan.memorySteps) == 0 {
		return fmt.Errorf("cannot measure memory: the limit of open files, %d, leaves no room for streams", s.files)
	}
	s.bench.plan.memorySteps, s.bench.plan.memoryPerSecond, s.bench.plan.memorySettle = s.plan.memorySteps, s.plan.memoryPerSecond, s.plan.memorySettle
	for round := 1; round <= s.plan.memoryRounds && !s.late(round, s.plan.memoryRounds); round++ {
		order := slices.Clone(s.all)
		s.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, c := range order {
			if c.reason != "" {
				continue
			}
			before := len(s.records.Memory)
			err := s.memoryOf(c.start)
			for i := before; i < len(s.records.Memory); i++ {
				s.records.Memory[i].Round, s.records.Memory[i].Target = round, c.name
			}
			if err != nil {
				if err := s.lost(c, err); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
