package web

import (
	"math"
	"net/http"
	"slices"
	"time"

	"ramjet/engine"
	"ramjet/probe"
	"ramjet/telemetry"
)

// The types below are CONTRACT section 5 in Go. A pointer that is nil and an
// any that is nil are values that are not known: null, never 0 and never
// absent.
type topologyView struct {
	Time        stamp            `json:"time"`
	Version     string           `json:"version"`
	UptimeS     int64            `json:"uptime_s"`
	StartTime   stamp            `json:"start_time"`
	Status      string           `json:"status"`
	Models      []string         `json:"models"`
	Policy      *string          `json:"policy"`
	Exact       any              `json:"exact"`
	Traffic     trafficView      `json:"traffic"`
	Agreement   any              `json:"agreement"`
	Lately      *latelyView      `json:"lately"`
	Engines     []engineView     `json:"engines"`
	Transitions []transitionView `json:"transitions"`
	GPUNote     *string          `json:"gpu_note"`
}

type exactView struct {
	Mode    string  `json:"mode"`
	Percent float64 `json:"percent"`
}

type trafficView struct {
	InFlight     *int     `json:"in_flight"`
	Requests     *float64 `json:"requests_per_s"`
	PromptTokens *float64 `json:"prompt_tokens_per_s"`
	CachedTokens *float64 `json:"cached_tokens_per_s"`
	OutputTokens *float64 `json:"output_tokens_per_s"`
}

type engineView struct {
	Name             string        `json:"name"`
	URL              string        `json:"url"`
	Profile          string        `json:"profile"`
	State            string        `json:"state"`
	StateReason      string        `json:"state_reason"`
	StateSince       stamp         `json:"state_since"`
	Trust            *string       `json:"trust"`
	TrustReason      *string       `json:"trust_reason"`
	Models           []string      `json:"models"`
	BlockTokens      *int          `json:"block_tokens"`
	KVBlocks         *int          `json:"kv_blocks"`
	KVCapacityTokens *int          `json:"kv_capacity_tokens"`
	IndexBlocks      *int          `json:"index_blocks"`
	Leases           *leaseView    `json:"leases"`
	LeaseTokens      *int64        `json:"lease_tokens"`
	QueueTokens      *int64        `json:"queue_tokens"`
	PrefillPerS      *float64      `json:"prefill_tokens_per_s"`
	SecondsPerToken  any           `json:"seconds_per_token"`
	MatchTokens      uint64        `json:"match_tokens_total"`
	CachedTokens     uint64        `json:"cached_tokens_total"`
	TTFT50           *float64      `json:"ttft_p50_s"`
	TTFT99           *float64      `json:"ttft_p99_s"`
	TPOT50           *float64      `json:"tpot_p50_s"`
	ErrorsPerS       *float64      `json:"errors_per_s"`
	Totals           *totalsView   `json:"totals"`
	Rates            *ratesView    `json:"rates"`
	MatchShare       *float64      `json:"match_share"`
	CachedShare      *float64      `json:"cached_share"`
	Reported         *reportedView `json:"reported"`
	GPUs             any           `json:"gpus"`
}

type leaseView struct {
	Prefill int `json:"prefill"`
	Decode  int `json:"decode"`
}

type reportedView struct {
	Running *float64 `json:"running"`
	Waiting *float64 `json:"waiting"`
	KVUsage *float64 `json:"kv_usage"`
	AgeS    float64  `json:"age_s"`
}

type transitionView struct {
	Time   stamp  `json:"time"`
	Engine string `json:"engine"`
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason"`
}

// stamp is a time as RFC 3339 with milliseconds in UTC.
type stamp time.Time

// MarshalText implements encoding.TextMarshaler.
func (t stamp) MarshalText() ([]byte, error) {
	return time.Time(t).UTC().AppendFormat(nil, "2006-01-02T15:04:05.000Z"), nil
}

func (s *Server) topology(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, s.view(time.Now()))
}

