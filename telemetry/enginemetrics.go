package telemetry

import (
	"bytes"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
)

// EngineMetrics holds the handles of one engine. Resolve it once, when the
// engine appears; its fields are safe for concurrent use.
type EngineMetrics struct {
	// TTFT is the time in seconds from sending a request to this engine to
	// its first generated token.
	TTFT *Histogram
	// TPOT is the mean time in seconds per generated token after the first
	// of one request.
	TPOT *Histogram

	PromptTokens           *metrics.Counter // prompt tokens of requests sent here
	OutputTokens           *metrics.Counter // tokens generated here
	MatchTokens            *metrics.Counter // prompt tokens believed cached here when chosen
	CachedTokens           *metrics.Counter // prompt tokens that the engine reported as cached
	DuplicatePrefillTokens *metrics.Counter // prompt tokens computed here though resident elsewhere
	ForgoneTokens          *metrics.Counter // more cached tokens that a losing engine had
	WarmingRefusals        *metrics.Counter // choices that passed it by because it was warming up

	// Decisions counts choices of this engine, indexed by Reason; the entry
	// of ReasonNone is nil.
	Decisions [reasonCount]*metrics.Counter

	// Gaps counts the times that the engine's events were not complete.
	Gaps *metrics.Counter

	name      string
	events    [kvEventCount]*metrics.Counter
	handoffs  [handoffCount]*metrics.Counter
	ejections [ejectionCount]*metrics.Counter
	failures  atomic.Uint64
	state     atomic.Uint32
	trust     atomic.Uint32
}

// Decision counts a choice of this engine for a reason. ReasonNone counts
// nothing.
func (e *EngineMetrics) Decision(r Reason) {
	if c := e.Decisions[r]; c != nil {
		c.Inc()
	}
}

// Ejected counts an ejection of this engine.
func (e *EngineMetrics) Ejected(r Ejection) { e.ejections[r].Inc() }

// Failed counts a failure of the engine's own: refused, reset, died, a bad
// response or a 5xx. It has no family of its own; the rate stands in the
// topology.
func (e *EngineMetrics) Failed() { e.failures.Add(1) }

// KVEvents counts n events of its cache.
func (e *EngineMetrics) KVEvents(k KVEvent, n int) { e.events[k].Add(n) }

// SetState sets the state that ramjet_engine_state shows.
func (e *EngineMetrics) SetState(s State) { e.state.Store(uint32(s)) }

// SetTrust sets the trust that ramjet_residency_trust shows.
func (e *EngineMetrics) SetTrust(t Trust) { e.trust.Store(uint32(t)) }

// engineFamilies are the families that have an engine label.
type engineFamilies struct {
	ttft, tpot                                 *family
	prompt, output, match, cached              *family
	duplicate, forgone, warming, decide, eject *family
}

func (m *Metrics) addEngineFamilies() {
	one := []string{"engine"}
	hist := func(name, help string, bounds []float64) *family {
		return m.add(Family{Name: name, Type: "histogram", Labels: one, Help: help, Bounds: bounds}, nil)
	}
	count := func(name, help string, more ...string) *family {
		return m.add(Family{Name: name, Type: "counter", Labels: append(slices.Clone(one), more...), Help: help}, nil)
	}
	f := &m.fam
	f.ttft = hist("ramjet_time_to_first_token_seconds", "Time from sending a request to an engine to its first generated token.", ttftBounds)
	f.tpot = hist("ramjet_time_per_output_token_seconds", "Mean time per generated token after the first, one value a request.", tpotBounds)
	f.decide = count("ramjet_route_decisions_total", "Choices of an engine, by the term that made it beat the runner-up.", "reason")
	m.add(Family{Name: "ramjet_leases", Type: "gauge", Labels: []string{"engine", "phase"},
		Help: "Requests on an engine, before (prefill) and after (decode) their first generated token."}, m.writeLeases)
	m.add(Family{Name: "ramjet_lease_tokens", Type: "gauge", Labels: one,
		Help: "Tokens that the requests on an engine weigh."}, m.writeLeaseTokens)
	m.add(Family{Name: "ramjet_engine_state", Type: "gauge", Labels: []string{"engine", "state"},
		Help: "1 for the present state of an engine, 0 for the others."}, m.writeStates)
	m.add(Family{Name: "ramjet_residency_trust", Type: "gauge", Labels: []string{"engine", "trust"},
		Help: "1 for how far the record of an engine's cache is believed, 0 for the others."}, m.writeTrusts)
	f.prompt = count("ramjet_prompt_tokens_total", "Prompt tokens of the requests sent to an engine.")
	f.output = count("ramjet_output_tokens_total", "Tokens that an engine generated.")
	f.match = count("ramjet_match_tokens_total", "Prompt tokens believed cached on the engine when it was chosen.")
	f.cached = count("ramjet_cached_tokens_total", "Prompt tokens that the engine reported as cached.")
	f.duplicate = count("ramjet_duplicate_prefill_tokens_total", "Prompt tokens not cached on the chosen engine though resident on another.")
	f.forgone = count("ramjet_forgone_cached_tokens_total", "Cached prompt tokens given up by choosing this engine over one with a longer match.")
	f.warming = count("ramjet_warming_refusals_total", "Choices that passed an engine by because it was still warming up.")
	f.eject = count("ramjet_ejections_total", "Ejections of an engine, by the failure that completed the count.", "reason")
}

