package route

import (
	"encoding/json"
	"math"
	"strconv"

	"ramjet/telemetry"
)

// Explanation is the record of one decision (CONTRACT section 4): everything it
// went by, and what became of it. It marshals to the JSON that users rely on;
// what is not known is null. A flight fills one and uses it again for the next
// request; Ring keeps copies.
type Explanation struct {
	RequestID Text            `json:"request_id"`
	Time      telemetry.Stamp `json:"time"`
	Path      Text            `json:"path"`
	Model     Text            `json:"model"`
	Dialect   Word            `json:"dialect"`
	Stream    bool            `json:"stream"`
	Session   Hash            `json:"session"`

	PromptTokens   Count       `json:"prompt_tokens"`
	Keys           Word        `json:"keys"`
	KeysNote       Word        `json:"keys_note"`
	OutputCap      Count       `json:"output_cap"`
	ExpectedOutput Count       `json:"expected_output_tokens"`
	Handoff        bool        `json:"handoff"`
	Policy         Policy      `json:"policy"`
	Cohort         Cohort      `json:"cohort"`
	Candidates     []Candidate `json:"candidates"`

	Engine        Word      `json:"engine"`
	Reason        Word      `json:"reason"`
	RunnerUp      Word      `json:"runner_up"`
	Margin        float64   `json:"margin_s"`
	ForgoneTokens int64     `json:"forgone_tokens"`
	Shadow        Shadow    `json:"shadow"`
	Attempts      []Attempt `json:"attempts"`
	Result        Result    `json:"result"`

	basis basis
}

// basis is what a decision went by beside what people are shown: with it the
// decision can be made again. Only the journal has it.
type basis struct {
	settings  *Settings
	turn      uint64
	place     float64 // of the session among all, for the cohort
	length    float64 // expected tokens of one answer
	sequences int64
	stored    string
	known     bool // the prompt's ids are known
	keyed     bool // something of the prompt has keys
	light     bool // it books nothing and takes no turn
	open      bool // it failed open
	rotated   bool // candidates were taken in turn
}

// Cohort says whether exact residency may decide for the session.
type Cohort struct {
	Percent float64 `json:"percent"`
	In      bool    `json:"in"`
}

// Attempt is one engine that the request was sent to.
type Attempt struct {
	Engine  string `json:"engine"`
	Outcome string `json:"outcome"`
}

// Candidate is one engine in a decision. Times are in seconds.
type Candidate struct {
	Engine, Profile string
	Slot            int
	State           telemetry.State
	Trust           telemetry.Trust
	Usable          bool
	Note            string

	Match, MatchExact, MatchApproximate, MatchInFlight int64
	Uncached, QueueTokens                              int64
	// MatchOther is what MatchExact would be if the drop that was learnt of
	// the engine were wrong. It is for the audit.
	MatchOther int64

	PrefillRequests, DecodeRequests    int
	PrefillRate, SecondsPerToken       float64
	Wait, Prefill, Decode, Delay, Cost float64

	tokens     int64   // what its leases weigh
	batch      float64 // answers that it would generate at once
	decoding   float64 // answers that it generates
	remaining  float64 // tokens that those are expected to need yet
	step       float64 // seconds per token that the cost goes by
	meanStep   float64 // the mean of all engines' at its batch
	stepGrowth float64 // of the others, caused by the request
	miss       float64 // what tokens count that another engine would not compute
	crowd      float64 // what computing counts for the answers under way there
}

// MarshalJSON implements json.Marshaler.
func (c *Candidate) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Engine           string  `json:"engine"`
		Profile          string  `json:"profile"`
		State            string  `json:"state"`
		Trust            string  `json:"trust"`
		Usable           bool    `json:"usable"`
		Note             Word    `json:"note"`
		Match            int64   `json:"match_tokens"`
		MatchExact       int64   `json:"match_exact_tokens"`
		MatchApproximate int64   `json:"match_approximate_tokens"`
		MatchInFlight    int64   `json:"match_in_flight_tokens"`
		Uncached         Count   `json:"uncached_tokens"`
		Queue            Count   `json:"queue_tokens"`
		PrefillRequests  int     `json:"prefill_requests"`
		DecodeRequests   int     `json:"decode_requests"`
		PrefillRate      float64 `json:"prefill_tokens_per_s"`
		SecondsPerToken  Seconds `json:"seconds_per_token"`
		Wait             Seconds `json:"wait_s"`
		Prefill          Seconds `json:"prefill_s"`
		Decode           Seconds `json:"decode_s"`
		Delay            Seconds `json:"delay_s"`
		Cost             Seconds `json:"cost_s"`
	}{
		c.Engine, c.Profile, c.State.String(), c.Trust.String(), c.Usable, Word(c.Note),
		c.Match, c.MatchExact, c.MatchApproximate, c.MatchInFlight,
		Count(c.known(c.Uncached)), Count(c.known(c.QueueTokens)), c.PrefillRequests, c.DecodeRequests, c.PrefillRate,
		c.weighed(c.SecondsPerToken), c.weighed(c.Wait), c.weighed(c.Prefill), c.weighed(c.Decode), c.weighed(c.Delay), c.weighed(c.Cost),
	})
}

// known hides what was not looked at for engines that could not be chosen.
func (c *Candidate) known(n int64) int64 {
	if !c.Usable {
		return telemetry.Unknown
	}
	return n
}

func (c *Candidate) weighed(v float64) Seconds {
	if !c.Usable {
		return telemetry.Unknown
	}
	return Seconds(v)
}

// Shadow is what the other way of matching would have chosen; without an
// engine it was not asked.
type Shadow struct {
	Engine    string
	Reason    telemetry.Reason
	Agreement telemetry.Agreement
}

