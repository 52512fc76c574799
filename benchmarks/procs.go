package benchmarks

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// cpuClock returns the CPU time (user and system, nanoseconds) that process pid has used, threads that have ended
// included. It is the kernel's CPU clock of another process, clock id (^pid << 3) | CPUCLOCK_SCHED, as
// clock_getcpuclockid(3) makes it; /proc/PID/stat has steps of 10 ms and schedstat only counts one thread.
func cpuClock(pid int) (int64, error) {
	const cpuClockSched = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuClockSched), &ts); err != nil {
		return 0, fmt.Errorf("cannot read the CPU clock of process %d: %w", pid, err)
	}
	return ts.Nano(), nil
}

// cpuOf adds up the CPU clocks of pids.
func cpuOf(pids []int) (int64, error) {
	var sum int64
	for _, pid := range pids {
		v, err := cpuClock(pid)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}

// rssOf adds up the resident memory of pids, in bytes. Pages that forked workers share count once for each: that is the
// same before and after, so differences are right.
func rssOf(pids []int) (int64, error) {
	var sum int64
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			return 0, fmt.Errorf("cannot read the memory of process %d: %w", pid, err)
		}
		fields := strings.Fields(string(b))
		if len(fields) < 2 {
			return 0, fmt.Errorf("cannot read the memory of process %d: statm has %d fields", pid, len(fields))
		}
		pages, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("cannot read the memory of process %d: %w", pid, err)
		}
		sum += pages * int64(os.Getpagesize())
	}
	return sum, nil
}

// family returns pid and all its descendants.
func family(pid int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return nil, errors.New("cannot list processes: no /proc")
	}
	parents := make(map[int]int, len(stats))
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // ended in between
		}
		child, parent, ok := parseStat(b)
		if ok {
			parents[child] = parent
		}
	}
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		for child, parent := range parents {
			if parent == out[i] {
				out = append(out, child)
			}
		}
	}
	return out, nil
}

// parseStat reads pid and parent out of /proc/PID/stat, whose second field may hold spaces and brackets.
func parseStat(b []byte) (pid, parent int, ok bool) {
	open, end := bytes.IndexByte(b, ' '), bytes.LastIndexByte(b, ')')
	if open < 0 || end < 0 {
		return 0, 0, false
	}
	rest := bytes.Fields(b[end+1:])
	if len(rest) < 2 {
		return 0, 0, false
	}
	pid, err1 := strconv.Atoi(string(b[:open]))
	parent, err2 := strconv.Atoi(string(rest[1]))
	return pid, parent, err1 == nil && err2 == nil
}

// RaiseDescriptors lifts the soft limit of open files to the hard one and returns it.
func RaiseDescriptors() (uint64, error) {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return 0, fmt.Errorf("cannot read the limit of open files: %w", err)
	}
	lim.Cur = lim.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return 0, fmt.Errorf("cannot raise the limit of open files: %w", err)
	}
	return lim.Cur, nil
}
