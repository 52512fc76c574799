package benchmarks

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sample makes seven rounds in which the candidate's CPU is factor x nginx's and its delays are added + 100 us.
func sample(factor float64, added int64) Records {
	r := Records{Meta: Meta{Candidate: "ramjet", Rounds: 7}}
	for round := 1; round <= 7; round++ {
		for _, sc := range fullPlan(7, 9900).scenarios {
			for _, target := range []string{Direct, Nginx, "ramjet"} {
				cpu, delay := int64(0), int64(50_000)
				switch target {
				case Nginx:
					cpu, delay = 1_000_000+int64(round), 150_000
				case "ramjet":
					cpu, delay = int64(factor*float64(1_000_000+round)), 150_000+added*1000
				}
				q := Quantiles{N: 10, P50: delay, P99: 2 * delay}
				r.Runs = append(r.Runs, RunRecord{Round: round, Scenario: sc.name, Target: target, CPUNanos: cpu,
					Result: LoadResult{Requests: 10, Tokens: 100, TTFT: q, OneWay: q}})
			}
		}
	}
	for n, target := range []string{Nginx, "ramjet", Nginx, "ramjet", Nginx, "ramjet"} {
		i, round := n%2, n/2+1
		r.Idle = append(r.Idle, IdleRecord{Target: target, Seconds: 2, CPUNanos: int64(i) * 1_000_000})
		r.Syscalls = append(r.Syscalls, SyscallRecord{Target: target, PerToken: map[string]float64{"read": 2, "write": 1, "futex": 0.01}})
		r.Memory = append(r.Memory,
			MemoryRecord{Target: target, Round: round, Streams: HoldReport{Want: 1000, Live: 1000}, BaseBytes: 10e6, RSSBytes: 29e6},
			MemoryRecord{Target: target, Round: round, Streams: HoldReport{Want: 9900, Live: 9900}, BaseBytes: 10e6, RSSBytes: 10e6 + 9900*17_000})
	}
	return r
}

func verdicts(r Records) map[string]Figure {
	out := make(map[string]Figure)
	for _, f := range figures(r) {
		out[f.What] = f
	}
	return out
}

func TestFigures(t *testing.T) {
	t.Parallel()
	good := verdicts(sample(1.1, 20))
	for what, f := range good {
		if f.Bound != "shown" && !strings.HasPrefix(f.Bound, "aim") && f.Verdict != Met {
			t.Errorf("%s: %+v", what, f)
		}
	}
	if f := good["CPU per streamed token, c16"]; f.Compared != "1.10 x (1.10 .. 1.10)" || f.Reference != "10.0 us" || f.Candidate != "11.0 us" {
		t.Errorf("%+v", f)
	}
	if f := good["added TTFT p50, c16, reused connections"]; f.Compared != "1.20 x" || !strings.HasPrefix(f.Candidate, "+120 us") {
		t.Errorf("%+v", f)
	}
	if f := good["resident memory per open stream, 9900 streams"]; f.Candidate != "17.0 KB (17.0 .. 17.0), 178.3 MB in all" || f.Compared != "1.00 x (1.00 .. 1.00)" || f.Bound != "<= 20 KB" {
		t.Errorf("%+v", f)
	}
	bad := verdicts(sample(1.6, 300))
	for _, what := range []string{
		"CPU per streamed token, c1", "CPU per streamed token, c16", "CPU per streamed token, c64", "CPU per short request, c32",
		"added TTFT p50, c16, reused connections", "added one-way token delay p50, c16", "added one-way token delay p99, c64",
	} {
		if f := bad[what]; f.Verdict != NotMet {
			t.Errorf("%s: %+v", what, f)
		}
	}
}

func TestFiguresFailWithTheRequests(t *testing.T) {
	t.Parallel()
	r := sample(0.5, 0)
	r.Runs[len(r.Runs)-1].Result = LoadResult{Requests: 10, Errors: 1, FirstError: "event 3 differs"}
	r.Memory[len(r.Memory)-1].Streams = HoldReport{Want: 9900, Live: 9000, Errors: 900, First: "status 429"}
	got := verdicts(r)
	if f := got["CPU per short request, c32"]; f.Verdict != NotMet || !strings.Contains(f.Note, "event 3 differs") {
		t.Errorf("%+v", f)
	}
	if f := got["resident memory per open stream, 9900 streams"]; f.Verdict != NotMet || !strings.Contains(f.Note, "429") {
		t.Errorf("%+v", f)
	}
}

