//go:build !race

package benchmarks

import (
	"math"
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
		t.Skip("needs a minute: with fewer requests the constant noise of a process hides a thousandth of an object a token")
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
			got := newAllocFigures()
			for try := range 3 {
				few := fewTokens
				if p.mode == ModeShort {
					few = 2
				}
				n, done := run(few)
				got.addShort(n / done)
				if p.mode != ModeShort {
					n, done = run(manyTokens)
					got.addLong(n / done)
				}
				t.Logf("try %d: at least %.5f allocations a short answer and %.5f a long one", try+1, got.short, got.long)
			}
			perToken, perRequest := got.bounded(p.mode != ModeShort)
			t.Logf("%.5f allocations a token and %.2f a request (%d requests)", perToken, perRequest, requests)
			if perToken >= maxAllocsPerToken || p.perRequest > 0 && perRequest > p.perRequest {
				t.Errorf("want less than %g allocations a token and at most %g a request (0: any), got %.5f and %.2f",
					maxAllocsPerToken, p.perRequest, perToken, perRequest)
			}
		})
	}
}

// Lengths of the short and of the long answers.
const fewTokens, manyTokens = 32, 512

// allocFigures are the least allocations of a short and of a long answer over all tries. Collected pools and timers only
// ever add some: the least is nearest to the truth. The difference of one try's two is not: what a short answer has too
// many of makes it small.
type allocFigures struct{ short, long float64 }

func newAllocFigures() allocFigures { return allocFigures{short: math.Inf(1), long: math.Inf(1)} }

func (f *allocFigures) addShort(n float64) { f.short = min(f.short, n) }
func (f *allocFigures) addLong(n float64)  { f.long = min(f.long, n) }

// bounded returns allocations a token and a request; without long answers all of them are the request's.
func (f allocFigures) bounded(long bool) (perToken, perRequest float64) {
	if !long {
		return 0, f.short
	}
	perToken = (f.long - f.short) / (manyTokens - fewTokens)
	return perToken, f.short - max(0, perToken)*fewTokens
}

// A short answer that happens to be dear in one try does not hide what tokens cost.
func TestAllocFiguresOfSeveralTries(t *testing.T) {
	const perToken, perRequest = 0.01, 0.5
	short, long := perRequest+fewTokens*perToken, perRequest+manyTokens*perToken
	f := newAllocFigures()
	for _, noise := range [][2]float64{{9, 0}, {0, 3}, {1, 1}} { // the first one alone has a slope below 0
		f.addShort(short + noise[0])
		f.addLong(long + noise[1])
	}
	if token, request := f.bounded(true); math.Abs(token-perToken) > 1e-9 || math.Abs(request-perRequest) > 1e-9 {
		t.Errorf("%v a token and %v a request, want %v and %v", token, request, perToken, perRequest)
	}
}
