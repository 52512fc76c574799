package rig

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

// Setup says how to start Ramjet for one test.
type Setup struct {
	Engines  []*Engine // named in order; each becomes --engine NAME=URL
	URLs     []string  // further engines as NAME=URL
	Flags    []string
	Env      []string
	Tags     string   // build tags of the binary
	Files    int      // limit of open files, 0 = the system's
	Log      *os.File // takes what the process prints; nil collects it
	NotReady bool     // do not wait for /readyz, warm up or take a base: no engine may answer
	Loose    bool     // skip the closing assertions: the test ends the process itself
}

// Ramjet is a running process of the binary under test.
type Ramjet struct {
	T       testing.TB
	Setup   Setup
	Cmd     *exec.Cmd
	Public  string
	Admin   string
	started time.Time
	Out     Output
	base    Resources
	Exited  chan struct{}
	exitErr error // after exited

	mu  sync.Mutex // guards the following
	ids []string   // request ids sent, each to have one access line
}

// Output collects what the process prints.
type Output struct {
	mu sync.Mutex // guards the following
	b  bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Start runs `ramjet serve` in front of two engines named a and b.
func Start(t testing.TB, a, b *Engine, flags ...string) *Ramjet {
	t.Helper()
	return StartWith(t, Setup{Engines: []*Engine{a, b}, Flags: flags})
}

// StartWith runs `ramjet serve` as the setup says and waits until it is ready.
// At the end of the test the closing assertions run and the process is stopped.
func StartWith(t testing.TB, s Setup) *Ramjet {
	t.Helper()
	r := &Ramjet{T: t, Setup: s, Exited: make(chan struct{}), started: time.Now()}
	portFile := filepath.Join(t.TempDir(), "ports")
	r.Cmd = command(Binary(t, s.Tags), s, portFile)
	r.Cmd.Stdout, r.Cmd.Stderr = &r.Out, &r.Out
	if s.Log != nil {
		r.Cmd.Stderr = s.Log
	}
	if err := r.Cmd.Start(); err != nil {
		t.Fatalf("cannot start ramjet: %v", err)
	}
	go func() { r.exitErr = r.Cmd.Wait(); close(r.Exited) }()
	t.Cleanup(r.finish)
	r.readPorts(portFile)
	if !s.NotReady {
		r.AwaitReady()
		r.WarmUp()
	}
	return r
}

func command(path string, s Setup, portFile string) *exec.Cmd {
	args := []string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--port-file", portFile,
		"--log.format=json", "--tokens.source=off"}
	for _, e := range s.Engines {
		args = append(args, "--engine", e.Name+"="+e.URL())
	}
	for _, u := range s.URLs {
		args = append(args, "--engine", u)
	}
	args = append(args, s.Flags...)
	args = append(args, strings.Fields(os.Getenv("RAMJET_E2E_FLAGS"))...)
	cmd := exec.Command(path, args...)
	if s.Files > 0 {
		sh := fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, s.Files)
		cmd = exec.Command("sh", append([]string{"-c", sh, path}, args...)...)
	}
	cmd.Env = append(os.Environ(), s.Env...)
	return cmd
}

// readPorts waits for the port file, which Ramjet writes once it is bound.
func (r *Ramjet) readPorts(file string) {
	r.T.Helper()
	last := Poll(2*Patience, func() string {
		if r.HasExited() {
			return "it exited"
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		for _, line := range strings.Split(string(b), "\n") {
			r.Public = cutValue(line, "public=", r.Public)
			r.Admin = cutValue(line, "admin=", r.Admin)
		}
		if r.Public == "" || r.Admin == "" {
			return fmt.Sprintf("port file holds %q", b)
		}
		return ""
	})
	if last != "" {
		r.T.Fatalf("ramjet did not say its ports: %s", last)
	}
}

func cutValue(line, key, old string) string {
	if v, ok := strings.CutPrefix(strings.TrimSpace(line), key); ok {
		return v
	}
	return old
}

// AwaitReady waits until the process and each of its engines is ready, and fails
// the test when that does not happen.
func (r *Ramjet) AwaitReady() {
	r.T.Helper()
	last := Poll(2*Patience, func() string {
		if r.HasExited() {
			return "it exited"
		}
		status, body := r.AdminGet("/readyz")
		if status != 200 {
			return fmt.Sprintf("/readyz %d %s", status, body)
		}
		_, page := r.AdminGet("/metrics")
		m, err := ParseMetrics(page)
		if err != nil {
			return "unreadable: " + err.Error()
		}
		for _, name := range r.EngineNames() {
			if state := m.engineState(name); state != "ready" {
				return fmt.Sprintf("engine %s is %q", name, state)
			}
		}
		return ""
	})
	if last != "" {
		r.T.Fatalf("ramjet is not ready: %s", last)
	}
}

// EngineNames lists the engines as they were given at the start.
func (r *Ramjet) EngineNames() []string {
	var names []string
	for _, e := range r.Setup.Engines {
		names = append(names, e.Name)
	}
	for _, u := range r.Setup.URLs {
		name, _, _ := strings.Cut(u, "=")
		names = append(names, name)
	}
	return names
}

// WarmUp sends one request of each kind, so that what a process makes at its
// first request is part of the base that leaks are measured from.
func (r *Ramjet) WarmUp() {
	r.T.Helper()
	for i, stream := range []bool{false, true} {
		r.Served(fmt.Sprintf("%swarm-%d", AutoID, i), stream)
	}
	// The least of several looks: a probe in flight is not part of the base.
	r.base = r.resources()
	for range 4 {
		time.Sleep(10 * time.Millisecond)
		now := r.resources()
		r.base = Resources{min(r.base.goroutines, now.goroutines), min(r.base.fds, now.fds), max(r.base.upstream, now.upstream)}
	}
}

// Served sends one plain request that has to be answered 200 and whole.
func (r *Ramjet) Served(id string, stream bool) {
	r.T.Helper()
	c := r.Dial(r.T)
	defer c.Close()
	c.Send(Request("POST", ChatPath, id, ChatBody(stream), "Connection: close"))
	r.track(id)
	answer := c.Response(2 * Patience)
	if answer.Status != 200 || !answer.Whole() || !bytes.Contains(answer.Body, []byte("choices")) {
		r.T.Errorf("a plain request was answered %d %.300q", answer.Status, answer.Body)
	}
}

var lastID atomic.Int64

// ID makes a request id and expects one access line for it.
func (r *Ramjet) ID(prefix string) string {
	id := fmt.Sprintf("%s-%d", prefix, lastID.Add(1))
	r.track(id)
	return id
}

// IdsSoFar is the number in the newest request id; later ids have larger ones.
func IdsSoFar() int64 { return lastID.Load() }

func (r *Ramjet) track(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, id)
}

