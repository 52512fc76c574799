package benchmarks

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Config is one call of the orchestrator.
type Config struct {
	// Binary is the built ramjet; Extra are more arguments for its serve command.
	Binary string
	Extra  []string
	// Name labels the candidate in the results.
	Name string
	// CandidateNginx measures a second nginx in Ramjet's place: what comes out is the noise of the method.
	CandidateNginx bool
	// CandidateCommand measures any other proxy: see commandStarter for its placeholders.
	CandidateCommand string
	// HAProxy adds HAProxy as a further target where it is installed.
	HAProxy bool
	Quick   bool
	// Rounds is 7 if 0 (3 if Quick).
	Rounds int
	// Skip names parts to leave out: streams, syscalls, memory.
	Skip []string
	// Out is the Markdown file whose section is replaced (empty: none); Results the folder for raw records.
	Out, Results string
	Seed         uint64
	Command      string
	Log          io.Writer
	// Python makes the environments of rivals that are Python packages, below the folder Tools.
	Python, Tools string
}

func (c Config) skips(part string) bool {
	for _, s := range c.Skip {
		if s == part {
			return true
		}
	}
	return false
}

// bench is one call in progress, owned by one goroutine.
type bench struct {
	cfg      Config
	ctx      context.Context
	self     string
	dir      string
	plan     plan
	nginx    string
	strace   string // empty when it cannot be had, and untraced says why
	untraced error
	files    uint64
	rng      *rand.Rand
	engines  []*engineProcess
	records  Records
	loads    uint64 // runs of the load generator so far
}

// Run measures, prints the report to cfg.Log, saves it, and says whether every bound that was judged is met or not
// separable. An error means that the measurement itself failed.
func Run(ctx context.Context, cfg Config) (ok bool, err error) {
	b, err := prepare(ctx, cfg)
	if err != nil {
		return false, err
	}
	defer b.stop()
	if err := b.measure(); err != nil {
		return false, err
	}
	return b.publish()
}

func prepare(ctx context.Context, cfg Config) (*bench, error) {
	files, err := RaiseDescriptors()
	if err != nil {
		return nil, err
	}
	b := &bench{cfg: cfg, ctx: ctx, files: files, rng: rand.New(rand.NewPCG(cfg.Seed, 1))}
	if b.self, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("cannot find this program: %w", err)
	}
	if b.nginx, err = EnsureTool("nginx", cfg.Log); err != nil {
		return nil, fmt.Errorf("no reference to compare with: %w", err)
	}
	if b.strace, b.untraced = EnsureTool("strace", cfg.Log); b.untraced != nil {
		b.say("system calls will not be counted: %v", b.untraced)
	}
	if !cfg.CandidateNginx && cfg.CandidateCommand == "" {
		if b.cfg.Binary, err = filepath.Abs(cfg.Binary); err != nil {
			return nil, err
		}
		if _, err := os.Stat(b.cfg.Binary); err != nil {
			return nil, fmt.Errorf("cannot measure ramjet: %w (build it: make build)", err)
		}
	}
	rounds := cfg.Rounds
	most := MaxStreams(files)
	if cfg.Quick {
		if rounds == 0 {
			rounds = 3
		}
		b.plan = quickPlan(rounds, most)
	} else {
		if rounds == 0 {
			rounds = 7
		}
		b.plan = fullPlan(rounds, most)
	}
	if b.dir, err = os.MkdirTemp("", "streambench-"); err != nil {
		return nil, fmt.Errorf("cannot make a folder: %w", err)
	}
	for range 2 {
		e, err := startEngine(b.self)
		if err != nil {
			b.stop()
			return nil, err
		}
		b.engines = append(b.engines, e)
	}
	m := &b.records.Meta
	describeMachine(ctx, m)
	m.Candidate, m.Command, m.Files, m.Rounds, m.Seed = cfg.Name, cfg.Command, files, rounds, cfg.Seed
	m.Start = time.Now().UTC()
	m.Reference = nginxVersion(ctx, b.nginx)
	return b, nil
}

func nginxVersion(ctx context.Context, path string) string {
	out, err := exec.CommandContext(ctx, path, "-v").CombinedOutput()
	if err != nil {
		return "nginx of unknown version"
	}
	return strings.TrimSpace(strings.TrimPrefix(string(out), "nginx version: "))
}

func (b *bench) stop() {
	for _, e := range b.engines {
		e.stop()
	}
	_ = os.RemoveAll(b.dir)
}

func (b *bench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.cfg.Log, format+"\n", args...)
}

func (b *bench) engineAddresses() []string {
	out := make([]string, len(b.engines))
	for i, e := range b.engines {
		out[i] = e.address
	}
	return out
}

// starters are the proxies to measure: the reference first, then the candidate.
func (b *bench) starters() []starter {
	candidate := ramjetStarter(b.cfg.Binary, b.cfg.Name, b.cfg.Extra...)
	switch {
	case b.cfg.CandidateNginx:
		candidate = nginxStarter(b.nginx, b.cfg.Name, b.files)
	case b.cfg.CandidateCommand != "":
		candidate = commandStarter(b.cfg.CandidateCommand, b.cfg.Name)
	}
	out := []starter{nginxStarter(b.nginx, Nginx, b.files), candidate}
	if b.cfg.HAProxy {
		if path, err := FindTool("haproxy"); err == nil {
			out = append(out, haproxyStarter(path, b.files))
		} else {
			b.say("HAProxy is not measured: %v", err)
		}
	}
	return out
}

// start runs a fresh instance of a proxy in front of the fake engines.
func (b *bench) start(s starter) (*target, error) { return b.startBefore(s, b.engineAddresses()) }

func (b *bench) startBefore(s starter, engines []string) (*target, error) {
	dir, err := os.MkdirTemp(b.dir, "proxy-")
	if err != nil {
		return nil, err
	}
	return s(dir, engines)
}
