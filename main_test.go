package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ramjet/cli"
	"ramjet/config"
)

// asRamjet makes the test's own binary be Ramjet, for what only a process of
// its own shows: signals and exit codes.
const asRamjet = "TEST_AS_RAMJET"

func TestMain(m *testing.M) {
	if os.Getenv(asRamjet) != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// ramjet is a command line that runs.
type ramjet struct {
	*exec.Cmd
	errs  lines
	ended chan struct{}
}

func begin(t *testing.T, stdin *os.File, args ...string) *ramjet {
	t.Helper()
	r := &ramjet{Cmd: exec.Command(os.Args[0], args...), ended: make(chan struct{})}
	r.Env = append(os.Environ(), asRamjet+"=1")
	r.Stderr = &r.errs
	if stdin != nil {
		r.Stdin = stdin
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = r.Wait(); close(r.ended) }()
	t.Cleanup(func() { _ = r.Process.Kill(); <-r.ended })
	return r
}

// exits waits for the end and returns the exit code.
func (r *ramjet) exits(t *testing.T) int {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(30 * time.Second):
		t.Fatalf("it runs on:\n%s", r.errs.String())
	}
	return r.ProcessState.ExitCode()
}

// lines are what a log or a process writes.
type lines struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestSignalWhileStarting: an orchestrator that gives up on a start is obeyed
// then, not only once Ramjet runs.
func TestSignalWhileStarting(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			in, out, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = out.Close() }()
			r := begin(t, in, "--config=/dev/stdin", "--engine=a=http://127.0.0.1:1", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0")
			_ = in.Close()
			// More than a pipe holds: when it is written, the configuration is being read.
			if _, err := out.WriteString(strings.Repeat("# a comment\n", 10<<10)); err != nil {
				t.Fatal(err)
			}
			if err := r.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			_ = out.Close()
			if code := r.exits(t); code != exitOK {
				t.Errorf("exit %d:\n%s", code, r.errs.String())
			}
			if text := r.errs.String(); !strings.Contains(text, "draining") || !strings.Contains(text, "stopped") {
				t.Errorf("it did not stop in order:\n%s", text)
			}
		})
	}
}

// TestInterruptedIsNoSuccess: a script must not take a command that was
// interrupted for one that found all well.
func TestInterruptedIsNoSuccess(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"health": {"health", "--timeout=1m"}, "explain": {"explain", "--id=x"}, "top": {"top", "--once"}, "qualify": {"qualify"},
		"probe": {"check", "--probe"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ln, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ln.Close() }()
			r := begin(t, nil, append(args, "--admin="+ln.Addr().String(), "--engine=a=http://"+ln.Addr().String())...)
			c, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if err := r.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if code := r.exits(t); code != exitProblem {
				t.Errorf("exit %d:\n%s", code, r.errs.String())
			}
		})
	}
	if err := untilTold(fmt.Errorf("over: %w", context.Canceled)); err != nil {
		t.Errorf("what runs until it is told to stop fails by it: %v", err)
	}
	if err := untilTold(os.ErrPermission); !errors.Is(err, os.ErrPermission) {
		t.Errorf("%v", err)
	}
}

// TestUsageNamesTheFault, which for the simulator only the parser knows.
func TestUsageNamesTheFault(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"sim --hash=foo":        "must be one of",
		"sim --hsh=int":         "--hsh",
		"--route.policyy=x":     "did you mean --route.policy?",
		"top --intervall=1s":    "did you mean --interval?",
		"health --timeout=soon": "--timeout",
	} {
		r := begin(t, nil, strings.Fields(line)...)
		if code := r.exits(t); code != exitUsage {
			t.Errorf("%s: exit %d", line, code)
		}
		if text := r.errs.String(); !strings.Contains(text, want) || strings.HasPrefix(line, "sim --hash") && strings.Contains(text, "unknown flag") {
			t.Errorf("%s: printed\n%s", line, text)
		}
	}
}

// TestCheckReadsWhatServeReads: what serve cannot use is not called valid.
func TestCheckReadsWhatServeReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	empty, key, two := file("empty", "\n"), file("key", "secret"), file("two", "one\ntwo\n")
	for name, c := range map[string]struct {
		args []string
		want string // "" for valid
	}{
		"good":             {[]string{"--engine=a=http://127.0.0.1:1,api_key_file=" + key, "--admin.token-file=" + key, "--auth.keys-file=" + two}, ""},
		"no engine's key":  {[]string{"--engine=a=http://127.0.0.1:1,api_key_file=" + empty}, "flag --engine: engines.a.api_key_file: "},
		"two lines":        {[]string{"--engine=a=http://127.0.0.1:1,api_key_file=" + two}, "engines.a.api_key_file: "},
		"no token":         {[]string{"--engine=a=http://127.0.0.1:1", "--admin.token-file=" + empty}, "admin.token_file: "},
		"no keys":          {[]string{"--engine=a=http://127.0.0.1:1", "--auth.keys-file=" + empty}, "auth.keys_file: "},
		"no cohort key":    {[]string{"--engine=a=http://127.0.0.1:1", "--route.cohort-key-file=" + empty}, "route.cohort_key_file: "},
		"no certificate":   {[]string{"--engine=a=http://127.0.0.1:1", "--tls.cert=" + key, "--tls.key=" + key}, "tls.cert: "},
		"missing file too": {[]string{"--engine=a=http://127.0.0.1:1", "--auth.keys-file=" + dir + "/none"}, "auth.keys_file: cannot read: "},
	} {
		load := func() (*config.Config, error) { return config.Load(config.LoadOptions{Args: c.args}) }
		var out, errs strings.Builder
		code := cli.Check(&out, &errs, load, usable)
		if c.want == "" {
			if code != exitOK || errs.Len() > 0 {
				t.Errorf("%s: exit %d, %s", name, code, errs.String())
			}
			continue
		}
		if code != exitProblem || !strings.Contains(errs.String(), c.want) || strings.Contains(out.String(), "valid, digest") {
			t.Errorf("%s: exit %d, %s", name, code, errs.String())
		}
		cfg, err := load()
		if err != nil {
			t.Fatal(err)
		}
		if a, err := build(cfg, &out, false); err == nil {
			a.close()
			t.Errorf("%s: serve starts with it", name)
		}
	}
}

// words returns the closed list that a flag's placeholder holds, nil if it has
// none.
func words(f *config.Flag) []string {
	list := strings.Split(f.Placeholder, "|")
	if len(list) < 2 || strings.ToLower(f.Placeholder) != f.Placeholder {
		return nil
	}
	return list
}

// TestEveryWordStarts: a word that check takes is known to the package that it
// is for.
func TestEveryWordStarts(t *testing.T) {
	t.Setenv("GOMAXPROCS", "2") // nothing here governs the test's processors
	leaves := 0
	for _, f := range config.Flags() {
		list := words(&f)
		if list == nil {
			continue
		}
		leaves++
		for _, word := range list {
			cfg, err := config.Load(config.LoadOptions{Args: []string{"--engine=a=http://127.0.0.1:1", "--" + f.Name + "=" + word}})
			if err != nil {
				t.Fatal(err)
			}
			a, err := build(cfg, &lines{}, true)
			if err != nil {
				t.Errorf("--%s=%s: %v", f.Name, word, err)
				continue
			}
			a.close()
		}
	}
	if leaves < 9 {
		t.Errorf("only %d settings with words found", leaves)
	}
}
