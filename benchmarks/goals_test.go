package benchmarks

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func everyInput(string) bool { return true }

func TestGoalVerdicts(t *testing.T) {
	t.Parallel()
	most, least, shown := goal{bound: 10}, goal{bound: 10, least: true}, goal{}
	cases := []struct {
		name   string
		goal   goal
		values []float64
		want   Verdict
		missed bool
	}{
		{"most, all below", most, []float64{8, 9, 9, 9, 10}, Met, false},
		{"most, all above", most, []float64{11, 12, 12, 12, 13}, NotMet, true},
		{"most, around", most, []float64{9, 9, 11, 12, 13}, NotSeparable, true},
		{"most, around, the median below", most, []float64{8, 9, 9, 9, 11}, NotSeparable, false},
		{"least, all above", least, []float64{10, 12, 12, 12, 13}, Met, false},
		{"least, all below", least, []float64{8, 9, 9, 9, 9.9}, NotMet, true},
		{"least, around", least, []float64{8, 9, 9, 12, 13}, NotSeparable, true},
		{"least, one outlier of seven does not matter", least, []float64{1, 11, 11, 11, 11, 11, 11}, Met, false},
		{"too few", most, []float64{1, 1}, NotSeparable, false},
		{"shown", shown, []float64{1, 2, 3}, "", false},
		{"nothing", least, nil, NotMeasured, false},
	}
	for _, c := range cases {
		s := spreadOf(c.values)
		if got := c.goal.verdict(s); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if got := c.goal.short(s) > 1; got != c.missed {
			t.Errorf("%s: short %.3f", c.name, c.goal.short(s))
		}
	}
	if got := least.short(spreadOf([]float64{8})); got != 1.25 {
		t.Errorf("8 of at least 10 is short by %.3f", got)
	}
}

// alternatives splits a pattern of go test's -bench as go test does: at | and / outside brackets.
func alternatives(pattern string) (out [][]string) {
	depth, from, one := 0, 0, []string(nil)
	for i, c := range pattern {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case depth == 0 && (c == '|' || c == '/'):
			one, from = append(one, pattern[from:i]), i+1
			if c == '|' {
				out, one = append(out, one), nil
			}
		}
	}
	return append(out, append(one, pattern[from:]))
}

func selected(pattern, name string) bool {
	parts := strings.Split(name, "/")
	for _, one := range alternatives(pattern) {
		ok := len(one) <= len(parts)
		for i := 0; ok && i < len(one); i++ {
			ok = regexp.MustCompile(one[i]).MatchString(parts[i])
		}
		if ok {
			return true
		}
	}
	return false
}

// sourcesOf are the tests of a package of the product, as text.
func sourcesOf(t *testing.T, pkg string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", pkg, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", pkg, err)
	}
	var all strings.Builder
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}

// A benchmark that was renamed would be a goal that nobody measures any more.
func TestGoalsNameWhatExists(t *testing.T) {
	t.Parallel()
	known := func(pkg, name string) {
		t.Helper()
		name, _, _ = strings.Cut(name, "/")
		if !strings.Contains(sourcesOf(t, pkg), "\nfunc "+name+"(") {
			t.Errorf("%s has no %s", pkg, name)
		}
	}
	for _, s := range goalSubjects(everyInput) {
		for _, g := range s.goals {
			run, ok := s.runOf(g)
			if !ok || !selected(run.bench+run.test, g.bench) {
				t.Errorf("%s, %s: no run makes %s", s.name, g.what, g.bench)
				continue
			}
			known(run.pkg, g.bench)
		}
		for _, name := range regexp.MustCompile(`\bTest\w+`).FindAllString(s.about, -1) {
			known("tokens", name)
		}
	}
	if !regexp.MustCompile(indexTestWords).MatchString("1 blocks on 2 edges; 3.0 bytes a block by count, 4.0 by the heap, 5.0 at worst") ||
		!strings.Contains(sourcesOf(t, "radix"), `"%d blocks on %d edges; %.1f bytes a block by count, %.1f by the heap, %.1f at worst"`) {
		t.Errorf("%s prints other words than are read here", indexTest)
	}
	for _, p := range pathBenches {
		known(p.pkg, p.bench)
		found := false
		for _, r := range pathRuns(true) {
			found = found || r.pkg == p.pkg && selected(r.bench, p.bench)
		}
		if !found {
			t.Errorf("%s: no run makes %s", p.what, p.bench)
		}
	}
	if selected(alone("BenchmarkPick/engines=2"), "BenchmarkPick/engines=20") || !selected(alone("BenchmarkPick/engines=2"), "BenchmarkPick/engines=2") {
		t.Error("alone matches others")
	}
}

