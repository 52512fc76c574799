package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ramjet/engine"
	"ramjet/journal"
	"ramjet/lease"
	"ramjet/radix"
	"ramjet/route"
	"ramjet/telemetry"
)

// journalOf records n decisions between an mtp and a plain engine, with half of
// the prompts known to the second and leases that stay a while.
func journalOf(t *testing.T, n int, s route.Settings) string {
	t.Helper()
	set := &route.Set{}
	for i, profile := range []string{"mtp", "standard"} {
		u, err := url.Parse(fmt.Sprintf("http://127.0.0.1:%d", 8001+i))
		if err != nil {
			t.Fatal(err)
		}
		e := engine.New(engine.Options{Name: string(rune('a' + i)), URL: u, Profile: profile})
		e.SetState(telemetry.StateReady, "test")
		set.Members = append(set.Members, route.Member{Engine: e, Account: lease.NewAccount(profile), Slot: len(set.Members)})
	}
	memory := radix.NewMemory()
	r := route.New(lease.NewBook(nil), radix.NewIndex(), memory, s, set)
	dir := t.TempDir()
	j, err := journal.Open(journal.Options{Dir: dir, MaxBytes: 1 << 20, Files: 3})
	if err != nil {
		t.Fatal(err)
	}
	var held []*lease.Lease
	for i := range n {
		chain := make([]uint64, 20+i%50)
		for k := range chain {
			chain[k] = uint64(1000*(i%10) + k) //nolint:gosec // keys of a test
		}
		if i%2 == 0 {
			memory.Learn(1, chain, 16)
		}
		q := route.Request{
			Now: float64(i) * 0.01, Session: uint64(i%10) + 1, Cap: int64(64 << (i % 5)), Sequences: 1, //nolint:gosec // small
			Prompt: route.Prompt{Tokens: int64(16*len(chain) + 5), Note: "no tokenizer", Chain: chain, ChainTokens: 16},
		}
		var x route.Explanation
		l := &lease.Lease{}
		if _, err := r.Pick(&q, l, &x); err != nil {
			t.Fatal(err)
		}
		x.RequestID = fmt.Appendf(nil, "r%d", i)
		j.Record(&x)
		if held = append(held, l); len(held) > 6 {
			held[0].Release(q.Now)
			held = held[1:]
		}
	}
	j.Close()
	if j.Dropped() != 0 {
		t.Fatalf("%d records dropped", j.Dropped())
	}
	return dir
}

func defaultSettings() route.Settings {
	return route.Settings{Policy: route.PolicyLatency, Profile: route.ProfileRule, Threshold: 256, Exact: route.ExactPercent, Percent: 100, Tie: 0.02}
}

func TestReplayReproduces(t *testing.T) {
	t.Parallel()
	for _, p := range []route.Policy{route.PolicyLatency, route.PolicyLeastTokens, route.PolicyRoundRobin, route.PolicySession} {
		s := defaultSettings()
		s.Policy = p
		var out bytes.Buffer
		if err := Replay(ReplayOptions{Path: journalOf(t, 300, s), Out: &out}); err != nil {
			t.Errorf("%s: %v\n%s", p, err, out.String())
		}
		for _, want := range []string{"300 decisions in 1 files", "reproduced 300/300", "moved requests  0 (0.0 %)", "gained 0, lost 0"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", p, want, out.String())
			}
		}
	}
}

// TestReplayWithOtherSettings tells what would have moved.
func TestReplayWithOtherSettings(t *testing.T) {
	t.Parallel()
	dir := journalOf(t, 300, defaultSettings())
	run := func(name string, change func(*journal.Settings)) (r replayed) {
		var out bytes.Buffer
		if err := Replay(ReplayOptions{Path: dir, Changes: []string{name}, Change: change, JSON: true, Out: &out}); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, e := range r.Engines {
			sum += e.After
		}
		if r.Decisions != 300 || sum != 300 || len(r.Moves) != r.Decisions-r.Reproduced || r.Moved > len(r.Moves) {
			t.Errorf("%s: the numbers do not add up: %d decisions, %d after, %d moves of %d moved, %d reproduced", name, r.Decisions, sum, len(r.Moves), r.Moved, r.Reproduced)
		}
		return r
	}
	same := run("route.policy=latency", func(s *journal.Settings) { s.Policy = route.PolicyLatency })
	if same.Moved != 0 || same.RecordedCost != same.ChangedCost || same.RecordedCost.Before == 0 {
		t.Errorf("the same settings move: %d, %v %v", same.Moved, same.RecordedCost, same.ChangedCost)
	}
	turns := run("route.policy=round-robin", func(s *journal.Settings) { s.Policy = route.PolicyRoundRobin })
	if a, b := turns.Engines["a"].After, turns.Engines["b"].After; a != 150 || b != 150 {
		t.Errorf("round robin gives %d and %d", a, b)
	}
	if turns.Lost <= turns.Gained || turns.RecordedCost.After <= turns.RecordedCost.Before || turns.FirstToken.After <= turns.FirstToken.Before {
		t.Errorf("round robin loses nothing: gained %d, lost %d, cost %v, first token %v", turns.Gained, turns.Lost, turns.RecordedCost, turns.FirstToken)
	}
	wide := run("route.tie=5s", func(s *journal.Settings) { s.Tie = 5 })
	if wide.Moved == 0 || wide.ChangedCost.After == wide.ChangedCost.Before {
		t.Errorf("a wide tie moves nothing: %d, cost %v", wide.Moved, wide.ChangedCost)
	}
}

// TestReplayIsForPeople: the table is no wider than a terminal and says what
// was changed.
func TestReplayIsForPeople(t *testing.T) {
	t.Parallel()
	dir := journalOf(t, 200, defaultSettings())
	var out bytes.Buffer
	if err := Replay(ReplayOptions{Path: dir, Changes: []string{"route.policy=round-robin"}, Change: func(s *journal.Settings) { s.Policy = route.PolicyRoundRobin }, Out: &out}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"decided again with route.policy=round-robin", "cost by the recorded settings", "requests of engine a", "more (--json lists all)", "Each request meets"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > 130 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}

// TestReplayFailsClearly when decisions come out otherwise, or there are none.
func TestReplayFailsClearly(t *testing.T) {
	t.Parallel()
	dir := journalOf(t, 50, defaultSettings())
	var out bytes.Buffer
	err := Replay(ReplayOptions{Path: dir, Change: func(s *journal.Settings) { s.Policy = route.PolicyRoundRobin }, Out: &out})
	if !errors.Is(err, errNotReproduced) {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := Replay(ReplayOptions{Path: t.TempDir(), Out: &out}); err == nil || !strings.Contains(err.Error(), "no record") {
		t.Errorf("an empty folder: %v", err)
	}
	if err := Replay(ReplayOptions{Path: filepath.Join(dir, "none"), Out: &out}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}
