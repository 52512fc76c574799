package benchmarks

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// built is the binary under test, made once for all tests of this package.
var built struct {
	once sync.Once
	dir  string
	path string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// ramjetBinary builds ramjet as it is shipped, once for all tests.
func ramjetBinary(tb testing.TB) string {
	tb.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "ramjet-bench-"); built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "ramjet")
		cmd := exec.Command("go", "build", "-trimpath", "-o", built.path, "ramjet")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("cannot build ramjet: %w\n%.800s", err, out)
		}
	})
	if built.err != nil {
		tb.Fatal(built.err)
	}
	return built.path
}

// startRamjet runs the binary in front of engines until the test ends.
func startRamjet(tb testing.TB, engines []string, extra ...string) *target {
	tb.Helper()
	t, err := ramjetStarter(ramjetBinary(tb), "ramjet", extra...)(tb.TempDir(), engines)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(t.stop)
	return t
}

// fewChecks keeps health checks out of a measurement of allocations: each costs hundreds, at times of its own.
const fewChecks = "--health.interval=10m"

// mallocs reads how many heap objects the process behind admin has allocated since its start.
func mallocs(tb testing.TB, admin string) float64 {
	tb.Helper()
	c := http.Client{Timeout: 5 * time.Second}
	defer c.CloseIdleConnections()
	resp, err := c.Get("http://" + admin + "/metrics")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "go_memstats_mallocs_total "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				tb.Fatal(err)
			}
			return v
		}
	}
	tb.Fatalf("go_memstats_mallocs_total is not among the metrics of %s (status %d)", admin, resp.StatusCode)
	return 0
}

// allocMeter counts a process's allocations beyond those of being asked and of being idle.
type allocMeter struct {
	admin           string
	scrape, perIdle float64 // allocations of one look at the counter, and of an idle second
}

// newAllocMeter watches the idle process for some time: timers allocate, too.
func newAllocMeter(tb testing.TB, admin string, idle time.Duration) allocMeter {
	tb.Helper()
	m := allocMeter{admin: admin}
	first := mallocs(tb, admin)
	for range 5 {
		mallocs(tb, admin)
	}
	start, begin := time.Now(), mallocs(tb, admin)
	m.scrape = (begin - first) / 6
	time.Sleep(idle)
	end := mallocs(tb, admin)
	m.perIdle = max(0, end-begin-m.scrape) / time.Since(start).Seconds()
	return m
}

// during returns the allocations caused by f.
func (m allocMeter) during(tb testing.TB, f func()) float64 {
	tb.Helper()
	begin, start := mallocs(tb, m.admin), time.Now()
	f()
	took := time.Since(start).Seconds()
	return mallocs(tb, m.admin) - begin - m.scrape - m.perIdle*took
}
