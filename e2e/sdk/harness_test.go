package sdk

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

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
		_ = os.RemoveAll(built.dir)
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
		if built.dir, built.err = os.MkdirTemp("", "ramjet-sdk-"); built.err != nil {
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

// setup is Ramjet in front of two simulated engines.
type setup struct {
	public, admin string // URLs
	engines       map[string]string
	access        *lines // of Ramjet's log
}

// patience is far beyond what anything here takes.
const patience = 30 * time.Second

// start runs two engines, a as mtp and b as standard, at that speed, and Ramjet in front of them.
func start(t *testing.T, speed string, extra ...string) *setup {
	t.Helper()
	s := &setup{engines: map[string]string{}}
	args := []string{"serve", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--log.format=json"}
	for _, name := range []string{"a", "b"} {
		profile := map[string]string{"a": "mtp", "b": "standard"}[name]
		out := command(t, "sim "+name, "sim", "--listen=127.0.0.1:0", "--profile="+profile, "--speed="+speed)
		s.engines[name] = out.match(t, regexp.MustCompile(`on (http://\S+)`))
		args = append(args, fmt.Sprintf("--engine=%s=%s,profile=%s", name, s.engines[name], profile))
	}
	ports := filepath.Join(t.TempDir(), "ports")
	s.access = command(t, "ramjet", append(args, append(extra, "--port-file="+ports)...)...)
	eventually(t, "ramjet's ports", func() bool {
		text, err := os.ReadFile(ports)
		if err != nil {
			return false
		}
		for line := range strings.Lines(string(text)) {
			name, address, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch name {
			case "public":
				s.public = "http://" + address
			case "admin":
				s.admin = "http://" + address
			}
		}
		return s.public != "" && s.admin != ""
	})
	eventually(t, "both engines ready", func() bool {
		text := s.get(t, s.public+"/health")
		return strings.Count(text, `"state":"ready"`) == 2
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("ramjet's log:\n%s", s.access.tail(40))
		}
	})
	return s
}

// get returns the body of an answer, "" if there is none yet.
func (s *setup) get(t *testing.T, url string) string {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}

var client = &http.Client{Timeout: patience, Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 32}}

// command runs the binary until the test ends and returns its output.
func command(t *testing.T, name string, args ...string) *lines {
	t.Helper()
	out := &lines{}
	cmd := exec.Command(binary(t), args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatalf("cannot start %s: %v", name, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		stopped := make(chan error, 1)
		go func() { stopped <- cmd.Wait() }()
		select {
		case err := <-stopped:
			if err != nil {
				t.Errorf("%s ended with %v:\n%s", name, err, out.tail(20))
			}
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Errorf("%s did not stop at SIGTERM:\n%s", name, out.tail(20))
		}
	})
	return out
}

// lines collects what a process prints.
type lines struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) tail(n int) string {
	all := strings.Split(strings.TrimRight(l.String(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}

// match waits for a line and returns its first group.
func (l *lines) match(t *testing.T, what *regexp.Regexp) string {
	t.Helper()
	found := ""
	eventually(t, what.String(), func() bool {
		if m := what.FindStringSubmatch(l.String()); m != nil {
			found = m[1]
		}
		return found != ""
	})
	return found
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %v", what, patience)
		}
	}
}

// runChecks runs a script that prints "PASS name", "SKIP name: why" or "FAIL name" with indented details behind it,
// and reports each as a subtest.
func runChecks(t *testing.T, s *setup, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "RAMJET_URL="+s.public, "RAMJET_ADMIN="+s.admin, "SIM_A="+s.engines["a"], "SIM_B="+s.engines["b"],
		"NO_PROXY=127.0.0.1", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	checks, failed := 0, false
	var current, details string
	flush := func() {
		verdict, check, _ := strings.Cut(current, " ")
		switch verdict {
		case "PASS", "FAIL", "SKIP":
		default:
			return
		}
		checks++
		check, why, _ := strings.Cut(check, ": ")
		t.Run(check, func(t *testing.T) {
			switch verdict {
			case "FAIL":
				failed = true
				t.Errorf("%s", details)
			case "SKIP":
				t.Skip(why)
			}
		})
	}
	scan := bufio.NewScanner(bytes.NewReader(out))
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		line := scan.Text()
		if strings.HasPrefix(line, " ") || !regexp.MustCompile("^(PASS|FAIL|SKIP) ").MatchString(line) {
			details += line + "\n"
			continue
		}
		flush()
		current, details = line, ""
	}
	flush()
	if checks == 0 || err != nil && !failed {
		t.Errorf("%s %v: %v\n%s", name, args, err, out)
	}
}
