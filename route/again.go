package route

import (
	"ramjet/telemetry"
)

// Record is a decision that was read from a journal, with all that it went by.
type Record struct {
	// Explanation is what was recorded. Of Result only the counts of tokens,
	// of Shadow nothing was read.
	Explanation
	settings Settings
}

// Decided reports whether an engine was chosen. Other records tell of requests
// that no engine could take.
func (r *Record) Decided() bool { return r.Engine != "" && len(r.Candidates) > 0 }

// Settings returns what the decision went by. The key of cohorts is not known:
// the session's place among all is recorded instead.
func (r *Record) Settings() Settings { return r.settings }

// Rotation is how many full ties were decided in turn before this decision.
func (r *Record) Rotation() uint64 { return r.basis.turn }

// Again decides the record anew by s, whose CohortKey does not count, at that
// turn of the rotation, by the code that decided it first. It writes the
// outcome into x, whose memory it uses. The record must be Decided.
func (r *Record) Again(s *Settings, turn uint64, x *Explanation) {
	r.CopyTo(x)
	x.Policy = s.Policy
	x.Cohort = Cohort{Percent: s.Percent, In: s.includes(r.basis.place)}
	if s.Exact != ExactPercent {
		x.Cohort.Percent = 0
	}
	x.basis.settings, x.basis.turn = s, turn
	x.Margin, x.ForgoneTokens = 0, 0
	p := pick{s: s, turn: turn, cap: int64(x.OutputCap), length: x.basis.length, note: string(r.KeysNote)}
	for i := range x.Candidates {
		if x.Candidates[i].Usable {
			p.bits |= 1 << i
		}
	}
	d := p.decide(x)
	x.basis.rotated = d.Reason == telemetry.ReasonRotation && !x.basis.light
	if x.basis.open {
		d.Reason = telemetry.ReasonFailOpen
	}
	x.chosen(&p, &d)
}

// Rotated reports whether the decision took candidates in turn, so that the
// next such is another's.
func (x *Explanation) Rotated() bool { return x.basis.rotated }

// Candidate returns what was known of an engine, nil if it was no part of the
// decision.
func (x *Explanation) Candidate(engine string) *Candidate {
	for i := range x.Candidates {
		if x.Candidates[i].Engine == engine {
			return &x.Candidates[i]
		}
	}
	return nil
}
