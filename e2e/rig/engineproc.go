package rig

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"ramjet/e2e/ports"
)

// An engine in a process of its own can be stopped, continued and killed by
// signal as a real one. It is this test binary started again.
const (
	engineProcessEnv = "RAMJET_E2E_ENGINE"      // name of a script in ProcessScripts
	engineAddrEnv    = "RAMJET_E2E_ENGINE_ADDR" // host:port, port 0 = any
)

// ProcessScripts are the scripts that an engine process can play.
var ProcessScripts = map[string]Script{
	"plain": nil,
	// many: a stream of 500 events at 20 ms
	"many": func(x *Exchange) {
		x.StreamHead()
		x.Events(RoleEvent())
		for i := range 500 {
			if !x.Pause(20*time.Millisecond) || !x.Events(DeltaEvent(fmt.Sprintf("tok%d ", i))) {
				return
			}
		}
		x.Events(FinishEvent("stop"), DoneEvent)
		x.Write(LastChunk)
	},
	// silent: takes the request and says nothing
	"silent": func(x *Exchange) { x.Gone(0) },
	// short: a plain answer after 40 ms, about what a small model takes. It goes
	// out in one write, so that a kill comes before it or behind it.
	"short": func(x *Exchange) {
		switch {
		case !x.Pause(40 * time.Millisecond):
		case x.streamed():
			x.Write(StreamHead + Chunked(ChatEvents(3)))
		default:
			x.Plain()
		}
	},
}

func runEngineProcess(name string) int {
	e, err := openEngine(name, os.Getenv(engineAddrEnv), 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot start the engine:", err)
		return 1
	}
	e.On(ProcessScripts[name])
	fmt.Println(e.Addr)
	_, _ = bufio.NewReader(os.Stdin).ReadByte() // ends with the test that holds the pipe
	return 0
}

// EngineProcess is a running engine process.
type EngineProcess struct {
	Addr string
	cmd  *exec.Cmd
}

// StartEngineProcess starts one on an address (127.0.0.1:0 = a port that stays
// its own until the test ends, also behind a kill); it ends with the test.
func StartEngineProcess(t testing.TB, name, addr string) *EngineProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatalf("cannot find the test binary: %v", err)
	}
	if addr == "127.0.0.1:0" {
		addr = ports.Kept(t)
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
	p := &EngineProcess{cmd: cmd}
	t.Cleanup(p.Kill)
	stuck := time.AfterFunc(2*Patience, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the engine process did not say its address: %v", err)
	}
	p.Addr = strings.TrimSpace(line)
	return p
}

// URL is the engine's base URL.
func (p *EngineProcess) URL() string { return "http://" + p.Addr }

// Freeze stops the process and waits until it stands: a signal takes its time to
// reach every thread.
func (p *EngineProcess) Freeze() {
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	_ = Poll(Patience, func() string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil || strings.Contains(string(b), ") T ") {
			return ""
		}
		return "still runs"
	})
}

// Thaw lets a frozen process go on.
func (p *EngineProcess) Thaw() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// Kill ends the process at once; a second call does nothing.
func (p *EngineProcess) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
