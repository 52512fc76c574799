package policy

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const tracesDir = "../../../shared/traces"

// needTraces skips a test where the traces are not.
func needTraces(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(tracesDir); err != nil {
		t.Skip("the request traces are not at ../shared/traces, beside the repository")
	}
}

// TestTracesRunTheSameTwice plays the beginning of the conversation trace twice, and under turns.
func TestTracesRunTheSameTwice(t *testing.T) {
	t.Parallel()
	needTraces(t)
	jobs, err := mooncake(tracesDir, "mooncake_conversation.jsonl.gz", 250)
	if err != nil {
		t.Fatal(err)
	}
	if len(jobs) != 250 || jobs[0].words[0] != jobs[249].words[0] {
		t.Fatalf("%d requests; the first block is in all of them", len(jobs))
	}
	s := &scenario{name: "beginning", profiles: pair}
	run := func(who string) *result {
		r, err := play(s, replay(jobs, mooncakeBlock, 0.4, 3, rand.New(rand.NewPCG(1, 1)), 250), candidates()[who])
		if err != nil {
			t.Fatal(err)
		}
		if len(r.e2e) != 250 {
			t.Fatalf("%d of 250 answered", len(r.e2e))
		}
		return r
	}
	one, two, turns := run(nameDefault), run(nameDefault), run("round-robin")
	if !slices.Equal(one.ttft, two.ttft) || !slices.Equal(one.e2e, two.e2e) || !slices.Equal(one.placedAt, two.placedAt) {
		t.Error("the same run came out differently")
	}
	if one.exact != 1 || one.hit < 100_000 || one.meanTTFT() >= turns.meanTTFT() {
		t.Errorf("exact %v, %v tokens hit in %v s; in turns %v in %v s", one.exact, one.hit, one.meanTTFT(), turns.hit, turns.meanTTFT())
	}
}

// TestClosedLoop: a user's next request waits for the answer before, and the end of the time is kept.
func TestClosedLoop(t *testing.T) {
	t.Parallel()
	needTraces(t)
	all, err := sessions(tracesDir)
	if err != nil {
		t.Fatal(err)
	}
	tr := &traces{sessions: all}
	load := coding(4, 300)(tr, rand.New(rand.NewPCG(2, 2)), false)
	s := &scenario{name: "coding", profiles: pair}
	r, err := play(s, load, candidates()[nameDefault])
	if err != nil {
		t.Fatal(err)
	}
	if r.last > load.until || len(r.e2e) < 20 || r.hitRate() < 0.5 {
		t.Errorf("%d answers up to %v s, hit %.2f", len(r.e2e), r.last, r.hitRate())
	}
}

// TestSessionRules: what becomes a request of a session, and which blocks it shares.
func TestSessionRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	line := `{"id":"x","tool_tokens":100,"system_tokens":60,"requests":[
		{"type":"n","in":300,"out":5,"think_time":0,"hash_ranges":[1,5]},
		{"type":"subagent"},
		{"type":"n","in":400,"out":0,"think_time":900,"hash_ranges":[1,4,9,10]},
		{"type":"n","in":200000,"out":5,"think_time":1,"hash_ranges":[1,3125]},
		{"type":"n","in":64,"out":5,"think_time":1,"hash_ranges":[1,1]}]}`
	_, _ = io.WriteString(z, strings.ReplaceAll(line, "\n", "")+"\n"+strings.ReplaceAll(line, "\n", "")+"\n")
	_ = z.Close()
	if err := os.WriteFile(filepath.Join(dir, "claude_code_sessions.jsonl.gz"), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := sessions(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || len(all[0]) != 2 {
		t.Fatalf("%d sessions; the first has %d requests, want 2: a prompt beyond the context ends it", len(all), len(all[0]))
	}
	first, second, other := all[0][0], all[0][1], all[1][0]
	if len(first.words) != 4 || len(second.words) != 6 || second.at != longestThink || second.out != 1 {
		t.Errorf("%d and %d blocks, a wait of %v, %d tokens", len(first.words), len(second.words), second.at, second.out)
	}
	if !slices.Equal(first.words, second.words[:4]) || !slices.Equal(first.words[:2], other.words[:2]) || first.words[2] == other.words[2] {
		t.Error("a session's blocks are its own, but for tools and system prompt")
	}
	// Keys made along the request before are those made alone.
	alone := *second
	alone.like, alone.chain = nil, nil
	if !slices.Equal(second.keys(sessionBlock), alone.keys(sessionBlock)) {
		t.Error("the keys differ with the way they are made")
	}
}

// TestBrokenTraces: a missing, a cut and a wrong file are errors that name it.
func TestBrokenTraces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := openTraces(dir); err == nil || !strings.Contains(err.Error(), "mooncake_conversation") {
		t.Errorf("missing: %v", err)
	}
	for name, text := range map[string]string{"wrong": "no gzip", "cut": "\x1f\x8b\x08\x00\x00\x00\x00\x00"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := mooncake(dir, name, 5); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTaughtRatesStay: rates taught before a run are what was asked for, and the run does not change them.
func TestTaughtRatesStay(t *testing.T) {
	t.Parallel()
	s := &scenario{name: "burst", profiles: pair, make: burst(80, 3000, 100)}
	load := s.make(nil, nil, false)
	base, err := play(s, load, candidates()[nameDefault])
	if err != nil {
		t.Fatal(err)
	}
	r, err := play(s, load, taught("wrong", base, 2, 0.5))
	if err != nil {
		t.Fatal(err)
	}
	for i := range pair {
		if got := r.prefillRate[i] / base.prefillRate[i]; math.Abs(got-2) > 1e-6 {
			t.Errorf("engine %d: the prefill rate is %v x as high, want 2", i, got)
		}
		for b := range r.steps[i] {
			if got := r.steps[i][b] / base.steps[i][b]; math.Abs(got-0.5) > 1e-6 {
				t.Errorf("engine %d, batch %d: the time per token is %v x as long, want 0.5", i, 1<<b, got)
			}
		}
	}
}

// TestVerdicts: a line passes within its bounds, and only judged lines count.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	s := &scenario{name: "somewhere"}
	for _, c := range []struct {
		r    row
		v    float64
		want string
	}{
		{row{high: 1.1}, 1.1, "pass"},
		{row{high: 1.1}, 1.11, "FAIL"},
		{row{low: 2}, 1.99, "FAIL"},
		{row{low: 0.4, high: 0.6}, 0.5, "pass"},
		{row{low: 0.4, high: 0.6}, 0.7, "FAIL"},
		{row{high: 1.1, info: true}, 9, "-"},
		{row{high: 1.1}, math.NaN(), "FAIL"},
	} {
		var b strings.Builder
		p := &paper{out: &b, ok: true}
		c.r.scenario = s
		p.row(c.r, c.v)
		if got := strings.Fields(b.String()); got[len(got)-1] != c.want || p.ok == (c.want == "FAIL") {
			t.Errorf("%v: %s, ok %v", c.v, b.String(), p.ok)
		}
	}
	if median([]float64{3, 1, 2}) != 2 || median([]float64{4, 1}) != 2.5 || !math.IsNaN(median(nil)) {
		t.Error("median")
	}
	if v := []float64{5, 1, 4, 2, 3}; quantile(v, 0.99) != 5 || quantile(v, 0) != 1 || v[0] != 5 {
		t.Error("quantile")
	}
}
