package route

import (
	"fmt"
	"strconv"

	"ramjet/telemetry"
)

// recorded is a line of a journal as JSON reads it. What is null has the value
// that stands for not known.
type recorded struct {
	Version    int                 `json:"v"`
	ID         string              `json:"request_id"`
	Time       telemetry.Stamp     `json:"time"`
	Path       string              `json:"path"`
	Model      string              `json:"model"`
	Dialect    string              `json:"dialect"`
	Stream     bool                `json:"stream"`
	Session    string              `json:"session"`
	Prompt     *int64              `json:"prompt_tokens"`
	Keys       string              `json:"keys"`
	Note       string              `json:"keys_note"`
	Cap        *int64              `json:"output_cap"`
	Expected   *int64              `json:"expected_output_tokens"`
	Handoff    bool                `json:"handoff"`
	Policy     string              `json:"policy"`
	Cohort     recordedCohort      `json:"cohort"`
	Candidates []recordedCandidate `json:"candidates"`
	Engine     string              `json:"engine"`
	Reason     string              `json:"reason"`
	RunnerUp   string              `json:"runner_up"`
	Margin     float64             `json:"margin_s"`
	Forgone    int64               `json:"forgone_tokens"`
	Attempts   []Attempt           `json:"attempts"`
	Result     *recordedResult     `json:"result"`

	Rotation  uint64            `json:"rotation"`
	Rotated   bool              `json:"rotated"`
	Light     bool              `json:"light"`
	FailOpen  bool              `json:"fail_open"`
	Length    float64           `json:"answer_tokens"`
	Sequences int64             `json:"sequences"`
	Stored    string            `json:"stored"`
	Known     bool              `json:"ids_known"`
	Keyed     bool              `json:"keyed"`
	Settings  *recordedSettings `json:"settings"`
}

type recordedCohort struct {
	Percent float64 `json:"percent"`
	In      bool    `json:"in"`
	Place   float64 `json:"place"`
}

type recordedCandidate struct {
	Engine           string  `json:"engine"`
	Profile          string  `json:"profile"`
	State            string  `json:"state"`
	Trust            string  `json:"trust"`
	Usable           bool    `json:"usable"`
	Note             string  `json:"note"`
	Match            int64   `json:"match_tokens"`
	MatchExact       int64   `json:"match_exact_tokens"`
	MatchApproximate int64   `json:"match_approximate_tokens"`
	MatchInFlight    int64   `json:"match_in_flight_tokens"`
	Uncached         int64   `json:"uncached_tokens"`
	Queue            int64   `json:"queue_tokens"`
	PrefillRequests  int     `json:"prefill_requests"`
	DecodeRequests   int     `json:"decode_requests"`
	PrefillRate      float64 `json:"prefill_tokens_per_s"`
	SecondsPerToken  float64 `json:"seconds_per_token"`
	Wait             float64 `json:"wait_s"`
	Prefill          float64 `json:"prefill_s"`
	Decode           float64 `json:"decode_s"`
	Delay            float64 `json:"delay_s"`
	Cost             float64 `json:"cost_s"`
	Tokens           int64   `json:"lease_tokens"`
	Batch            float64 `json:"batch"`
	Decoding         float64 `json:"decoding"`
	Remaining        float64 `json:"remaining_tokens"`
	MeanStep         float64 `json:"mean_seconds_per_token"`
	StepGrowth       float64 `json:"added_seconds_per_token"`
}

type recordedResult struct {
	Status int    `json:"status"`
	Prompt *int64 `json:"prompt_tokens"`
	Cached *int64 `json:"cached_tokens"`
	Output *int64 `json:"output_tokens"`
}

type recordedSettings struct {
	Policy    Policy  `json:"policy"`
	Profile   Profile `json:"profile"`
	Threshold int64   `json:"profile_threshold"`
	Exact     string  `json:"exact"`
	Percent   float64 `json:"percent"`
	Tie       float64 `json:"tie_s"`
	Weight    float64 `json:"delay_weight"`
}

