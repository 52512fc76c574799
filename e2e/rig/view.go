package rig

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// Control sends a control request to a sim.
func (s *SimEngine) Control(t testing.TB, path, body string) string {
	t.Helper()
	resp, err := AdminClient.Post(s.URL()+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %d %s (%v)", path, resp.StatusCode, b, err)
	}
	return string(b)
}

// EngineView is an engine of the topology.
type EngineView struct {
	Name         string   `json:"name"`
	State        string   `json:"state"`
	Trust        string   `json:"trust"`
	TrustReason  string   `json:"trust_reason"`
	BlockTokens  *int     `json:"block_tokens"`
	KVBlocks     *int     `json:"kv_blocks"`
	Capacity     *int     `json:"kv_capacity_tokens"`
	IndexBlocks  *int     `json:"index_blocks"`
	MatchTotal   *float64 `json:"match_tokens_total"`
	CachedTotal  *float64 `json:"cached_tokens_total"`
	PrefillSpeed *float64 `json:"prefill_tokens_per_s"`
}

// EngineView is what /api/v1/topology tells of an engine.
func (r *Ramjet) EngineView(name string) (e EngineView) {
	r.T.Helper()
	status, body := r.AdminGet("/api/v1/topology")
	var v struct {
		Engines []EngineView `json:"engines"`
	}
	if status != 200 || json.Unmarshal([]byte(body), &v) != nil {
		r.T.Fatalf("/api/v1/topology: %d %.200s", status, body)
	}
	for _, e := range v.Engines {
		if e.Name == name {
			return e
		}
	}
	r.T.Fatalf("no engine %s in %.300s", name, body)
	return e
}

// Blocks is the number of blocks in the engine's index, -1 without one.
func (e EngineView) Blocks() int {
	if e.IndexBlocks == nil {
		return -1
	}
	return *e.IndexBlocks
}

// TrustIs waits until an engine's trust is one of the words, and returns the
// reason.
func (r *Ramjet) TrustIs(t testing.TB, limit time.Duration, name string, words ...string) (reason string) {
	t.Helper()
	var e EngineView
	last := Poll(limit, func() string {
		e = r.EngineView(name)
		for _, w := range words {
			if e.Trust == w {
				return ""
			}
		}
		return fmt.Sprintf("%s is %s: %s", name, e.Trust, e.TrustReason)
	})
	if last != "" {
		t.Fatalf("trust is not one of %q within %v: %s", words, limit, last)
	}
	return e.TrustReason
}

// CacheState is what a sim tells of its cache.
type CacheState struct {
	Blocks   int `json:"kv_blocks_cached"` // copies of a block counted each
	All      int `json:"kv_blocks"`
	EventSeq int `json:"event_seq"` // batches published since it started
	Cached   int `json:"cached_tokens"`
	Requests int `json:"requests"`
}

// Cache asks the sim what its cache holds.
func (s *SimEngine) Cache(t testing.TB) (st CacheState) {
	t.Helper()
	status, body := HTTPGet(s.URL() + "/sim/state")
	if status != 200 || json.Unmarshal([]byte(body), &st) != nil {
		t.Fatalf("/sim/state: %d %.200s", status, body)
	}
	return st
}

// Where nothing is on its way, nothing changes for so long and in so many looks:
// on a busy machine one look alone may take that time.
const (
	atRest    = 150 * time.Millisecond
	restLooks = 10
)

// InStep waits until the index holds what the engine's cache holds, so that no
// event is on its way. Copies of one block make the two differ for good: then it
// is enough that nothing changes any more.
func (r *Ramjet) InStep(t testing.TB, sims ...*SimEngine) {
	t.Helper()
	last, quiet, looks := "", time.Now(), 0
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline) && (time.Since(quiet) < atRest || looks < restLooks); time.Sleep(time.Millisecond) {
		m := r.Metrics()
		text, equal := "", true
		for _, s := range sims {
			index, cache := int(m.Sum("ramjet_index_blocks", "engine", s.Name)), s.Cache(t).Blocks
			text += fmt.Sprintf("%s %d %d %v ", s.Name, index, cache, m.Sum("ramjet_kv_events_total", "engine", s.Name))
			equal = equal && index == cache
		}
		if equal {
			return
		}
		if looks++; text != last {
			last, quiet, looks = text, time.Now(), 0
		}
	}
}

// ClosesLater takes what is held open at this moment for the base of the
// closing assertions, and makes them at the end of the test.
func (r *Ramjet) ClosesLater(t testing.TB) {
	t.Helper()
	r.Rebase()
	t.Cleanup(func() {
		if !r.HasExited() {
			r.Closing()
		}
	})
}