// Post sends a request on a fresh connection and returns the whole answer.
func (r *Ramjet) Post(t testing.TB, path, body string, headers ...string) *Response {
	t.Helper()
	return r.Do(t, Request("POST", path, r.ID("t"), body, headers...))
}

// Do sends raw bytes on a fresh connection and returns the whole answer.
func (r *Ramjet) Do(t testing.TB, raw string) *Response {
	t.Helper()
	c := r.Dial(t)
	defer c.Close()
	c.Method, _, _ = strings.Cut(raw, " ")
	c.Send(raw)
	return c.Response(2 * Patience)
}

// AdminClient opens a connection per request, so that none counts as a leak.
var AdminClient = &http.Client{Timeout: Patience, Transport: &http.Transport{DisableKeepAlives: true}}

// AdminGet asks the admin port; status 0 when it does not answer.
func (r *Ramjet) AdminGet(path string) (status int, body string) {
	return HTTPGet("http://" + r.Admin + path)
}

// HTTPGet asks a URL over a connection of its own; status 0 and the error's text
// when there is no answer.
func HTTPGet(url string) (status int, body string) {
	resp, err := AdminClient.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, b.String()
}

// HasExited reports whether the process has ended.
func (r *Ramjet) HasExited() bool {
	select {
	case <-r.Exited:
		return true
	default:
		return false
	}
}

// Signal sends a signal to the process.
func (r *Ramjet) Signal(sig os.Signal) { _ = r.Cmd.Process.Signal(sig) }

// AwaitExit waits for the end of the process and returns its exit code, -1 when
// it does not end.
func (r *Ramjet) AwaitExit(limit time.Duration) int {
	select {
	case <-r.Exited:
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
func (r *Ramjet) finish() {
	defer r.Stop() // even when an assertion ends the test
	if !r.Setup.Loose && !r.Setup.NotReady && !r.HasExited() {
		r.Closing()
	}
}

// Stop ends the process, at first politely, and looks for crashes; if the test
// failed it prints what the process said.
func (r *Ramjet) Stop() {
	if !r.HasExited() {
		r.Signal(syscall.SIGTERM)
		second := time.AfterFunc(Patience, func() { r.Signal(syscall.SIGTERM) }) // ends at once
		defer second.Stop()
		if r.AwaitExit(3*Patience) == -1 {
			r.T.Errorf("ramjet did not stop after SIGTERM")
			r.Signal(syscall.SIGQUIT)
			r.AwaitExit(Patience)
			_ = r.Cmd.Process.Kill()
		}
	}
	<-r.Exited
	r.noCrash()
	if r.T.Failed() {
		out := r.Out.String()
		r.T.Logf("ramjet said (last 6,000 bytes of %d):\n%s", len(out), out[max(0, len(out)-6000):])
	}
}

// noCrash looks for the traces that a panic or a data race leaves.
func (r *Ramjet) noCrash() {
	for _, trace := range []string{"WARNING: DATA RACE", "\ngoroutine ", "fatal error:", "BUG:"} {
		if strings.Contains(r.Out.String(), trace) && !(trace == "BUG:" && r.Setup.Tags != "") {
			r.T.Errorf("ramjet printed %q", trace)
		}
	}
}
