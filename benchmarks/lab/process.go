package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// StartLimit is time enough for any of the processes to serve, on a machine that does other things too.
const StartLimit = time.Minute

// Process is a child of this program, in a process group of its own: a terminal's Ctrl-C reaches this program first.
type Process struct {
	cmd   *exec.Cmd
	stdin io.Closer // kept open until Stop: some children end with it
	// Log is the name of the file that what it prints goes to.
	Log   string
	ended chan struct{}
	err   error // of Wait, set before ended is closed
}

// Start runs argv with its output in dir/name.log.
func Start(dir, name string, argv ...string) (*Process, error) {
	p := &Process{cmd: exec.Command(argv[0], argv[1:]...), Log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	out, err := os.Create(p.Log)
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	defer func() { _ = out.Close() }()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	if err := StartChild(p.cmd); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", filepath.Base(argv[0]), err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// Stop ends the process and waits for it; a nil Process is stopped.
func (p *Process) Stop() {
	if p == nil {
		return
	}
	_ = p.stdin.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// Await asks until ready says yes, for limit at most.
func (p *Process) Await(what string, limit time.Duration, ready func() bool) error {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		select {
		case <-p.ended:
			said, _ := os.ReadFile(p.Log)
			return fmt.Errorf("cannot start %s: it ended (%w) and said %.2000s", what, errors.Join(p.err, errEnded), said)
		default:
		}
		if ready() {
			return nil
		}
	}
	return fmt.Errorf("cannot start %s: not ready within %v", what, limit)
}

var errEnded = errors.New("before it was ready")

// PID returns the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Wait waits for the process to end by itself; the error is its exit.
func (p *Process) Wait() error {
	<-p.ended
	return p.err
}

// CPU returns the CPU time (user and system, seconds) that the process has used.
func (p *Process) CPU() (float64, error) { return CPUOf(p.PID()) }

// CPUOf returns the CPU time (user and system, seconds) that any process has used. It is the kernel's CPU clock of another
// process, clock id (^pid << 3) | CPUCLOCK_SCHED, as clock_getcpuclockid(3) makes it; /proc/PID/stat has steps of 10 ms.
func CPUOf(pid int) (float64, error) {
	const cpuClockSched = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuClockSched), &ts); err != nil {
		return 0, fmt.Errorf("cannot read the CPU clock of a process: %w", err)
	}
	return float64(ts.Nano()) / 1e9, nil
}

// Resident returns the resident memory of the process in bytes.
func (p *Process) Resident() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("cannot read the memory of a process: %w", err)
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0, errors.New("cannot read the memory of a process: statm is short")
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot read the memory of a process: %w", err)
	}
	return float64(pages) * float64(os.Getpagesize()), nil
}

// Proxy is a ramjet under measurement.
type Proxy struct {
	*Process
	// Public and Admin are HOST:PORT.
	Public, Admin string
}

// StartProxy runs the built binary with these flags of serve and waits until it takes requests.
func StartProxy(binary, dir string, flags ...string) (*Proxy, error) {
	ports := filepath.Join(dir, "ports")
	if err := os.RemoveAll(ports); err != nil {
		return nil, err
	}
	p, err := Start(dir, "ramjet", append([]string{binary, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--port-file", ports}, flags...)...)
	if err != nil {
		return nil, err
	}
	x := &Proxy{Process: p}
	err = p.Await("ramjet", StartLimit, func() bool {
		x.Public, x.Admin = readPorts(ports)
		return x.Admin != "" && Answers("http://"+x.Admin+"/readyz")
	})
	if err != nil {
		p.Stop()
		return nil, err
	}
	return x, nil
}

// readPorts reads a port file; both are empty until it is complete.
func readPorts(name string) (public, admin string) {
	b, err := os.ReadFile(name)
	if err != nil || !strings.HasSuffix(string(b), "\n") {
		return "", ""
	}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "public":
			public = value
		case "admin":
			admin = value
		}
	}
	return public, admin
}

// Answers reports whether a GET of the URL is answered with 200.
func Answers(url string) bool {
	c := http.Client{Timeout: 2 * time.Second}
	resp, err := c.Get(url)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// FreePorts returns ports that nobody listened on at that moment.
func FreePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("cannot find a free port: %w", err)
		}
		defer func() { _ = l.Close() }() // all are held until the last is found, so that no two are the same
		a, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			return nil, errors.New("cannot find a free port: not a TCP address")
		}
		ports = append(ports, a.Port)
	}
	return ports, nil
}

// Window returns the processors that the process uses over d, 1 = one core.
func (p *Process) Window(ctx context.Context, d time.Duration) (float64, error) {
	before, err := p.CPU()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(d):
	}
	seconds := time.Since(began).Seconds()
	after, err := p.CPU()
	return (after - before) / seconds, err
}
