package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// qualify runs `ramjet qualify` against a running Ramjet.
func qualify(t testing.TB, r *rig.Ramjet, args ...string) (out string, code int) {
	t.Helper()
	return ramjetCommand(t, append([]string{"qualify", "--admin=" + r.Admin, "--url=http://" + r.Public}, args...)...)
}

func qualifySims(t testing.TB) []*rig.SimEngine {
	t.Helper()
	return []*rig.SimEngine{
		rig.StartSim(t, "a", append([]string{"--profile=mtp"}, append(simFast, rig.Publishing...)...)...),
		rig.StartSim(t, "b", append(simFast, rig.Publishing...)...),
	}
}

// settledPair starts Ramjet in front of the sims and waits until exact routing
// can be had.
func settledPair(t testing.TB, sims []*rig.SimEngine, flags ...string) *rig.Ramjet {
	t.Helper()
	return rig.StartSims(t, rig.SimSetup{Sims: sims, Events: "auto", Model: rig.SimModelFolder(t), Settled: rig.Both(rig.Said("token ids compared"), rig.Trusted), Flags: append(flags, rig.QuickHealth...)})
}

func wantLines(t testing.TB, out string, code, want int, lines ...string) {
	t.Helper()
	if code != want {
		t.Errorf("exit %d, want %d:\n%s", code, want, out)
	}
	for _, l := range lines {
		if !strings.Contains(out, l) {
			t.Errorf("no %q in\n%s", l, out)
		}
	}
}

// TestQualifyGoodPair: a hundred requests to a mixed pair, all tokenized, exact
// and approximate agreeing, and each match what the engine reports.
func TestQualifyGoodPair(t *testing.T) {
	t.Parallel()
	r := settledPair(t, qualifySims(t))
	out, code := qualify(t, r)
	t.Log(out)
	wantLines(t, out, code, 0, "tokenized 100/100", "match equals reported 100/100", "duplicate prefill tokens 0 of", "errors 0")
	if strings.Contains(out, "served none") || strings.Contains(out, "FAIL") || strings.Contains(out, "problem:") {
		t.Errorf("not a good pair:\n%s", out)
	}
	out, code = qualify(t, r, "--requests=20", "--json")
	var v struct {
		OK     bool `json:"ok"`
		Checks []struct {
			Name    string `json:"name"`
			OK      bool   `json:"ok"`
			Got, Of int
		} `json:"checks"`
		Agreement map[string]int `json:"agreement"`
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 || !v.OK || len(v.Checks) != 5 || v.Checks[0].Got != 20 || v.Agreement["agree"] == 0 || v.Agreement["would-move"] != 0 {
		t.Errorf("exit %d, %v, %+v", code, err, v)
	}
}

// TestQualifyFromFile sends somebody's own bodies.
func TestQualifyFromFile(t *testing.T) {
	t.Parallel()
	r := settledPair(t, []*rig.SimEngine{rig.StartSim(t, "a", append(simFast, rig.Publishing...)...), rig.StartSim(t, "b", append(simFast, rig.Publishing...)...)})
	load := rig.NewTalkLoad(11, 60)
	var file strings.Builder
	for range 40 {
		body, tell := load.Next()
		file.WriteString(body + "\n")
		tell("an answer from another day")
	}
	name := filepath.Join(t.TempDir(), "bodies.jsonl")
	if err := os.WriteFile(name, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := qualify(t, r, "--from="+name)
	wantLines(t, out, code, 0, "tokenized 40/40", "match equals reported 40/40", "errors 0")
}

// TestQualifyNamesALiar: an engine that loses blocks and does not say so.
func TestQualifyNamesALiar(t *testing.T) {
	t.Parallel()
	sims := qualifySims(t)
	r := settledPair(t, sims)
	fault(t, sims[1], "event-lie", 0)
	out, code := qualify(t, r)
	wantLines(t, out, code, 1, "FAIL match equals reported", "problem: engine b lies about its cache", "not qualified")
	if strings.Contains(out, "engine a lies") {
		t.Errorf("the honest engine is blamed:\n%s", out)
	}
}

// TestQualifyForeignTokenizer: tokens that are not the model's.
func TestQualifyForeignTokenizer(t *testing.T) {
	t.Parallel()
	r := rig.StartSims(t, rig.SimSetup{Sims: qualifySims(t), Events: "auto", Model: foreignTokenizer(t, rig.SimModelFolder(t)), Flags: rig.QuickHealth,
		Settled: rig.Both(rig.Said("token ids compared"), rig.Trusted)})
	out, code := qualify(t, r, "--requests=20")
	wantLines(t, out, code, 1, "FAIL tokenized 0/20", "problem: tokens do not match: the tokenizer is not the model's", "not qualified")
}

// TestQualifyEngineWithoutEvents: nothing is known of its cache.
func TestQualifyEngineWithoutEvents(t *testing.T) {
	t.Parallel()
	sims := []*rig.SimEngine{rig.StartSim(t, "a", append(simFast, rig.Publishing...)...), rig.StartSim(t, "b", simFast...)}
	r := rig.StartSims(t, rig.SimSetup{Sims: sims, Events: "auto", Model: rig.SimModelFolder(t), Flags: rig.QuickHealth, Settled: rig.Both(rig.Said("token ids compared"), func(r *rig.Ramjet) string {
		if e := r.EngineView("a"); e.Trust != "exact" {
			return "engine a is " + e.Trust
		}
		return ""
	})})
	out, code := qualify(t, r, "--requests=20")
	wantLines(t, out, code, 1, "tokenized 20/20", "FAIL exact agrees with approximate", "problem: engine b has no events", "not qualified")
}

// TestQualifyWithoutRamjet says that nobody answers.
func TestQualifyWithoutRamjet(t *testing.T) {
	t.Parallel()
	out, code := ramjetCommand(t, "qualify", "--admin=127.0.0.1:1")
	wantLines(t, out, code, 1, "cannot reach Ramjet's admin port")
}
