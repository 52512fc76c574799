package rig

import (
	"encoding/json"
	"fmt"
	"testing"
)

// Explained is what these tests read of an Explanation.
type Explained struct {
	RequestID    string  `json:"request_id"`
	PromptTokens float64 `json:"prompt_tokens"`
	Keys         string  `json:"keys"`
	KeysNote     *string `json:"keys_note"`
	Handoff      bool    `json:"handoff"`
	Engine       string  `json:"engine"`
	Reason       string  `json:"reason"`
	Candidates   []struct {
		Engine      string `json:"engine"`
		Match       int    `json:"match_tokens"`
		Exact       int    `json:"match_exact_tokens"`
		Approximate int    `json:"match_approximate_tokens"`

		Cost float64 `json:"cost_s"`
		Rate float64 `json:"prefill_tokens_per_s"`
	} `json:"candidates"`
	Result *struct {
		Status int    `json:"status"`
		End    string `json:"end"`
		Prompt *int   `json:"prompt_tokens"`
		Cached *int   `json:"cached_tokens"`
	} `json:"result"`
}

// Note is why there are no keys, "" where there are some.
func (x *Explained) Note() string {
	if x.KeysNote == nil {
		return ""
	}
	return *x.KeysNote
}

// Match is the winner's.
func (x *Explained) Match() int {
	for _, c := range x.Candidates {
		if c.Engine == x.Engine {
			return c.Match
		}
	}
	return -1
}

// Explain asks for a request's explanation, which is kept once it ended.
func (r *Ramjet) Explain(t testing.TB, id string) (x Explained) {
	t.Helper()
	last := Poll(Patience, func() string {
		status, body := r.AdminGet("/api/v1/explain/" + id)
		if status != 200 {
			return fmt.Sprintf("%d %.200s", status, body)
		}
		if err := json.Unmarshal([]byte(body), &x); err != nil {
			return err.Error()
		}
		return ""
	})
	if last != "" {
		t.Fatalf("no explanation of %s: %s", id, last)
	}
	return x
}
