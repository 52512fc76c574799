package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// setup says how to start Ramjet for one test.
type setup struct {
	engines  []*engine // named in order; each becomes --engine NAME=URL
	urls     []string  // further engines as NAME=URL
	flags    []string
	env      []string
	tags     string // build tags of the binary
	files    int    // limit of open files, 0 = the system's
	notReady bool   // do not wait for /readyz, warm up or take a base: no engine may answer
	loose    bool   // skip the closing assertions: the test ends the process itself
}

// ramjet is a running process of the binary under test.
type ramjet struct {
	t       testing.TB
	setup   setup
	cmd     *exec.Cmd
	public  string
	admin   string
	started time.Time
	out     output
	base    resources
	exited  chan struct{}
	exitErr error // after exited

	mu  sync.Mutex // guards the following
	ids []string   // request ids sent, each to have one access line
}

// output collects what the process prints.
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

// start runs `ramjet serve` in front of two engines named a and b.
func start(t testing.TB, a, b *engine, flags ...string) *ramjet {
	t.Helper()
	return startWith(t, setup{engines: []*engine{a, b}, flags: flags})
}

// startWith runs `ramjet serve` as the setup says and waits until it is ready.
// At the end of the test the closing assertions run and the process is stopped.
func startWith(t testing.TB, s setup) *ramjet {
	t.Helper()
	r := &ramjet{t: t, setup: s, exited: make(chan struct{}), started: time.Now()}
	portFile := filepath.Join(t.TempDir(), "ports")
	r.cmd = command(binary(t, s.tags), s, portFile)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	if err := r.cmd.Start(); err != nil {
		t.Fatalf("cannot start ramjet: %v", err)
	}
	go func() { r.exitErr = r.cmd.Wait(); close(r.exited) }()
	t.Cleanup(r.finish)
	r.readPorts(portFile)
	if !s.notReady {
		r.awaitReady()
		r.warmUp()
	}
	return r
}

func command(path string, s setup, portFile string) *exec.Cmd {
	args := []string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--port-file", portFile,
		"--log.format=json", "--tokens.source=off"}
	for _, e := range s.engines {
		args = append(args, "--engine", e.name+"="+e.url())
	}
	for _, u := range s.urls {
		args = append(args, "--engine", u)
	}
	args = append(args, s.flags...)
	args = append(args, strings.Fields(os.Getenv("RAMJET_E2E_FLAGS"))...)
	cmd := exec.Command(path, args...)
	if s.files > 0 {
		sh := fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, s.files)
		cmd = exec.Command("sh", append([]string{"-c", sh, path}, args...)...)
	}
	cmd.Env = append(os.Environ(), s.env...)
	return cmd
}

// readPorts waits for the port file, which Ramjet writes once it is bound.
func (r *ramjet) readPorts(file string) {
	r.t.Helper()
	last := poll(2*patience, func() string {
		if r.hasExited() {
			return "it exited"
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		for _, line := range strings.Split(string(b), "\n") {
			r.public = cutValue(line, "public=", r.public)
			r.admin = cutValue(line, "admin=", r.admin)
		}
		if r.public == "" || r.admin == "" {
			return fmt.Sprintf("port file holds %q", b)
		}
		return ""
	})
	if last != "" {
		r.t.Fatalf("ramjet did not say its ports: %s", last)
	}
}

func cutValue(line, key, old string) string {
	if v, ok := strings.CutPrefix(strings.TrimSpace(line), key); ok {
		return v
	}
	return old
}

func (r *ramjet) awaitReady() {
	r.t.Helper()
	last := poll(2*patience, func() string {
		if r.hasExited() {
			return "it exited"
		}
		status, body := r.adminGet("/readyz")
		if status != 200 {
			return fmt.Sprintf("/readyz %d %s", status, body)
		}
		for _, name := range r.engineNames() {
			if state := r.engineState(name); state != "ready" {
				return fmt.Sprintf("engine %s is %q", name, state)
			}
		}
		return ""
	})
	if last != "" {
		r.t.Fatalf("ramjet is not ready: %s", last)
	}
}

func (r *ramjet) engineNames() []string {
	var names []string
	for _, e := range r.setup.engines {
		names = append(names, e.name)
	}
	for _, u := range r.setup.urls {
		name, _, _ := strings.Cut(u, "=")
		names = append(names, name)
	}
	return names
}

// warmUp sends one request of each kind, so that what a process makes at its
// first request is part of the base that leaks are measured from.
func (r *ramjet) warmUp() {
	r.t.Helper()
	for i, stream := range []bool{false, true} {
		r.served(fmt.Sprintf("%swarm-%d", autoID, i), stream)
	}
	// The least of several looks: a probe in flight is not part of the base.
	r.base = r.resources()
	for range 4 {
		time.Sleep(10 * time.Millisecond)
		now := r.resources()
		r.base = resources{min(r.base.goroutines, now.goroutines), min(r.base.fds, now.fds), max(r.base.upstream, now.upstream)}
	}
}

// served sends one plain request that has to be answered 200 and whole.
func (r *ramjet) served(id string, stream bool) {
	r.t.Helper()
	c := r.dial(r.t)
	defer c.close()
	c.send(request("POST", chatPath, id, chatBody(stream), "Connection: close"))
	r.track(id)
	answer := c.response(2 * patience)
	if answer.status != 200 || !answer.whole() || !bytes.Contains(answer.body, []byte("choices")) {
		r.t.Errorf("a plain request was answered %d %.300q", answer.status, answer.body)
	}
}

var lastID atomic.Int64

// id makes a request id and expects one access line for it.
func (r *ramjet) id(prefix string) string {
	id := fmt.Sprintf("%s-%d", prefix, lastID.Add(1))
	r.track(id)
	return id
}

func (r *ramjet) track(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, id)
}

