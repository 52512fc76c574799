package growth

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"ramjet/benchmarks"
	"ramjet/benchmarks/lab"
)

// Config is one call.
type Config struct {
	// Binary is the built ramjet, for prompts and streams.
	Binary string
	// Quick measures fewer and smaller sizes, in less than three minutes, and saves nothing.
	Quick bool
	// Rounds is 5 if 0 (3 if Quick).
	Rounds int
	// Only names the subjects to measure: prompts, engines, index, streams, events; empty = all. A part is not saved.
	Only []string
	// Out is the Markdown file to write (empty: none; not with Quick). Curves go to the folder growth/ beside it, raw figures to results/.
	Out     string
	Seed    uint64
	Command string
	Log     io.Writer
	// smallest is for tests: sizes that take seconds.
	smallest bool
}

// plan is the sizes of every subject, ascending, and how long each is looked at.
type plan struct {
	rounds, streamRounds           int
	tokens, engines, blocks, rates []int
	streams                        []int
	promptTokens                   int           // of all new conversations at one size
	slice                          time.Duration // for what takes microseconds
	window                         time.Duration // for CPU clocks
}

func (c Config) plan() plan {
	p := plan{
		rounds: 5, streamRounds: 3,
		tokens: []int{1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000}, promptTokens: 300_000,
		engines: []int{1, 2, 4, 8, 16, 32, 64},
		blocks:  []int{10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000},
		rates:   []int{1_000, 10_000, 100_000, 300_000, 1_000_000},
		streams: []int{1, 10, 100, 1_000, 3_000, 9_900},
		slice:   time.Second, window: 10 * time.Second,
	}
	if c.Quick {
		p = plan{
			rounds: 3, streamRounds: 1,
			tokens: []int{1_000, 10_000, 100_000, 300_000}, promptTokens: 30_000,
			engines: p.engines, blocks: []int{10_000, 100_000, 1_000_000}, rates: []int{1_000, 30_000, 1_000_000},
			streams: []int{1, 10, 100, 1_000}, slice: 100 * time.Millisecond, window: 2 * time.Second,
		}
	}
	if c.smallest {
		p = plan{
			rounds: 1, streamRounds: 1, tokens: []int{300, 3_000}, promptTokens: 3_000, engines: []int{1, 4, 16},
			blocks: []int{1_000, 10_000}, rates: []int{5_000, 20_000}, streams: []int{1, 10}, slice: 5 * time.Millisecond, window: 300 * time.Millisecond,
		}
	}
	if c.Rounds > 0 {
		p.rounds, p.streamRounds = c.Rounds, c.Rounds
	}
	return p
}

// runner is one call in progress, owned by one goroutine.
type runner struct {
	cfg    Config
	ctx    context.Context
	plan   plan
	self   string
	dir    string
	files  uint64
	rng    *rand.Rand
	charts []Chart
}

// Run measures, writes table, curves and raw figures, and says whether every bound that was judged is met or not
// separable. An error means that the measurement itself failed.
func Run(ctx context.Context, cfg Config) (ok bool, err error) {
	r := &runner{cfg: cfg, ctx: ctx, plan: cfg.plan(), rng: rand.New(rand.NewPCG(cfg.Seed, 1))}
	if r.files, err = benchmarks.RaiseDescriptors(); err != nil {
		return false, err
	}
	if r.self, err = os.Executable(); err != nil {
		return false, fmt.Errorf("cannot find this program: %w", err)
	}
	if r.cfg.Binary, err = filepath.Abs(cfg.Binary); err != nil {
		return false, err
	}
	if _, err := os.Stat(r.cfg.Binary); err != nil {
		return false, fmt.Errorf("cannot measure ramjet: %w (build it: make build)", err)
	}
	if r.dir, err = os.MkdirTemp("", "growthbench-"); err != nil {
		return false, fmt.Errorf("cannot make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(r.dir) }()
	m := Meta{Command: cfg.Command, Quick: cfg.Quick, Rounds: r.plan.rounds, Streams: r.plan.streamRounds, Seed: cfg.Seed, Machine: lab.Describe(ctx, r.cfg.Binary)}
	for _, s := range []struct {
		name string
		run  func() error
	}{{"prompts", r.prompts}, {"engines", r.engines}, {"index", r.indexSize}, {"streams", r.streams}, {"events", r.events}} {
		if len(cfg.Only) > 0 && !slices.Contains(cfg.Only, s.name) {
			continue
		}
		began := time.Now()
		if err := s.run(); err != nil {
			return false, fmt.Errorf("cannot measure %s: %w", s.name, err)
		}
		r.say("%s: %.0f s", s.name, time.Since(began).Seconds())
	}
	m.Finish()
	return r.publish(m)
}

func (r *runner) add(c ...Chart) { r.charts = append(r.charts, c...) }

// nextSeed names a run of the load generator; it uses six digits of it.
func (r *runner) nextSeed() uint64 { return r.rng.Uint64N(1_000_000) }

func (r *runner) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.cfg.Log, format+"\n", args...)
}