// Without a vocabulary nothing is measured in its name, and the report says what to do.
func TestGoalsWithoutAVocabulary(t *testing.T) {
	t.Parallel()
	list := goalSubjects(func(name string) bool { return name == vocabularyFile("llama3") })
	tokenizer, session := list[1], list[2]
	if len(tokenizer.runs) != 1 || selected(tokenizer.runs[0].bench, "BenchmarkEncode/qwen3/code") || !selected(tokenizer.runs[0].bench, "BenchmarkEncode/llama3/code") {
		t.Errorf("%+v", tokenizer.runs)
	}
	if len(session.runs) != 0 || len(pathRuns(false)) != len(pathRuns(true))-1 {
		t.Errorf("%+v, %+v", session.runs, pathRuns(false))
	}
	text := session.render(goalRecords{}, newGoalsPlan(true, 5))
	if !strings.Contains(text, "| returning, prose | - | - | 0 | <= 300 us | not measured: vocab/qwen3/tokenizer.json is missing (`make vocab` fetches it) | <= 500 us | not measured | |") {
		t.Errorf("%s", text)
	}
}

// fakeBench has test binaries that print what files says of their packages.
func fakeBench(t *testing.T, files map[string]string, subjects ...goalSubject) *goalsBench {
	t.Helper()
	g := &goalsBench{
		cfg: Config{Log: io.Discard, Name: "ramjet"}, ctx: context.Background(), root: t.TempDir(), plan: goalsPlan{rounds: 3},
		subjects: subjects, rng: rand.New(rand.NewPCG(1, 1)), built: make(map[string]testBinary),
	}
	script, err := filepath.Abs("testdata/fakebench.sh") // a file written just now may still be open in another test's child, and would not start
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		pkg := filepath.Dir(name)
		g.built[pkg+"-"+pgoFile] = testBinary{path: script}
		if err := errors.Join(os.MkdirAll(filepath.Join(g.root, pkg), 0o755), os.WriteFile(filepath.Join(g.root, name), []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// What fails is lost with its reason, and the rest is measured in every round.
func TestGoalsGoOnWithoutAPackage(t *testing.T) {
	t.Parallel()
	g := fakeBench(t, map[string]string{
		"radix/test.txt": testdata(t, "index-small.txt"), "radix/test.exit": "1",
		"radix/bench.txt": "panic: BUG", "radix/bench.exit": "2",
		"route/bench.txt": "BenchmarkPick/engines=2-2 10 9000 ns/op 0 allocs/op\nBenchmarkPick/engines=40-2 10 60000 ns/op\n",
	}, indexSubject(), decisionSubject())
	if err := g.rounds(); err != nil {
		t.Fatal(err)
	}
	if len(g.records.Lost) != 1 || !strings.Contains(g.records.Lost[0].Reason, "panic") {
		t.Errorf("%+v", g.records.Lost)
	}
	for i := range g.records.Benches {
		g.records.Benches[i].Others = 0 // whatever this machine was busy with
	}
	index, decision := g.subjects[0].render(g.records, g.plan), g.subjects[1].render(g.records, g.plan)
	for _, line := range []string{
		"| block operations, two engines on 2 cores | - | - | 0 | >= 10 M/s | not measured: ", " | >= 5 M/s | not measured | |",
		"| memory of a block and engine | 41.5 B | 41.5 .. 41.5 | 3 | <= 40 B | not met | <= 64 B | met | 27.3 B/block by count, 27.9 B/block by the heap, 41.5 B/block just grown |",
	} {
		if !strings.Contains(index, line) {
			t.Errorf("no %q in\n%s", line, index)
		}
	}
	for _, line := range []string{
		"| among 2 engines | 9.00 us | 9.00 .. 9.00 | 3 | <= 10 us | met | <= 20 us | met | 0.00 allocs/op |", "| among 8 engines | - | - | 0 | shown | not measured | shown | not measured | |",
		"| among 40 engines | 60.0 us | 60.0 .. 60.0 | 3 | <= 50 us | not met | <= 100 us | met |  |", "\nMissed, and not profiled: among 40 engines.\n",
	} {
		if !strings.Contains(decision, line) {
			t.Errorf("no %q in\n%s", line, decision)
		}
	}
	g.built["route-"+pgoFile] = testBinary{err: errors.New("does not | build")}
	g.records = goalRecords{}
	if err := g.rounds(); err != nil {
		t.Fatal(err)
	}
	if text := g.subjects[1].render(g.records, g.plan); !strings.Contains(text, "not measured: does not / build") {
		t.Errorf("%s", text)
	}
}

// goalSample is five rounds: writes are 20 % too slow, and the profile saves 10 % of everything but noise.
func goalSample() goalRecords {
	r := goalRecords{Meta: Meta{Rounds: 5, Command: "go run x"}, Parts: []PartRecord{{Name: partPGO}}, Inputs: []InputRecord{{Name: "a", SHA256: strings.Repeat("1", 64)}, {Name: "b"}}}
	for round := 1; round <= 5; round++ {
		r.Benches = append(r.Benches, BenchRecord{Part: partGoals, Build: pgoFile, Package: "radix", Name: "BenchmarkIndexWriteTwo", Round: round,
			Metrics: map[string]float64{"Mops/s": 8 + 0.01*float64(round), "Mops/cpu-s": 4.5, "calibrations/operation": 0.00125}})
		for _, p := range pathBenches {
			with := 9e5
			if p.pkg == "wire" {
				with = []float64{9e5, 1.05e6}[round%2]
			}
			r.Benches = append(r.Benches,
				BenchRecord{Part: partPGO, Build: pgoOff, Package: p.pkg, Name: p.bench, Round: round, Metrics: map[string]float64{"ns/op": 1e6}},
				BenchRecord{Part: partPGO, Build: pgoFile, Package: p.pkg, Name: p.bench, Round: round, Metrics: map[string]float64{"ns/op": with}})
		}
	}
	r.Profiles = []ProfileRecord{{Package: "radix", Bench: "BenchmarkIndexWriteTwo", Total: "3.09s",
		Functions: []FunctionShare{{"ramjet/radix.(*Residency).Store", "1.00s", 40}, {"a|b", "0.50s", 20.04}}}}
	return r
}

func TestGoalsReport(t *testing.T) {
	t.Parallel()
	r := goalSample()
	text := goalsReport(r, []goalSubject{indexSubject()}, newGoalsPlan(false, 5))
	for _, line := range []string{
		"| command | `go run x` |\n", "| inputs | sha256 of .tools/: a 111111111111, b missing |\n",
		"    go test ./radix -run '^$' -bench '^BenchmarkIndexWriteTwo$|^BenchmarkIndexFull$|^BenchmarkIndexMatchBesideWrites$' -benchtime 1s -cpu 2 -pgo default.pgo\n",
		"    go test ./radix -count 1 -v -run '^TestIndexIsSmall$' -cpu 2 -pgo default.pgo\n",
		"| block operations, two engines on 2 cores | 8.03 M/s | 8.01 .. 8.05 | 5 | >= 10 M/s | not met | >= 5 M/s | met | 4.50 Mops/cpu-s, xxh3 of 1 MiB 99.6 us |\n",
		"block operations, two engines on 2 cores has to become 1.25 times as fast: 20 % of its time has to go. Of 3.09s of samples of `BenchmarkIndexWriteTwo`, these hold 60 %:",
		"| `ramjet/radix.(*Residency).Store` | 1.00s | 40.0 % |\n", "| `a/b` | 0.50s | 20.0 % |\n",
		"| a short request through the relay, with its client and engine | `ShortAnswer` | 1000 us | 900.0 us | +10.0 % | +10.0 .. +10.0 | 5 | met |\n",
		"| reading a request's head | `RequestHead` | 1000 us | 1050 us | -5.0 % | -5.0 .. +10.0 | 5 | not separable |\n",
		"| all of them, geometric mean |  |  |  | +5.3 % | +5.3 .. +10.0 | 5 | met |\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	if n := len(r.lines()); n != 2+len(r.Inputs)+len(r.Benches)+len(r.Profiles) {
		t.Errorf("%d lines", n)
	}
}

// What failed is the call's error and stands beside the last whole report; where nothing ran, nothing is saved.
func TestGoalsKeepTheWholeReport(t *testing.T) {
	t.Parallel()
	lost := LostRecord{Kind: "lost", Run: "radix x", Reason: "does not build"}
	for _, c := range []struct {
		name    string
		records goalRecords
		section string
		err     string
	}{
		{"whole", goalSample(), "goals", ""},
		{"with one lost", func() goalRecords { r := goalSample(); r.Lost = append(r.Lost, lost); return r }(), "goals-part", "radix x: does not build"},
		{"with a failed part", func() goalRecords { r := goalSample(); r.Parts[0].Error = "no"; return r }(), "goals-part", ""},
		{"nothing", goalRecords{Meta: Meta{Rounds: 5}, Lost: []LostRecord{lost}}, "", "radix x: does not build"},
		{"nothing, and no reason", goalRecords{Meta: Meta{Rounds: 5}}, "", "nothing was measured"},
	} {
		out := filepath.Join(t.TempDir(), "RESULTS.md")
		g := &goalsBench{cfg: Config{Log: io.Discard, Out: out, Results: filepath.Join(filepath.Dir(out), "results")}, subjects: []goalSubject{indexSubject()}, plan: newGoalsPlan(false, 5), records: c.records}
		_, err := g.publish()
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v", c.name, err)
		}
		text, err := os.ReadFile(out)
		if c.section == "" {
			if !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s was saved: %v, %s", c.name, err, text)
			}
			continue
		}
		if !strings.Contains(string(text), "<!-- begin "+c.section+" -->") {
			t.Errorf("%s: no section %s, %v", c.name, c.section, err)
		}
	}
}

// A goal may be missed and the design's bound be met; where the latter is missed, the call is not in order.
func TestDesignIsJudgedBesideTheGoal(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]map[string]string{
		"index":    {"block operations, two engines on 2 cores": ">= 5 M/s", "memory of a block and engine": "<= 64 B", "reads beside writes of other prompts": "<= 1.1 x", "reads beside writes of the same prompt": "shown"},
		"session":  {"returning, prose": "<= 500 us", "returning, code": "<= 1000 us"},
		"decision": {"among 2 engines": "<= 20 us", "among 40 engines": "<= 100 us", "among 8 engines": "shown"},
	} {
		for _, s := range goalSubjects(everyInput) {
			for _, g := range s.goals {
				if asked, ok := want[g.what]; ok && s.name == subject && g.designed().asked() != asked {
					t.Errorf("%s: %s, want %s", g.what, g.designed().asked(), asked)
				}
			}
		}
	}
	s := decisionSubject()
	for nanos, want := range map[float64][3]bool{9_000: {false, false, true}, 15_000: {true, false, false}, 25_000: {true, true, false}} {
		var r goalRecords
		for round := range 5 {
			r.Benches = append(r.Benches, BenchRecord{Part: partGoals, Build: pgoFile, Package: "route", Name: s.goals[0].bench, Round: round, Metrics: map[string]float64{"ns/op": nanos}})
		}
		g := goalsBench{cfg: Config{Log: io.Discard}, subjects: []goalSubject{s}, records: r}
		ok, err := g.publish()
		if err != nil || [3]bool{r.misses(s, s.goals[0]), r.misses(s, s.goals[0].designed()), ok} != want {
			t.Errorf("%.0f ns: %v %v, in order %v, %v", nanos, r.misses(s, s.goals[0]), r.misses(s, s.goals[0].designed()), ok, err)
		}
	}
}

