package deploy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a child of the test; it ends with the test.
type process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	gone chan struct{}

	mu  sync.Mutex // guards out
	out bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// launch starts cmd, with its output collected unless cmd has a place for it.
func launch(t testing.TB, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: cmd, gone: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p
	}
	if cmd.Stderr == nil {
		cmd.Stderr = p
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("cannot start %s: %v", name, err)
	}
	go func() { _ = cmd.Wait(); close(p.gone) }()
	t.Cleanup(p.stop)
	return p
}

// stop ends the process; a second call does nothing.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.gone:
	case <-time.After(100 * time.Millisecond):
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // Ramjet's second signal: at once
		select {
		case <-p.gone:
		case <-time.After(5 * time.Second):
			_ = p.cmd.Process.Kill()
			<-p.gone
		}
	}
	if p.t.Failed() && os.Getenv("RAMJET_E2E_OUTPUT") != "" {
		out := p.said()
		p.t.Logf("%s said (the last of %d bytes):\n%s", p.name, len(out), out[max(0, len(out)-4000):])
	}
}

// engine is a simulated engine: a process of its own.
type engine struct {
	t            testing.TB
	url, control string
	sockets      string // of its events, as members of --engine
}

// said by the simulator once it is bound, in this order
var (
	simAPI     = regexp.MustCompile(`(?m)^sim: \S+ on (http://\S+)$`)
	simControl = regexp.MustCompile(`(?m)^sim: control on (http://\S+)$`)
	simSockets = regexp.MustCompile(`(?m)^sim: events on (tcp://\S+)\nsim: replay on (tcp://\S+)$`)
)

// withEvents are the flags of an engine that publishes its cache's events.
var withEvents = []string{"--events=tcp://127.0.0.1:0", "--replay=tcp://127.0.0.1:0"}

// startEngine runs `ramjet sim`.
func startEngine(t testing.TB, args ...string) *engine {
	t.Helper()
	args = append([]string{"sim", "--listen=127.0.0.1:0", "--control=127.0.0.1:0", "--speed=20"}, args...)
	p := launch(t, "sim", exec.Command(binary(t, ""), args...))
	e := &engine{t: t}
	eventually(t, "the simulator's addresses", func() error {
		api, control, sockets := simAPI.FindStringSubmatch(p.said()), simControl.FindStringSubmatch(p.said()), simSockets.FindStringSubmatch(p.said())
		if api == nil || control == nil || sockets == nil && slices.Contains(args, withEvents[0]) {
			return fmt.Errorf("it said %q", p.said())
		}
		e.url, e.control = api[1], control[1]
		if sockets != nil {
			e.sockets = fmt.Sprintf(",events=%s,replay=%s", sockets[1], sockets[2])
		}
		return nil
	})
	return e
}

// fault arms a fault, given as the members of its JSON object.
func (e *engine) fault(members string) {
	e.t.Helper()
	e.sim("fault", "{"+members+"}")
}

func (e *engine) sim(what, body string) {
	e.t.Helper()
	if status, answer := post(e.control+"/sim/"+what, body); status != 200 {
		e.t.Errorf("/sim/%s %s: %d %s", what, body, status, answer)
	}
}

// proxy is a running Ramjet.
type proxy struct {
	*process
	public, admin string // HOST:PORT
}

// proxyOptions says how to run one.
type proxyOptions struct {
	engines []*engine
	each    string // appended to each --engine
	flags   []string
	tags    string    // of the build
	files   int       // limit of open files, 0 = the system's
	stderr  io.Writer // instead of being collected
}

// startProxy runs `ramjet serve` in front of the engines, named a, b, .. in order, and waits until it is bound.
func startProxy(t testing.TB, o proxyOptions) *proxy {
	t.Helper()
	ports := filepath.Join(t.TempDir(), "ports")
	args := []string{"serve", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--port-file=" + ports, "--log.format=json"}
	for i, e := range o.engines {
		args = append(args, fmt.Sprintf("--engine=%c=%s%s%s", 'a'+i, e.url, e.sockets, o.each))
	}
	args = append(args, o.flags...)
	cmd := exec.Command(binary(t, o.tags), args...)
	if o.files > 0 {
		sh := fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, o.files)
		cmd = exec.Command("sh", append([]string{"-c", sh, binary(t, o.tags)}, args...)...)
	}
	cmd.Stderr = o.stderr
	p := &proxy{process: launch(t, "ramjet", cmd)}
	eventually(t, "Ramjet's ports", func() error {
		b, err := os.ReadFile(ports)
		if err != nil {
			return err
		}
		_, err = fmt.Sscanf(string(b), "public=%s\nadmin=%s\n", &p.public, &p.admin)
		return err
	})
	return p
}

// ready waits until the proxy says that it can serve.
func (p *proxy) ready() {
	p.t.Helper()
	eventually(p.t, "readiness", func() error {
		if status, body := get("http://" + p.admin + "/readyz"); status != 200 {
			return fmt.Errorf("/readyz: %d %s", status, body)
		}
		return nil
	})
}

// trusts waits until what is known of an engine's cache is believed.
func (p *proxy) trusts(engine string) {
	p.t.Helper()
	want := fmt.Sprintf("\nramjet_residency_trust{engine=%q,trust=\"exact\"} 1\n", engine)
	eventually(p.t, "trust", func() error {
		if !strings.Contains(p.metrics(), want) {
			return fmt.Errorf("not exact")
		}
		return nil
	})
}

// metrics is the text of its /metrics.
func (p *proxy) metrics() string {
	p.t.Helper()
	status, body := get("http://" + p.admin + "/metrics")
	if status != 200 {
		p.t.Fatalf("/metrics: %d %s", status, body)
	}
	return body
}

var client = &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

func get(url string) (status int, body string) { return result(client.Get(url)) }

func post(url, body string) (status int, answer string) {
	return result(client.Post(url, "application/json", strings.NewReader(body)))
}

func result(resp *http.Response, err error) (status int, body string) {
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, err.Error()
	}
	return resp.StatusCode, string(b)
}

// eventually waits until ok returns nil, and fails the test with its last word when it does not in time.
func eventually(t testing.TB, what string, ok func() error) {
	t.Helper()
	for deadline, pause := time.Now().Add(patience), 5*time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
		time.Sleep(pause)
	}
}
