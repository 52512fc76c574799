package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// FindTool looks for a program in PATH and in the folders where Debian keeps servers, which are not in every PATH.
func FindTool(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin"} {
		p := filepath.Join(dir, name)
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("cannot find %s", name)
}

// EnsureTool finds a program or installs the Debian package of that name where that is possible: as root, with apt-get.
// Otherwise the error says what to do.
func EnsureTool(name string, log io.Writer) (string, error) {
	p, err := FindTool(name)
	if err == nil {
		return p, nil
	}
	hint := fmt.Sprintf("install it by hand (Debian and Ubuntu: apt-get install %s) and run again", name)
	apt, aptErr := exec.LookPath("apt-get")
	switch {
	case aptErr != nil:
		return "", fmt.Errorf("%w, and this system has no apt-get to install it with: %s", err, hint)
	case os.Geteuid() != 0:
		return "", fmt.Errorf("%w, and only root can install it: %s", err, hint)
	}
	_, _ = fmt.Fprintf(log, "%s is missing: installing the package %s\n", name, name)
	if err := aptInstall(apt, name, log); err != nil {
		return "", fmt.Errorf("cannot install %s: %w; %s", name, err, hint)
	}
	return FindTool(name)
}

// policyFile keeps Debian's packages from starting their service: only the program is wanted here, not a server on port 80.
const policyFile = "/usr/sbin/policy-rc.d"

func aptInstall(apt, pkg string, log io.Writer) (err error) {
	if _, statErr := os.Stat(policyFile); errors.Is(statErr, os.ErrNotExist) {
		if err := os.WriteFile(policyFile, []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil { //nolint:gosec // a script has to be executable
			return err
		}
		defer func() { err = errors.Join(err, os.Remove(policyFile)) }()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for _, args := range [][]string{{"update", "-q"}, {"install", "-y", "-q", "--no-install-recommends", pkg}} {
		cmd := exec.CommandContext(ctx, apt, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("apt-get %s: %w", args[0], err)
		}
	}
	return nil
}
