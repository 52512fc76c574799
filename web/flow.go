package web

import (
	"math"
	"strconv"
	"sync"
	"time"

	"ramjet/engine"
)

const (
	// sampleEvery is the step of the tokens' time axis (2 Hz, CONTRACT 5) and
	// samplesKept what of it is kept: ten minutes.
	sampleEvery = 500 * time.Millisecond
	samplesKept = 1200
	// An event of an engine that predicts several tokens ahead holds some of
	// them; more than mostPerEvent is a fault of the estimate.
	mostPerEvent  = 16
	perEventShare = 0.1
)

// flows keeps how many prompt tokens each engine computed and how many tokens
// it generated in each half second, as far as Ramjet sees: other clients of the
// engine are not in it. Nothing is counted for it where tokens pass; every
// sample compares counters that exist anyway.
type flows struct {
	mu      sync.Mutex // guards the following
	times   [samplesKept]time.Time
	next    int // where the next sample goes
	size    int
	resting bool // nothing moves until the next sample
	engines map[string]*flow
}

// flow is one engine's.
type flow struct {
	e               *engine.Engine
	prefill, decode [samplesKept]float32 // tokens/s, NaN = not known
	began           bool
	last            flowReading
	computed        float64 // prompt tokens, as far as they were seen
	perEvent        float64 // tokens in an event of a stream, 0 = not known
}

// flowReading is what an engine's counters say at one moment.
type flowReading struct {
	streams         int     // past their first token
	blocked         int     // of those, held up by their clients
	events          uint64  // of those streams
	generated       uint64  // tokens of requests that ended
	computed        float64 // prompt tokens of requests that ended, without cached ones
	uncached        int64   // prompt tokens of requests without a first token
	idle            bool    // no request is there
	secondsPerToken float64 // of one stream, as learnt at about that batch; 0 = not known
}

// sample notes one half second, and reports whether nothing moved in it and
// nothing is in flight.
func (f *flows) sample(now time.Time, engines []*engine.Engine, read func(e *engine.Engine) flowReading) (quiet bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUpLocked(now.Add(-sampleEvery - sampleSlack)) // what is later may be this sample's
	f.resting = false
	seconds := 0.0
	if f.size > 0 {
		seconds = now.Sub(f.times[(f.next+samplesKept-1)%samplesKept]).Seconds()
	}
	known := make(map[string]*flow, len(engines))
	quiet = true
	for _, e := range engines {
		one := f.engines[e.Name]
		if one == nil || one.e != e {
			one = newFlow(e)
		}
		known[e.Name] = one
		r := read(e)
		prefill, decode := one.step(r, seconds)
		quiet = quiet && r.idle && prefill == 0 && decode == 0
		one.prefill[f.next], one.decode[f.next] = prefill, decode
	}
	f.engines = known
	f.push(now)
	return quiet
}

func newFlow(e *engine.Engine) *flow {
	f := &flow{e: e}
	for i := range f.prefill {
		f.prefill[i], f.decode[i] = float32(math.NaN()), float32(math.NaN())
	}
	return f
}

// step compares a reading with the last one and returns both rates.
func (f *flow) step(r flowReading, seconds float64) (prefill, decode float32) {
	last := f.last
	f.last = r
	if !f.began || seconds <= 0 {
		f.began, f.computed = true, r.computed
		return float32(math.NaN()), float32(math.NaN())
	}
	f.learn(last, r, seconds)
	return float32(f.prefilled(last, r) / seconds), float32(f.generated(last, r) / seconds)
}

// generated is how many tokens came. A stream's events are seen as they pass,
// its tokens are counted when it ends: what ended streams had shown falls out
// of the one sum in the moment in which it enters the other.
func (f *flow) generated(last, r flowReading) float64 {
	perEvent := max(f.perEvent, 1)
	live := perEvent * (float64(r.events) - float64(last.events))
	return max(live+float64(r.generated-last.generated), 0)
}

