package web

import "ramjet/telemetry"

// latelyView is what was decided and what became of it in the last minute, less
// after a start: all engines together.
type latelyView struct {
	SpanS           float64           `json:"span_s"`
	Reasons         map[string]uint64 `json:"reasons"`
	Agreement       map[string]uint64 `json:"agreement"`
	Ends            map[string]uint64 `json:"ends"`
	PromptTokens    uint64            `json:"prompt_tokens"`
	CachedTokens    uint64            `json:"cached_tokens"`
	DuplicateTokens uint64            `json:"duplicate_prefill_tokens"`
	ForgoneTokens   uint64            `json:"forgone_cached_tokens"`
}

// totalsView is what an engine did since Ramjet's start.
type totalsView struct {
	PromptTokens    uint64 `json:"prompt_tokens"`
	OutputTokens    uint64 `json:"output_tokens"`
	DuplicateTokens uint64 `json:"duplicate_prefill_tokens"`
	ForgoneTokens   uint64 `json:"forgone_cached_tokens"`
}

// ratesView is what an engine did per second in the last ten.
type ratesView struct {
	Requests     float64 `json:"requests_per_s"`
	PromptTokens float64 `json:"prompt_tokens_per_s"`
	CachedTokens float64 `json:"cached_tokens_per_s"`
	OutputTokens float64 `json:"output_tokens_per_s"`
}

// addReport fills what needs more than one reading of the counters.
func (v *topologyView) addReport(r *telemetry.Report) {
	l := latelyView{
		SpanS: r.Span.Seconds(), Reasons: map[string]uint64{}, Agreement: map[string]uint64{}, Ends: map[string]uint64{},
		PromptTokens: r.PromptTokens, CachedTokens: r.CachedTokens, DuplicateTokens: r.DuplicateTokens, ForgoneTokens: r.ForgoneTokens,
	}
	for _, reason := range telemetry.Reasons() {
		l.Reasons[reason.String()] = r.Reasons[reason]
	}
	for _, a := range telemetry.Agreements() {
		l.Agreement[a.String()] = r.Agreement[a]
	}
	for _, e := range telemetry.Ends() {
		l.Ends[e.String()] = r.Ends[e]
	}
	v.Lately = &l
	var prompt, cached, output float64
	for _, e := range r.Engines {
		prompt += e.PromptTokens
		cached += e.CachedTokens
		output += e.OutputTokens
	}
	requests := r.Requests
	v.Traffic.Requests, v.Traffic.PromptTokens, v.Traffic.CachedTokens, v.Traffic.OutputTokens = &requests, &prompt, &cached, &output
}

func (v *engineView) addReport(r telemetry.EngineReport) {
	v.TTFT50, v.TTFT99, v.TPOT50 = known(r.TTFT50), known(r.TTFT99), known(r.TPOT50)
	v.MatchShare, v.CachedShare = known(r.MatchShare), known(r.CachedShare)
	v.ErrorsPerS = &r.Errors
	v.Totals = &totalsView{PromptTokens: r.PromptTotal, OutputTokens: r.OutputTotal, DuplicateTokens: r.DuplicateTotal, ForgoneTokens: r.ForgoneTotal}
	v.Rates = &ratesView{Requests: r.Requests, PromptTokens: r.PromptTokens, CachedTokens: r.CachedTokens, OutputTokens: r.OutputTokens}
}
