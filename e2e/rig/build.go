package rig

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// binaries builds each variant of the binary once per test run.
var binaries = builtBinaries{made: map[string]func() (string, error){}}

type builtBinaries struct {
	mu   sync.Mutex // guards the following
	dir  string
	made map[string]func() (string, error)
}

// Binary returns the path of the ramjet binary built with the given tags. The
// first caller builds; a failed build fails every test that needs it, with the
// compiler's words.
func Binary(t testing.TB, tags string) string {
	t.Helper()
	if path := os.Getenv("RAMJET_BINARY"); path != "" && tags == "" {
		return path
	}
	path, err := binaries.get(t, tags)()
	if err != nil {
		t.Fatalf("cannot build ramjet: %v", err)
	}
	return path
}

func (b *builtBinaries) get(t testing.TB, tags string) func() (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "ramjet-e2e-")
		if err != nil {
			t.Fatalf("cannot make a folder for the binary: %v", err)
		}
		b.dir = dir
	}
	if b.made[tags] == nil {
		path := filepath.Join(b.dir, "ramjet-"+strings.ReplaceAll(tags, ",", "-"))
		b.made[tags] = sync.OnceValues(func() (string, error) { return path, build(path, tags) })
	}
	return b.made[tags]
}

func build(path, tags string) error {
	args := []string{"build", "-o", path}
	if RaceEnabled {
		args = append(args, "-race")
	}
	if tags != "" {
		args = append(args, "-tags", tags)
	}
	cmd := exec.Command("go", append(args, "ramjet")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return &buildError{err: err, output: string(out)}
	}
	return nil
}

type buildError struct {
	err    error
	output string
}

func (e *buildError) Error() string { return e.err.Error() + "\n" + e.output }

func (e *buildError) Unwrap() error { return e.err }
