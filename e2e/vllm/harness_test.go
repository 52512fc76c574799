package vllm

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/e2e/ports"
)

// patience is how long a test waits for what ought to happen at once. Three servers and the tests share two cores.
const patience = 60 * time.Second

// built is the binary under test, made once.
var built struct {
	once sync.Once
	dir  string
	path string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		if err := os.RemoveAll(built.dir); err != nil {
			fmt.Fprintln(os.Stderr, "cannot remove the built binary:", err)
		}
	}
	os.Exit(code)
}

// binary returns the path of the ramjet binary: RAMJET_BINARY, or one built as it is shipped.
func binary(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.path = os.Getenv("RAMJET_BINARY"); built.path != "" {
			return
		}
		if built.dir, built.err = os.MkdirTemp("", "ramjet-vllm-"); built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "ramjet")
		cmd := exec.Command("go", "build", "-trimpath", "-o", built.path, "ramjet")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("cannot build ramjet: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

// installed returns the folder of the installation, or skips the test where there is none.
func installed(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("RAMJET_VLLM")
	if dir == "" {
		t.Skip("real vLLM is not installed: make e2e-vllm installs it and runs this test")
	}
	if !filepath.IsAbs(dir) {
		t.Fatalf("RAMJET_VLLM=%s is no absolute path", dir)
	}
	if _, err := os.Stat(filepath.Join(dir, "models", "pinned")); err != nil {
		t.Fatalf("RAMJET_VLLM does not lead to an installation: %v", err)
	}
	return dir
}

// model returns the folder of a model, which is also what ramjet's --tokenizer takes.
func model(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(installed(t), "models", name)
}

// keptPorts returns ports that nobody else is given until the test ends: a server takes half a minute until it listens, and
// some are killed and come back.
func keptPorts(t *testing.T, n int) []int {
	t.Helper()
	var list []int
	for range n {
		list = append(list, int(netip.MustParseAddrPort(ports.Kept(t)).Port()))
	}
	return list
}

// eventually waits until ok returns "", and fails the test with its last answer when it does not within the limit.
func eventually(t *testing.T, limit time.Duration, what string, ok func() string) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		last := ok()
		if last == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %s", what, limit, last)
		}
		time.Sleep(pause)
	}
}

// output collects what a process prints.
type output struct {
	mu sync.Mutex // guards the following
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// tail returns the last lines of what was printed.
func (o *output) tail(lines int) string {
	all := strings.Split(strings.TrimRight(o.String(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
