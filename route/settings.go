package route

// Policy says how engines are compared. The list is closed (CONTRACT
// section 1).
type Policy string

// The policies.
const (
	PolicyLatency     Policy = "latency"
	PolicyLeastTokens Policy = "least-tokens"
	PolicyRoundRobin  Policy = "round-robin"
	PolicySession     Policy = "session"
)

// Profile says how decoding profiles enter the decision (CONTRACT section 1).
type Profile string

// The ways.
const (
	ProfileRule    Profile = "rule"
	ProfileLearned Profile = "learned"
	ProfileOff     Profile = "off"
)

// Exact says for whom exact residency decides.
type Exact uint8

// The ways.
const (
	ExactPercent Exact = iota // for a share of the sessions
	ExactShadow               // for none; what it would have done is written down
	ExactOff                  // for none
)

// Settings are what decisions go by. They are values: a reload replaces them
// whole.
type Settings struct {
	Policy  Policy
	Profile Profile
	// Threshold is the cap in tokens up to which an mtp engine is preferred.
	Threshold int64
	Exact     Exact
	// Percent is the share of sessions for which exact residency decides,
	// 0 to 100.
	Percent float64
	// CohortKey decides which sessions those are; without knowing it clients
	// cannot choose theirs.
	CohortKey uint64
	// Tie is the difference in seconds within which costs count as equal; 2 %
	// of the cost do too.
	Tie float64
	// DelayWeight is what a second of delay to others counts (we of DESIGN
	// section 6).
	DelayWeight float64
}

// tieShare is the share of the best cost within which costs count as equal
// (DESIGN section 6).
const tieShare = 0.02

// In reports whether a session is in the cohort for which exact residency
// decides. A session's place is fixed, so that the cohort of a smaller percent
// is contained in that of a larger.
func (s *Settings) In(session uint64) bool {
	return s.includes(s.place(session))
}

// place is where among all sessions one stands, from 0 to below 1.
func (s *Settings) place(session uint64) float64 {
	const all = 1 << 32
	return float64(mix(session^s.CohortKey)>>32) / all
}

// includes reports whether the cohort reaches as far as a place.
func (s *Settings) includes(place float64) bool {
	return s.Exact == ExactPercent && place < s.Percent/100
}

// prefers reports the profile that the owner's rule prefers for a cap.
func (s *Settings) prefers(limit int64) string {
	if limit > 0 && limit <= s.Threshold {
		return profileMTP
	}
	return profileStandard
}

const (
	profileMTP      = "mtp"
	profileStandard = "standard"
)
