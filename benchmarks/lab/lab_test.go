package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Spread
		bound  float64
		said   string
	}{
		{nil, Spread{}, 1, NotMeasured},
		{[]float64{2}, Spread{N: 1, Median: 2, Min: 2, Max: 2}, 1, NotSeparable},
		{[]float64{2, 2, 2}, Spread{N: 3, Median: 2, Min: 2, Max: 2}, 1, NotMet},
		{[]float64{3, 1, 2}, Spread{N: 3, Median: 2, Min: 1, Max: 3}, 3, Met},
		{[]float64{4, 1, 3, 2}, Spread{N: 4, Median: 2.5, Min: 1, Max: 4}, 2, NotSeparable},
	} {
		s := SpreadOf(c.values)
		if s != c.want {
			t.Errorf("%v: %+v, want %+v", c.values, s, c.want)
		}
		if got := s.Against(c.bound); got != c.said {
			t.Errorf("%v against %v: %q, want %q", c.values, c.bound, got, c.said)
		}
	}
}

// A child whose input is kept open lives until Stop, and its clocks can be read.
func TestProcess(t *testing.T) {
	p, err := Start(t.TempDir(), "cat", "cat")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	if rss, err := p.Resident(); err != nil || rss < 0 {
		t.Errorf("resident %v, %v", rss, err)
	}
	before, err := CPUOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 50*time.Millisecond; { // spends CPU
		_ = strings.Repeat("x", 1000)
	}
	if after, err := CPUOf(os.Getpid()); err != nil || after <= before {
		t.Errorf("the CPU clock went from %v to %v, %v", before, after, err)
	}
	if used, err := p.Window(t.Context(), 10*time.Millisecond); err != nil || used < 0 {
		t.Errorf("cat uses %v processors, %v", used, err)
	}
	p.Stop()
	p.Stop() // does no harm
}

func TestAwaitTellsWhatAChildSaid(t *testing.T) {
	p, err := Start(t.TempDir(), "sh", "sh", "-c", "echo no such engine >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	err = p.Await("it", time.Minute, func() bool { return false })
	if err == nil || !strings.Contains(err.Error(), "no such engine") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("it ended, and the error is %v", err)
	}
}

func TestPorts(t *testing.T) {
	ports, err := FreePorts(5)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		seen[p] = true
	}
	if len(seen) != 5 {
		t.Errorf("ports %v are not five", ports)
	}
	name := filepath.Join(t.TempDir(), "ports")
	for text, want := range map[string][2]string{
		"public=1:2\nadmin=3:4\n": {"1:2", "3:4"},
		"public=1:2\nadmin=3":     {}, // half written
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if public, admin := readPorts(name); public != want[0] || admin != want[1] {
			t.Errorf("%q: %q and %q", text, public, admin)
		}
	}
}

func TestMachine(t *testing.T) {
	m := Describe(t.Context(), "no-such-binary")
	m.Finish()
	rows := m.Rows()
	for _, want := range []string{"| version | unknown, commit ", m.Go, m.Start.Format("2006-01-02"), "| quiet? |"} {
		if !strings.Contains(rows, want) {
			t.Errorf("no %q in\n%s", want, rows)
		}
	}
}

func TestSaveMakesTheFolder(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a", "b.md")
	if err := Save(name, "x"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
}

// Reports that a program has just written are no change of what is measured; a new source file is one.
func TestCommit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is missing")
	}
	dir := t.TempDir()
	git := func(args ...string) {
		cmd := exec.Command("git", append([]string{"-c", "user.name=x", "-c", "user.email=x@x", "-c", "commit.gpgsign=false"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	put := func(name, text string) {
		if err := Save(filepath.Join(dir, name), text); err != nil {
			t.Fatal(err)
		}
	}
	if got := Commit(t.Context(), dir); got != "none" {
		t.Errorf("outside of a repository: %q", got)
	}
	put(".gitignore", "/ignored\n")
	put("benchmarks/RESULTS.md", "1")
	put("code.go", "1")
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "x")
	git("config", "status.showUntrackedFiles", "no")
	for _, name := range []string{"benchmarks/RESULTS.md", "benchmarks/HANDOFF.md", "benchmarks/results/x.jsonl", "benchmarks/growth/x.svg", "ignored"} {
		put(name, "2")
	}
	clean := Commit(t.Context(), filepath.Join(dir, "benchmarks"))
	if len(clean) != 12 {
		t.Errorf("after reports were written: %q", clean)
	}
	for _, name := range []string{"new.go", "code.go", "benchmarks/new.go"} {
		put(name, "2")
		if got := Commit(t.Context(), filepath.Join(dir, "benchmarks")); got != clean+"+changes" {
			t.Errorf("with %s changed or new: %q", name, got)
		}
		git("stash", "-q", "--include-untracked", "--", name)
	}
}
