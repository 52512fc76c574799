package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"ramjet/e2e/rig"
)

// gpuScript stands for nvidia-smi on PATH: two GPUs, their figures ten times a
// second. It leaves its process id and arguments, and a command of the test
// may take its place (die, hang).
const gpuScript = `#!/bin/sh
trap '' PIPE
echo $$ >>DIR/pids
echo "$@" >DIR/args
echo 'index, uuid, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W], power.limit [W], temperature.gpu, clocks.current.sm [MHz], clocks_event_reasons.active'
n=0
while :; do
  n=$((n+1))
  echo "0, GPU-one, NVIDIA H200, 97 %, 131072 MiB, 143771 MiB, 688.$n W, 700.00 W, 61, 1830 MHz, 0x0000000000000004"
  echo "1, GPU-two, NVIDIA H200, [N/A], [N/A], [N/A], [Not Supported], [N/A], 31, 345 MHz, 0x0000000000000001"
  [ -e DIR/die ] && rm DIR/die && exit 9
  sleep 0.1
done
`

// gpuFolder holds a program nvidia-smi.
func gpuFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	// No other test may fork while the file is open for writing: its child
	// would keep it so, and what is written to cannot be executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(strings.ReplaceAll(gpuScript, "DIR", dir)), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func pathTo(dir string) string {
	return "PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH")
}

type gpuTopology struct {
	Engines []struct {
		Name string
		GPUs []map[string]any `json:"gpus"`
	}
}

// gpus returns an engine's devices as the topology shows them.
func gpus(r *rig.Ramjet, engine string) []map[string]any {
	var view gpuTopology
	_, body := r.AdminGet("/api/v1/topology")
	if err := json.Unmarshal([]byte(body), &view); err != nil {
		return nil
	}
	for _, e := range view.Engines {
		if e.Name == engine {
			return e.GPUs
		}
	}
	return nil
}

func pids(t *testing.T, dir string) (list []int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "pids"))
	if err != nil {
		t.Fatal(err)
	}
	for f := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, pid)
	}
	return list
}

