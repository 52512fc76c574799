package fuzz

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ramjet/gpu"
)

// The slow twin: one regular expression for a metric, one for its labels, and
// a sort for everything that is asked.
var (
	slowMetric = regexp.MustCompile(`^([A-Za-z_:][A-Za-z0-9_:]*)\{((?:[ \t,]*[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\]|\\.)*")*)[ \t,]*\}[ \t]*([^ ]+)`)
	slowLabel  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"`)
)

var slowMost = map[string]float64{
	"DCGM_FI_DEV_GPU_UTIL": 100, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1, "DCGM_FI_DEV_FB_USED": 1e9, "DCGM_FI_DEV_POWER_USAGE": 1e5,
	"DCGM_FI_DEV_GPU_TEMP": 1000, "DCGM_FI_DEV_SM_CLOCK": 1e5,
}

// slowDCGM returns, for each GPU and instance, the last value of each metric
// of slowMost; ok is false where the text leaves the plain form that the twin
// knows, so that only sanity can be asked of the parser.
func slowDCGM(text string) (values map[[3]string]map[string]float64, ok bool) {
	values = map[[3]string]map[string]float64{}
	for line := range strings.Lines(text) {
		line, whole := strings.CutSuffix(line, "\n")
		if !whole {
			continue
		}
		line = strings.TrimSpace(line)
		m := slowMetric.FindStringSubmatch(line)
		if m == nil {
			if strings.HasPrefix(line, "DCGM_FI_") {
				return nil, false // odd labels: the parser is free to read or to refuse
			}
			continue
		}
		most, known := slowMost[m[1]]
		if !known {
			if strings.HasPrefix(m[1], "DCGM_FI_") {
				return nil, false
			}
			continue
		}
		key := [3]string{}
		for _, l := range slowLabel.FindAllStringSubmatch(m[2], -1) {
			value := regexp.MustCompile(`(?s)\\(.)`).ReplaceAllStringFunc(l[2], func(s string) string {
				if s == `\n` {
					return "\n"
				}
				return s[1:]
			})
			switch l[1] {
			case "gpu":
				if n, err := strconv.ParseUint(value, 10, 16); err == nil && n <= 1023 {
					key[0] = strconv.FormatUint(n, 10)
				}
			case "UUID", "uuid":
				key[1] = value
			case "GPU_I_ID":
				key[2] = value
			}
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if key[0] == "" || err != nil {
			continue
		}
		if !(v >= 0 && v <= most) {
			v = math.NaN()
		}
		if values[key] == nil {
			values[key] = map[string]float64{}
		}
		values[key][m[1]] = v
	}
	return values, len(values) < 500
}

// slowMerge is the value of a GPU: of the whole device if it has one, else the
// most, or the sum, of its instances.
func slowMerge(values map[[3]string]map[string]float64, gpu [2]string, metric string, add bool) float64 {
	got := math.NaN()
	var instances []float64
	for key, v := range values {
		if key[0] != gpu[0] || key[1] != gpu[1] {
			continue
		}
		x, given := v[metric]
		if !given || math.IsNaN(x) {
			continue
		}
		if key[2] == "" {
			return x
		}
		instances = append(instances, x)
	}
	slices.Sort(instances)
	for _, x := range instances {
		switch {
		case add && !math.IsNaN(got):
			got += x
		default:
			got = x
		}
	}
	return got
}

// FuzzDCGM compares the parser with its twin.
func FuzzDCGM(f *testing.F) {
	for _, name := range []string{"exporter", "mig", "blanks", "noise"} {
		text, err := os.ReadFile("../gpu/testdata/" + name + ".prom")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
		for line := range strings.Lines(string(text)) {
			f.Add(line)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		samples := gpu.ParseDCGM([]byte(text))
		for i, s := range samples {
			gpuBounds(t, s)
			if i > 0 && (s.Index < samples[i-1].Index || s.Index == samples[i-1].Index && s.UUID == samples[i-1].UUID) {
				t.Fatalf("%+v after %+v", s, samples[i-1])
			}
		}
		values, plain := slowDCGM(text)
		if !plain {
			return
		}
		gpus := map[[2]string]bool{}
		for key := range values {
			gpus[[2]string{key[0], key[1]}] = true
		}
		if len(gpus) != len(samples) {
			t.Fatalf("%d GPUs, want %d", len(samples), len(gpus))
		}
		for _, s := range samples {
			g := [2]string{strconv.Itoa(s.Index), s.UUID}
			if !gpus[g] {
				t.Fatalf("GPU %q is not in the text", g)
			}
			utilization := slowMerge(values, g, "DCGM_FI_DEV_GPU_UTIL", false) / 100
			if math.IsNaN(utilization) {
				utilization = slowMerge(values, g, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", false)
			}
			used := slowMerge(values, g, "DCGM_FI_DEV_FB_USED", true) * (1 << 20)
			if used > 1e15 {
				used = math.NaN()
			}
			want := fmt.Sprint(utilization, slowMerge(values, g, "DCGM_FI_DEV_POWER_USAGE", false), slowMerge(values, g, "DCGM_FI_DEV_GPU_TEMP", false),
				slowCount(slowMerge(values, g, "DCGM_FI_DEV_SM_CLOCK", false)*1e6))
			if got := fmt.Sprint(s.Utilization, s.PowerW, s.TemperatureC, s.SMClockHz); got != want {
				t.Fatalf("GPU %q: %s, want %s", g, got, want)
			}
			// Sums of fractions depend on their order; a byte more or less is none.
			if math.Abs(float64(s.MemoryUsedBytes)-float64(slowCount(used))) > 1 {
				t.Fatalf("GPU %q: %d bytes, want %d", g, s.MemoryUsedBytes, slowCount(used))
			}
		}
	})
}
