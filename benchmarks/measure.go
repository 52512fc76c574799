package benchmarks

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

func (b *bench) measure() error {
	stolen, all := stealTicks()
	start := time.Now()
	proxies := make([]*target, 0, 3)
	defer func() {
		for _, t := range proxies {
			t.stop()
		}
	}()
	for _, s := range b.starters() {
		t, err := b.start(s)
		if err != nil {
			return err
		}
		proxies = append(proxies, t)
		b.say("%-12s %s, %d processes", t.name, t.addresses[0], len(t.pids))
	}
	var err error
	if !b.cfg.skips(partStreams) {
		err = b.rounds(proxies)
	}
	if err == nil && !(b.cfg.skips(partStreams) && b.cfg.skips(partSyscalls)) {
		err = b.idle(proxies)
	}
	if err == nil && !b.cfg.skips(partSyscalls) {
		err = b.syscalls(proxies)
	}
	if err == nil && !b.cfg.skips(partMemory) {
		err = b.memory()
	}
	m := &b.records.Meta
	m.Seconds, m.LoadEnd = time.Since(start).Seconds(), loadAverage()
	if s, a := stealTicks(); a > all {
		m.Steal = float64(s-stolen) / float64(a-all)
	}
	return err
}

// rounds visits every target once per scenario, round and turn, in random order.
func (b *bench) rounds(proxies []*target) error {
	direct := &target{name: Direct, addresses: b.engineAddresses()}
	for _, t := range proxies { // pools, caches and pages as after some traffic
		if _, err := b.load(LoadSpec{Mode: ModeStream, Targets: t.addresses, Streams: 64, Requests: 1, Tokens: 5, PaceMicros: pace}); err != nil {
			return err
		}
	}
	for round := 1; round <= b.plan.rounds; round++ {
		for _, sc := range b.plan.scenarios {
			visit := append([]*target(nil), proxies...)
			if sc.direct {
				visit = append(visit, direct)
			}
			for turn := range max(1, sc.turns) {
				b.rng.Shuffle(len(visit), func(i, j int) { visit[i], visit[j] = visit[j], visit[i] })
				for _, t := range visit {
					if err := b.visit(sc.pair(round, turn), sc, t); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func (b *bench) visit(round int, sc scenario, t *target) error {
	if t.process != nil {
		if err := t.adopt(); err != nil {
			return err
		}
	}
	spec := sc.spec
	spec.Targets = t.addresses
	before, err := cpuOf(t.pids)
	if err != nil {
		return err
	}
	res, err := b.load(spec)
	if err != nil {
		return err
	}
	after, err := cpuOf(t.pids)
	if err != nil {
		return err
	}
	rec := RunRecord{Kind: "run", Round: round, Scenario: sc.name, Target: t.name, CPUNanos: after - before, Result: res}
	if spec.Mode == ModePrompt && t.admin != "" {
		rec.Decisions = decisionsOf(b.ctx, t.admin, int(res.Requests))
	}
	b.records.Runs = append(b.records.Runs, rec)
	if spec.Mode == ModePrompt || spec.Mode == ModeWhole {
		b.say("round %d %-18s %-18s %7d requests %9.1f us CPU/request  mean %9.3f ms  errors %d %s",
			round, sc.name, t.name, res.Requests, perRequestMicros(rec), float64(res.MeanNanos)/1e6, res.Errors, res.FirstError)
		return nil
	}
	b.say("round %d %-16s %-10s %7d tokens %7.2f us CPU/token  ttft p50 %6.0f us  one-way p50 %5.0f p99 %6.0f us  errors %d %s",
		round, sc.name, t.name, res.Tokens, float64(rec.CPUNanos)/1e3/float64(max(1, res.Tokens)), float64(res.TTFT.P50)/1e3,
		float64(res.OneWay.P50)/1e3, float64(res.OneWay.P99)/1e3, res.Errors, res.FirstError)
	return nil
}

// load runs the load generator in a process of its own.
func (b *bench) load(spec LoadSpec) (LoadResult, error) {
	b.loads++
	spec.Seed = b.loads
	return runLoad(b.ctx, b.self, spec)
}

// idle measures what each proxy uses while nobody asks it anything. At one stream of 100 tokens a second a thousandth of
// a core is 10 us a token, so the c1 figure cannot be read without it.
func (b *bench) idle(proxies []*target) error {
	time.Sleep(engineIdle + time.Second) // connections of the last round that end now are not what an idle process does
	for w := 1; w <= b.plan.idleWindows; w++ {
		before, err := idleClocks(proxies)
		if err != nil {
			return err
		}
		start := time.Now()
		time.Sleep(b.plan.idleFor)
		seconds := time.Since(start).Seconds()
		after, err := idleClocks(proxies)
		if err != nil {
			return err
		}
		for i, t := range proxies {
			rec := IdleRecord{Kind: "idle", Target: t.name, Window: w, Seconds: seconds, CPUNanos: after[i] - before[i]}
			b.records.Idle = append(b.records.Idle, rec)
			b.say("idle   %-10s window %d: %.3f %% of a core", t.name, w, 100*rec.share())
		}
	}
	return nil
}

func idleClocks(proxies []*target) ([]int64, error) {
	out := make([]int64, len(proxies))
	for i, t := range proxies {
		if err := t.adopt(); err != nil {
			return nil, err
		}
		var err error
		if out[i], err = cpuOf(t.pids); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// errStraceLost says that the traced window saw no token.
var errStraceLost = errors.New("no token crossed the proxy while it was traced")

// straceTries is how often a window is repeated when the traced proxy fell behind the pace, as on a busy machine.
const straceTries = 3

// leftOut notes why a part is not measured, for the figures that it would have had.
func (b *bench) leftOut(part string, why error) {
	b.records.Parts = append(b.records.Parts, PartRecord{Kind: "part", Name: part, Error: why.Error()})
}

func (b *bench) syscalls(proxies []*target) error {
	if b.strace == "" {
		b.leftOut(partSyscalls, b.untraced)
		return nil
	}
	for _, t := range proxies {
		nothing := func() error { return nil }
		idle, err := countSyscalls(b.strace, b.dir, t.pids, b.plan.tracedFor, nothing, nothing)
		if err != nil {
			return err
		}
		for w := 1; w <= b.plan.syscallWindows; w++ {
			if err := b.ctx.Err(); err != nil {
				return err
			}
			var rec SyscallRecord
			for range straceTries {
				if rec, err = b.syscallWindow(t); err != nil {
					return err
				}
				rec.IdleCalls, rec.IdleSeconds = idle, b.plan.tracedFor.Seconds()
				rec.PerToken = perToken(rec.Calls, rec.Seconds, idle, rec.IdleSeconds, rec.Tokens)
				if rec.keptPace() {
					break
				}
			}
			rec.Kind, rec.Target, rec.Window = "syscalls", t.name, w
			b.records.Syscalls = append(b.records.Syscalls, rec)
			b.say("strace %-10s window %d: %.2f calls/token over %d tokens, kept pace: %v", t.name, w, rec.total(), rec.Tokens, rec.keptPace())
		}
	}
	return nil
}

// syscallWindow traces t in the middle of one long stream.
func (b *bench) syscallWindow(t *target) (SyscallRecord, error) {
	const lead = 2500 * time.Millisecond // attaching and letting go
	type answer struct {
		res LoadResult
		err error
	}
	done := make(chan answer, 1)
	tokens := int((b.plan.tracedFor + 2*lead).Microseconds() / pace)
	spec := LoadSpec{Mode: ModeStream, Targets: t.addresses, Streams: 1, Requests: 1, Tokens: tokens, PaceMicros: pace}
	go func() {
		res, err := b.load(spec)
		done <- answer{res, err}
	}()
	time.Sleep(lead / 4)
	var rec SyscallRecord
	var start time.Time
	calls, err := countSyscalls(b.strace, b.dir, t.pids, b.plan.tracedFor,
		func() error { start = time.Now(); rec.Tokens = -b.tokensSent(); return nil },
		func() error { rec.Tokens += b.tokensSent(); rec.Seconds = time.Since(start).Seconds(); return nil })
	a := <-done
	if err = errors.Join(err, a.err); err != nil {
		return rec, err
	}
	if rec.Tokens < 1 {
		return rec, errStraceLost
	}
	rec.Calls, rec.Errors = calls, a.res.Errors
	return rec, nil
}

// tokensSent adds up the engines' counters.
func (b *bench) tokensSent() int64 {
	var sum int64
	for _, e := range b.engines {
		sum += e.counter("bench_tokens_total")
	}
	return sum
}

// memory holds streams open through a fresh instance of every proxy, in rounds.
func (b *bench) memory() error {
	if most := slices.Max(append(b.plan.memorySteps, 0)); most < 1 || most < boundAtStreams && !b.cfg.Quick {
		b.leftOut(partMemory, fmt.Errorf("the limit of open files, %d, leaves room for %d streams", b.files, most))
	}
	if len(b.plan.memorySteps) == 0 || b.plan.memorySteps[0] < 1 {
		b.say("memory is not measured: the limit of open files, %d, leaves no room for streams", b.files)
		return nil
	}
	for round := 1; round <= b.plan.memoryRounds; round++ {
		for _, s := range b.starters() {
			before := len(b.records.Memory)
			err := b.memoryOf(s)
			for i := before; i < len(b.records.Memory); i++ {
				b.records.Memory[i].Round = round
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) memoryOf(s starter) error {
	t, err := b.start(s)
	if err != nil {
		return err
	}
	defer t.stop()
	if _, err := b.load(LoadSpec{Mode: ModeStream, Targets: t.addresses, Streams: 8, Requests: 2, Tokens: 5, PaceMicros: pace}); err != nil {
		return err
	}
	base, err := rssOf(t.pids)
	if err != nil {
		return err
	}
	b.loads++
	spec := HoldSpec{Targets: t.addresses, Steps: b.plan.memorySteps, PerSecond: b.plan.memoryPerSecond, PaceMicros: 1_000_000, Seed: b.loads}
	return runHold(b.ctx, b.self, spec, func(r HoldReport) error {
		time.Sleep(b.plan.memorySettle)
		rss, err := rssOf(t.pids)
		if err != nil {
			return err
		}
		rec := MemoryRecord{Kind: "memory", Target: t.name, Streams: r, BaseBytes: base, RSSBytes: rss}
		b.records.Memory = append(b.records.Memory, rec)
		b.say("memory %-10s %5d streams of %d: %.1f MB, %.1f KB a stream, errors %d %s", t.name, r.Live, r.Want,
			float64(rss)/1e6, rec.perStream()/1e3, r.Errors, r.First)
		return nil
	})
}