// Where the design states a bound and nobody set a goal, the bound alone counts.
func TestDesignCountsWithoutAGoal(t *testing.T) {
	t.Parallel()
	s := indexSubject()
	at := slices.IndexFunc(s.goals, func(g goal) bool { return g.what == "reads beside writes of other prompts" })
	for ratio, want := range map[float64]bool{1.0: true, 1.3: false} {
		var r goalRecords
		for round := range 5 {
			r.Benches = append(r.Benches, BenchRecord{Part: partGoals, Build: pgoFile, Package: "radix", Name: s.goals[at].bench, Round: round, Metrics: map[string]float64{"ratio": ratio}})
		}
		g := goalsBench{cfg: Config{Log: io.Discard}, subjects: []goalSubject{s}, records: r}
		if ok, err := g.publish(); err != nil || ok != want {
			t.Errorf("%.1f x: in order %v, %v", ratio, ok, err)
		}
	}
}

// A round that lacks one benchmark's pair must not count for all of them.
func TestGainsNeedPairs(t *testing.T) {
	t.Parallel()
	r := goalSample()
	for i, x := range r.Benches {
		if x.Part == partPGO && x.Round == 2 && x.Build == pgoOff && x.Package == "route" {
			r.Benches[i].Metrics = nil
		}
	}
	list := gains(r)
	if n := len(list); n != len(pathBenches)+1 || list[n-1].saved.N != 4 || list[n-2].saved.N != 4 || list[0].saved.N != 5 {
		t.Errorf("%+v", list)
	}
	if got := gains(goalRecords{Meta: Meta{Rounds: 5}}); got != nil {
		t.Errorf("gains out of nothing: %+v", got)
	}
}

