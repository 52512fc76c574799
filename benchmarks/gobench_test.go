package benchmarks

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func testdata(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestParseBench(t *testing.T) {
	t.Parallel()
	cases := []struct {
		file  string
		procs int
		want  []BenchRecord
	}{
		{"bench-index.txt", 2, []BenchRecord{
			{Name: "BenchmarkIndexWriteTwo", N: 2, Metrics: map[string]float64{"ns/op": 182345678, "calibrations/operation": 0.0008125, "Mops/s": 11.25, "Mops/cpu-s": 6.125}},
			{Name: "BenchmarkIndexFull", N: 410, Metrics: map[string]float64{"ns/op": 254321, "calibrations/operation": 0.0011, "Mops/s": 7.864, "Mops/cpu-s": 7.864, "B/op": 0, "allocs/op": 0}},
			{Name: "BenchmarkIndexMatchBesideWrites/of=other-prompts", N: 12, Metrics: map[string]float64{"ns/op": 21345678, "ns/read-beside-others": 18543, "ns/read-beside-writes": 18001, "ratio": 0.9708}},
			{Name: "BenchmarkIndexMatchBesideWrites/of=the-same-prompt", N: 10, Metrics: map[string]float64{"ns/op": 23345678, "ns/read-beside-others": 18543, "ns/read-beside-writes": 23550, "ratio": 1.27}},
		}},
		{"bench-encode.txt", 1, []BenchRecord{
			{Name: "BenchmarkEncode/qwen3/english", N: 3, Metrics: map[string]float64{"ns/op": 41234567, "MB/s": 23.51, "ns/token": 195.2, "B/op": 0, "allocs/op": 0}},
			{Name: "BenchmarkEncode/qwen3/code", N: 2, Metrics: map[string]float64{"ns/op": 98765432, "MB/s": 18.2, "ns/token": 171, "B/op": 0, "allocs/op": 0}},
		}},
	}
	for _, c := range cases {
		got := parseBench(testdata(t, c.file), c.procs)
		if !slices.EqualFunc(got, c.want, func(a, b BenchRecord) bool {
			return a.Kind == "bench" && a.Name == b.Name && a.N == b.N && maps.Equal(a.Metrics, b.Metrics)
		}) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", c.file, got, c.want)
		}
	}
}

// A name may end in a number of its own: only that of the processors is none of it.
func TestParseBenchKeepsTheName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		procs      int
	}{
		{"BenchmarkX/size-2", "BenchmarkX/size-2", 1}, {"BenchmarkX/size-2-2", "BenchmarkX/size-2", 2},
		{"BenchmarkX/engines=2-2", "BenchmarkX/engines=2", 2}, {"BenchmarkX/size-16", "BenchmarkX/size-16", 2},
	} {
		if got := parseBench(c.name+" 1 5 ns/op\n", c.procs); len(got) != 1 || got[0].Name != c.want {
			t.Errorf("%s on %d: %+v, want %s", c.name, c.procs, got, c.want)
		}
	}
}

func TestParseIndexTest(t *testing.T) {
	t.Parallel()
	want := map[string]float64{"blocks": 1004950, bytesCounted: 27.3, bytesOnHeap: 27.9, bytesAtWorst: 41.5, bytesAtMost: 41.5}
	if got := parseIndexTest(testdata(t, "index-small.txt")); len(got) != 1 || got[0].Name != indexTest || !maps.Equal(got[0].Metrics, want) {
		t.Errorf("%+v", got)
	}
	if got := parseIndexTest("--- PASS: TestIndexIsSmall (0.81s)\n"); got != nil {
		t.Errorf("a figure out of nothing: %+v", got)
	}
}

// The rate and the time in calibrations are those of one operation: 11.25 million a second are 88.9 ns, 0.0008125 of 109.4 us.
func TestCalibrationMicros(t *testing.T) {
	t.Parallel()
	list := parseBench(testdata(t, "bench-index.txt"), 2)
	if got, ok := calibrationMicros(list[0]); !ok || got < 109.3 || got > 109.5 {
		t.Errorf("%.2f us, %v", got, ok)
	}
	if got, ok := calibrationMicros(list[2]); ok {
		t.Errorf("%.2f us of a benchmark without a calibration", got)
	}
}

func TestParseTop(t *testing.T) {
	t.Parallel()
	total, got := parseTop(testdata(t, "pprof-top.txt"))
	want := []FunctionShare{
		{"ramjet/tokens.(*BPE).appendPart", "1.02s", 33.01}, {"ramjet/tokens.(*vocab).id", "0.61s", 19.74},
		{"ramjet/tokens.split[go.shape.struct { ramjet/tokens.a int }]", "440.50ms", 14.26}, {"testing.(*B).launch", "0", 0},
	}
	if total != "3.09s" || !slices.Equal(got, want) {
		t.Errorf("%s\ngot  %+v\nwant %+v", total, got, want)
	}
	if total, got := parseTop("Showing nodes accounting for 0, 0% of 0 total\n      flat  flat%   sum%        cum   cum%\n"); total != "0" || got != nil {
		t.Errorf("%s, %+v of an empty profile", total, got)
	}
}
