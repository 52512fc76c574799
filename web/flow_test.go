package web

import (
	"math"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// told is what an engine did between two samples, as its own counters would say
// afterwards.
func TestFlowSeesStreamsAsTheyPass(t *testing.T) {
	t.Parallel()
	f := flow{}
	step := func(r flowReading) (float64, float64) {
		p, d := f.step(r, 0.5)
		return float64(p), float64(d)
	}
	if p, d := step(flowReading{idle: true}); !math.IsNaN(p) || !math.IsNaN(d) {
		t.Errorf("the first sample tells %v %v", p, d)
	}
	// One stream of 30 events: 10 are seen in each half second, and it ends with
	// 32 tokens by the engine's count.
	for i, c := range []struct {
		r    flowReading
		want float64
	}{
		{flowReading{streams: 1, events: 10}, 20},
		{flowReading{streams: 1, events: 20}, 20},
		{flowReading{streams: 1, events: 30}, 20},
		{flowReading{generated: 32, idle: true}, 4},
		{flowReading{generated: 32, idle: true}, 0},
	} {
		if _, d := step(c.r); d != c.want {
			t.Errorf("%d: %v tokens/s, want %v", i, d, c.want)
		}
	}
}

// An engine that predicts ahead puts several tokens into an event. Nothing
// passes for them twice, and nothing is lost.
func TestFlowLearnsTokensOfAnEvent(t *testing.T) {
	t.Parallel()
	const perEvent = 2.5
	f := flow{}
	r := flowReading{}
	sum, events := 0.0, 0.0
	for range 20 { // requests
		for range 40 { // half seconds of 20 events each
			events += 20
			r.streams, r.events, r.secondsPerToken = 1, uint64(events), 0.5/(20*perEvent)
			if _, d := f.step(r, 0.5); !math.IsNaN(float64(d)) {
				sum += float64(d) * 0.5
			}
		}
		r.generated += uint64(events * perEvent)
		r.streams, r.events, events = 0, 0, 0
		_, d := f.step(r, 0.5)
		sum += float64(d) * 0.5
	}
	if math.Abs(f.perEvent-perEvent) > 0.01 {
		t.Errorf("%v tokens an event, want %v", f.perEvent, perEvent)
	}
	if want := float64(r.generated); math.Abs(sum-want) > want*0.02 {
		t.Errorf("%v tokens, the engine counted %v", sum, want)
	}
}

// A prefill holds up the streams beside it: their few events say nothing of how
// many tokens one holds.
func TestFlowLearnsNothingBesideAPrefill(t *testing.T) {
	t.Parallel()
	f := flow{}
	for i := range 20 {
		f.step(flowReading{streams: 2, events: uint64(2 * i), uncached: 9000, secondsPerToken: 0.01}, 0.5)
	}
	if f.perEvent != 0 {
		t.Errorf("%v tokens an event", f.perEvent)
	}
}

// passing is a stream under way.
type passing struct {
	blocked bool
	events  uint64
}

// EngineGone implements engine.Flight.
func (p *passing) EngineGone(telemetry.End) {}

// Streaming implements engine.Flight.
func (p *passing) Streaming() bool { return true }

// Blocked implements engine.Flight.
func (p *passing) Blocked() bool { return p.blocked }

// Progress implements engine.Flight.
func (p *passing) Progress() uint64 { return p.events }

// TestFlowOfABlockedStream: a stream whose client takes nothing for a while has
// not ended. What it showed neither hides the tokens of the streams beside it
// nor comes a second time, and nothing is learnt of it.
func TestFlowOfABlockedStream(t *testing.T) {
	t.Parallel()
	e := engine.New(engine.Options{Name: "a"})
	t.Cleanup(e.Close)
	s := &Server{o: Options{Metrics: telemetry.NewMetrics("", ""), Work: func(string) Work {
		return Work{SecondsPerToken: map[string]float64{"2": 0.05}}
	}}}
	slow, brisk := &passing{events: 1000}, &passing{}
	e.Enter(slow)
	e.Enter(brisk)
	f := flow{}
	f.step(s.reading(e), 0.5)
	for i, blocked := range []bool{false, true, true, false, false} {
		slow.blocked = blocked
		brisk.events += 10
		want := 20.0
		if !blocked {
			slow.events += 10
			want = 40
		}
		if _, d := f.step(s.reading(e), 0.5); float64(d) != want {
			t.Errorf("%d: %v tokens/s, want %v", i, d, want)
		}
	}
	if f.perEvent != 1 {
		t.Errorf("%v tokens an event, want 1", f.perEvent)
	}
}

func TestFlowSeesPrefillsLongAndShort(t *testing.T) {
	t.Parallel()
	f := flow{}
	for i, c := range []struct {
		r    flowReading
		want float64 // tokens in that half second
	}{
		{flowReading{computed: 7000, idle: true}, math.NaN()},
		{flowReading{computed: 7000, uncached: 9000}, 0},  // a long prompt begins
		{flowReading{computed: 7000, uncached: 9000}, 0},  // nobody knows how far it is
		{flowReading{computed: 7000, uncached: 0}, 9000},  // its first token is there
		{flowReading{computed: 16000, uncached: 0}, 0},    // it ends: no news
		{flowReading{computed: 17500, uncached: 0}, 1500}, // a short one came and went unseen
		{flowReading{computed: 17500, uncached: 4000}, 0}, // one comes
		{flowReading{computed: 17500, idle: true}, 0},     // and its client leaves
		{flowReading{computed: 17600, uncached: 0}, 100},  // what was believed of it is forgotten
	} {
		p, _ := f.step(c.r, 0.5)
		if got := float64(p) * 0.5; got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%d: %v tokens, want %v", i, got, c.want)
		}
	}
}

