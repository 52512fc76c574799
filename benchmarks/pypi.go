package benchmarks

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// pinned holds a file of requirements for each rival that is a Python package, all versions fixed.
//
//go:embed rivals/*.txt
var pinned embed.FS

// requirementsOf returns the file of requirements of a package and the version that it fixes for the package itself.
func requirementsOf(name string) (text, version string, err error) {
	b, err := pinned.ReadFile("rivals/" + name + ".txt")
	if err != nil {
		return "", "", fmt.Errorf("cannot find the requirements of %s: %w", name, err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+"=="); ok {
			return string(b), v, nil
		}
	}
	return "", "", fmt.Errorf("cannot find the version of %s in its requirements", name)
}

// EnsurePackage installs a Python package at its fixed version into an environment of its own below tools, once, and
// returns the program of the same name in it. The stamp is written last and holds the requirements: a half-made
// environment, or one of other versions, is made anew.
func EnsurePackage(ctx context.Context, python, tools, name string, log io.Writer) (program, version string, err error) {
	text, version, err := requirementsOf(name)
	if err != nil {
		return "", "", err
	}
	dir, err := filepath.Abs(filepath.Join(tools, "rival-"+name))
	if err != nil {
		return "", "", err
	}
	program, stamp := filepath.Join(dir, "bin", name), filepath.Join(dir, "ready")
	if done, err := os.ReadFile(stamp); err == nil && string(done) == text {
		return program, version, nil
	}
	_, _ = fmt.Fprintf(log, "installing %s %s below %s (once)\n", name, version, tools)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	list := filepath.Join(dir, "requirements.txt")
	steps := []func() error{
		func() error { return os.RemoveAll(dir) }, // whatever is in the way, a dangling link included
		func() error { return quietly(ctx, python, "-m", "venv", "--clear", dir) },
		func() error { return os.WriteFile(list, []byte(text), 0o600) },
		func() error {
			return quietly(ctx, filepath.Join(dir, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", "-r", list)
		},
		func() error { _, err := os.Stat(program); return err },
		func() error { return os.WriteFile(stamp, []byte(text), 0o600) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return "", "", fmt.Errorf("cannot install %s %s: %w", name, version, err)
		}
	}
	return program, version, nil
}

// quietly runs a program and shows the end of what it says only when it fails.
func quietly(ctx context.Context, argv ...string) error {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err == nil {
		return nil
	}
	const most = 400
	return errors.Join(err, fmt.Errorf("%s", strings.TrimSpace(string(out[max(0, len(out)-most):]))))
}
