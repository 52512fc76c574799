package telemetry

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b), 1) }

// slowQuantile sorts the values and takes the bounds of the bucket that the
// q-quantile lies in.
func slowQuantile(q float64, bounds, values []float64) (low, high float64) {
	values = slices.Sorted(slices.Values(values))
	v := values[max(int(math.Ceil(q*float64(len(values))))-1, 0)]
	for _, b := range bounds {
		if v <= b {
			return low, b
		}
		low = b
	}
	return low, low
}

func TestQuantileLiesInItsBucket(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		m := NewMetrics("v", "g")
		h := m.Engine("a").TTFT
		for range r.IntN(50) { // what was there before does not count
			h.Update(r.ExpFloat64())
		}
		before := h.read(nil)
		var values []float64
		for range 1 + r.IntN(60) {
			v := r.ExpFloat64() * math.Pow(10, float64(r.IntN(4)-2))
			values = append(values, v)
			h.Update(v)
		}
		for _, q := range []float64{0, 0.5, 0.9, 0.99, 1} {
			low, high := slowQuantile(q, ttftBounds, values)
			if got := quantile(q, ttftBounds, before, h.read(nil)); got < low || got > high {
				t.Fatalf("%v-quantile of %v: %v, want %v to %v", q, values, got, low, high)
			}
		}
	}
}

func TestHistogramCountsWhatPrometheusCounts(t *testing.T) {
	t.Parallel()
	m := NewMetrics("v", "g")
	h := m.Engine("a").TPOT
	for _, v := range []float64{0, 0.001, 0.0010001, 0.01, 160, 161, 1e9, -1, math.NaN(), math.Inf(1)} {
		h.Update(v)
	}
	counts, p := h.read(nil), scrape(t, m)
	var sum uint64
	for i, bound := range tpotBounds {
		sum += counts[i]
		got, n := p.find("ramjet_time_per_output_token_seconds_bucket", map[string]string{"engine": "a", "le": fmt.Sprint(bound)})
		if n != 1 || uint64(got) != sum {
			t.Errorf("bound %v: %v on the page, %d here", bound, got, sum)
		}
	}
	if sum += counts[len(tpotBounds)]; sum != 8 {
		t.Errorf("%d values, want 8", sum)
	}
	if quantile(0.5, tpotBounds, nil, make([]uint64, len(counts))) != Unknown {
		t.Error("a quantile of nothing")
	}
}

func TestRecentTellsRatesAndShares(t *testing.T) {
	t.Parallel()
	m := NewMetrics("v", "g")
	a, b := m.Engine("a"), m.Engine("b")
	a.PromptTokens.Add(1_000_000) // before anybody looked
	r := NewRecent(m)
	at := time.Unix(1000, 0)
	if _, ok := r.Report(at); ok {
		t.Error("a report before the first mark")
	}
	r.Mark(at)
	if _, ok := r.Report(at); ok {
		t.Error("a report over no time")
	}
	// 50 s of old load, then 20 s of another one.
	for s := range 70 {
		if s < 50 {
			a.PromptTokens.Add(1000)
			a.MatchTokens.Add(500)
			a.TTFT.Update(0.3)
		} else {
			b.PromptTokens.Add(200)
			b.CachedTokens.Add(150)
			b.OutputTokens.Add(40)
			b.Decision(ReasonExact)
			b.Failed()
			m.Request("m", 200, EndDone)
			m.Agreed(AgreementAgree)
		}
		at = at.Add(time.Second)
		r.Mark(at)
	}
	got, ok := r.Report(at)
	if !ok || got.Span != Lately {
		t.Fatalf("%v %v", ok, got.Span)
	}
	ea, eb := got.Engines["a"], got.Engines["b"]
	if ea.PromptTokens != 0 || !near(ea.MatchShare, 0.5) || ea.CachedShare != 0 || ea.TTFT50 < 0.25 || ea.TTFT50 > 0.5 || ea.TPOT50 != Unknown || ea.PromptTotal != 1_050_000 {
		t.Errorf("a: %+v", ea)
	}
	if !near(eb.PromptTokens, 200) || !near(eb.CachedTokens, 150) || !near(eb.OutputTokens, 40) || !near(eb.Requests, 1) || !near(eb.Errors, 1) || !near(eb.CachedShare, 0.75) {
		t.Errorf("b: %+v", eb)
	}
	if !near(got.Requests, 1) || got.Ends[EndDone] != 20 || got.Reasons[ReasonExact] != 20 || got.Agreement[AgreementAgree] != 20 || got.PromptTokens != 40*1000+20*200 {
		t.Errorf("all: %+v", got)
	}
	// A minute in which nothing happens leaves shares unknown and rates 0.
	for range 61 {
		at = at.Add(time.Second)
		r.Mark(at)
	}
	got, _ = r.Report(at)
	if e := got.Engines["b"]; e.MatchShare != Unknown || e.TTFT50 != Unknown || e.Requests != 0 || got.Requests != 0 {
		t.Errorf("after a silent minute: %+v", e)
	}
}

func TestRecentKnowsAnEngineThatCameAgain(t *testing.T) {
	t.Parallel()
	m := NewMetrics("v", "g")
	m.Engine("a").PromptTokens.Add(5000)
	r := NewRecent(m)
	at := time.Unix(1000, 0)
	r.Mark(at)
	m.DropEngine("a")
	m.Engine("a").PromptTokens.Add(100)
	m.Engine("new").PromptTokens.Add(300)
	got, _ := r.Report(at.Add(10 * time.Second))
	if a, b := got.Engines["a"].PromptTokens, got.Engines["new"].PromptTokens; !near(a, 10) || !near(b, 30) {
		t.Errorf("%v and %v tokens/s, want 10 and 30", a, b)
	}
	m.DropEngine("a")
	if got, _ = r.Report(at.Add(10 * time.Second)); len(got.Engines) != 1 {
		t.Errorf("%d engines", len(got.Engines))
	}
}