func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// What nvidia-smi says is on the admin port; one that dies is started again;
// nothing of it outlives Ramjet.
func TestGPUsFromNvidiaSMI(t *testing.T) {
	t.Parallel()
	dir := gpuFolder(t)
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.StartWith(t, rig.Setup{URLs: []string{"a=" + a.URL() + ",gpus=0", "b=" + b.URL() + ",gpus=1"}, Env: []string{pathTo(dir)}, Loose: true})
	rig.Eventually(t, 2*rig.Patience, "GPU of a", func() string {
		g := gpus(r, "a")
		if len(g) != 1 || fmt.Sprintln(g[0]["index"], g[0]["name"], g[0]["utilization"], g[0]["memory_used_bytes"], g[0]["power_limit_w"], g[0]["temperature_c"], g[0]["sm_clock_hz"], g[0]["throttle"]) !=
			"0 NVIDIA H200 0.97 1.37438953472e+11 700 61 1.83e+09 [power-cap]\n" {
			return fmt.Sprint(g)
		}
		return ""
	})
	rig.Eventually(t, 2*rig.Patience, "GPU of b, of which little is known", func() string {
		g := gpus(r, "b")
		if len(g) != 1 || g[0]["utilization"] != nil || g[0]["memory_used_bytes"] != nil || g[0]["power_w"] != nil || fmt.Sprint(g[0]["throttle"]) != "[]" || g[0]["temperature_c"] != 31.0 {
			return fmt.Sprint(g)
		}
		return ""
	})
	if args, err := os.ReadFile(filepath.Join(dir, "args")); err != nil || !strings.HasSuffix(strings.TrimSpace(string(args)), "--format=csv -lms 500") {
		t.Errorf("%q %v", args, err)
	}

	if err := os.WriteFile(filepath.Join(dir, "die"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, 2*rig.Patience, "second nvidia-smi", func() string {
		if n := len(pids(t, dir)); n < 2 {
			return fmt.Sprint(n, " were started")
		}
		return ""
	})
	rig.Eventually(t, 2*rig.Patience, "figures again", func() string {
		if g := gpus(r, "a"); len(g) != 1 || g[0]["age_s"].(float64) > 0.9 {
			return fmt.Sprint(g)
		}
		return ""
	})
	_, body := r.AdminGet("/api/v1/gpu")
	var history struct {
		Series []struct {
			Engine string
			Power  []float64 `json:"power_w"`
			Time   []string
		}
	}
	if err := json.Unmarshal([]byte(body), &history); err != nil || len(history.Series) != 2 || len(history.Series[0].Power) < 3 || len(history.Series[0].Time) != len(history.Series[0].Power) {
		t.Errorf("%v %.1000s", err, body)
	}

	r.Stop()
	rig.Eventually(t, rig.Patience, "no nvidia-smi outlives Ramjet", func() string {
		for _, pid := range pids(t, dir) {
			if !gone(pid) {
				return fmt.Sprint(pid, " runs")
			}
		}
		return ""
	})
}

// Also a Ramjet that is killed leaves no nvidia-smi behind, whatever that does
// about a pipe that nobody reads.
func TestGPUChildOfAKilledRamjet(t *testing.T) {
	t.Parallel()
	dir := gpuFolder(t)
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Env: []string{pathTo(dir)}, Loose: true})
	rig.Eventually(t, 2*rig.Patience, "nvidia-smi", func() string {
		if text, err := os.ReadFile(filepath.Join(dir, "pids")); err != nil || !strings.HasSuffix(string(text), "\n") {
			return fmt.Sprintf("it has not told its id: %q %v", text, err)
		}
		return ""
	})
	r.Signal(syscall.SIGKILL)
	<-r.Exited
	rig.Eventually(t, 2*rig.Patience, "end of nvidia-smi", func() string {
		if pid := pids(t, dir)[0]; !gone(pid) {
			return fmt.Sprint(pid, " runs")
		}
		return ""
	})
}

// An exporter's GPUs are those of the engines that list them; when it goes, the
// reason is told, and its requests leave nothing open (the closing assertions
// count descriptors and goroutines).
func TestGPUsFromDCGM(t *testing.T) {
	t.Parallel()
	var n, fail atomic.Int64
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if fail.Load() != 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, fmt.Sprintf("DCGM_FI_DEV_GPU_UTIL{gpu=\"4\",UUID=\"GPU-x\",modelName=\"<script>\"} %d\n", n.Add(1)%100))
	}))
	t.Cleanup(exporter.Close)
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.StartWith(t, rig.Setup{URLs: []string{"a=" + a.URL() + ",gpus=0-3", "b=" + b.URL() + ",gpus=4-7"}, Flags: []string{"--gpu.dcgm=" + exporter.URL}, Env: []string{"PATH=/nowhere"}})
	rig.Eventually(t, 2*rig.Patience, "GPU of b", func() string {
		if g := gpus(r, "b"); len(g) != 1 || g[0]["index"] != 4.0 || g[0]["name"] != "<script>" || g[0]["utilization"] == nil {
			return fmt.Sprint(g)
		}
		return ""
	})
	if g := gpus(r, "a"); len(g) != 0 {
		t.Errorf("a has GPUs %v", g)
	}
	fail.Store(1)
	rig.Eventually(t, 2*rig.Patience, "the reason", func() string {
		if _, body := r.AdminGet("/api/v1/gpu"); !strings.Contains(body, "it answered 503") {
			return body
		}
		return ""
	})
}

// Without a source the view says what to set.
func TestGPUsAbsent(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{"--gpu.source=auto": "set gpu.dcgm", "--gpu.source=off": "set gpu.source: auto"} {
		a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
		r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Flags: []string{flag}, Env: []string{"PATH=/nowhere"}})
		if status, body := r.AdminGet("/api/v1/gpu"); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", flag, status, body)
		}
	}
}