// MarshalJSON implements json.Marshaler.
func (s Shadow) MarshalJSON() ([]byte, error) {
	if s.Agreement == telemetry.AgreementNone {
		return []byte("null"), nil
	}
	return json.Marshal(struct {
		Engine    Word   `json:"engine"`
		Reason    Word   `json:"reason"`
		Agreement string `json:"agreement"`
	}{Word(s.Engine), Word(s.Reason.String()), s.Agreement.String()})
}

// Result is what became of the request. It is null until it ended.
type Result struct {
	Ended                                     bool
	Status                                    int
	End                                       telemetry.End
	PromptTokens, CachedTokens, OutputTokens  int64 // by the engine's own count; Unknown without one
	RouteSeconds, TTFTSeconds, DurationSecond float64
}

// MarshalJSON implements json.Marshaler.
func (r Result) MarshalJSON() ([]byte, error) {
	if !r.Ended {
		return []byte("null"), nil
	}
	return json.Marshal(struct {
		Status   int     `json:"status"`
		End      string  `json:"end"`
		Prompt   Count   `json:"prompt_tokens"`
		Cached   Count   `json:"cached_tokens"`
		Output   Count   `json:"output_tokens"`
		Route    Seconds `json:"route_s"`
		TTFT     Seconds `json:"ttft_s"`
		Duration Seconds `json:"duration_s"`
	}{r.Status, r.End.String(), Count(r.PromptTokens), Count(r.CachedTokens), Count(r.OutputTokens),
		Seconds(r.RouteSeconds), Seconds(r.TTFTSeconds), Seconds(r.DurationSecond)})
}

// Text is a text of a client's; empty is null.
type Text []byte

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) { return Word(t).MarshalJSON() }

// Word is a word of Ramjet's own; empty is null.
type Word string

// MarshalJSON implements json.Marshaler.
func (w Word) MarshalJSON() ([]byte, error) {
	if w == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(w))
}

// Count is a number of tokens; below 0 is null.
type Count int64

// MarshalJSON implements json.Marshaler.
func (c Count) MarshalJSON() ([]byte, error) {
	if c < 0 {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(c), 10), nil
}

// Seconds is a time span; below 0 is null.
type Seconds float64

// MarshalJSON implements json.Marshaler.
func (s Seconds) MarshalJSON() ([]byte, error) {
	if s < 0 || math.IsNaN(float64(s)) || math.IsInf(float64(s), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(s))
}

// Hash shows a session without telling what it is; 0 is null.
type Hash uint64

// MarshalJSON implements json.Marshaler.
func (h Hash) MarshalJSON() ([]byte, error) {
	if h == 0 {
		return []byte("null"), nil
	}
	const digits = "0123456789abcdef"
	b := []byte(`"0000000000000000"`)
	for i := range 16 {
		b[16-i] = digits[h>>(4*i)&15]
	}
	return b, nil
}

// Reset forgets the last request, keeping the memory.
func (x *Explanation) Reset() {
	*x = Explanation{RequestID: x.RequestID[:0], Candidates: x.Candidates[:0], Attempts: x.Attempts[:0]}
}

// begin makes room for a decision about q. What the caller wrote about the
// request stays.
func (x *Explanation) begin(s *Settings, q *Request) {
	x.Session, x.Policy = Hash(q.Session), s.Policy
	x.Candidates = x.Candidates[:0]
	x.Engine, x.Reason, x.RunnerUp, x.Margin, x.ForgoneTokens, x.Shadow = "", "", "", 0, 0, Shadow{}
	x.PromptTokens, x.OutputCap = Count(q.Prompt.Tokens), Count(q.Cap)
	if q.Cap < 1 {
		x.OutputCap = telemetry.Unknown
	}
	place := s.place(q.Session)
	x.Cohort = Cohort{Percent: s.Percent, In: s.includes(place)}
	if s.Exact != ExactPercent {
		x.Cohort.Percent = 0
	}
	x.basis = basis{
		settings: s, place: place, sequences: q.Sequences, stored: q.Stored, light: q.Light,
		known: q.Prompt.Exact, keyed: q.Prompt.Exact || len(q.Prompt.Chain) > 0,
	}
}

// chosen writes down the outcome.
func (x *Explanation) chosen(p *pick, d *Decision) {
	x.ExpectedOutput = telemetry.Unknown
	if x.basis.sequences > 0 {
		x.ExpectedOutput = Count(math.Round(p.length))
	}
	x.Keys, x.KeysNote = Word(d.Keys.String()), ""
	if d.Keys != telemetry.KeysExact {
		x.KeysNote = Word(p.note)
		if d.Keys == telemetry.KeysNone && x.KeysNote == "" {
			x.KeysNote = notePrompt
		}
	}
	x.Engine, x.Reason, x.RunnerUp = Word(x.Candidates[d.place].Engine), Word(d.Reason.String()), Word(d.RunnerUp)
	for i := range x.Candidates {
		if c := &x.Candidates[i]; c.Usable {
			x.ForgoneTokens = max(x.ForgoneTokens, c.Match-d.Match)
		}
	}
}

// Duplicate returns the prompt tokens that are computed at the chosen engine
// though another engine, usable or not, holds them.
func (x *Explanation) Duplicate() int64 {
	var here, elsewhere int64
	for i := range x.Candidates {
		c := &x.Candidates[i]
		if c.Engine == string(x.Engine) {
			here = max(c.Match, c.MatchInFlight)
			continue
		}
		elsewhere = max(elsewhere, c.Match)
	}
	return max(elsewhere-here, 0)
}