// post sends a request on a fresh connection and returns the whole answer.
func (r *ramjet) post(t testing.TB, path, body string, headers ...string) *response {
	t.Helper()
	return r.do(t, request("POST", path, r.id("t"), body, headers...))
}

// do sends raw bytes on a fresh connection and returns the whole answer.
func (r *ramjet) do(t testing.TB, raw string) *response {
	t.Helper()
	c := r.dial(t)
	defer c.close()
	c.method, _, _ = strings.Cut(raw, " ")
	c.send(raw)
	return c.response(2 * patience)
}

// adminClient opens a connection per request, so that none counts as a leak.
var adminClient = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

// adminGet asks the admin port; status 0 when it does not answer.
func (r *ramjet) adminGet(path string) (status int, body string) {
	return httpGet("http://" + r.admin + path)
}

func httpGet(url string) (status int, body string) {
	resp, err := adminClient.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, b.String()
}

func (r *ramjet) hasExited() bool {
	select {
	case <-r.exited:
		return true
	default:
		return false
	}
}

func (r *ramjet) signal(sig os.Signal) { _ = r.cmd.Process.Signal(sig) }

// awaitExit waits for the end of the process and returns its exit code, -1 when
// it does not end.
func (r *ramjet) awaitExit(limit time.Duration) int {
	select {
	case <-r.exited:
		var exit *exec.ExitError
		if errors.As(r.exitErr, &exit) {
			return exit.ExitCode()
		}
		return 0
	case <-time.After(limit):
		return -1
	}
}

// finish runs the closing assertions, stops the process and, if anything
// failed, prints what it said.
func (r *ramjet) finish() {
	defer r.stop() // even when an assertion ends the test
	if !r.setup.loose && !r.setup.notReady && !r.hasExited() {
		r.closing()
	}
}

func (r *ramjet) stop() {
	if !r.hasExited() {
		r.signal(syscall.SIGTERM)
		second := time.AfterFunc(patience, func() { r.signal(syscall.SIGTERM) }) // ends at once
		defer second.Stop()
		if r.awaitExit(3*patience) == -1 {
			r.t.Errorf("ramjet did not stop after SIGTERM")
			r.signal(syscall.SIGQUIT)
			r.awaitExit(patience)
			_ = r.cmd.Process.Kill()
		}
	}
	<-r.exited
	r.noCrash()
	if r.t.Failed() {
		out := r.out.String()
		r.t.Logf("ramjet said (last 6,000 bytes of %d):\n%s", len(out), out[max(0, len(out)-6000):])
	}
}

// noCrash looks for the traces that a panic or a data race leaves.
func (r *ramjet) noCrash() {
	for _, trace := range []string{"WARNING: DATA RACE", "\ngoroutine ", "fatal error:", "BUG:"} {
		if strings.Contains(r.out.String(), trace) && !(trace == "BUG:" && r.setup.tags != "") {
			r.t.Errorf("ramjet printed %q", trace)
		}
	}
}
