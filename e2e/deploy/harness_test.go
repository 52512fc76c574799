package deploy

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// update rewrites what a test compares: the README's table of figures.
var update = flag.Bool("update", false, "write the README's table of figures")

// root is the repository, seen from the folder in which go test runs.
const root = "../.."

// patience is far beyond what anything here takes on two busy cores.
const patience = 180 * time.Second

// binaries are built once for each set of tags, into one folder that is gone afterwards.
var binaries struct {
	mu  sync.Mutex // guards the following
	dir string
	get map[string]func() (string, error)
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if binaries.dir != "" {
		if err := os.RemoveAll(binaries.dir); err != nil {
			fmt.Fprintln(os.Stderr, "cannot remove the built binary:", err)
		}
	}
	os.Exit(code)
}

// binary returns the path of the ramjet binary built with the given tags.
func binary(t testing.TB, tags string) string {
	t.Helper()
	if path := os.Getenv("RAMJET_BINARY"); path != "" && tags == "" {
		return path
	}
	path, err := builder(t, tags)()
	if err != nil {
		t.Fatalf("cannot build ramjet: %v", err)
	}
	return path
}

func builder(t testing.TB, tags string) func() (string, error) {
	binaries.mu.Lock()
	defer binaries.mu.Unlock()
	if binaries.dir == "" {
		dir, err := os.MkdirTemp("", "ramjet-deploy-")
		if err != nil {
			t.Fatal(err)
		}
		binaries.dir, binaries.get = dir, map[string]func() (string, error){}
	}
	if binaries.get[tags] == nil {
		path := filepath.Join(binaries.dir, "ramjet"+tags)
		binaries.get[tags] = sync.OnceValues(func() (string, error) {
			cmd := exec.Command("go", "build", "-trimpath", "-tags", tags, "-o", path, ".")
			cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				return "", fmt.Errorf("%w\n%s", err, out)
			}
			return path, nil
		})
	}
	return binaries.get[tags]
}

// read returns a file of the repository.
func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// shipped lists the files of the repository that a pattern names, and fails where there are none.
func shipped(t testing.TB, patterns ...string) []string {
	t.Helper()
	var out []string
	for _, p := range patterns {
		found, err := filepath.Glob(filepath.Join(root, p))
		if err != nil || len(found) == 0 {
			t.Fatalf("no file fits %s: %v", p, err)
		}
		for _, f := range found {
			rel, err := filepath.Rel(root, f)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, filepath.ToSlash(rel))
		}
	}
	return out
}

// unmarshal reads one YAML document of the repository, refusing keys that are given twice.
func unmarshal(t testing.TB, path string, v any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, path)), v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// prometheusTools returns the folder with promtool and prometheus, or skips the test where there is no way to them.
func prometheusTools(t testing.TB) string {
	t.Helper()
	found := promtools()
	if found.reason != "" {
		t.Skip(found.reason)
	}
	if found.err != nil {
		t.Fatal(found.err)
	}
	return found.dir
}

type toolsFound struct {
	dir, reason string
	err         error
}

var promtools = sync.OnceValue(func() toolsFound {
	cmd := exec.Command("scripts/promtool.sh", "--path")
	cmd.Dir = root
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == 69: // EX_UNAVAILABLE of sysexits.h
		return toolsFound{reason: strings.TrimSpace(errs.String())}
	case err != nil:
		return toolsFound{err: fmt.Errorf("scripts/promtool.sh: %w: %s", err, errs.String())}
	}
	return toolsFound{dir: strings.TrimSpace(out.String())}
})

// promtool runs promtool in the repository and returns what it printed; it fails the test where that fails.
func promtool(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(prometheusTools(t), "promtool"), args...)
	cmd.Dir, cmd.Stdin = root, strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
