package rig

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Get returns the decoded answer of the admin port.
func (r *Ramjet) Get(t testing.TB, path string, into any) {
	t.Helper()
	status, body := r.AdminGet(path)
	if status != 200 {
		t.Fatalf("GET %s: %d %.300s", path, status, body)
	}
	if err := json.Unmarshal([]byte(body), into); err != nil {
		t.Fatalf("GET %s: %v in %.300s", path, err, body)
	}
}

// Handed is how many requests an engine was given ids with, by Ramjet's own
// count of an outcome.
func (r *Ramjet) Handed(outcome string) int {
	return int(r.Metrics().Sum("ramjet_handoff_total", "outcome", outcome))
}

// Order sends a mutation to the admin port and returns the answer's status and
// body.
func (r *Ramjet) Order(t testing.TB, method, path string, headers ...string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+r.Admin+path, nil)
	if err != nil {
		t.Fatalf("cannot make a request: %v", err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if req.Header.Set(name, value); name == "Host" {
			req.Host = value
		}
	}
	resp, err := AdminClient.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(b)
}

// Orders sends one of the three orders and wants the state that follows.
func (r *Ramjet) Orders(t testing.TB, name, order, state string) {
	t.Helper()
	status, body := r.Order(t, "POST", "/api/v1/engines/"+name+"/"+order)
	var told struct{ Engine, State, Reason string }
	if err := json.Unmarshal([]byte(body), &told); status != 200 || err != nil || told.Engine != name || told.State != state || told.Reason == "" {
		t.Errorf("%s %s: %d %v %.300s, want state %s", order, name, status, err, body, state)
	}
}

// TopologyView is what these tests read of /api/v1/topology.
type TopologyView struct {
	Engines []struct {
		Name        string `json:"name"`
		Trust       string `json:"trust"`
		TrustReason string `json:"trust_reason"`
		BlockTokens *int   `json:"block_tokens"`
		IndexBlocks int    `json:"index_blocks"`
	} `json:"engines"`
}

// Topology reads /api/v1/topology.
func (r *Ramjet) Topology() (v TopologyView) {
	r.T.Helper()
	status, body := r.AdminGet("/api/v1/topology")
	if status != 200 || json.Unmarshal([]byte(body), &v) != nil {
		r.T.Fatalf("/api/v1/topology: %d %.200s", status, body)
	}
	return v
}