// Engine returns the handles of an engine, making its series at 0 at the
// first call.
func (m *Metrics) Engine(name string) *EngineMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.engines[name]; e != nil {
		return e
	}
	l, f := label("engine", name), &m.fam
	e := &EngineMetrics{
		name: name, TTFT: newHistogram(f.ttft.histogram(l), ttftBounds), TPOT: newHistogram(f.tpot.histogram(l), tpotBounds),
		PromptTokens: f.prompt.counter(l), OutputTokens: f.output.counter(l),
		MatchTokens: f.match.counter(l), CachedTokens: f.cached.counter(l),
		DuplicatePrefillTokens: f.duplicate.counter(l), ForgoneTokens: f.forgone.counter(l),
		WarmingRefusals: f.warming.counter(l),
	}
	for _, r := range Reasons() {
		e.Decisions[r] = f.decide.counter(l, label("reason", r.String()))
	}
	for _, r := range Ejections() {
		e.ejections[r] = f.eject.counter(l, label("reason", r.String()))
	}
	e.Gaps = m.residency.gaps.counter(l)
	for _, k := range KVEvents() {
		e.events[k] = m.residency.events.counter(l, label("kind", k.String()))
	}
	for _, h := range Handoffs() {
		e.handoffs[h] = m.residency.handoff.counter(l, label("outcome", h.String()))
	}
	m.engines[name] = e
	return e
}

// DropEngine forgets an engine's series. Handles that are still held count
// into nothing.
func (m *Metrics) DropEngine(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.engines[name] == nil {
		return
	}
	delete(m.engines, name)
	l, f := label("engine", name), &m.fam
	for _, k := range KVEvents() {
		m.residency.events.drop(l, label("kind", k.String()))
	}
	for _, h := range Handoffs() {
		m.residency.handoff.drop(l, label("outcome", h.String()))
	}
	for _, fam := range []*family{f.ttft, f.tpot, f.prompt, f.output, f.match, f.cached, f.duplicate, f.forgone, f.warming, m.residency.gaps} {
		fam.drop(l)
	}
	for _, r := range Reasons() {
		f.decide.drop(l, label("reason", r.String()))
	}
	for _, r := range Ejections() {
		f.eject.drop(l, label("reason", r.String()))
	}
}

// present returns the engines sorted by name, so that a page is stable.
func (m *Metrics) present() []*EngineMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*EngineMetrics, 0, len(m.engines))
	for _, e := range m.engines {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b *EngineMetrics) int { return strings.Compare(a.name, b.name) })
	return out
}

func (m *Metrics) lease(engine string) (prefill, decode int, tokens int64) {
	if f := m.leaseSource.Load(); f != nil {
		return (*f)(engine)
	}
	return 0, 0, 0
}

func (m *Metrics) writeLeases(b *bytes.Buffer, name string) {
	for _, e := range m.present() {
		prefill, decode, _ := m.lease(e.name)
		l := label("engine", e.name)
		sample(b, series(name, l, `phase="decode"`), float64(decode))
		sample(b, series(name, l, `phase="prefill"`), float64(prefill))
	}
}

func (m *Metrics) writeLeaseTokens(b *bytes.Buffer, name string) {
	for _, e := range m.present() {
		_, _, tokens := m.lease(e.name)
		sample(b, series(name, label("engine", e.name)), float64(tokens))
	}
}

func (m *Metrics) writeStates(b *bytes.Buffer, name string) {
	for _, e := range m.present() {
		now := State(e.state.Load())
		for _, s := range States() {
			sample(b, series(name, label("engine", e.name), label("state", s.String())), boolValue(s == now))
		}
	}
}

func (m *Metrics) writeTrusts(b *bytes.Buffer, name string) {
	for _, e := range m.present() {
		now := Trust(e.trust.Load())
		for _, t := range Trusts() {
			sample(b, series(name, label("engine", e.name), label("trust", t.String())), boolValue(t == now))
		}
	}
}
