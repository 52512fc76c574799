//go:build !race

package benchmarks

import (
	"testing"
	"time"
)

// Bounds of the design on the built binary with log, metrics and leases on.
const (
	maxAllocsPerToken   = 0.001
	maxAllocsPerRequest = 1.0
)

// The paths that a request can take through the binary, with the most allocations that each may cost a request.
var allocPaths = []struct {
	name       string
	mode       string
	extra      []string
	perRequest float64 // 0: reported only
}{
	{"chat stream, relay verbatim", ModeStream, []string{"--relay=verbatim"}, maxAllocsPerRequest},
	// The twin is safe, not cheap: fasthttp allocates several objects for a body stream.
	{"chat stream, relay stream", ModeStream, []string{"--relay=stream"}, 0},
	{"chat answer in one piece", ModeShort, nil, maxAllocsPerRequest},
}

// A streamed token allocates nothing, whatever the length of the answer: the difference between 2,000 answers of 512
// tokens and 2,000 of 32, on the counters of the built binary.
func TestAllocsPerTokenOnTheBinary(t *testing.T) {
	ramjetBinary(t)
	if testing.Short() {
		t.Skip("needs half a minute: with fewer requests the constant noise of a process hides a thousandth of an object a token")
	}
	const requests, idle = 2000, 4200 * time.Millisecond // two health checks
	for _, p := range allocPaths {
		t.Run(p.name, func(t *testing.T) {
			a, b := newTestEngine(t), newTestEngine(t)
			proxy := startRamjet(t, []string{a.Addr(), b.Addr()}, append([]string{fewChecks}, p.extra...)...)
			seed := uint64(0)
			load := func(requests, tokens int) float64 {
				seed++
				res, err := Load(LoadSpec{Mode: p.mode, Targets: proxy.addresses, Streams: 4, Requests: requests / 4, Tokens: tokens, Seconds: 1.5, Seed: seed})
				if err != nil || res.Errors > 0 {
					t.Fatalf("%d of %d requests failed: %s %v", res.Errors, res.Requests, res.FirstError, err)
				}
				return float64(res.Requests)
			}
			load(requests/5, 64) // pools fill up
			meter := newAllocMeter(t, proxy.admin, idle)
			run := func(tokens int) (allocs, done float64) {
				allocs = meter.during(t, func() { done = load(requests, tokens) })
				return allocs, done
			}
			// Collected pools and timers only ever add allocations: the least of three tries is nearest to the truth.
			var got allocFigures
			for try := range 3 {
				if p.mode == ModeShort {
					n, done := run(2)
					got.add(n/done, 0)
				} else {
					const few, many = 32, 512
					short, n := run(few)
					long, _ := run(many)
					slope := (long - short) / n / (many - few)
					got.add(short/n-max(0, slope)*few, slope)
				}
				t.Logf("try %d: at most %.5f allocations a token and %.2f a request (%d requests)", try+1, got.perToken, got.perRequest, requests)
				if got.perToken < maxAllocsPerToken && (p.perRequest == 0 || got.perRequest <= p.perRequest) {
					return
				}
			}
			t.Errorf("want less than %g allocations a token and at most %g a request (0: any), got %.5f and %.2f",
				maxAllocsPerToken, p.perRequest, got.perToken, got.perRequest)
		})
	}
}

// allocFigures are the least values of several tries.
type allocFigures struct {
	tries                int
	perRequest, perToken float64
}

func (f *allocFigures) add(perRequest, perToken float64) {
	if f.tries++; f.tries == 1 {
		f.perRequest, f.perToken = perRequest, perToken
	}
	f.perRequest, f.perToken = min(f.perRequest, perRequest), min(f.perToken, perToken)
}
