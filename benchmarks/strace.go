package benchmarks

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// countSyscalls traces pids and all their threads and returns by name the calls that began in a window of the given
// length; began and ended run at its two ends. The calls are listed with their times instead of only being summed up
// (strace -c), because attaching and letting go take strace tens of milliseconds each: some tokens' worth of calls that
// would not belong to the tokens counted between began and ended.
func countSyscalls(strace, dir string, pids []int, window time.Duration, began, ended func() error) (map[string]int64, error) {
	out := filepath.Join(dir, "strace.txt")
	if err := os.Remove(out); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	// Raw arguments: strace need not read the memory of the traced process, which keeps it quick.
	args := []string{"-f", "-ttt", "-e", "raw=all", "-e", "signal=none", "-o", out}
	for _, pid := range pids {
		args = append(args, "-p", strconv.Itoa(pid))
	}
	cmd := exec.Command(strace, args...)
	var messages bytes.Buffer
	cmd.Stderr = &messages
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot trace: %w", err)
	}
	err := waitTraced(pids, cmd.Process.Pid, 5*time.Second)
	time.Sleep(settleTrace)
	if err == nil {
		err = began()
	}
	start := time.Now()
	if err == nil {
		time.Sleep(window)
		err = ended()
	}
	end := time.Now()
	_ = cmd.Process.Signal(syscall.SIGINT) // detaches
	// strace 6.1 waits for ever for a process that is in vfork; the kernel lets go of all when the tracer dies.
	timer := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
	waitErr := cmd.Wait()
	timer.Stop()
	b, readErr := os.ReadFile(out)
	if err == nil && readErr != nil {
		err = errors.Join(readErr, waitErr)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot trace: %w: %.300s", err, messages.String())
	}
	return parseStrace(b, start, end)
}

// settleTrace lets strace take up the threads that it has seized before the window begins.
const settleTrace = 100 * time.Millisecond

// waitTraced waits until every thread of pids has tracer as its tracer.
func waitTraced(pids []int, tracer int, limit time.Duration) error {
	want := fmt.Sprintf("TracerPid:\t%d\n", tracer)
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		traced := true
		for _, pid := range pids {
			threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
			if err != nil || len(threads) == 0 {
				return fmt.Errorf("process %d is gone", pid)
			}
			for _, name := range threads {
				b, err := os.ReadFile(name)
				traced = traced && (err != nil || strings.Contains(string(b), want))
			}
		}
		if traced {
			return nil
		}
	}
	return errors.New("strace did not attach")
}

// parseStrace counts the calls that began between start and end in the listing of strace -f -ttt, whose lines are
// "PID SECONDS.MICROS name(arguments) = result". A call during which another thread made one has two lines, of which the
// second says "resumed"; ends of threads are in lines with "+++".
func parseStrace(b []byte, start, end time.Time) (map[string]int64, error) {
	calls := make(map[string]int64)
	from, to := start.UnixMicro(), end.UnixMicro()
	for line := range bytes.Lines(b) {
		f := bytes.SplitN(bytes.TrimSpace(line), []byte(" "), 2)
		if len(f) < 2 {
			continue
		}
		at, call, ok := bytes.Cut(bytes.TrimLeft(f[1], " "), []byte(" "))
		seconds, micros, dot := bytes.Cut(at, []byte("."))
		s, err1 := strconv.ParseInt(string(seconds), 10, 64)
		us, err2 := strconv.ParseInt(string(micros), 10, 64)
		if !ok || !dot || err1 != nil || err2 != nil || len(micros) != 6 {
			return nil, fmt.Errorf("cannot read strace's listing: %.100q", line)
		}
		t := s*1_000_000 + us
		name, _, isCall := bytes.Cut(call, []byte("("))
		if !isCall || bytes.HasPrefix(call, []byte("<... ")) || bytes.HasPrefix(call, []byte("+++")) || bytes.HasPrefix(call, []byte("---")) {
			continue
		}
		if t >= from && t < to {
			calls[string(name)]++
		}
	}
	return calls, nil
}

// perToken takes the idle calls of the same time out and divides by the tokens. Names that come out at 0 are left out.
func perToken(busy map[string]int64, busySeconds float64, idle map[string]int64, idleSeconds float64, tokens int64) map[string]float64 {
	out := make(map[string]float64)
	for name := range busy {
		n := float64(busy[name]) - float64(idle[name])/idleSeconds*busySeconds
		if v := n / float64(tokens); v > 0.0005 || v < -0.0005 {
			out[name] = v
		}
	}
	return out
}