// The reference's failures decide nothing, in either direction.
func TestFiguresNeedTheReference(t *testing.T) {
	t.Parallel()
	for factor, target := range map[float64]string{0.5: Nginx, 1.6: Nginx, 1.1: Direct} {
		r := sample(factor, 20)
		for i := range r.Runs {
			if x := &r.Runs[i]; x.Target == target && x.Round == 3 {
				x.Result.Errors, x.Result.FirstError = 1, "status 502"
			}
		}
		got := verdicts(r)
		for what, of := range map[string]string{"CPU per streamed token, c16": Nginx, "added one-way token delay p50, c16": ""} {
			f := got[what]
			if want := of == "" || of == target; (f.Verdict == NotSeparable) != want || strings.Contains(f.Note, "502") != want {
				t.Errorf("%g x, %s failed: %+v", factor, target, f)
			}
		}
	}
}

// A bound that nobody looked at stands in the report with its reason.
func TestUnmeasuredBoundsStay(t *testing.T) {
	t.Parallel()
	r := sample(1.1, 20)
	all := len(figures(r))
	r.Idle, r.Syscalls, r.Memory = nil, nil, nil
	r.Runs = slices.DeleteFunc(r.Runs, func(x RunRecord) bool { return x.Scenario == scenarioC64 })
	r.Parts = []PartRecord{{Name: partSyscalls, Error: "no strace"}, {Name: partMemory, Error: "few descriptors"}}
	got := verdicts(r)
	if len(got) != all-1 { // that of 1000 streams has no bound
		t.Errorf("%d lines of %d", len(got), all)
	}
	for what, want := range map[string][2]string{
		"system calls per token, c1, less the idle process's": {"<= 5", "no strace"}, "of these futex and nanosleep": {"<= 0.05", "no strace"},
		"resident memory per open stream, 9900 streams": {"<= 20 KB", "few descriptors"}, "CPU of the idle process, of one core": {"<= 0.1 %, a goal, not the design's", "not a part of this call"},
		"CPU per streamed token, c64": {"<= 1.25 x, aim below 1.0", "not a part of this call"}, "added one-way token delay p99, c64": {"<= 3 x nginx's", "not a part of this call"},
	} {
		if f := got[what]; f.Verdict != NotMeasured || f.Bound != want[0] || f.Note != want[1] {
			t.Errorf("%s: %+v", what, f)
		}
	}
	if text := others(r); strings.Contains(text, string(NotMeasured)) {
		t.Errorf("others: %s", text)
	}
}

// Without strace, or with few descriptors, the reason goes to the records.
func TestPartsThatCannotBeMeasured(t *testing.T) {
	t.Parallel()
	b := &bench{ctx: context.Background(), cfg: Config{Log: io.Discard}, untraced: errors.New("no strace"), files: 300, plan: fullPlan(7, 50)}
	b.plan.memorySteps = nil
	if err := errors.Join(b.syscalls(nil), b.memory()); err != nil {
		t.Fatal(err)
	}
	p := b.records.Parts
	if len(p) != 2 || p[0].Name != partSyscalls || p[0].Error != "no strace" || p[1].Name != partMemory || !strings.Contains(p[1].Error, "300") {
		t.Errorf("%+v", p)
	}
	s := &side{bench: b}
	if err := s.memory(); err == nil {
		t.Error("a side-by-side without room for streams measured memory")
	}
}

// A proxy that the tracer slows down puts tokens together; its few calls per token are no achievement.
func TestSyscallFigureNeedsThePace(t *testing.T) {
	t.Parallel()
	r := sample(1, 0)
	r.Syscalls[1].PerToken = map[string]float64{"read": 0.5, "write": 0.46} // of three windows
	if f := verdicts(r)["system calls per token, c1, less the idle process's"]; f.Verdict != NotSeparable || f.Note == "" {
		t.Errorf("%+v", f)
	}
	for i := range r.Syscalls {
		r.Syscalls[i].PerToken = map[string]float64{"read": 5, "write": 0.46}
	}
	if f := verdicts(r)["system calls per token, c1, less the idle process's"]; f.Verdict != NotMet {
		t.Errorf("%+v", f)
	}
}

