package benchmarks

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// BenchRecord is one result of one of the product's own Go benchmarks, or of a test that prints a figure.
type BenchRecord struct {
	Kind    string             `json:"kind"`  // "bench"
	Part    string             `json:"part"`  // what it was run for
	Build   string             `json:"build"` // what the compiler was told: pgoOff or pgoFile
	Package string             `json:"package"`
	Name    string             `json:"name"` // without the number of processors
	Round   int                `json:"round"`
	N       int                `json:"n,omitempty"`
	Others  float64            `json:"others"`  // what other processes had of the machine meanwhile
	Metrics map[string]float64 `json:"metrics"` // by the unit that go test prints
}

// parseBench reads the lines of a Go benchmark on so many processors, whose number go test puts behind each name unless
// it is one:
//
//	BenchmarkName/case-2   123   456 ns/op   78.9 MB/s
func parseBench(out string, procs int) (list []BenchRecord) {
	suffix := ""
	if procs != 1 {
		suffix = "-" + strconv.Itoa(procs)
	}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 4 || len(f)%2 != 0 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		n, err := strconv.Atoi(f[1])
		if err != nil {
			continue
		}
		metrics := make(map[string]float64)
		for i := 2; i < len(f); i += 2 {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				metrics = nil
				break
			}
			metrics[f[i+1]] = v
		}
		if metrics != nil {
			list = append(list, BenchRecord{Kind: "bench", Name: strings.TrimSuffix(f[0], suffix), N: n, Metrics: metrics})
		}
	}
	return list
}

// Metrics of the test that says what the index takes; the last is the greatest of the others.
const (
	indexTest      = "TestIndexIsSmall"
	bytesCounted   = "B/block by count"
	bytesOnHeap    = "B/block by the heap"
	bytesAtWorst   = "B/block just grown"
	bytesAtMost    = "B/block"
	indexTestWords = `(\d+) blocks on \d+ edges; ([\d.]+) bytes a block by count, ([\d.]+) by the heap, ([\d.]+) at worst`
)

var indexTestLine = regexp.MustCompile(indexTestWords)

// parseIndexTest reads what the test of the index's size prints.
func parseIndexTest(out string) (list []BenchRecord) {
	m := indexTestLine.FindStringSubmatch(out)
	if m == nil {
		return nil
	}
	v := make([]float64, len(m))
	for i := 1; i < len(m); i++ {
		var err error
		if v[i], err = strconv.ParseFloat(m[i], 64); err != nil {
			return nil
		}
	}
	return []BenchRecord{{Kind: "bench", Name: indexTest, Metrics: map[string]float64{
		"blocks": v[1], bytesCounted: v[2], bytesOnHeap: v[3], bytesAtWorst: v[4], bytesAtMost: max(v[2], v[3], v[4]),
	}}}
}

// calibrationMicros is what xxh3 of 1 MiB cost in the process of a benchmark that ran it: such a benchmark prints the
// time of its operation both as a rate and in calibrations.
func calibrationMicros(r BenchRecord) (float64, bool) {
	rate, each := r.Metrics["Mops/s"], r.Metrics["calibrations/operation"]
	if rate <= 0 || each <= 0 {
		return 0, false
	}
	return 1 / rate / each, true
}

// alone is the pattern of go test's -bench that matches one benchmark and no other.
func alone(name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = "^" + regexp.QuoteMeta(parts[i]) + "$"
	}
	return strings.Join(parts, "/")
}

// goRun is one process of go test in one package.
type goRun struct {
	pkg   string // its folder
	bench string // pattern of -bench; empty with a test
	test  string // pattern of -run, for a figure that a test prints
	procs int
}

// key identifies r among all runs.
func (r goRun) key() string { return r.pkg + " " + r.bench + r.test }

// arguments are those of a built test binary, which is what go test itself starts.
func (r goRun) arguments(each string, extra ...string) []string {
	args := []string{"-test.count=1", "-test.timeout=10m", "-test.cpu=" + strconv.Itoa(r.procs)}
	if r.test != "" {
		args = append(args, "-test.v", "-test.run="+r.test)
	} else {
		args = append(args, "-test.run=^$", "-test.bench="+r.bench, "-test.benchtime="+each)
	}
	return append(args, extra...)
}

// typed is the command that repeats r once.
func (r goRun) typed(each string) string {
	if r.test != "" {
		return fmt.Sprintf("go test ./%s -count 1 -v -run '%s' -cpu %d -pgo %s", r.pkg, r.test, r.procs, pgoFile)
	}
	return fmt.Sprintf("go test ./%s -run '^$' -bench '%s' -benchtime %s -cpu %d -pgo %s", r.pkg, r.bench, each, r.procs, pgoFile)
}

// parse reads what r printed.
func (r goRun) parse(out string) []BenchRecord {
	if r.test != "" {
		return parseIndexTest(out)
	}
	return parseBench(out, r.procs)
}
