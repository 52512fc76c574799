package benchmarks

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ramjet/benchmarks/lab"
)

// Meta says where, when and how results were made.
type Meta struct {
	Kind      string    `json:"kind"` // "meta"
	Candidate string    `json:"candidate"`
	Command   string    `json:"command"`
	Commit    string    `json:"commit"`
	Start     time.Time `json:"start"`
	Seconds   float64   `json:"seconds"`
	CPU       string    `json:"cpu"`
	Cores     int       `json:"cores"`
	Kernel    string    `json:"kernel"`
	Go        string    `json:"go"`
	Reference string    `json:"reference"` // nginx's version
	Files     uint64    `json:"open_files"`
	Rounds    int       `json:"rounds"`
	Seed      uint64    `json:"seed"`
	LoadStart float64   `json:"load_average_start"`
	LoadEnd   float64   `json:"load_average_end"`
	Steal     float64   `json:"cpu_steal_share"` // time that the hypervisor gave to others, of all CPU time
}

// describeMachine fills in what does not change during a call.
func describeMachine(ctx context.Context, m *Meta) {
	m.Kind = "meta"
	m.CPU, m.Cores, m.Go = lab.CPUModel(), runtime.NumCPU(), runtime.Version()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
	}
	m.Commit = lab.Commit(ctx, ".")
	m.LoadStart = loadAverage()
}

func loadAverage() float64 {
	v, err := strconv.ParseFloat(lab.LoadAverage(), 64)
	if err != nil {
		return 0
	}
	return v
}

// stealTicks returns stolen and all ticks of /proc/stat's first line (proc(5): user nice system idle iowait irq softirq
// steal; guest time is already in user).
func stealTicks() (stolen, all int64) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	for i, f := range strings.Fields(line) {
		v, err := strconv.ParseInt(f, 10, 64)
		if err != nil || i > 8 {
			continue
		}
		all += v
		if i == 8 {
			stolen = v
		}
	}
	return stolen, all
}

// busyTicks are the ticks in which the processors did anything, and all of them; iowait is idle time.
func busyTicks() (busy, all int64) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	for i, f := range strings.Fields(line) {
		v, err := strconv.ParseInt(f, 10, 64)
		if err != nil || i > 8 {
			continue
		}
		all += v
		if i != 4 && i != 5 {
			busy += v
		}
	}
	return busy, all
}

// othersShare is what others than a process that used own CPU time had of the machine since the ticks were taken.
func othersShare(busyBefore, allBefore int64, own, wall time.Duration) float64 {
	busy, all := busyTicks()
	if all <= allBefore || wall <= 0 {
		return 0
	}
	ours := own.Seconds() / wall.Seconds() / float64(runtime.NumCPU())
	return max(0, float64(busy-busyBefore)/float64(all-allBefore)-ours)
}

// CommandLine renders a call as one would type it; files are named without the folders of this machine.
func CommandLine(program string, args []string) string {
	out := []string{program}
	for _, a := range args {
		name, value, ok := strings.Cut(a, "=")
		switch {
		case filepath.IsAbs(a):
			a = filepath.Base(a)
		case ok && filepath.IsAbs(value):
			a = name + "=" + filepath.Base(value)
		}
		if strings.ContainsAny(a, " \t{}") {
			a = "'" + a + "'"
		}
		out = append(out, a)
	}
	return strings.Join(out, " ")
}
