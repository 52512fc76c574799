package benchmarks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// goalsBench is one call in progress, owned by one goroutine.
type goalsBench struct {
	cfg      Config
	ctx      context.Context
	root     string // of the repository
	dir      string
	plan     goalsPlan
	subjects []goalSubject
	rng      *rand.Rand
	built    map[string]testBinary // by package and build
	records  goalRecords
	// due is when the part in progress begins nothing more; zero without a limit. cut says where it stopped.
	due time.Time
	cut string
}

// testBinary is a built one, or why there is none.
type testBinary struct {
	path string
	err  error
}

// Goals runs the product's own benchmarks in rounds, each package a process of its own, and compares them with what was
// asked for. They are built as the product is, with its profile; what that gains is a table by itself. ok says whether no
// goal is missed. What could not be run stands in the report with its reason, and the rest goes on.
func Goals(ctx context.Context, cfg Config) (ok bool, err error) {
	g, err := newGoalsBench(ctx, cfg)
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(g.dir) }()
	m := &g.records.Meta
	stolen, all := stealTicks()
	failed := g.measure()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	m.Seconds, m.LoadEnd = time.Since(m.Start).Seconds(), loadAverage()
	if st, a := stealTicks(); a > all {
		m.Steal = float64(st-stolen) / float64(a-all)
	}
	ok, err = g.publish()
	return ok, errors.Join(failed, err)
}

func newGoalsBench(ctx context.Context, cfg Config) (*goalsBench, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("cannot find the repository: %w", err)
	}
	g := &goalsBench{cfg: cfg, ctx: ctx, root: strings.TrimSpace(string(out)), rng: rand.New(rand.NewPCG(cfg.Seed, 2)), built: make(map[string]testBinary)}
	if g.dir, err = os.MkdirTemp("", "streambench-"); err != nil {
		return nil, fmt.Errorf("cannot make a folder: %w", err)
	}
	rounds := cfg.Rounds
	if rounds == 0 {
		rounds = 7
		if cfg.Quick {
			rounds = 5
		}
	}
	g.plan = newGoalsPlan(cfg.Quick, rounds)
	g.subjects = goalSubjects(g.inputs())
	m := &g.records.Meta
	describeMachine(ctx, m)
	m.Candidate, m.Command, m.Rounds, m.Seed, m.Start = cfg.Name, cfg.Command, rounds, cfg.Seed, time.Now().UTC()
	return g, nil
}

// inputs looks at the files that the benchmarks read, and returns which there are.
func (g *goalsBench) inputs() (have func(string) bool) {
	there := make(map[string]bool)
	for _, name := range goalInputs() {
		r := InputRecord{Kind: "input", Name: name}
		if b, err := os.ReadFile(filepath.Join(g.root, ".tools", name)); err == nil && len(b) > 0 {
			sum := sha256.Sum256(b)
			r.SHA256, there[name] = hex.EncodeToString(sum[:]), true
		}
		g.records.Inputs = append(g.records.Inputs, r)
	}
	return func(name string) bool { return there[name] }
}

func (g *goalsBench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(g.cfg.Log, format+"\n", args...)
}

// measure returns what parts failed; the rest of the records is valid all the same.
func (g *goalsBench) measure() error {
	var failed []error
	for _, part := range []struct {
		name string
		run  func() error
	}{{partBuild, g.build}, {partGoals, g.rounds}, {partPGO, g.pairs}, {partProfiles, g.profiles}} {
		if g.cfg.skips(part.name) || part.name == partPGO && g.plan.pairs == 0 {
			continue
		}
		start := time.Now()
		g.cut, g.due = "", time.Time{}
		if limit, ok := g.plan.limits[part.name]; ok {
			g.due = start.Add(limit)
		}
		err := part.run()
		if g.ctx.Err() != nil {
			return g.ctx.Err()
		}
		rec := PartRecord{Kind: "part", Name: part.name, Seconds: time.Since(start).Seconds(), Cut: g.cut}
		if err != nil {
			rec.Error = err.Error()
			failed = append(failed, fmt.Errorf("%s: %w", part.name, err))
		}
		g.records.Parts = append(g.records.Parts, rec)
		g.say("part %s took %.0f s %s%s", part.name, rec.Seconds, rec.Cut, rec.Error)
	}
	return errors.Join(failed...)
}

