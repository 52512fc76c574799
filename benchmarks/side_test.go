package benchmarks

import (
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// sideSample is a side-by-side of seven rounds: ours costs half of what slow costs and twice what fast costs, even is
// ours with a noise that hides any difference, and lost was never measured.
func sideSample() Records {
	r := Records{Meta: Meta{Candidate: "ramjet", Rounds: 7}}
	for _, c := range []ContenderRecord{{Name: "ramjet", Ours: true}, {Name: Nginx}, {Name: "fast"}, {Name: "slow"}, {Name: "even"}, {Name: "lost", Router: true, Reason: "does not | start"}} {
		c.Kind = "contender"
		r.Contenders = append(r.Contenders, c)
	}
	factor := map[string]float64{"ramjet": 1, Nginx: 1, "fast": 0.5, "slow": 2, "even": 1, "ramjet" + exactly: 1, "ramjet" + approximates: 0.5}
	plan := fullSide(7, 9900)
	names := []string{referenceName(1), referenceName(16)}
	for _, s := range plan.streams {
		names = append(names, s.name)
	}
	for _, c := range slices.Concat(plan.prompts, plan.corpora) {
		names = append(names, c.scenario())
	}
	for round := 1; round <= 7; round++ {
		for _, name := range names {
			for target, f := range factor {
				if target == "even" {
					f = []float64{0.8, 1.25}[round%2]
				}
				cost := int64(f * 1e6)
				q := Quantiles{N: 10, P50: 50_000 + cost/10, P99: 90_000 + cost/5}
				r.Runs = append(r.Runs, RunRecord{Kind: "run", Round: round, Scenario: name, Target: target, CPUNanos: cost,
					Result: LoadResult{Requests: 10, Tokens: 100, Seconds: f, TTFT: q, OneWay: q, Whole: q, MeanNanos: 2_500_000_000 + cost/10}})
			}
			q := Quantiles{N: 10, P50: 50_000, P99: 90_000}
			r.Runs = append(r.Runs, RunRecord{Kind: "run", Round: round, Scenario: name, Target: Direct,
				Result: LoadResult{Requests: 10, Tokens: 100, Seconds: 1, TTFT: q, OneWay: q, Whole: q, MeanNanos: 2_500_000_000}})
		}
		if round > 3 {
			continue
		}
		for target, f := range factor {
			r.Memory = append(r.Memory, MemoryRecord{Kind: "memory", Target: target, Round: round, Streams: HoldReport{Want: 9900, Live: 9900}, RSSBytes: int64(f * 9900 * 10_000)})
		}
	}
	for _, n := range []int{2, 8, 40} {
		for round := range 7 {
			r.Routes = append(r.Routes, RouteRecord{Kind: "route", Engines: n, Round: round + 1, Nanos: float64(n) * 1000})
		}
	}
	return r
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	r := sideSample()
	lines := make(map[string]Line)
	titles := make(map[string]int)
	for _, s := range subjects(r) {
		titles[s.Title] = len(s.Lines)
		for _, l := range s.Lines {
			lines[l.What] = l
			if len(l.Cells) != 5 || l.Cells[4] != string(NotMeasured) {
				t.Errorf("%s: cells %q", l.What, l.Cells)
			}
		}
	}
	want := map[string]int{
		"CPU per streamed token": 3, "Added time to the first token": 4, "Added delay of a token": 6, "Short answers": 2,
		"Memory per open stream": 1, "Long prompts": 24, "Corpora": 48,
	}
	if !maps.Equal(titles, want) {
		t.Errorf("tables %v, want %v", titles, want)
	}
	for what, cells := range map[string][4]string{
		"CPU per token, stream-c16": {"10.0 us: 1.00 x (1.00 .. 1.00) not separable", "5.00 us: 2.00 x (2.00 .. 2.00) worse",
			"20.0 us: 0.50 x (0.50 .. 0.50) better", "12.5 us: 0.80 x (0.80 .. 1.25) not separable"},
		"added TTFT p50, ttft-reused-c16": {"100.0 us: 1.00 x (1.00 .. 1.00) not separable", "50.0 us: 2.00 x (2.00 .. 2.00) worse",
			"200.0 us: 0.50 x (0.50 .. 0.50) better", "125.0 us: 0.80 x (0.80 .. 1.25) not separable"},
		"answers per second, short-c32": {"10.0 /s: 1.00 x (1.00 .. 1.00) not separable", "20.0 /s: 0.50 x (0.50 .. 0.50) worse",
			"5.00 /s: 2.00 x (2.00 .. 2.00) better", "8.00 /s: 1.25 x (0.80 .. 1.25) not separable"},
		"memory per stream, 9900 streams": {"10.0 KB: 1.00 x (1.00 .. 1.00) not separable", "5.00 KB: 2.00 x (2.00 .. 2.00) worse",
			"20.0 KB: 0.50 x (0.50 .. 0.50) better", "10.0 KB: 1.00 x (1.00 .. 1.00) not separable"},
	} {
		if got := lines[what].Cells; len(got) < 4 || !slices.Equal(got[:4], cells[:]) {
			t.Errorf("%s:\ngot  %q\nwant %q", what, got, cells)
		}
	}
	if bar := lines["CPU per token, stream-c16"].Bar; !strings.HasPrefix(bar, "<= 1.05 x nginx") || !strings.HasSuffix(bar, ": met") {
		t.Errorf("bar %q", bar)
	}
	for what, design := range map[string]string{"returning-400KB": "3.5", "returning-2MB": "5", "cold-400KB": "8", "cold-2MB": "13"} {
		bar := lines["CPU per prompt, "+what+", ramjet-exact"].Bar
		if !strings.HasPrefix(bar, "<= ") || !strings.Contains(bar, ": met; <= "+design+" x nginx (the design") || !strings.HasSuffix(bar, ": met") {
			t.Errorf("%s: bar %q", what, bar)
		}
	}
	for what, direct := range map[string]string{
		"CPU per token, stream-c16": "", "CPU per request, short-c32": "", "memory per stream, 9900 streams": "",
		"added TTFT p50, ttft-reused-c16": "50.0 us", "added token delay p99, stream-c1": "90.0 us", "answers per second, short-c32": "10.0 /s",
		"whole request p50, cold-10KB, ramjet-exact": "50.0 us",
	} {
		if got := lines[what].Direct; got != direct {
			t.Errorf("%s: direct %q, want %q", what, got, direct)
		}
	}
}

// What is added may be nothing in the noise: then no ratio is made up, and the difference decides.
func TestCompareWithoutARatio(t *testing.T) {
	t.Parallel()
	ours := map[int]float64{1: 50, 2: 60, 3: 70}
	if got := addTTFT50.compare(ours, map[int]float64{1: -5, 2: 10, 3: 10}, false); got != "10.0 us: +55 us (+50 .. +60) worse" {
		t.Errorf("%q", got)
	}
	if got := addTTFT50.compare(ours, map[int]float64{1: -5, 2: 100, 3: 65}, false); got != "65.0 us: +5 us (-40 .. +55) not separable" {
		t.Errorf("%q", got)
	}
	if v := (bar{most: 10}).judge(spreadOf([]float64{1, 1}), nil); v != NotSeparable {
		t.Errorf("two rounds decided a bar: %s", v)
	}
	if v := (bar{most: 1.05, ofNginx: true}).judge(Spread{}, []float64{2, 2, 2}); v != NotMet {
		t.Errorf("twice nginx's: %s", v)
	}
	if got := cpuToken.compare(map[int]float64{1: 1, 2: 1}, map[int]float64{1: 9, 2: 9}, false); !strings.HasSuffix(got, "not separable") {
		t.Errorf("two rounds decided: %q", got)
	}
}

// everyLine is all lines of the tables by what they are about.
func everyLine(r Records) map[string]Line {
	out := make(map[string]Line)
	for _, s := range subjects(r) {
		for _, l := range s.Lines {
			out[l.What] = l
		}
	}
	return out
}

// What failed took no time: our own failed requests miss every bar and beat nobody, a rival's decide nothing.
func TestSubjectsFailWithTheRequests(t *testing.T) {
	t.Parallel()
	const cpu, added = "CPU per token, stream-c16", "added token delay p50, stream-c16"
	fail := func(target string) map[string]Line {
		r := sideSample()
		for i := range r.Runs {
			if x := &r.Runs[i]; x.Target == target && x.Scenario == scenarioC16 && x.Round == 7 {
				x.Result.Errors, x.Result.FirstError = 1, "event 3 differs"
			}
		}
		return everyLine(r)
	}
	// Without a failure the bar on CPU is met, and that on the delay is not.
	for target, want := range map[string]map[string]struct{ bar, slow string }{
		"ramjet": {cpu: {"not met", "not separable"}, added: {"not met", "not separable"}},
		"slow":   {cpu: {"met", "not separable (1 of its requests failed)"}, added: {"not met", "not separable (1 of its requests failed)"}},
		Nginx:    {cpu: {"not separable", "better"}, added: {"not met", "better"}},
		Direct:   {cpu: {"met", "better"}, added: {"not separable", "not separable"}},
	} {
		lines := fail(target)
		for what, w := range want {
			l := lines[what]
			if !strings.HasSuffix(l.Bar, "): "+w.bar) || !strings.HasSuffix(l.Cells[2], ") "+w.slow) {
				t.Errorf("%s failed, %s: bar %q, slow %q, want %+v", target, what, l.Bar, l.Cells[2], w)
			}
		}
		if note := lines[cpu].Ours; strings.Contains(note, "event 3 differs") != (target == "ramjet") {
			t.Errorf("%s failed, ours %q", target, note)
		}
	}
}

// A proxy that holds fewer streams needs less for those, and one that holds none has no figure at all.
func TestMemorySubjectFailsWithTheStreams(t *testing.T) {
	t.Parallel()
	const what = "memory per stream, 9900 streams"
	hold := func(target string, live int64) Line {
		r := sideSample()
		for i := range r.Memory {
			if x := &r.Memory[i]; x.Target == target {
				x.Streams = HoldReport{Want: 9900, Live: live, Errors: 9900 - live, First: "status 429"}
			}
		}
		return everyLine(r)[what]
	}
	for _, live := range []int64{0, 9000} {
		l := hold("ramjet", live)
		if !strings.HasSuffix(l.Bar, ": not met") || !strings.Contains(l.Ours, "of 9900 run: status 429") || strings.HasPrefix(l.Ours, string(NotMeasured)) != (live == 0) {
			t.Errorf("%d held: ours %q, bar %q", live, l.Ours, l.Bar)
		}
		if strings.Contains(strings.Join(l.Cells, " "), string(Better)) {
			t.Errorf("%d held, and better: %q", live, l.Cells)
		}
		l = hold("slow", live)
		if !strings.HasSuffix(l.Bar, ": met") || strings.Contains(l.Cells[2], string(Better)) || !strings.Contains(l.Cells[2], "status 429") {
			t.Errorf("slow held %d: %q, bar %q", live, l.Cells[2], l.Bar)
		}
	}
	r := sideSample()
	r.Memory = nil // as on a machine of few descriptors
	if l := everyLine(r)[what]; l.Ours != string(NotMeasured) || !strings.HasSuffix(l.Bar, ": not measured") {
		t.Errorf("a bar that nobody looked at: %+v", l)
	}
}

// A report with a failed part does not take the place of a whole one.
func TestSideKeepsTheWholeReport(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ failed, name string }{{"", "side"}, {"no go", "side-part"}} {
		out := filepath.Join(t.TempDir(), "RESULTS.md")
		r := sideSample()
		r.Runs = append(r.Runs, RunRecord{Target: "lost", Result: LoadResult{Requests: 1}})
		r.Parts = []PartRecord{{Name: partStreams}, {Name: partRoute, Error: c.failed}}
		s := &side{bench: &bench{cfg: Config{Log: io.Discard, Out: out, Results: filepath.Join(filepath.Dir(out), "results")}, records: r}}
		if err := s.publish(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(out)
		if err != nil || !strings.Contains(string(text), "<!-- begin "+c.name+" -->") || strings.Count(string(text), "<!-- begin ") != 1 {
			t.Errorf("%q failed, and the sections are not %s: %v", c.failed, c.name, err)
		}
		if !strings.Contains(string(text), "| figure | ours | direct | nginx |") {
			t.Error("no column for the direct way")
		}
	}
}

func TestBarsKnowTheirFigures(t *testing.T) {
	t.Parallel()
	r := sideSample()
	found := make(map[string]int)
	for _, s := range subjects(r) {
		for _, l := range s.Lines {
			if l.Bar != "" {
				found[s.Title]++
			}
		}
	}
	if want := map[string]int{"CPU per streamed token": 3, "Added time to the first token": 1, "Added delay of a token": 2, "Short answers": 1,
		"Memory per open stream": 1, "Long prompts": 4}; !maps.Equal(found, want) {
		t.Errorf("bars in the tables %v, want %v", found, want)
	}
}

func TestLosses(t *testing.T) {
	t.Parallel()
	list := losses(sideSample())
	if len(list) != 4 || list[0].Target != "ramjet" || list[1].Target != Nginx || list[3].Streams != 16 {
		t.Fatalf("%+v", list)
	}
	l := list[0] // 0.1 ms of 2.5 s
	if l.Verdict != Met || l.Direct != 2.5 || l.Share.Median < 0.0039 || l.Share.Median > 0.0041 || l.Raw.Median != 0 {
		t.Errorf("%+v", l)
	}
	r := sideSample()
	for i := range r.Runs {
		if x := &r.Runs[i]; x.Target == "ramjet" {
			x.Result.MeanNanos += 3_000_000 // 0.12 %: beyond one bound, below the other
			x.Result.Errors = int64(x.Round / 7)
		}
	}
	if list = losses(r); list[0].Verdict != NotMet || list[2].Verdict != NotMet || !strings.Contains(list[2].Note, "failed") {
		t.Errorf("%+v %+v", list[0], list[2])
	}
}

func TestSideReport(t *testing.T) {
	t.Parallel()
	r := sideSample()
	r.Parts = []PartRecord{{Name: partRoute, Seconds: 12, Error: "no go"}}
	text := sideReport(r)
	for _, want := range []string{
		"| lost |  |  | not measured, or not to the end: does not / start |", "route 12 s, failed: no go",
		"| 2 | 2.0 us | 2.0 .. 2.0 us | <= 20 us | met | <= 10 us | met |", "| 8 | 8.0 us | 8.0 .. 8.0 us | - | shown | - |  |",
		"| 1 | ramjet | 7 | 2.500 | +0.10 (+0.10 .. +0.10) | +0.004 % (+0.004 .. +0.004) | <= 0.03 % | met |", barSource,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if routerRan(r) {
		t.Error("a router ran that did not start")
	}
	r.Runs = append(r.Runs, RunRecord{Target: "lost", Result: LoadResult{Requests: 1}})
	if !routerRan(r) {
		t.Error("the router's run is overlooked")
	}
}

// A pair's figures stand beside those of two standard engines, and the caches as they were learnt.
func TestMixedTable(t *testing.T) {
	t.Parallel()
	r := Records{Meta: Meta{Candidate: "ramjet"}}
	for round := 1; round <= 3; round++ {
		for target, tokens := range map[string]int64{twoPlain: 1000, twoMTP: 1270, "ramjet" + mixedLearned: 1100} {
			r.Runs = append(r.Runs, RunRecord{Round: round, Scenario: "pair-c32-256", Target: target, Result: LoadResult{Tokens: tokens, Seconds: 1}})
		}
	}
	r.Capacities = []CapacityRecord{{Engine: "a", Profile: profileMTP, BlockTokens: 800, Blocks: 100, Tokens: 80_000}, {Engine: "b", Profile: profilePlain, BlockTokens: 784, Blocks: 100, Tokens: 78_400}}
	text := mixedTable(r)
	for _, want := range []string{
		"| 32, 256 | 1000 | 1270: 1.270 x (1.270 .. 1.270) | not measured | not measured | 1100: 1.100 x (1.100 .. 1.100) | +27.0 % |",
		"a (mtp) as learnt: 100 blocks x 800 tokens = 80000 tokens.", "Together -1.0 % of two mtp engines; the published +6.9 %",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if share := 100 * (float64(plainBlock*plainBlocks+mtpBlock*mtpBlocks)/(2*mtpBlock*mtpBlocks) - 1); share < publishedCapacity-0.05 || share > publishedCapacity+0.05 {
		t.Errorf("the simulated pair holds %+.2f %%, the published one %+.1f %%", share, publishedCapacity)
	}
}

func TestParseRoutes(t *testing.T) {
	t.Parallel()
	got := parseRoutes("goos: linux\nBenchmarkPick/engines=2-2   \t  120\t      2700.5 ns/op\t 0 B/op\nBenchmarkPick/engines=2-2 99 2800 ns/op\nBenchmarkPick/engines=40 \t 7\t 22000 ns/op\nPASS\n")
	want := []RouteRecord{{"route", 2, 1, 2700.5}, {"route", 2, 2, 2800}, {"route", 40, 1, 22000}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// A benchmark that was renamed prints nothing and passes.
func TestRouteTimeNeedsAResult(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for printed, want := range map[string]int{"PASS": 0, "BenchmarkPick/engines=2 7 2700 ns/op": 1} {
		script := "#!/bin/sh\necho '" + printed + "'\n"
		if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		s := &side{bench: &bench{ctx: context.Background(), cfg: Config{Log: io.Discard}}}
		if err := s.routeTime(); (err == nil) != (want > 0) || len(s.records.Routes) != want {
			t.Errorf("%q: %v, %+v", printed, err, s.records.Routes)
		}
	}
}

// Every package that a rival needs is fixed to a version.
func TestRequirementsAreFixed(t *testing.T) {
	t.Parallel()
	for name := range routerArguments {
		text, version, err := requirementsOf(name)
		if err != nil || version == "" {
			t.Errorf("%s: %q %v", name, version, err)
		}
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' && strings.Count(line, "==") != 1 {
				t.Errorf("%s needs %q, of no fixed version", name, line)
			}
		}
	}
	if _, _, err := requirementsOf("nobody"); err == nil {
		t.Error("requirements of nobody")
	}
}

// A rival that does not start, or ends in the middle, is left out with its reason; our own binary may not be missing.
func TestSideGoesOnWithoutARival(t *testing.T) {
	t.Parallel()
	s := &side{bench: &bench{ctx: context.Background(), dir: t.TempDir(), cfg: Config{Log: io.Discard}, rng: rand.New(rand.NewPCG(1, 1))}}
	engine, err := NewEngine("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	bad := &contender{name: "bad", start: commandStarter("false {listen}", "bad")}
	gone := &contender{name: "gone", start: commandStarter("false {listen}", "gone"), reason: "cannot be had"}
	up, stop, err := s.running([]*contender{bad, gone}, []string{engine.Addr()})
	if err != nil || len(up) != 0 || !strings.Contains(bad.reason, "it ended") || gone.reason != "cannot be had" {
		t.Errorf("%d run, %v, reasons %q, %q", len(up), err, bad.reason, gone.reason)
	}
	stop()
	own := &contender{name: "own", ours: true, start: commandStarter("false {listen}", "own")}
	if _, _, err := s.running([]*contender{own}, []string{engine.Addr()}); err == nil {
		t.Error("a side-by-side without ours went on")
	}
	ended := &contender{name: "ended", target: &target{name: "ended", pids: []int{1 << 30}}}
	if err := s.lost(ended, errors.New("gone")); err != nil || ended.reason != "gone" {
		t.Errorf("%v, reason %q", err, ended.reason)
	}
	if err := s.inRounds([]*contender{ended}, nil, 1, []scenario{{name: "x"}}); err != nil {
		t.Errorf("a rival that is gone was visited: %v", err)
	}
}

// On a slow machine a part of the quick run ends early and says so, but never without a round.
func TestSideHasATime(t *testing.T) {
	t.Parallel()
	s := &side{}
	if s.late(5, 7) {
		t.Error("late without a limit")
	}
	s.due = time.Now().Add(-time.Second)
	if s.late(1, 7) || !s.late(3, 7) || s.cut != "out of time after 2 of 7 rounds" {
		t.Errorf("cut %q", s.cut)
	}
	s.due = time.Now().Add(time.Hour)
	if s.late(3, 7) {
		t.Error("late before its time")
	}
	last := time.Duration(0)
	for _, part := range []string{partStreams, partMemory, partPrompts, partCorpora, partOwner, partMixed} {
		due := quickSide(3, 9900).due[part]
		if due <= last || due > 14*time.Minute {
			t.Errorf("%s may begin rounds until %s, the part before until %s", part, due, last)
		}
		last = due
	}
}

// The quick run keeps every subject; only the dearest cells and the longest memory step are left to the full one.
func TestQuickSideKeepsTheSubjects(t *testing.T) {
	t.Parallel()
	quick, full := quickSide(3, 9900), fullSide(7, 9900)
	if len(quick.prompts) != 6 || len(full.prompts) != 6 || len(quick.corpora) != 12 || len(full.corpora) != 24 {
		t.Errorf("cells: %d, %d, %d, %d", len(quick.prompts), len(full.prompts), len(quick.corpora), len(full.corpora))
	}
	if !slices.Equal(quick.memorySteps, []int{1000}) || !slices.Equal(full.memorySteps, []int{1000, 9900}) {
		t.Errorf("memory: %v, %v", quick.memorySteps, full.memorySteps)
	}
	names := func(p sidePlan) (out []string) {
		for _, s := range p.streams {
			if !s.direct {
				t.Errorf("%s has no direct way beside it", s.name)
			}
			out = append(out, s.name)
		}
		return out
	}
	if !slices.Equal(names(quick), slices.DeleteFunc(names(full), func(n string) bool { return n == scenarioTTFTNew })) {
		t.Errorf("streams: %v", names(quick))
	}
	if quick.ownerPairs[1] < fewest || quick.ownerPairs[16] < fewest || quick.routeRounds < fewest || quick.memoryRounds < fewest {
		t.Errorf("too few rounds to tell anything: %+v", quick)
	}
}
