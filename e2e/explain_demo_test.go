package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"ramjet/e2e/rig"
)

// TestDemoShowsWhatItIsFor: one command, without a file, routes by exact keys,
// finds most of the prompts cached and hands ids over; an interrupt ends it and
// leaves nothing behind.
func TestDemoShowsWhatItIsFor(t *testing.T) {
	t.Parallel()
	rig.Slow(t, "the demo runs at the speed of real engines")
	tmp := t.TempDir()
	var out rig.Output
	cmd := exec.Command(rig.Binary(t, ""), "demo", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0")
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatalf("cannot start the demo: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	shows := map[string]*regexp.Regexp{
		"match": regexp.MustCompile(`match +[1-9]\d+%`), "exact": regexp.MustCompile(`exact +[1-9]\d+%`),
		"handed over": regexp.MustCompile(`handed over [1-9]`), "first token": regexp.MustCompile(`first token \d+ ms / \d+ ms`),
	}
	last := rig.Poll(8*rig.Patience, func() string {
		for what, re := range shows {
			if !re.MatchString(out.String()) {
				return "no line shows " + what
			}
		}
		return ""
	})
	_ = cmd.Process.Signal(syscall.SIGINT)
	var err error
	stopped := rig.Poll(3*rig.Patience, func() string {
		select {
		case err = <-done:
			return ""
		default:
			return "it still runs"
		}
	})
	if stopped != "" {
		_ = cmd.Process.Kill()
		err = <-done
	}
	left, _ := os.ReadDir(tmp)
	if last+stopped != "" || err != nil || len(left) != 0 || strings.Contains(out.String(), "failed") {
		t.Errorf("%s; after an interrupt %q, %v, %d files left behind; it printed\n%s", last, stopped, err, len(left), out.String())
	}
}

// TestDemoOnce: a fixed load, its table, exit 0.
func TestDemoOnce(t *testing.T) {
	t.Parallel()
	rig.Slow(t, "the demo runs at twice the speed of real engines")
	code, out, errs := runRamjet(t, "", "demo", "--once", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--log.level=error", "--tokens.max-time=2s")
	if code != 0 || errs != "" {
		t.Errorf("exit %d: %s", code, errs)
	}
	for _, want := range []string{`\nall +200 `, `\nexact +\d+ of 200 decisions`, `\nmatch +[1-9]\d% of`, `\nhanded over +(9\d|100) requests`, `\d+ ms with ids, \d+ ms without`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("not printed: %s", want)
		}
	}
	if t.Failed() {
		t.Logf("it printed\n%s", out)
	}
}
