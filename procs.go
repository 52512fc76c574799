package main

import (
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// governor keeps the number of threads that may run Go code at what the load
// needs. A relay is idle most of the time, and with a second processor the
// scheduler wakes a second thread to look for work at nearly every token. How
// a token's CPU compares with nginx's stands in benchmarks/RESULTS.md; run
// streambench with GOMAXPROCS set to see it without the governor.
//
// There is no timer: requests that begin, end or stream call tick, so an idle
// process stays idle. All methods are safe for concurrent use.
type governor struct {
	most int // what the runtime chose, which knows of cores and cgroups
	set  func(n int)
	cpu  func() time.Duration // CPU time of the process so far

	last  atomic.Int64 // Unix nanoseconds of the last look
	busy  atomic.Bool  // a look is under way; it guards what follows
	n     int
	spent time.Duration // cpu at the last look
	calm  time.Time     // since when fewer would do; zero when they would not
}

// Look at the load this often at most, and give a processor up only after it
// was not needed for this long.
const (
	governorStep = 50 * time.Millisecond
	governorCalm = 2 * time.Second
)

// newGovernor starts with one processor. It returns nil, which governs
// nothing, where the user chose a number.
func newGovernor() *governor {
	if os.Getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) < 2 {
		return nil
	}
	g := &governor{
		most: runtime.GOMAXPROCS(0), n: 1, cpu: processCPU,
		// Changing the number stops the world and waits for a collection
		// under way, which no request should.
		set: func(n int) { go runtime.GOMAXPROCS(n) },
	}
	g.set(1)
	return g
}

// tick looks at the load if the last look is long enough ago.
func (g *governor) tick(now time.Time) {
	if g == nil {
		return
	}
	last := g.last.Load()
	elapsed := time.Duration(now.UnixNano() - last)
	if elapsed < governorStep || g.busy.Swap(true) {
		return
	}
	defer g.busy.Store(false)
	g.last.Store(now.UnixNano())
	spent := g.cpu()
	used := spent - g.spent
	g.spent = spent
	if last == 0 {
		return
	}
	if elapsed >= governorCalm {
		g.calm = now.Add(-elapsed) // a long look at a light load is calm by itself
	}
	g.judge(now, float64(used)/float64(elapsed))
}

// judge chooses the number for a load in processors.
func (g *governor) judge(now time.Time, load float64) {
	switch n := float64(g.n); {
	case load > 0.85*n && g.n < g.most:
		g.change(min(2*g.n, g.most))
	case g.n > 1 && load < 0.5*(n/2):
		if g.calm.IsZero() {
			g.calm = now
		}
		if now.Sub(g.calm) >= governorCalm {
			g.change(g.n / 2)
		}
	default:
		g.calm = time.Time{}
	}
}

func (g *governor) change(n int) {
	g.n, g.calm = n, time.Time{}
	g.set(n)
}

// processCPU returns the CPU time that the process has used.
func processCPU() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
