package telemetry

import (
	"bytes"
	"slices"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
)

// Keys says by what prompts are compared with the engines' caches.
type Keys uint8

// The closed list (CONTRACT section 4).
const (
	KeysNone Keys = iota
	KeysApproximate
	KeysExact
	keysCount
)

var keysWords = [keysCount]string{"none", "approximate", "exact"}

// String returns the word.
func (k Keys) String() string { return word(keysWords[:], int(k)) }

// Agreement says how a choice compares with what the other way of matching
// would have chosen.
type Agreement uint8

// The closed list (CONTRACT section 4). AgreementNone is "no decision was made".
const (
	AgreementNone Agreement = iota
	AgreementAgree
	AgreementWouldMove
	AgreementTie
	AgreementCold
	AgreementUntrusted
	agreementCount
)

var agreementWords = [agreementCount]string{"", "agree", "would-move", "tie", "cold", "untrusted"}

// String returns the word, "" for AgreementNone.
func (a Agreement) String() string { return word(agreementWords[:], int(a)) }

// Agreements lists every word but AgreementNone.
func Agreements() []Agreement { return list[Agreement](int(agreementCount))[1:] }

// Handoff says what became of giving token ids to an engine.
type Handoff uint8

// The closed list (CONTRACT section 10.18).
const (
	HandoffSent Handoff = iota
	HandoffProbed
	HandoffMismatch
	HandoffStopped
	HandoffUnsupported
	handoffCount
)

var handoffWords = [handoffCount]string{"sent", "probed", "mismatch", "stopped", "unsupported"}

// String returns the word.
func (h Handoff) String() string { return word(handoffWords[:], int(h)) }

// Handoffs lists every outcome in order.
func Handoffs() []Handoff { return list[Handoff](int(handoffCount)) }

// KVEvent is what an engine said about its cache.
type KVEvent uint8

// The closed list (CONTRACT section 10.18).
const (
	KVStored KVEvent = iota
	KVRemoved
	KVCleared
	KVOdd     // understood in part, or contradicting what is known
	KVUnknown // of a kind that is not known
	kvEventCount
)

var kvEventWords = [kvEventCount]string{"stored", "removed", "cleared", "odd", "unknown"}

// String returns the word.
func (k KVEvent) String() string { return word(kvEventWords[:], int(k)) }

// KVEvents lists every kind in order.
func KVEvents() []KVEvent { return list[KVEvent](int(kvEventCount)) }

// SingleFlight says what became of a request whose prompt was being computed
// for another one.
type SingleFlight uint8

// The closed list.
const (
	FlightJoined SingleFlight = iota // went to the engine that computes it
	FlightLeft                       // went elsewhere, since that was cheaper
	flightCount
)

var flightWords = [flightCount]string{"joined", "left"}

// String returns the word.
func (s SingleFlight) String() string { return word(flightWords[:], int(s)) }

// SingleFlights lists every outcome in order.
func SingleFlights() []SingleFlight { return list[SingleFlight](int(flightCount)) }

// TokenizeSource is where a prompt's token ids come from.
type TokenizeSource uint8

// The closed list.
const (
	SourceLocal TokenizeSource = iota
	SourceEngine
	sourceCount
)

var sourceWords = [sourceCount]string{"local", "engine"}

// String returns the word.
func (s TokenizeSource) String() string { return word(sourceWords[:], int(s)) }

// Tokenized is what became of the search for a prompt's ids.
type Tokenized uint8

// The closed list. The first three are ids found, by the work that it took.
const (
	TokenizedWhole   Tokenized = iota // local: the prompt was rendered whole
	TokenizedGrown                    // local: an old conversation and its new messages
	TokenizedSame                     // local: the same messages again
	TokenizedUnknown                  // local: not known exactly
	TokenizedKept                     // engine: its ids came and are kept for the next turn
	TokenizedFound                    // engine: a later turn found them
	TokenizedFailed                   // engine: no answer, or none of use
	TokenizedDropped                  // engine: not asked, since too many wait or it is busy
	tokenizedCount
)

var tokenizedWords = [tokenizedCount]string{"whole", "grown", "same", "unknown", "kept", "found", "failed", "dropped"}

// String returns the word.
func (t Tokenized) String() string { return word(tokenizedWords[:], int(t)) }

// ResidencySource reads an engine's record at scrape time: the blocks in its
// index and the age in seconds of its newest event when it came, Unknown if
// none did.
type ResidencySource func(engine string) (blocks int, lag float64)

// residencyCounters are the families about what is known of caches.
type residencyCounters struct {
	agreement [agreementCount]*metrics.Counter
	flights   [flightCount]*metrics.Counter
	tokenized [sourceCount][tokenizedCount]*metrics.Counter
	source    atomic.Pointer[ResidencySource]
	bytes     atomic.Pointer[func() int64]

	handoff, events, gaps *family
}

