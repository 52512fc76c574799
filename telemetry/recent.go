package telemetry

import (
	"slices"
	"sync"
	"time"
)

// Lately is how far back shares and quantiles of Recent reach, and rateSpan its
// rates: a minute holds enough requests for a quantile, and a rate should
// follow what a person just did.
const (
	Lately   = time.Minute
	rateSpan = 10 * time.Second
	// markEvery is the time between two marks that a reading can begin at.
	markEvery = 2 * time.Second
	// markLate is how much later a mark may be: it comes with a sample of the
	// page, which is taken every 650 ms at least.
	markLate  = 650 * time.Millisecond
	marksKept = 4 * (int(Lately/markEvery) + 1)
)

// Recent tells what the counters did lately. Mark it often, from one goroutine
// or many; it costs nothing where requests are counted. It is safe for
// concurrent use.
type Recent struct {
	m *Metrics

	mu    sync.Mutex // guards the following
	marks []mark     // oldest first
}

// NewRecent returns a memory of m's counters that begins now.
func NewRecent(m *Metrics) *Recent { return &Recent{m: m} }

// mark is one reading of all counters.
type mark struct {
	at        time.Time
	engines   map[string]*reading
	agreement [agreementCount]uint64
	ends      [endCount]uint64
}

// reading is one reading of an engine's counters.
type reading struct {
	handles                                     *EngineMetrics
	prompt, output, match, cached, dup, forgone uint64
	failures                                    uint64
	decisions                                   [reasonCount]uint64
	ttft, tpot                                  []uint64
}

func (m *Metrics) read(at time.Time) mark {
	r := mark{at: at, engines: map[string]*reading{}, ends: m.requests.ends()}
	for _, e := range m.present() {
		r.engines[e.name] = e.read()
	}
	for a := range r.agreement {
		r.agreement[a] = m.Agreement(Agreement(a)) //nolint:gosec // an index of the closed list
	}
	return r
}

func (e *EngineMetrics) read() *reading {
	r := &reading{
		handles: e, prompt: e.PromptTokens.Get(), output: e.OutputTokens.Get(), match: e.MatchTokens.Get(), cached: e.CachedTokens.Get(),
		dup: e.DuplicatePrefillTokens.Get(), forgone: e.ForgoneTokens.Get(), failures: e.failures.Load(),
		ttft: e.TTFT.read(nil), tpot: e.TPOT.read(nil),
	}
	for i, c := range e.Decisions {
		if c != nil {
			r.decisions[i] = c.Get()
		}
	}
	return r
}

// Mark reads the counters if the last mark is old enough.
func (r *Recent) Mark(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.marks); n > 0 && now.Sub(r.marks[n-1].at) < markEvery {
		return
	}
	r.markLocked(now)
}

// Rest marks the beginning and the end of a time in which nothing happens and
// nobody calls Mark, however long ago the last mark is.
func (r *Recent) Rest(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.markLocked(now)
}

func (r *Recent) markLocked(now time.Time) {
	// One that is a minute old stays, to begin that minute at. Rests bring marks
	// of their own.
	old := 0
	for old+1 < len(r.marks) && (now.Sub(r.marks[old+1].at) >= Lately || len(r.marks)-old >= marksKept) {
		old++
	}
	r.marks = append(slices.Delete(r.marks, 0, old), r.m.read(now))
}

// EngineReport is what one engine did lately. Totals are since the start, rates
// per second over the last ten seconds; shares and quantiles are of the last
// minute and Unknown where nothing happened in it.
type EngineReport struct {
	PromptTotal, OutputTotal, MatchTotal, CachedTotal, DuplicateTotal, ForgoneTotal uint64

	Requests, PromptTokens, CachedTokens, OutputTokens, Errors float64 // per second
	MatchShare, CachedShare                                    float64 // of prompt tokens
	TTFT50, TTFT99, TPOT50                                     float64 // seconds
}

// Report is what was done lately by all engines; counts are of the last minute.
type Report struct {
	Span      time.Duration // how long that minute is: less after a start
	Requests  float64       // ended, per second
	Engines   map[string]EngineReport
	Reasons   [reasonCount]uint64
	Agreement [agreementCount]uint64
	Ends      [endCount]uint64

	PromptTokens, CachedTokens, DuplicateTokens, ForgoneTokens uint64
}

// Report compares the counters with the marks. Before the second mark nothing
// is known: it returns false.
func (r *Recent) Report(now time.Time) (Report, bool) {
	after := r.m.read(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.marks) == 0 || !now.After(r.marks[0].at) {
		return Report{}, false
	}
	long, short := &r.marks[0], &r.marks[0]
	for i := range r.marks {
		age := now.Sub(r.marks[i].at)
		if age >= rateSpan {
			short = &r.marks[i]
		}
		if age >= Lately {
			long = &r.marks[i]
		}
	}
	// A mark that is older than it would be without a rest stands for all of
	// that rest, in which nothing happened.
	out := Report{Span: min(now.Sub(long.at), Lately+markEvery+markLate), Engines: make(map[string]EngineReport, len(after.engines))}
	seconds := min(now.Sub(short.at), rateSpan+markEvery+markLate).Seconds()
	for i := range after.ends {
		out.Ends[i] = after.ends[i] - long.ends[i]
		out.Requests += float64(after.ends[i]-short.ends[i]) / seconds
	}
	for i := range after.agreement {
		out.Agreement[i] = after.agreement[i] - long.agreement[i]
	}
	for name, e := range after.engines {
		out.Engines[name] = e.report(long.engines[name], short.engines[name], seconds, &out)
	}
	return out, true
}

// report tells what e did since long and short, and adds it to the sums of all.
// An engine that came meanwhile, or came again, began at 0.
func (e *reading) report(long, short *reading, seconds float64, all *Report) EngineReport {
	long, short = e.since(long), e.since(short)
	rate := func(after, before uint64) float64 { return float64(after-before) / seconds }
	out := EngineReport{
		PromptTotal: e.prompt, OutputTotal: e.output, MatchTotal: e.match, CachedTotal: e.cached, DuplicateTotal: e.dup, ForgoneTotal: e.forgone,
		PromptTokens: rate(e.prompt, short.prompt), CachedTokens: rate(e.cached, short.cached), OutputTokens: rate(e.output, short.output),
		Errors:     rate(e.failures, short.failures),
		MatchShare: share(e.match-long.match, e.prompt-long.prompt), CachedShare: share(e.cached-long.cached, e.prompt-long.prompt),
		TTFT50: quantile(0.5, ttftBounds, long.ttft, e.ttft), TTFT99: quantile(0.99, ttftBounds, long.ttft, e.ttft),
		TPOT50: quantile(0.5, tpotBounds, long.tpot, e.tpot),
	}
	for i := range e.decisions {
		all.Reasons[i] += e.decisions[i] - long.decisions[i]
		out.Requests += rate(e.decisions[i], short.decisions[i])
	}
	all.PromptTokens += e.prompt - long.prompt
	all.CachedTokens += e.cached - long.cached
	all.DuplicateTokens += e.dup - long.dup
	all.ForgoneTokens += e.forgone - long.forgone
	return out
}

// since returns an earlier reading of the same handles, else one of nothing.
func (e *reading) since(earlier *reading) *reading {
	if earlier == nil || earlier.handles != e.handles {
		return &reading{}
	}
	return earlier
}

// share is part of whole, at most 1: tokens of a choice are counted when it is
// made and those of its prompt when the request ends.
func share(part, whole uint64) float64 {
	if whole == 0 {
		return Unknown
	}
	return min(float64(part)/float64(whole), 1)
}
