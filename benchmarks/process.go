package benchmarks

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"ramjet/benchmarks/lab"
)

// process is a child of the orchestrator.
type process struct {
	cmd     *exec.Cmd
	log     string // its output is here
	exited  chan struct{}
	exitErr error // valid once exited is closed
}

// startProcess runs argv in a process group of its own, with its output in dir/name.log.
func startProcess(dir, name string, argv ...string) (*process, error) {
	logName := filepath.Join(dir, name+".log")
	out, err := os.Create(logName)
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = out, out, dir
	if err := lab.StartChild(cmd); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	p := &process{cmd: cmd, log: logName, exited: make(chan struct{})}
	go func() {
		p.exitErr = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop asks for an end, then forces it after 5 s, for the process and the group that it leads.
func (p *process) stop() {
	_ = syscall.Kill(p.pid(), syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(5 * time.Second):
	}
	_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
	<-p.exited
}

// wait polls until ready says yes, the process ends or limit has passed.
func (p *process) wait(what string, limit time.Duration, ready func() bool) error {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		select {
		case <-p.exited:
			return fmt.Errorf("cannot start %s: it ended (%w): %s", what, errors.Join(p.exitErr), p.tail())
		default:
		}
		if ready() {
			return nil
		}
	}
	return fmt.Errorf("cannot start %s: not ready within %s: %s", what, limit, p.tail())
}

// tail returns the end of the process's output, for error messages.
func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const most = 600
	return strings.TrimSpace(string(b[max(0, len(b)-most):]))
}

// answers200 says whether GET url answers 200.
func answers200(url string) bool {
	c := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(url)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// freePort returns a loopback address that nobody listened on a moment ago, for programs that cannot report the port
// they picked.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("cannot find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}