func (m *Metrics) addResidencyFamilies() {
	c := &m.residency
	one := []string{"engine"}
	c.handoff = m.add(Family{Name: "ramjet_handoff_total", Type: "counter", Labels: []string{"engine", "outcome"},
		Help: "Requests whose token ids were given to an engine, and what the checks of that found."}, nil)
	m.add(Family{Name: "ramjet_index_blocks", Type: "gauge", Labels: one,
		Help: "Blocks of an engine's cache that are in the index."}, m.writeIndexBlocks)
	m.add(Family{Name: "ramjet_index_bytes", Type: "gauge",
		Help: "Memory of the index."}, m.writeIndexBytes)
	c.events = m.add(Family{Name: "ramjet_kv_events_total", Type: "counter", Labels: []string{"engine", "kind"},
		Help: "Events of an engine's cache, by kind."}, nil)
	c.gaps = m.add(Family{Name: "ramjet_kv_gaps_total", Type: "counter", Labels: one,
		Help: "Times that an engine's events were not complete and had to be asked for again."}, nil)
	m.add(Family{Name: "ramjet_kv_lag_seconds", Type: "gauge", Labels: one,
		Help: "Age of an engine's newest cache event when it came, by the event's own time; an engine without events has none."}, m.writeLag)
	flights := m.add(Family{Name: "ramjet_single_flight_total", Type: "counter", Labels: []string{"outcome"},
		Help: "Requests whose prompt was being computed for another one: joined it, or left it for a cheaper engine."}, nil)
	for _, f := range SingleFlights() {
		c.flights[f] = flights.counter(label("outcome", f.String()))
	}
	agreement := m.add(Family{Name: "ramjet_exact_agreement_total", Type: "counter", Labels: []string{"outcome"},
		Help: "Choices compared with what the other way of matching, exact or approximate, would have chosen."}, nil)
	for _, a := range Agreements() {
		c.agreement[a] = agreement.counter(label("outcome", a.String()))
	}
	tokenized := m.add(Family{Name: "ramjet_tokenize_total", Type: "counter", Labels: []string{"source", "outcome"},
		Help: "Prompts whose token ids were looked for, by where and what came of it."}, nil)
	for s := range sourceCount {
		for t := range tokenizedCount {
			if (s == SourceEngine) != (t >= TokenizedKept) {
				continue // an outcome of the other source
			}
			c.tokenized[s][t] = tokenized.counter(label("outcome", t.String()), label("source", s.String()))
		}
	}
}

// Agreed counts how a choice compared with the other way of matching.
func (m *Metrics) Agreed(a Agreement) {
	if c := m.residency.agreement[a]; c != nil {
		c.Inc()
	}
}

// Agreement returns how often a came about.
func (m *Metrics) Agreement(a Agreement) uint64 {
	if c := m.residency.agreement[a]; c != nil {
		return c.Get()
	}
	return 0
}

// SingleFlight counts a request whose prompt was being computed.
func (m *Metrics) SingleFlight(s SingleFlight) { m.residency.flights[s].Inc() }

// Tokenized counts a search for a prompt's ids, by the words of the closed
// lists TokenizeSource and Tokenized.
func (m *Metrics) Tokenized(source, outcome string) {
	s, o := slices.Index(sourceWords[:], source), slices.Index(tokenizedWords[:], outcome)
	if s < 0 || o < 0 {
		panic("BUG: unknown words of tokenizing: " + source + " " + outcome)
	}
	m.residency.tokenized[s][o].Inc()
}

// Handoff counts token ids given to an engine, by the words of the closed list
// Handoff.
func (m *Metrics) Handoff(engine, outcome string) {
	o := slices.Index(handoffWords[:], outcome)
	if o < 0 {
		panic("BUG: unknown outcome of handing over: " + outcome)
	}
	m.Engine(engine).handoffs[o].Inc()
}

// SetResidencySource sets where index gauges are read at scrape time. The
// functions must not block and must not call back into m.
func (m *Metrics) SetResidencySource(engine ResidencySource, indexBytes func() int64) {
	m.residency.source.Store(&engine)
	m.residency.bytes.Store(&indexBytes)
}

func (m *Metrics) writeIndexBlocks(b *bytes.Buffer, name string) {
	for _, e := range m.present() {
		blocks, _ := m.residencyOf(e.name)
		sample(b, series(name, label("engine", e.name)), float64(blocks))
	}
}

func (m *Metrics) writeLag(b *bytes.Buffer, name string) {
	for _, e := range m.present() {
		if _, lag := m.residencyOf(e.name); lag > Unknown {
			sample(b, series(name, label("engine", e.name)), lag)
		}
	}
}

func (m *Metrics) writeIndexBytes(b *bytes.Buffer, name string) {
	var n int64
	if f := m.residency.bytes.Load(); f != nil {
		n = (*f)()
	}
	sample(b, name, float64(n))
}

func (m *Metrics) residencyOf(engine string) (blocks int, lag float64) {
	if f := m.residency.source.Load(); f != nil {
		return (*f)(engine)
	}
	return 0, Unknown
}