// The quick call has its time, and too few rounds decide nothing.
func TestQuickGoalsHaveATime(t *testing.T) {
	t.Parallel()
	p, all := newGoalsPlan(true, 5), 0.0
	for _, part := range []string{partGoals, partProfiles} {
		if p.limits[part] == 0 {
			t.Errorf("%s has no limit", part)
		}
		all += p.limits[part].Seconds()
	}
	if all > 70 {
		t.Errorf("%.0f s, and every part ends what it has begun", all)
	}
	if full := newGoalsPlan(false, 7); len(full.limits) != 0 || full.rounds != 7 || full.pairs != 7 || p.pairs != 0 {
		t.Errorf("%+v", full)
	}
}

// Time may not last for every profile: each table gets its worst before any gets a second.
func TestWorstGoalsAreProfiledFirst(t *testing.T) {
	t.Parallel()
	var r goalRecords
	subjects := goalSubjects(everyInput)
	for _, s := range subjects {
		for i, g := range s.goals {
			run, _ := s.runOf(g)
			v := 1e6 * float64(i+1) // of what has to be little
			if g.least {
				v = 1 / float64(i+1)
			}
			r.Benches = append(r.Benches, BenchRecord{Part: partGoals, Build: pgoFile, Package: run.pkg, Name: g.bench, Metrics: map[string]float64{g.metric: v}})
		}
	}
	list := worstFirst(r, missedGoals(r, subjects))
	var got []string
	for _, m := range list[:5] {
		got = append(got, m.goal.what)
	}
	want := []string{"block operations, two engines on 2 cores", "code, deepseek3", "returning, code", "among 2 engines", "english, deepseek3"}
	if !slices.Equal(got, want) || len(list) != 1+8+2+2 {
		t.Errorf("%d: %q, want %q", len(list), got, want)
	}
}

