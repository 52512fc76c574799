package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// decided is an Explanation as the residency tests read it.
type decided struct {
	RequestID    string    `json:"request_id"`
	PromptTokens *int      `json:"prompt_tokens"`
	Keys         string    `json:"keys"`
	Note         *string   `json:"keys_note"`
	Engine       string    `json:"engine"`
	Reason       string    `json:"reason"`
	Candidates   []matchOf `json:"candidates"`
	Shadow       *struct {
		Engine    *string `json:"engine"`
		Agreement string  `json:"agreement"`
	} `json:"shadow"`
	Result *struct {
		Prompt *int `json:"prompt_tokens"`
		Cached *int `json:"cached_tokens"`
		Output *int `json:"output_tokens"`
	} `json:"result"`
}

// matchOf is what an engine was believed to hold, in tokens.
type matchOf struct {
	Engine      string `json:"engine"`
	Trust       string `json:"trust"`
	Match       int    `json:"match_tokens"`
	Exact       int    `json:"match_exact_tokens"`
	Approximate int    `json:"match_approximate_tokens"`
	InFlight    int    `json:"match_in_flight_tokens"`
}

// winner returns the chosen engine's matches.
func (d *decided) winner() (m matchOf) {
	for _, c := range d.Candidates {
		if c.Engine == d.Engine {
			m = c
		}
	}
	return m
}

// decisions returns the kept Explanations by request id.
func decisions(r *rig.Ramjet) map[string]decided {
	r.T.Helper()
	status, body := r.AdminGet("/api/v1/requests?limit=1000")
	var list []decided
	if status != 200 || json.Unmarshal([]byte(body), &list) != nil {
		r.T.Fatalf("/api/v1/requests: %d %.200s", status, body)
	}
	m := map[string]decided{}
	for _, x := range list {
		m[x.RequestID] = x
	}
	return m
}

func fault(t testing.TB, s *rig.SimEngine, kind string, count int) {
	t.Helper()
	s.Control(t, "/sim/fault", fmt.Sprintf(`{"kind":%q,"count":%d}`, kind, count))
}

// doubts logs why engines were not exact after they had been.
func doubts(t testing.TB, r *rig.Ramjet) {
	t.Helper()
	for line := range strings.Lines(r.Out.String()) {
		var l struct{ Time, Engine, From, To, Reason, Message string }
		if strings.Contains(line, "trust changed") && json.Unmarshal([]byte(line), &l) == nil && l.From == "exact" {
			t.Logf("%s engine %s: %s, %s", l.Time, l.Engine, l.To, l.Reason)
		}
	}
}