// late says whether a part has to end before the given round or item, because its time is over. The first is always made.
func (g *goalsBench) late(n, all int) bool {
	if n == 1 || g.due.IsZero() || time.Now().Before(g.due) {
		return false
	}
	g.cut = fmt.Sprintf("out of time after %d of %d", n-1, all)
	return true
}

// build compiles everything before anything is timed; what the compiler says is told where the binary is missed.
func (g *goalsBench) build() error {
	for _, r := range g.wanted() {
		_, _ = g.binary(r.pkg, pgoFile)
	}
	if g.cfg.skips(partPGO) || g.plan.pairs == 0 {
		return nil
	}
	for _, r := range pathRuns(g.have(vocabularyFile(sessionVocabulary))) {
		for _, build := range []string{pgoOff, pgoFile} {
			_, _ = g.binary(r.pkg, build)
		}
	}
	return g.ctx.Err()
}

// have says whether an input is there.
func (g *goalsBench) have(input string) bool {
	for _, x := range g.records.Inputs {
		if x.Name == input {
			return x.SHA256 != ""
		}
	}
	return false
}

// wanted are the processes of a round of goals.
func (g *goalsBench) wanted() (list []goRun) {
	for _, s := range g.subjects {
		if !g.cfg.skips(s.name) {
			list = append(list, s.runs...)
		}
	}
	return list
}

// binary builds the tests of a package as `make build` builds the product, once.
func (g *goalsBench) binary(pkg, build string) (string, error) {
	key := pkg + "-" + build
	if b, ok := g.built[key]; ok {
		return b.path, b.err
	}
	b := testBinary{path: filepath.Join(g.dir, key+".test")}
	profile := build
	if build == pgoFile {
		profile = filepath.Join(g.root, pgoFile)
	}
	cmd := exec.CommandContext(g.ctx, "go", "test", "-c", "-vet=off", "-trimpath", "-pgo", profile, "-o", b.path, "./"+pkg)
	cmd.Dir = g.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.err = fmt.Errorf("cannot build the tests of %s: %w: %.300s", pkg, err, out)
	}
	g.built[key] = b
	return b.path, b.err
}

// rounds runs every process once a round, in random order.
func (g *goalsBench) rounds() error {
	runs := g.wanted()
	for round := 1; round <= g.plan.rounds && !g.late(round, g.plan.rounds); round++ {
		g.rng.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
		for _, r := range runs {
			if err := g.visit(r, partGoals, pgoFile, round); err != nil {
				return err
			}
		}
		g.say("round %d of %d", round, g.plan.rounds)
	}
	return nil
}

// visit runs r unless it is lost, and keeps what it printed. A process that fails is lost; the error is that of the call.
func (g *goalsBench) visit(r goRun, part, build string, round int) error {
	for _, x := range g.records.Lost {
		if x.Run == r.key() {
			return nil
		}
	}
	list, err := g.run(r, build, g.plan.each.String())
	if g.ctx.Err() != nil {
		return g.ctx.Err()
	}
	if err != nil {
		g.say("%s is not measured from here on: %v", r.key(), err)
		g.records.Lost = append(g.records.Lost, LostRecord{Kind: "lost", Run: r.key(), Reason: err.Error()})
		return nil
	}
	for _, x := range list {
		x.Part, x.Build, x.Package, x.Round = part, build, r.pkg, round
		g.records.Benches = append(g.records.Benches, x)
	}
	return nil
}

// run starts one process of go test's own kind: in the folder of its package. A test that fails because a figure is over
// its bound has printed it, and that is what counts here.
func (g *goalsBench) run(r goRun, build, each string, extra ...string) ([]BenchRecord, error) {
	path, err := g.binary(r.pkg, build)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(g.ctx, path, r.arguments(each, extra...)...)
	cmd.Dir = filepath.Join(g.root, r.pkg)
	busy, all := busyTicks()
	start := time.Now()
	out, err := cmd.CombinedOutput()
	wall := time.Since(start)
	list := r.parse(string(out))
	for i := range list {
		list[i].Others = othersShare(busy, all, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), wall)
	}
	switch {
	case len(list) == 0 && err == nil:
		return nil, fmt.Errorf("%s printed no figure: %.300s", r.key(), out)
	case err != nil && (r.test == "" || len(list) == 0):
		return nil, fmt.Errorf("%s failed: %w: %.300s", r.key(), err, out)
	}
	return list, nil
}
