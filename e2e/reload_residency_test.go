package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// simList is the engines part of a file; events by name, auto where there is
// none.
func simList(sims []*rig.SimEngine, events map[string]string) string {
	var b strings.Builder
	b.WriteString("engines:\n")
	for _, s := range sims {
		word := "auto"
		if events[s.Name] != "" {
			word = events[s.Name]
		}
		fmt.Fprintf(&b, "  - {name: %s, url: '%s', events: %s}\n", s.Name, s.URL(), word)
	}
	return b.String()
}

// TestReloadResidency: what is known of a cache goes with its engine, and is
// whole again when the engine comes back, in whatever slot; the record of the
// one that stays is right all the time.
func TestReloadResidency(t *testing.T) {
	t.Parallel()
	sims := rig.Pair(t)
	file := filepath.Join(t.TempDir(), "ramjet.yaml")
	write(t, file, simList(sims, nil))
	r := &reloading{file: file, Ramjet: rig.StartWith(t, rig.Setup{NotReady: true, Flags: append([]string{
		"--config=" + file, "--tokens.source=auto", rig.PatientTokens, "--tokenizer=" + rig.SimModelFolder(t)}, rig.QuickHealth...)})}
	settled := func() {
		t.Helper()
		rig.Eventually(t, 3*rig.Patience, "exact and ready", func() string {
			for _, s := range sims {
				if got := r.EngineState(s.Name); got != "ready" {
					return s.Name + " is " + got
				}
			}
			return rig.Trusted(r.Ramjet)
		})
	}
	settled()
	load := rig.NewTalkLoad(3, 60)
	cached := 0
	for i, name := range []string{"b", "a"} { // so that each engine computes some
		r.Orders(t, name, "drain", "draining")
		cached += rig.EqualRun(t, r.Ramjet, sims[i:i+1], load, 12)
		r.Orders(t, name, "ready", "slow-start")
		settled()
	}
	if cached == 0 {
		t.Fatal("nothing was cached")
	}
	both := r.Metrics().Sum("ramjet_index_blocks")
	held := r.Metrics().Sum("ramjet_index_blocks", "engine", "b")
	if held == 0 || held == both {
		t.Fatalf("b holds %v of %v blocks", held, both)
	}

	r.use(t, simList(sims[:1], nil))
	rig.Eventually(t, 2*rig.Patience, "b gone", func() string {
		if _, text := r.AdminGet("/metrics"); strings.Contains(text, `engine="b"`) {
			return "it still has series"
		}
		return ""
	})
	if got := r.Metrics().Sum("ramjet_index_blocks"); got != both-held {
		t.Errorf("%v blocks are left, want %v", got, both-held)
	}
	rig.EqualRun(t, r.Ramjet, sims[:1], load, 10)

	r.use(t, simList(sims, nil))
	settled()
	if got := r.Metrics().Sum("ramjet_index_blocks", "engine", "b"); got != held {
		t.Errorf("b is known to hold %v blocks again, want %v", got, held)
	}
	if cached := rig.EqualRun(t, r.Ramjet, sims, load, 20); cached == 0 {
		t.Error("nothing was cached")
	}

	// Other events of an engine that stays.
	before := len(r.Changes(t, "a"))
	r.use(t, simList(sims, map[string]string{"a": "off"}))
	rig.Eventually(t, rig.Patience, "a blind", func() string {
		if e := r.Topology().Engines[0]; e.Trust != "blind" || e.IndexBlocks != 0 || !strings.Contains(e.TrustReason, "off in the configuration") {
			return fmt.Sprintf("%+v", e)
		}
		return ""
	})
	r.Is(t, rig.Patience, "a", "ready")
	r.use(t, simList(sims, nil))
	settled()
	rig.EqualRun(t, r.Ramjet, sims, load, 10)
	if list := r.Changes(t, "a"); len(list) > before {
		t.Errorf("a changed its state: %s", rig.Path(list))
	}
}