// prefilled is how many prompt tokens were computed: what no longer waits for
// its first token, and when requests end what the engine counted beyond that,
// for a short prompt comes and goes between two samples.
func (f *flow) prefilled(last, r flowReading) float64 {
	before := f.computed
	f.computed += max(float64(last.uncached-r.uncached), 0)
	if r.computed > f.computed || r.idle {
		f.computed = r.computed
	}
	return max(f.computed-before, 0)
}

// learn finds out how many tokens an event holds: in a time in which no stream
// began, ended or was held up, by a prefill or by its client, by what one is known to give in that
// time.
func (f *flow) learn(last, r flowReading, seconds float64) {
	grown := float64(r.events) - float64(last.events)
	if last.uncached > 0 || r.uncached > 0 || last.blocked > 0 || r.blocked > 0 || r.streams == 0 || r.streams != last.streams || r.generated != last.generated || grown < float64(r.streams) || r.secondsPerToken <= 0 {
		return
	}
	seen := min(max(float64(r.streams)*seconds/r.secondsPerToken/grown, 1), mostPerEvent)
	if f.perEvent == 0 {
		f.perEvent = seen
		return
	}
	f.perEvent += (seen - f.perEvent) * perEventShare
}

// tokensView is the engines' tokens on one axis.
type tokensView struct {
	Time    []stamp      `json:"time"`
	Engines []tokensLine `json:"engines"`
}

type tokensLine struct {
	Engine  string    `json:"engine"`
	Prefill []floatOr `json:"prefill_tokens_per_s"`
	Decode  []floatOr `json:"decode_tokens_per_s"`
}

// since returns the samples after t, oldest first; "" stands for every engine.
func (f *flows) since(t time.Time, only string) tokensView {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := tokensView{Time: []stamp{}, Engines: []tokensLine{}}
	from := f.size
	for from > 0 && f.times[f.at(from-1)].After(t) {
		from--
	}
	for i := from; i < f.size; i++ {
		v.Time = append(v.Time, stamp(f.times[f.at(i)]))
	}
	for name, one := range f.engines {
		if only != "" && name != only {
			continue
		}
		line := tokensLine{Engine: name, Prefill: make([]floatOr, 0, f.size-from), Decode: make([]floatOr, 0, f.size-from)}
		for i := from; i < f.size; i++ {
			line.Prefill = append(line.Prefill, tenths(one.prefill[f.at(i)]))
			line.Decode = append(line.Decode, tenths(one.decode[f.at(i)]))
		}
		v.Engines = append(v.Engines, line)
	}
	return v
}

// at is where the i-th oldest sample lies.
func (f *flows) at(i int) int { return (f.next - f.size + i + samplesKept) % samplesKept }

func tenths(v float32) floatOr { return floatOr(math.Round(float64(v)*10) / 10) }

// reading reads an engine's counters.
func (s *Server) reading(e *engine.Engine) flowReading {
	r := flowReading{idle: true}
	r.streams, r.blocked, r.events = e.Streams()
	em := s.o.Metrics.Engine(e.Name)
	r.generated = em.OutputTokens.Get()
	r.computed = float64(em.PromptTokens.Get()) - float64(em.CachedTokens.Get())
	if s.o.Leases != nil {
		prefill, decode, _ := s.o.Leases(e.Name)
		r.idle = prefill+decode == 0
	}
	if s.o.Work != nil {
		w := s.o.Work(e.Name)
		r.uncached, r.secondsPerToken = w.UncachedTokens, nearest(w.SecondsPerToken, r.streams)
	}
	return r
}

// nearest returns what was learnt at the batch that is nearest to n, 0 if
// nothing near it was.
func nearest(learnt map[string]float64, n int) float64 {
	best, value := 1.1, 0.0 // about a bucket, which doubles
	for text, v := range learnt {
		batch, err := strconv.Atoi(text)
		if err != nil || batch < 1 || n < 1 {
			continue
		}
		if d := math.Abs(math.Log2(float64(batch) / float64(n))); d < best {
			best, value = d, v
		}
	}
	return value
}
