package growth

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ramjet/benchmarks"
)

// TestMain lets the test binary be the engines and load generators that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case benchmarks.ModeEngine, benchmarks.ModeLoad, benchmarks.ModeHold:
			if err := benchmarks.Child(os.Args[1], os.Args[2:], os.Stdin, os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// The whole way with sizes that take seconds: every subject measures something at every size, and everything is saved.
func TestEverySubject(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the binary and measures for some seconds")
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "ramjet")
	cmd := exec.Command("go", "build", "-trimpath", "-o", binary, "ramjet")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot build ramjet: %v\n%s", err, out)
	}
	out := filepath.Join(dir, "GROWTH.md")
	if _, err := Run(t.Context(), Config{Binary: binary, Out: out, Seed: 1, Command: "a test", Log: t.Output(), smallest: true}); err != nil {
		t.Fatal(err)
	}
	points := map[string]int{"prompts.svg": 4, "engines.svg": 6, "index-decision.svg": 4, "index-write.svg": 2, "events.svg": 4}
	for _, name := range []string{"prompts.svg", "engines.svg", "index-decision.svg", "index-write.svg", "index-memory.svg", "streams-memory.svg", "streams-cpu.svg", "events.svg"} {
		svg, err := os.ReadFile(filepath.Join(dir, "growth", name))
		if err != nil {
			t.Error(err)
			continue
		}
		// Memory and CPU of a few streams may lie below the noise; what else was measured did take time.
		if d := read(t, string(svg)); d.filled != points[name] && points[name] > 0 {
			t.Errorf("%s has %d points, want %d", name, d.filled, points[name])
		}
	}
	for _, name := range []string{out, filepath.Join(dir, "results", "growth.jsonl")} {
		if info, err := os.Stat(name); err != nil || info.Size() == 0 {
			t.Errorf("%s is not there: %v", name, err)
		}
	}
}

// Neither a smoke test nor a part may take a measurement's place.
func TestOnlyTheWholeIsSaved(t *testing.T) {
	for name, c := range map[string]struct {
		cfg   Config
		saved bool
	}{"whole": {Config{}, true}, "quick": {Config{Quick: true}, false}, "a part": {Config{Only: []string{"engines"}}, false}} {
		dir := t.TempDir()
		c.cfg.Out, c.cfg.Log = filepath.Join(dir, "GROWTH.md"), t.Output()
		r := runner{cfg: c.cfg, charts: []Chart{{File: "a.svg"}}}
		if _, err := r.publish(Meta{}); err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(dir)
		if err != nil || (len(files) > 0) != c.saved {
			t.Errorf("%s: saved %v, %v", name, files, err)
		}
	}
}
