package main

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// governor keeps the number of threads that may run Go code at what the load
// needs. A relay is idle most of the time, and with a second processor the
// scheduler wakes a second thread to look for work at nearly every token: a
// stream that follows a burst then costs a third more CPU, and so do the
// checks of an idle process. How a token's CPU compares with nginx's stands in
// benchmarks/RESULTS.md; run streambench with GOMAXPROCS set to see it without
// the governor.
//
// Requests that begin, end or stream call tick. A timer runs only while there
// are processors to give up, so that an idle process comes to rest on one of
// them and then sets none. All methods are safe for concurrent use.
type governor struct {
	most int // what the runtime chose, which knows of cores and cgroups
	set  func(n int)
	cpu  func() time.Duration // CPU time of the process so far

	born time.Time    // with a monotonic reading, unlike a Unix time
	last atomic.Int64 // nanoseconds from born to the last look, 0 before it

	mu    sync.Mutex // guards what follows
	n     int
	spent time.Duration // cpu at the last look
	busy  time.Time     // since when hardly any time of them is left; zero when some is
	calm  time.Time     // since when fewer would do; zero when they would not
	armed bool          // a timer will look
}

// Look at the load this often at most. Processors that are used up double at
// once, and when little of their time is left for a while: a single look at
// short requests that one processor serves well may see 92 % of it used. They
// are given up only after they were not needed for long: short enough, since
// every token pays until then, and long beside a change, which stops the world
// for some ten microseconds.
const (
	governorStep = 50 * time.Millisecond
	governorBusy = 200 * time.Millisecond
	governorCalm = 500 * time.Millisecond
)

// newGovernor starts with one processor. It returns nil, which governs
// nothing, where the user chose a number.
func newGovernor() *governor {
	if os.Getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) < 2 {
		return nil
	}
	g := &governor{
		most: runtime.GOMAXPROCS(0), n: 1, cpu: processCPU, born: time.Now().Add(-governorStep),
		set: newLatest(func(n int) { runtime.GOMAXPROCS(n) }).set,
	}
	g.set(1)
	return g
}

// latest applies numbers beside those who set them: changing the processors
// stops the world and waits for a collection under way, which no request
// should. Of numbers that overtake each other the one set last stays.
type latest struct {
	apply  func(n int)
	wanted atomic.Int64
	turn   chan struct{} // full while somebody applies
}

func newLatest(apply func(n int)) *latest {
	return &latest{apply: apply, turn: make(chan struct{}, 1)}
}

func (l *latest) set(n int) {
	l.wanted.Store(int64(n))
	go func() {
		l.turn <- struct{}{}
		defer func() { <-l.turn }()
		l.apply(int(l.wanted.Load()))
	}()
}

// tick looks at the load if the last look is long enough ago.
func (g *governor) tick(now time.Time) {
	if g == nil || g.at(now)-g.last.Load() < int64(governorStep) || !g.mu.TryLock() {
		return
	}
	defer g.mu.Unlock()
	g.lookLocked(now)
}

func (g *governor) at(now time.Time) int64 { return int64(now.Sub(g.born)) }

func (g *governor) lookLocked(now time.Time) {
	at := g.at(now)
	last := g.last.Swap(at)
	elapsed := time.Duration(at - last)
	if elapsed <= 0 {
		return // somebody else looked meanwhile
	}
	spent := g.cpu()
	used := spent - g.spent
	g.spent = spent
	if last == 0 {
		return
	}
	g.judgeLocked(now, elapsed, float64(used)/float64(elapsed))
	g.armLocked()
}

// judgeLocked chooses the number for a load, in processors, that lasted for
// elapsed until now.
func (g *governor) judgeLocked(now time.Time, elapsed time.Duration, load float64) {
	n, begun := float64(g.n), now.Add(-elapsed)
	g.busy = since(g.busy, load > 0.9*n, begun)
	g.calm = since(g.calm, load < 0.25*n, begun)
	switch {
	case g.n < g.most && (load > 0.98*n || lasted(g.busy, governorBusy, now)):
		g.changeLocked(min(2*g.n, g.most))
	case g.n > 1 && lasted(g.calm, governorCalm, now):
		g.changeLocked(g.n / 2)
	}
}

// since returns when that began which holds until now, from begun on at
// least: before, if it held before; zero if it does not hold.
func since(before time.Time, holds bool, begun time.Time) time.Time {
	switch {
	case !holds:
		return time.Time{}
	case before.IsZero():
		return begun
	}
	return before
}

func lasted(since time.Time, long time.Duration, now time.Time) bool {
	return !since.IsZero() && now.Sub(since) >= long
}

func (g *governor) changeLocked(n int) {
	g.n, g.busy, g.calm = n, time.Time{}, time.Time{}
	g.set(n)
}

// armLocked sees to it that somebody looks again while there are processors
// to give up: the requests that needed them may have been the last.
func (g *governor) armLocked() {
	if g.n == 1 || g.armed {
		return
	}
	g.armed = true
	time.AfterFunc(governorCalm, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.armed = false
		if now := time.Now(); g.at(now)-g.last.Load() >= int64(governorStep) {
			g.lookLocked(now)
		}
		g.armLocked()
	})
}

// processCPU returns the CPU time that the process has used.
func processCPU() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
