package vllm

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startLimit bounds how long a server may take until it is healthy: 25 s alone, 50 s beside another one on two quiet
// cores, measured.
const startLimit = 4 * time.Minute

// options are how one vLLM server is started; zero values are those of scripts/vllm-serve.py.
type options struct {
	model     string // folder below models/
	context   int    // tokens
	blockSize int    // tokens
	blocks    int    // of KV cache
	events    bool
	arguments []string // for vLLM
}

// engine is a running vLLM server. Its ports stay its own through a restart.
type engine struct {
	t       *testing.T
	name    string
	options options
	ports   []int // HTTP, events, replay
	url     string
	sockets string // folder of those between its own processes

	cmd   *exec.Cmd
	stdin io.Closer // its end is the server's end
	pid   int       // of the API server, which leads the group of all its processes
	log   output
	ended chan struct{}
}

// startEngines starts servers at once and waits until all are healthy.
func startEngines(t *testing.T, all ...options) []*engine {
	t.Helper()
	ports := keptPorts(t, 3*len(all))
	sockets := socketFolder(t)
	var engines []*engine
	for i, o := range all {
		e := &engine{t: t, name: string(rune('a' + i)), options: o, ports: ports[3*i : 3*i+3], sockets: sockets}
		e.url = fmt.Sprintf("http://127.0.0.1:%d", e.ports[0])
		t.Cleanup(e.finish)
		e.start()
		engines = append(engines, e)
	}
	for _, e := range engines {
		e.awaitHealthy()
	}
	return engines
}

// socketFolder is where servers put the sockets between their own processes, which those that are killed leave behind. Its
// name is short: with a UUID behind it a socket's path may have 107 bytes.
func socketFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rj")
	if err != nil {
		t.Fatalf("cannot make a folder for sockets: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// start runs the server with the options as they are.
func (e *engine) start() {
	e.t.Helper()
	o := e.options
	args := []string{"../../scripts/vllm-serve.py", model(e.t, o.model), "--until-eof", "--port", strconv.Itoa(e.ports[0])}
	for _, f := range []struct {
		flag  string
		value int
	}{{"--context", o.context}, {"--block-size", o.blockSize}, {"--blocks", o.blocks}} {
		if f.value != 0 {
			args = append(args, f.flag, strconv.Itoa(f.value))
		}
	}
	if o.events {
		args = append(args, "--events", strconv.Itoa(e.ports[1]), "--replay", strconv.Itoa(e.ports[2]))
	}
	args = append(append(args, "--"), o.arguments...)
	e.cmd = exec.Command(filepath.Join(installed(e.t), "venv", "bin", "python"), args...)
	e.cmd.Env = append(os.Environ(), "VLLM_RPC_BASE_PATH="+e.sockets)
	e.cmd.Stderr = &e.log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C ends the test first
	stdin, err := e.cmd.StdinPipe()
	if err != nil {
		e.t.Fatal(err)
	}
	stdout, err := e.cmd.StdoutPipe()
	if err != nil {
		e.t.Fatal(err)
	}
	if err := e.cmd.Start(); err != nil {
		e.t.Fatalf("cannot start vLLM: %v", err)
	}
	e.stdin, e.ended = stdin, make(chan struct{})
	cmd, ended, lines := e.cmd, e.ended, bufio.NewReader(stdout)
	line, _ := lines.ReadString('\n')
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		_ = cmd.Wait()
		close(ended)
	}()
	if _, err := fmt.Sscanf(line, "pid %d", &e.pid); err != nil {
		e.t.Fatalf("vLLM %s did not start: %q\n%s", e.name, line, e.log.tail(20))
	}
}

func (e *engine) hasEnded() bool {
	select {
	case <-e.ended:
		return true
	default:
		return false
	}
}

func (e *engine) awaitHealthy() {
	e.t.Helper()
	began := time.Now()
	eventually(e.t, startLimit, "vLLM "+e.name+" is healthy", func() string {
		if e.hasEnded() {
			e.t.Fatalf("vLLM %s ended while it started:\n%s", e.name, e.log.tail(40))
		}
		resp, err := (&http.Client{Timeout: patience}).Get(e.url + "/health")
		if err != nil {
			return err.Error()
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return resp.Status
		}
		return ""
	})
	e.t.Logf("vLLM %s (%s) healthy after another %.0f s", e.name, e.options.model, time.Since(began).Seconds())
}

// kill ends all processes of the server as a crash does: without a word to anybody.
func (e *engine) kill() {
	e.t.Helper()
	if err := syscall.Kill(-e.pid, syscall.SIGKILL); err != nil {
		e.t.Fatalf("cannot kill vLLM %s: %v", e.name, err)
	}
	e.awaitEnd()
}

// stop asks the server to end and waits until it has.
func (e *engine) stop() {
	e.t.Helper()
	_ = e.stdin.Close()
	e.awaitEnd()
}

func (e *engine) awaitEnd() {
	e.t.Helper()
	select {
	case <-e.ended:
	case <-time.After(patience):
		e.t.Errorf("vLLM %s did not end; its processes are killed", e.name)
		_ = syscall.Kill(-e.pid, syscall.SIGKILL)
		_ = e.cmd.Process.Kill()
		<-e.ended
	}
	_ = e.stdin.Close()
}

// finish stops the server at the end of the test and shows its log if the test failed.
func (e *engine) finish() {
	if e.ended == nil {
		return
	}
	e.stop()
	if e.t.Failed() {
		e.t.Logf("vLLM %s said at last:\n%s", e.name, e.log.tail(15))
	}
}

// cpu returns what the API server's own process has used so far: tokenizing, templates and HTTP, not the model. The
// system counts in ticks of 10 ms.
func (e *engine) cpu() time.Duration {
	e.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", e.pid))
	if err != nil {
		e.t.Fatal(err)
	}
	// The second field is a name in brackets and may hold anything; user and system time are 12 and 13 behind it.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			e.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
