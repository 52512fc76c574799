package chaos

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// look is one sample of a soak.
type look struct {
	at                 time.Duration
	rss, heap          float64 // MiB
	goroutines, files  float64
	p50, p99           float64 // ms, of the answers since the look before
	requests, failures int
}

// TestSoak holds 70 % of what the machine gives at most for a long time and
// prints what grows: by the slope of each figure over the second half, when
// what is remembered of requests has filled its bounds.
func TestSoak(t *testing.T) {
	if os.Getenv("RAMJET_SOAK") == "" {
		t.Skip("hours: RAMJET_SOAK=2h says how long (make soak)")
	}
	length := duration(t, "RAMJET_SOAK", 0)
	w := &world{TB: t, scenario: scenario{seed: 1, length: length, engines: 2, clients: 32}, notes: newWitness()}
	defer w.tearDown()
	var addresses []string
	for i := range w.engines {
		e := newSim(t, string(rune('a'+i)), true, "--speed=25", "--kv-blocks=2000", "--profile="+[]string{"mtp", "standard"}[i%2])
		w.sims = append(w.sims, e)
		addresses = append(addresses, e.addr)
	}
	w.r = startRamjet(t, binary(t, false), addresses, modelFolder(t), "warn") // millions of access lines would fill the disk
	if last := w.r.awaitAll(30 * time.Second); last != "" {
		t.Fatalf("ramjet does not become ready: %s", last)
	}
	before := w.r.figures(addresses)
	trial := min(length/6, 20*time.Second)
	most := w.drive(trial, 0, "trial").rate(trial)
	rate := 0.7 * most
	t.Logf("at most %.0f requests/s; %.0f/s for %v", most, rate, length)
	every := max(length/120, 2*time.Second)
	var looks []look
	for began := time.Now(); time.Since(began) < length; {
		l := w.drive(every, rate, fmt.Sprintf("soak%d", len(looks))).look()
		f := w.r.figures(addresses)
		l.at, l.rss, l.heap = time.Since(began), float64(w.r.rss())/(1<<20), float64(f.heap)/(1<<20)
		l.goroutines, l.files = float64(f.goroutines), float64(f.descriptors+f.upstream)
		looks = append(looks, l)
	}
	w.slopes(looks)
	if last := poll(12*time.Second, func() string {
		b := &books{witness: w.notes, before: before, after: w.r.figures(addresses)}
		b.before.upstream = 2 * w.engines
		_, b.output, _ = w.r.read()
		b.after.linesInLog = b.after.requests
		for _, v := range b.judgeEnd() {
			return v.String()
		}
		return ""
	}); last != "" {
		t.Errorf("at the end: %s", last)
	}
}

// driven is what a stretch of load came to.
type driven struct {
	mu       sync.Mutex // guards the following
	took     []time.Duration
	failures int
}

func (d *driven) rate(of time.Duration) float64 { return float64(len(d.took)) / of.Seconds() }

func (d *driven) look() look {
	slices.Sort(d.took)
	at := func(share float64) float64 {
		if len(d.took) == 0 {
			return math.NaN()
		}
		return float64(d.took[int(share*float64(len(d.took)-1))]) / 1e6
	}
	return look{p50: at(0.5), p99: at(0.99), requests: len(d.took), failures: d.failures}
}

// drive sends for some time: as much as the clients can, or at a rate, spread
// evenly, whatever the answers do. Latencies count from when a request was due.
func (w *world) drive(length time.Duration, rate float64, name string) *driven {
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	d := &driven{}
	began := time.Now()
	var wg sync.WaitGroup
	for k := range w.scenario.clients {
		wg.Go(func() {
			c := &client{address: w.r.public}
			defer c.close()
			for n := 0; ctx.Err() == nil; n++ {
				due := time.Now()
				if rate > 0 {
					due = began.Add(time.Duration(float64(n*w.scenario.clients+k) / rate * float64(time.Second)))
					select {
					case <-time.After(time.Until(due)):
					case <-ctx.Done():
						return
					}
				}
				a := newAsk(w.scenario, fmt.Sprintf("%s%s-%d-%d", idPrefix, name, k, n))
				a.slow = false
				o := c.do(a)
				d.mu.Lock()
				d.took = append(d.took, time.Since(due))
				if !o.Success {
					d.failures++
				}
				d.mu.Unlock()
			}
		})
	}
	wg.Wait()
	return d
}

// slopes prints the looks and how each figure moves, and judges the second
// half: nothing may grow by more than a tenth of itself in the whole length,
// but for a small sum that is noise.
func (w *world) slopes(looks []look) {
	if len(looks) < 8 {
		w.Fatalf("only %d looks: too short to see a slope", len(looks))
	}
	for i, l := range looks {
		if i%max(len(looks)/20, 1) == 0 || i == len(looks)-1 {
			w.Logf("%8v  %6.1f MiB resident  %6.1f MiB heap  %3.0f goroutines  %3.0f files  p50 %6.1f ms  p99 %6.1f ms  %6d requests  %d failures",
				l.at.Round(time.Second), l.rss, l.heap, l.goroutines, l.files, l.p50, l.p99, l.requests, l.failures)
		}
		if l.failures > 0 {
			w.Errorf("%d requests failed before %v", l.failures, l.at.Round(time.Second))
		}
	}
	late := looks[len(looks)/2:]
	for _, f := range []struct {
		name, unit string
		noise      float64 // growth over the second half that means nothing
		of         func(l look) float64
	}{
		{"resident memory", "MiB", 16, func(l look) float64 { return l.rss }},
		{"heap", "MiB", 12, func(l look) float64 { return l.heap }},
		{"goroutines", "", 8, func(l look) float64 { return l.goroutines }},
		{"descriptors", "", 8, func(l look) float64 { return l.files }},
		{"p99", "ms", 200, func(l look) float64 { return l.p99 }},
	} {
		slope, mean := slope(late, f.of)
		grown := slope * (late[len(late)-1].at - late[0].at).Hours()
		w.Logf("slope of %-16s %+10.2f %s/h about %.1f (%+.2f in the second half)", f.name, slope, f.unit, mean, grown)
		if grown > max(mean/10, f.noise) {
			w.Errorf("%s grows by %.2f %s an hour about a mean of %.1f", f.name, slope, f.unit, mean)
		}
	}
}

// slope is the least-squares slope per hour of a figure, and its mean.
func slope(looks []look, of func(look) float64) (perHour, mean float64) {
	var x, y float64
	for _, l := range looks {
		x += l.at.Hours()
		y += of(l)
	}
	n := float64(len(looks))
	x, mean = x/n, y/n
	var up, down float64
	for _, l := range looks {
		up += (l.at.Hours() - x) * (of(l) - mean)
		down += (l.at.Hours() - x) * (l.at.Hours() - x)
	}
	if down == 0 {
		return 0, mean
	}
	return up / down, mean
}

func TestSlope(t *testing.T) {
	t.Parallel()
	var looks []look
	for i := range 20 {
		looks = append(looks, look{at: time.Duration(i) * 6 * time.Minute, rss: 100 + 3*float64(i)/10 + float64(i%2), goroutines: 40})
	}
	if got, mean := slope(looks, func(l look) float64 { return l.rss }); math.Abs(got-3) > 0.2 || math.Abs(mean-103.35) > 0.01 {
		t.Errorf("slope %v about %v, want 3 about 103.35", got, mean)
	}
	if got, _ := slope(looks, func(l look) float64 { return l.goroutines }); got != 0 {
		t.Errorf("a constant has the slope %v", got)
	}
}