// What an idle process uses is taken out of a token by time, from each proxy its own, and is judged by every window.
func TestIdleFigures(t *testing.T) {
	t.Parallel()
	r := sample(1.1, 0)
	for i := range r.Runs {
		r.Runs[i].Result.Seconds = 0.2
	}
	got := verdicts(r)
	if f := got["CPU per streamed token, c1, less the idle process's"]; f.Reference != "10.0 us" || f.Candidate != "10.0 us" || f.Verdict != "" {
		t.Errorf("%+v", f)
	}
	if f := got["CPU of the idle process, of one core"]; f.Reference != "0.000 %" || f.Candidate != "0.050 % (0.050 .. 0.050)" || f.Compared != "-" || f.Verdict != Met {
		t.Errorf("%+v", f)
	}
	r.Idle = append(r.Idle, IdleRecord{Target: "ramjet", Seconds: 1, CPUNanos: 1_100_000}, IdleRecord{Target: "ramjet", Seconds: 1})
	if f := verdicts(r)["CPU of the idle process, of one core"]; f.Verdict != NotSeparable || !strings.HasSuffix(f.Candidate, "(0.000 .. 0.110)") {
		t.Errorf("%+v", f)
	}
}

// Where nginx's own cost drowns in noise, a multiple of it says nothing.
func TestAddedFigureWithoutAReference(t *testing.T) {
	t.Parallel()
	r := sample(1, 0)
	for i := range r.Runs {
		if r.Runs[i].Target == Direct {
			r.Runs[i].Result.OneWay.P50 = 200_000
		}
	}
	if f := verdicts(r)["added one-way token delay p50, c16"]; f.Verdict != NotSeparable {
		t.Errorf("%+v", f)
	}
}

func TestReportStandsInItsSection(t *testing.T) {
	t.Parallel()
	r := sample(1.1, 20)
	r.Meta.Command = "go run x"
	text := report(r, figures(r))
	for _, want := range []string{"`go run x`", "| CPU per streamed token, c64 | 10.0 us | 11.0 us | 1.10 x (1.10 .. 1.10) | <= 1.25 x, aim below 1.0 | met |", "Direct way, absolute"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	name := filepath.Join(t.TempDir(), "RESULTS.md")
	for _, step := range []struct{ section, body string }{{"a", "one"}, {"b", "two"}, {"a", "three"}} {
		if err := WriteSection(name, step.section, step.body); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(name)
	want := resultsTitle + "\n<!-- begin a -->\nthree\n<!-- end a -->\n\n<!-- begin b -->\ntwo\n<!-- end b -->\n"
	if err != nil || string(b) != want {
		t.Errorf("%v\ngot  %q\nwant %q", err, b, want)
	}
	raw := filepath.Join(t.TempDir(), "results", "x.jsonl")
	if err := r.write(raw); err != nil {
		t.Fatal(err)
	}
	b, err = os.ReadFile(raw)
	if n := strings.Count(string(b), "\n"); err != nil || n != 1+len(r.Runs)+len(r.Idle)+len(r.Syscalls)+len(r.Memory) {
		t.Errorf("%d lines, %v", n, err)
	}
}

// A round has turns of a few seconds, and every turn is a pair of its own.
func TestOneStreamIsMeasuredInTurns(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]plan{"full": fullPlan(7, 9900), "quick": quickPlan(3, 9900)} {
		sc := p.scenarios[0]
		pairs := make(map[int]bool)
		for round := 1; round <= p.rounds; round++ {
			for turn := range sc.turns {
				pairs[sc.pair(round, turn)] = true
			}
		}
		if sc.name != scenarioC1 || len(pairs) != sc.turns*p.rounds || sc.turns < 4 || sc.spec.Requests > 1 {
			t.Errorf("%s: %d pairs of %d requests in %d rounds", name, len(pairs), sc.spec.Requests, p.rounds)
		}
		if other := p.scenarios[1]; other.pair(3, 0) != 3 {
			t.Errorf("%s: round 3 is pair %d", name, other.pair(3, 0))
		}
	}
}
