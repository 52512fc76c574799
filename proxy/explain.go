package proxy

import (
	"ramjet/route"
	"ramjet/telemetry"
)

// countDecision counts a choice and what it gave up.
func (f *flight) countDecision() {
	d, x := &f.decision, &f.explain
	f.s.Metrics.Agreed(x.Shadow.Agreement)
	f.countFlight()
	m := d.Member.Engine.Metrics
	if m == nil {
		return
	}
	m.Decision(d.Reason)
	m.MatchTokens.Add(int(d.Match))
	m.ForgoneTokens.Add(int(x.ForgoneTokens))
	m.DuplicatePrefillTokens.Add(int(x.Duplicate()))
	for i, member := range f.s.Router.Members().Members {
		if i < len(x.Candidates) && x.Candidates[i].Slot == member.Slot && x.Candidates[i].State == telemetry.StateWarming && member.Engine.Metrics != nil {
			member.Engine.Metrics.WarmingRefusals.Inc()
		}
	}
}

// countFlight counts a request whose prompt was being computed for another.
func (f *flight) countFlight() {
	x, here := &f.explain, int64(0)
	elsewhere := int64(0)
	for i := range x.Candidates {
		c := &x.Candidates[i]
		if c.Engine == string(x.Engine) {
			here = max(c.Match, c.MatchInFlight)
			if c.MatchInFlight > c.Match {
				f.s.Metrics.SingleFlight(telemetry.FlightJoined)
				return
			}
			continue
		}
		if c.MatchInFlight > c.Match {
			elsewhere = max(elsewhere, c.MatchInFlight)
		}
	}
	if elsewhere > here {
		f.s.Metrics.SingleFlight(telemetry.FlightLeft)
	}
}

// describe writes down in the explanation what was asked for.
func (f *flight) describe() {
	x := &f.explain
	x.RequestID, x.Time = append(x.RequestID[:0], f.id...), telemetry.Stamp(f.began.UnixMilli())
	x.Path, x.Model = route.Text(short(f.rec.Path)), route.Text(short(f.rec.Model))
	x.Dialect, x.Stream = route.Word(f.dialect.String()), f.peek.Object && f.peek.Stream
}

// short bounds what is kept of a client's text: names are as long as bodies may
// be where no engine tells its models.
func short(b []byte) []byte { return b[:min(len(b), holdText)] }

// keepExplanation completes the record of a request that came to a decision. A
// preflight is no request that anybody asks about.
func (f *flight) keepExplanation() {
	r, x := &f.rec, &f.explain
	if f.s.Decisions == nil && f.s.Journal == nil || f.decision.Member == nil || f.query.Light {
		return
	}
	f.describe()
	x.Handoff = f.handed
	for i := range f.tried {
		x.Attempts = append(x.Attempts, route.Attempt{Engine: f.tried[i].member.Engine.Name, Outcome: f.tried[i].end.String()})
	}
	x.Result = route.Result{
		Ended: true, Status: r.Status, End: r.End,
		PromptTokens: -1, CachedTokens: int64(r.CachedTokens), OutputTokens: int64(r.OutputTokens),
		RouteSeconds: r.Route, TTFTSeconds: r.TTFT, DurationSecond: r.Duration,
	}
	if f.relay.seen.hasUsage {
		x.Result.PromptTokens = f.relay.seen.usage.Prompt
	}
	if f.s.Decisions != nil {
		f.s.Decisions.Put(x)
	}
	if f.s.Journal != nil {
		f.s.Journal.Record(x)
	}
}
