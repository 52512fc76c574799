package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		if err := os.RemoveAll(built.dir); err != nil {
			fmt.Fprintln(os.Stderr, "cannot remove the built binaries:", err)
		}
	}
	os.Exit(code)
}

// built holds the binaries of this run: a plain one for the engines, which
// would be too slow under the race detector, and one for the proxy.
var built struct {
	sync.Mutex // guards the following
	dir        string
	paths      map[bool]string // by race
}

// binary returns the path of a binary, built once.
func binary(t testing.TB, race bool) string {
	t.Helper()
	if path := os.Getenv("RAMJET_BINARY"); path != "" && !race {
		return path
	}
	built.Lock()
	defer built.Unlock()
	if path := built.paths[race]; path != "" {
		return path
	}
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "ramjet-chaos-")
		if err != nil {
			t.Fatalf("cannot make a folder for the binary: %v", err)
		}
		built.dir, built.paths = dir, map[bool]string{}
	}
	path := filepath.Join(built.dir, fmt.Sprintf("ramjet-race-%v", race))
	args := []string{"build", "-o", path}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot build ramjet: %v\n%s", err, out)
	}
	built.paths[race] = path
	return path
}

// duration reads a time from the environment.
func duration(t testing.TB, name string, otherwise time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		t.Fatalf("cannot read %s=%q as a duration such as 10m", name, text)
	}
	return d
}

// poll asks every 20 ms until it hears "", and returns the last answer.
func poll(limit time.Duration, ask func() string) string {
	for end := time.Now().Add(limit); ; {
		last := ask()
		if last == "" || time.Now().After(end) {
			return last
		}
		time.Sleep(20 * time.Millisecond)
	}
}