func TestFlowsKeepTenMinutesOfEveryEngine(t *testing.T) {
	t.Parallel()
	var f flows
	a, b := engine.New(engine.Options{Name: "a"}), engine.New(engine.Options{Name: "b"})
	t.Cleanup(a.Close)
	t.Cleanup(b.Close)
	at := time.Unix(1000, 0)
	n := 0
	read := func(*engine.Engine) flowReading { return flowReading{generated: uint64(n) * 5, streams: 1} }
	for n = range samplesKept + 30 {
		list := []*engine.Engine{a}
		if n > samplesKept {
			list = append(list, b) // a reload added it
		}
		at = at.Add(sampleEvery)
		f.sample(at, list, read)
	}
	all := f.since(time.Time{}, "")
	if len(all.Time) != samplesKept || len(all.Engines) != 2 {
		t.Fatalf("%d samples of %d engines", len(all.Time), len(all.Engines))
	}
	for i := 1; i < len(all.Time); i++ {
		if d := time.Time(all.Time[i]).Sub(time.Time(all.Time[i-1])); d != sampleEvery {
			t.Fatalf("step %d is %s", i, d)
		}
	}
	for _, line := range all.Engines {
		first, last := line.Decode[0], line.Decode[samplesKept-1]
		if last != 10 || line.Engine == "a" && first != 10 || line.Engine == "b" && !math.IsNaN(float64(first)) {
			t.Errorf("%s: from %v to %v", line.Engine, first, last)
		}
	}
	if some := f.since(at.Add(-3*sampleEvery), "b"); len(some.Time) != 3 || len(some.Engines) != 1 || len(some.Engines[0].Decode) != 3 {
		t.Errorf("%v", some)
	}
	if none := f.since(at, ""); len(none.Time) != 0 {
		t.Errorf("%v after the newest", none)
	}
	f.sample(at.Add(sampleEvery), []*engine.Engine{b}, read)
	if left := f.since(time.Time{}, ""); len(left.Engines) != 1 {
		t.Error("an engine that is gone is still shown")
	}
}

func TestNearestBatch(t *testing.T) {
	t.Parallel()
	learnt := map[string]float64{"1": 0.005, "8": 0.008, "x": 1}
	for n, want := range map[int]float64{0: 0, 1: 0.005, 2: 0.005, 5: 0.008, 8: 0.008, 16: 0.008, 40: 0} {
		if got := nearest(learnt, n); got != want {
			t.Errorf("batch %d: %v, want %v", n, got, want)
		}
	}
}
