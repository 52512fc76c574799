package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// An engine in a process of its own can be stopped, continued and killed by
// signal as a real one. It is this test binary started again.
const (
	engineProcessEnv = "RAMJET_E2E_ENGINE"      // name of a script in processScripts
	engineAddrEnv    = "RAMJET_E2E_ENGINE_ADDR" // host:port, port 0 = any
)

// processScripts are the scripts that an engine process can play.
var processScripts = map[string]script{
	"plain": nil,
	// many: a stream of 500 events at 20 ms
	"many": func(x *exchange) {
		x.streamHead()
		x.events(roleEvent())
		for i := range 500 {
			if !x.pause(20*time.Millisecond) || !x.events(deltaEvent(fmt.Sprintf("tok%d ", i))) {
				return
			}
		}
		x.events(finishEvent("stop"), doneEvent)
		x.write(lastChunk)
	},
	// silent: takes the request and says nothing
	"silent": func(x *exchange) { x.gone(0) },
	// short: a plain answer after 40 ms, about what a small model takes
	"short": func(x *exchange) {
		if x.pause(40 * time.Millisecond) {
			x.plain()
		}
	},
}

func runEngineProcess(name string) int {
	e, err := openEngine(name, os.Getenv(engineAddrEnv), 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot start the engine:", err)
		return 1
	}
	e.on(processScripts[name])
	fmt.Println(e.addr)
	_, _ = bufio.NewReader(os.Stdin).ReadByte() // ends with the test that holds the pipe
	return 0
}

// engineProcess is a running engine process.
type engineProcess struct {
	addr string
	cmd  *exec.Cmd
}

// startEngineProcess starts one on an address (port 0 = any); it ends with the
// test.
func startEngineProcess(t testing.TB, name, addr string) *engineProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatalf("cannot find the test binary: %v", err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), engineProcessEnv+"="+name, engineAddrEnv+"="+addr)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatalf("cannot make a pipe: %v", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("cannot make a pipe: %v", err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("cannot start an engine process: %v", err)
	}
	p := &engineProcess{cmd: cmd}
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the engine process did not say its address: %v", err)
	}
	p.addr = strings.TrimSpace(line)
	return p
}

func (p *engineProcess) url() string { return "http://" + p.addr }

// freeze stops the process and waits until it stands: a signal takes its time to
// reach every thread.
func (p *engineProcess) freeze() {
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	_ = poll(patience, func() string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil || strings.Contains(string(b), ") T ") {
			return ""
		}
		return "still runs"
	})
}

func (p *engineProcess) thaw() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// kill ends the process at once; a second call does nothing.
func (p *engineProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