// record turns what was read into what was decided.
func (in *recorded) record() (*Record, error) {
	session, err := readHash(in.Session)
	if err != nil {
		return nil, err
	}
	r := &Record{Explanation: Explanation{
		RequestID: Text(in.ID), Time: in.Time, Path: Text(in.Path), Model: Text(in.Model),
		Dialect: Word(in.Dialect), Stream: in.Stream, Session: session,
		PromptTokens: Count(orUnknown(in.Prompt)), Keys: Word(in.Keys), KeysNote: Word(in.Note),
		OutputCap: Count(orUnknown(in.Cap)), ExpectedOutput: Count(orUnknown(in.Expected)), Handoff: in.Handoff,
		Policy: Policy(in.Policy), Cohort: Cohort{Percent: in.Cohort.Percent, In: in.Cohort.In},
		Engine: Word(in.Engine), Reason: Word(in.Reason), RunnerUp: Word(in.RunnerUp),
		Margin: in.Margin, ForgoneTokens: in.Forgone, Attempts: in.Attempts,
	}}
	if p := in.Result; p != nil {
		r.Result = Result{Ended: true, Status: p.Status, PromptTokens: orUnknown(p.Prompt), CachedTokens: orUnknown(p.Cached), OutputTokens: orUnknown(p.Output)}
	}
	if r.settings, err = in.Settings.settings(); err != nil {
		return nil, err
	}
	r.basis = basis{
		settings: &r.settings, turn: in.Rotation, place: in.Cohort.Place, length: in.Length, sequences: in.Sequences,
		stored: in.Stored, known: in.Known, keyed: in.Keyed, light: in.Light, open: in.FailOpen, rotated: in.Rotated,
	}
	if len(in.Candidates) > MaxEngines {
		return nil, fmt.Errorf("cannot read a record of %d engines, more than %d", len(in.Candidates), MaxEngines)
	}
	for i := range in.Candidates {
		c, err := in.Candidates[i].candidate()
		if err != nil {
			return nil, err
		}
		c.Slot = i // which one it had is of no use without the process
		r.Candidates = append(r.Candidates, c)
	}
	if c := r.Candidate(string(r.Engine)); r.Decided() && (c == nil || !c.Usable) {
		return nil, fmt.Errorf("cannot read a record: its engine %q was no candidate", r.Engine)
	}
	return r, nil
}

func (in *recordedCandidate) candidate() (c Candidate, err error) {
	c = Candidate{
		Engine: in.Engine, Profile: in.Profile, Usable: in.Usable, Note: in.Note,
		Match: in.Match, MatchExact: in.MatchExact, MatchApproximate: in.MatchApproximate, MatchInFlight: in.MatchInFlight,
		Uncached: in.Uncached, QueueTokens: in.Queue, PrefillRequests: in.PrefillRequests, DecodeRequests: in.DecodeRequests,
		PrefillRate: in.PrefillRate, SecondsPerToken: in.SecondsPerToken,
		Wait: in.Wait, Prefill: in.Prefill, Decode: in.Decode, Delay: in.Delay, Cost: in.Cost,
		tokens: in.Tokens, batch: in.Batch, decoding: in.Decoding, remaining: in.Remaining,
		meanStep: in.MeanStep, stepGrowth: in.StepGrowth,
	}
	if c.State, err = wordOf(telemetry.States(), in.State); err != nil {
		return c, err
	}
	c.Trust, err = wordOf(telemetry.Trusts(), in.Trust)
	return c, err
}

func (in *recordedSettings) settings() (Settings, error) {
	s := Settings{
		Policy: in.Policy, Profile: in.Profile, Threshold: in.Threshold, Percent: in.Percent, Tie: in.Tie, DelayWeight: in.Weight,
	}
	switch s.Policy {
	case PolicyLatency, PolicyLeastTokens, PolicyRoundRobin, PolicySession:
	default:
		return s, fmt.Errorf("cannot read a record: policy %q is not known", s.Policy)
	}
	for i, w := range exactWords {
		if w == in.Exact {
			s.Exact = Exact(i) //nolint:gosec // one of three
			return s, nil
		}
	}
	return s, fmt.Errorf("cannot read a record: exact %q is not known", in.Exact)
}

// wordOf finds a word of a closed list.
func wordOf[T fmt.Stringer](list []T, text string) (T, error) {
	for _, v := range list {
		if v.String() == text {
			return v, nil
		}
	}
	var none T
	return none, fmt.Errorf("cannot read a record: %q is not one of %v", text, list)
}

func orUnknown(n *int64) int64 {
	if n == nil {
		return telemetry.Unknown
	}
	return *n
}

func readHash(text string) (Hash, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot read a record's session: %w", err)
	}
	return Hash(n), nil
}
