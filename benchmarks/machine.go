package benchmarks

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
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
	m.CPU, m.Cores, m.Go = cpuModel(), runtime.NumCPU(), runtime.Version()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
	}
	m.Commit = commit(ctx)
	m.LoadStart = loadAverage()
}

func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// commit names the commit of the working folder, with "+changes" when files differ from it.
func commit(ctx context.Context) string {
	git := func(args ...string) (string, bool) {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		return strings.TrimSpace(string(out)), err == nil
	}
	id, ok := git("rev-parse", "--short=12", "HEAD")
	if !ok {
		return "none"
	}
	if changed, ok := git("status", "--porcelain", "--untracked-files=no"); ok && changed != "" {
		id += "+changes"
	}
	return id
}

func loadAverage() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	v, err := strconv.ParseFloat(first, 64)
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

// CommandLine renders a call as one would type it; files are named without the folders of this machine.
func CommandLine(program string, args []string) string {
	out := []string{program}
	for _, a := range args {
		if filepath.IsAbs(a) {
			a = filepath.Base(a)
		}
		if strings.ContainsAny(a, " \t{}") {
			a = "'" + a + "'"
		}
		out = append(out, a)
	}
	return strings.Join(out, " ")
}