func (s *Server) view(now time.Time) topologyView {
	v := topologyView{
		Time: stamp(now), Version: s.o.Version, UptimeS: int64(now.Sub(s.o.Started).Seconds()), StartTime: stamp(s.o.Started),
		Status: s.o.Monitor.Health().Status, Models: []string{}, Policy: textOrNil(s.o.Policy),
		Engines: []engineView{}, Transitions: []transitionView{},
	}
	if s.o.Routing != nil {
		r := s.o.Routing()
		v.Exact = exactView{Mode: r.Exact, Percent: r.Percent}
		if r.Policy != "" {
			v.Policy = &r.Policy
		}
		agreement := map[string]uint64{}
		for _, a := range telemetry.Agreements() {
			agreement[a.String()] = s.o.Metrics.Agreement(a)
		}
		v.Agreement = agreement
	}
	report, known := s.recent.Report(now)
	devices := s.devices(now)
	inFlight := 0
	for _, e := range s.engines() {
		ev := s.engineView(e, now)
		if known {
			ev.addReport(report.Engines[e.Name])
		}
		if devices != nil {
			ev.GPUs = append([]gpuView{}, devices[e.Name]...)
		}
		v.Engines = append(v.Engines, ev)
		v.Models = append(v.Models, ev.Models...)
		if ev.Leases != nil {
			inFlight += ev.Leases.Prefill + ev.Leases.Decode
		}
	}
	if s.o.Leases != nil {
		v.Traffic.InFlight = &inFlight
	}
	if known {
		v.addReport(&report)
	}
	if s.o.GPUs != nil {
		v.GPUNote = textOrNil(s.o.GPUs.Note())
	}
	slices.Sort(v.Models)
	v.Models = slices.Compact(v.Models)
	for _, t := range s.o.Monitor.Transitions() {
		v.Transitions = append(v.Transitions, transitionView{Time: stamp(t.Time), Engine: t.Engine,
			From: t.From.String(), To: t.To.String(), Reason: t.Reason})
	}
	return v
}

func (s *Server) engineView(e *engine.Engine, now time.Time) engineView {
	status, em := e.Status(), s.o.Metrics.Engine(e.Name)
	v := engineView{
		Name: e.Name, URL: e.URL.Redacted(), Profile: e.Settings().Profile, State: status.State.String(), StateReason: status.Reason,
		StateSince:  stamp(status.Since),
		MatchTokens: em.MatchTokens.Get(), CachedTokens: em.CachedTokens.Get(),
		Reported: reported(s.o.Monitor.Reported(e), now),
	}
	if m := e.Models(); m != nil {
		v.Models = append(v.Models, m.IDs...)
	}
	trust, why := e.Trust()
	word := trust.String()
	v.Trust, v.TrustReason = &word, &why
	if s.o.Work != nil {
		k := s.o.Work(e.Name)
		v.QueueTokens, v.PrefillPerS, v.SecondsPerToken = &k.QueueTokens, &k.PrefillRate, k.SecondsPerToken
	}
	if s.o.Residency != nil {
		k := s.o.Residency(e.Name)
		v.BlockTokens, v.KVBlocks, v.KVCapacityTokens, v.IndexBlocks = positive(k.BlockTokens), positive(k.Blocks), positive(k.CapacityTokens), &k.IndexBlocks
	}
	if s.o.Leases != nil {
		prefill, decode, tokens := s.o.Leases(e.Name)
		v.Leases, v.LeaseTokens = &leaseView{Prefill: prefill, Decode: decode}, &tokens
	}
	return v
}

func reported(r *probe.Reported, now time.Time) *reportedView {
	if r == nil {
		return nil
	}
	return &reportedView{Running: known(r.Running), Waiting: known(r.Waiting), KVUsage: known(r.KVUsage),
		AgeS: now.Sub(r.Time).Round(time.Millisecond).Seconds()}
}

// positive turns 0, which stands for unknown, into nil.
func positive(n int) *int {
	if n <= 0 {
		return nil
	}
	return &n
}

// known turns telemetry.Unknown into nil.
func known(v float64) *float64 {
	if v <= telemetry.Unknown || math.IsInf(v, 0) || math.IsNaN(v) {
		return nil
	}
	return &v
}

func textOrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