// What the profile could not be compared on is named.
func TestGainTableSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	r := goalSample()
	r.Inputs = []InputRecord{{Name: vocabularyFile(sessionVocabulary)}}
	r.Lost = []LostRecord{{Run: pathRuns(true)[0].key(), Reason: "does not build"}}
	text := gainTable(r, newGoalsPlan(false, 5))
	for _, line := range []string{
		"\nNot measured, or not to the end: a short request through the relay, with its client and engine, does not build.\n",
		"\nNot measured, or not to the end: ids and keys of a returning session of 10,000 tokens, vocab/qwen3/tokenizer.json is missing (`make vocab` fetches it).\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	if text := gainTable(r, newGoalsPlan(true, 5)); !strings.Contains(text, "only the full call") {
		t.Errorf("%s", text)
	}
}

// All rounds beside the same other work agree, and say nothing against the code; what is met all the same is met.
func TestOtherWorkDecidesNothing(t *testing.T) {
	t.Parallel()
	s := decisionSubject()
	s.runs = append(s.runs, goRun{pkg: "radix", test: "^" + indexTest + "$"})
	memory := goal{bench: indexTest, metric: bytesAtMost, per: 1, bound: 40}
	for _, c := range []struct {
		others float64
		slow   Verdict
	}{{0.05, NotMet}, {0.4, NotSeparable}} {
		var r goalRecords
		for round := range 5 {
			add := func(pkg, name, metric string, v float64) {
				r.Benches = append(r.Benches, BenchRecord{Part: partGoals, Build: pgoFile, Package: pkg, Name: name, Round: round, Others: c.others, Metrics: map[string]float64{metric: v}})
			}
			add("route", s.goals[0].bench, "ns/op", 9_000)
			add("route", s.goals[2].bench, "ns/op", 60_000)
			add("radix", indexTest, bytesAtMost, 41)
		}
		for i, want := range map[int]Verdict{0: Met, 2: c.slow} {
			if got, note := r.verdict(s, s.goals[i]); got != want || (note != "") != (got == NotSeparable) {
				t.Errorf("others %.2f, %s: %s %q, want %s", c.others, s.goals[i].what, got, note, want)
			}
		}
		if got, _ := r.verdict(s, memory); got != NotMet {
			t.Errorf("others %.2f, memory: %s", c.others, got)
		}
	}
}

func TestOthersShare(t *testing.T) {
	t.Parallel()
	busy, all := busyTicks()
	if all == 0 {
		t.Skip("this system has no /proc/stat")
	}
	if busy <= 0 || busy > all {
		t.Errorf("busy %d of %d ticks", busy, all)
	}
	// Since twice the time of the machine's start, in which it was as busy as it is on average, a quarter of it with our own.
	got := othersShare(-busy, -all, time.Duration(runtime.NumCPU())*time.Second/4, time.Second)
	if want := float64(busy)/float64(all) - 0.25; got < max(0, want)-0.02 || got > max(0, want)+0.02 {
		t.Errorf("others had %.3f, want %.3f", got, want)
	}
	if got := othersShare(busy, all+1e9, 0, time.Second); got != 0 {
		t.Errorf("%.3f of no time", got)
	}
}
