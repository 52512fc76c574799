package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// simFast makes engines fast where counts are compared and not times.
var simFast = []string{"--speed", "20"}

// simEvents let a sim publish on ports of its own choice.
var simEvents = []string{"--events=tcp://127.0.0.1:0", "--replay=tcp://127.0.0.1:0"}

// simState is what a sim tells of itself.
type simState struct {
	Requests   int      `json:"requests"`
	Cached     int      `json:"cached_tokens"`
	Prefill    int      `json:"prefill_tokens"`
	Blocks     int      `json:"kv_blocks_cached"` // holding content
	EventSeq   int      `json:"event_seq"`
	Bodies     []string `json:"bodies"`
	HandedOver int      `json:"handed_over"`
	Connector  int      `json:"to_connector"`
}

func state(t testing.TB, s *rig.SimEngine) (st simState) {
	t.Helper()
	status, body := rig.HTTPGet(s.URL() + "/sim/state")
	if status != 200 || json.Unmarshal([]byte(body), &st) != nil {
		t.Fatalf("/sim/state: %d %.200s", status, body)
	}
	return st
}

// received says whether a body came there byte for byte.
func received(t testing.TB, s *rig.SimEngine, body string) bool {
	t.Helper()
	sum := sha256.Sum256([]byte(body))
	return slices.Contains(state(t, s).Bodies, hex.EncodeToString(sum[:]))
}

// editFile replaces the one place of old in a file.
func editFile(t testing.TB, name, old, new string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil || strings.Count(string(text), old) != 1 {
		t.Fatalf("cannot edit %s: %q is there %d times (%v)", name, old, strings.Count(string(text), old), err)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(text), old, new, 1)), 0o600); err != nil {
		t.Fatalf("cannot edit: %v", err)
	}
}
