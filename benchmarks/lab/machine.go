package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine says where and when figures were made.
type Machine struct {
	Version   string    `json:"version"` // of the binary
	Commit    string    `json:"commit"`
	Start     time.Time `json:"start"`
	Seconds   float64   `json:"seconds"`
	CPU       string    `json:"cpu"`
	Cores     int       `json:"cores"`
	Kernel    string    `json:"kernel"`
	Go        string    `json:"go"`
	LoadStart string    `json:"load_average_start"`
	LoadEnd   string    `json:"load_average_end"`
}

// Describe looks at the machine, the working folder's commit and the ramjet binary; Finish follows at the end.
func Describe(ctx context.Context, binary string) Machine {
	m := Machine{Version: "unknown", Commit: Commit(ctx, "."), Start: time.Now().UTC(), CPU: CPUModel(), Cores: runtime.NumCPU(), Go: runtime.Version(), LoadStart: LoadAverage()}
	if out, err := exec.CommandContext(ctx, binary, "version").Output(); err == nil {
		m.Version, _, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
	}
	return m
}

// Finish notes how long it took and the load at the end.
func (m *Machine) Finish() { m.Seconds, m.LoadEnd = time.Since(m.Start).Seconds(), LoadAverage() }

// Rows are the lines of a report's head, as rows of a Markdown table of two columns.
func (m *Machine) Rows() string {
	return fmt.Sprintf("| version | %s, commit %s |\n| machine | %s, %d cores, %s, %s |\n| date | %s, took %.0f s |\n| quiet? | load average %s before, %s after (this measurement's own load included) |\n",
		m.Version, m.Commit, m.CPU, m.Cores, m.Kernel, m.Go, m.Start.Format("2006-01-02 15:04 MST"), m.Seconds, m.LoadStart, m.LoadEnd)
}

// CPUModel is the name of the processor, else of its architecture.
func CPUModel() string {
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

// reports are what the programs that measure write themselves, as git's patterns.
var reports = []string{":(top,exclude)benchmarks/*.md", ":(top,exclude)benchmarks/results", ":(top,exclude)benchmarks/growth/*.svg"}

// Commit names the commit of the repository that dir is in, with "+changes" when its files differ from it or are new to
// it. Reports do not count: the first of several programs would change the commit of all others.
func Commit(ctx context.Context, dir string) string {
	git := func(args ...string) (string, bool) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = dir
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err == nil
	}
	id, ok := git("rev-parse", "--short=12", "HEAD")
	if !ok {
		return "none"
	}
	// Someone's own settings may hide new files.
	if changed, ok := git(append([]string{"status", "--porcelain", "--untracked-files=normal", "--", ":/"}, reports...)...); ok && changed != "" {
		id += "+changes"
	}
	return id
}

// LoadAverage is that of the last minute, "unknown" where the system does not tell.
func LoadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}
