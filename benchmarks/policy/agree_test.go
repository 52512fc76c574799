package policy

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// What the virtual runs say is worth something only if other engines and other clocks come to the same. The tests of
// sims_test.go replace the model engines by those of package sim, still in virtual time; those of binary_test.go play
// the same lists of requests through the binary, with real sockets and clocks.

// figures are what two runs of one load are compared by.
type figures struct {
	busiest float64 // the share of requests on the engine that got most
	hit     float64 // share of prompt tokens
	times   float64 // that a new shared prefix was computed, the mean over herds; 0 without
	ttft    float64 // mean, seconds
	e2e     float64 // mean, seconds
}

// tally adds up figures of a pair of engines.
type tally struct {
	ttft, e2e   []float64
	hit, prompt float64 // tokens
	placed      [2]float64
	herds       map[int]float64
}

// add counts one answer.
func (y *tally) add(j *job, slot, hit int, ttft, e2e float64) {
	y.ttft, y.e2e = append(y.ttft, ttft), append(y.e2e, e2e)
	y.hit, y.prompt = y.hit+float64(hit), y.prompt+float64(j.in)
	y.placed[slot]++
	if j.group > 0 {
		if y.herds == nil {
			y.herds = map[int]float64{}
		}
		y.herds[j.group] += float64(max(j.shared-hit, 0)) / float64(j.shared)
	}
}

func (y *tally) figures() figures {
	f := figures{hit: y.hit / y.prompt, ttft: mean(y.ttft), e2e: mean(y.e2e)}
	f.busiest = slices.Max(y.placed[:]) / float64(len(y.e2e))
	for _, n := range y.herds {
		f.times += n / float64(len(y.herds))
	}
	return f
}

// spy is Ramjet's own choice, with a tally.
type spy struct {
	*ours
	tally
	since float64 // requests before are not counted
}

func (s *spy) done(w *world, f *flight) {
	if f.at >= s.since {
		s.add(f.job, f.slot, f.hit, f.firstAt-f.at, w.now-f.at)
	}
	s.ours.done(w, f)
}

// counted is the defaults with a spy, who counts requests from a time on.
func counted(since float64) (*spy, candidate) {
	s := &spy{ours: &ours{}, since: since}
	return s, candidate{name: nameDefault, settings: defaults(), make: func(*world) chooser { return s }}
}

// virtualRuns play a load n times in virtual time, each time with arrivals that differ by up to 20 ms: that much, sockets and a
// scheduler move them, and one decision that falls otherwise moves the next. Requests before since are not counted.
func virtualRuns(t *testing.T, profiles []string, load *workload, since float64, n uint64) (runs []figures) {
	t.Helper()
	for seed := range n {
		rng := rand.New(rand.NewPCG(seed, 2))
		moved := &workload{blockTokens: load.blockTokens}
		for _, j := range load.jobs {
			c := *j
			c.at += 0.02 * rng.Float64()
			moved.jobs = append(moved.jobs, &c)
		}
		s, c := counted(since)
		if _, err := play(&scenario{name: "a pair", profiles: profiles}, moved, c); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, s.figures())
	}
	return runs
}

// compare holds a figure against those of the virtual runs: it may be a tenth off their range.
func compare(t *testing.T, what string, got figures, runs []figures, figure func(f figures) float64) {
	t.Helper()
	low, high := math.Inf(1), math.Inf(-1)
	for _, f := range runs {
		low, high = min(low, figure(f)), max(high, figure(f))
	}
	if v := figure(got); v < 0.9*low || v > 1.1*high {
		t.Errorf("%s: %.3f, in virtual time %.3f to %.3f: more than a tenth off", what, v, low, high)
	}
}

// compareChoices compares what has no unit of time.
func compareChoices(t *testing.T, got figures, runs []figures) {
	t.Helper()
	compare(t, "share of requests on the busiest engine", got, runs, func(f figures) float64 { return f.busiest })
	compare(t, "share of prompt tokens hit", got, runs, func(f figures) float64 { return f.hit })
	compare(t, "times that a herd's prefix was computed", got, runs, func(f figures) float64 { return f.times })
}

func compareTimes(t *testing.T, got figures, runs []figures) {
	t.Helper()
	compare(t, "mean time of a request", got, runs, func(f figures) float64 { return f.e2e })
}

// first keeps the arrivals of the first seconds, in their order, each with its answer's length as its cap: that is how a
// sim is told how long to answer.
func first(load *workload, seconds float64) *workload {
	load.jobs = slices.DeleteFunc(load.jobs, func(j *job) bool { return j.at >= seconds })
	slices.SortStableFunc(load.jobs, func(x, y *job) int { return cmp.Compare(x.at, y.at) })
	for _, j := range load.jobs {
		j.limit = int64(j.out)
	}
	return load
}

// lengths stand for the chat trace where it is not needed: answers as long as its own on average.
func lengths() *traces {
	rng := rand.New(rand.NewPCG(3, 3))
	tr := &traces{}
	for range 1000 {
		tr.chat = append(tr.chat, &job{in: 1 + rng.IntN(2000), out: 1 + int(min(rng.ExpFloat64()*210, 1000))})
	}
	return tr
}
