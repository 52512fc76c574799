package benchmarks

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	pid, parent, ok := parseStat([]byte("42 (a) b (c) S 7 42 42 0"))
	if !ok || pid != 42 || parent != 7 {
		t.Errorf("%d %d %v", pid, parent, ok)
	}
	if _, _, ok := parseStat([]byte("42 nonsense")); ok {
		t.Error("nonsense was taken")
	}
}

// The clock and the memory of another process, with its children.
func TestProcessFigures(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	cmd := exec.Command("sh", "-c", "sleep 60 & while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatalf("cannot start a shell: %v", err)
	}
	pid := cmd.Process.Pid
	var pids []int
	defer func() {
		for _, p := range pids {
			if q, err := os.FindProcess(p); err == nil && p != pid {
				_ = q.Kill()
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var err error
	for end := time.Now().Add(10 * time.Second); len(pids) < 2 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if pids, err = family(pid); err != nil {
			t.Fatal(err)
		}
	}
	if len(pids) != 2 || !slices.Contains(pids, pid) {
		t.Fatalf("family %v", pids)
	}
	before, err := cpuOf(pids)
	if err != nil {
		t.Fatal(err)
	}
	after := before
	for end := time.Now().Add(10 * time.Second); after == before && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if after, err = cpuOf(pids); err != nil {
			t.Fatal(err)
		}
	}
	if after <= before {
		t.Errorf("a busy process used no CPU: %d then %d ns", before, after)
	}
	if rss, err := rssOf(pids); err != nil || rss < 100<<10 {
		t.Errorf("%d bytes, %v", rss, err)
	}
	if _, err := cpuClock(1 << 22); err == nil {
		t.Error("a process that is not there has a clock")
	}
}

func TestMaxStreams(t *testing.T) {
	t.Parallel()
	for files, want := range map[uint64]int{20_000: 9_900, 1 << 30: 9_900, 1_024: 412, 100: 0} {
		if got := MaxStreams(files); got != want {
			t.Errorf("%d files: %d streams, want %d", files, got, want)
		}
	}
	if p := fullPlan(7, 412); len(p.memorySteps) != 1 || p.memorySteps[0] != 412 || p.memoryRounds < fewest {
		t.Errorf("%v", p.memorySteps)
	}
}

func TestCommandLineNamesNoFolder(t *testing.T) {
	t.Parallel()
	got := CommandLine("go run x", []string{"-binary", "/a/b/ramjet", "-out=/a/R.md", "-candidate-cmd", "p {listen}", "-quick"})
	if got != "go run x -binary ramjet -out=R.md -candidate-cmd 'p {listen}' -quick" {
		t.Error(got)
	}
}

func TestReadPorts(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "ports")
	if p, a := readPorts(name); p != "" || a != "" {
		t.Errorf("%q %q", p, a)
	}
	if err := os.WriteFile(name, []byte("public=127.0.0.1:1\nadmin=127.0.0.1:2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, a := readPorts(name); p != "127.0.0.1:1" || a != "127.0.0.1:2" {
		t.Errorf("%q %q", p, a)
	}
}

// Without root and apt-get the error tells what to do; nothing is installed in a test.
func TestEnsureToolSaysWhatToDo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var log bytes.Buffer
	_, err := EnsureTool("no-such-program", &log)
	if err == nil || !strings.Contains(err.Error(), "apt-get install no-such-program") || log.Len() != 0 {
		t.Errorf("%v %q", err, log.String())
	}
}
