package fuzz

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"ramjet/gpu"
)

// slowField is the obvious reader of one figure: a regular expression, a table
// of units and a multiplication.
var slowNumber = regexp.MustCompile(`^(-?[0-9]*\.?[0-9]*)(?: +(.*))?$`)

func slowFigure(field, unit string, factors map[string]float64, least, most float64) float64 {
	m := slowNumber.FindStringSubmatch(field)
	if m == nil {
		return math.NaN()
	}
	if own := strings.TrimSpace(m[2]); own != "" {
		unit = own
	}
	v, err := strconv.ParseFloat(m[1], 64)
	factor, ok := factors[unit]
	if err != nil || !ok {
		return math.NaN()
	}
	if v *= factor; v < least || v > most {
		return math.NaN()
	}
	return v
}

func slowCount(v float64) int64 {
	if math.IsNaN(v) {
		return -1
	}
	return int64(math.Round(v))
}

// FuzzGPURow puts any text into the fields of a row under a fixed header and
// compares with the slow reader.
func FuzzGPURow(f *testing.F) {
	for _, name := range []string{"h200-pair", "mig", "absent", "units", "noise"} {
		text, err := os.ReadFile("../gpu/testdata/" + name + ".csv")
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Split(strings.TrimSpace(line), ",")
			for len(fields) < 6 {
				fields = append(fields, "[N/A]")
			}
			f.Add(fields[0], fields[1], fields[2], fields[3], fields[4], fields[5])
		}
	}
	f.Add("3", "97 %", "1.5 GiB", "688.12 W", "-5", "0x00000000000000E8")
	f.Fuzz(func(t *testing.T, index, utilization, memory, power, temperature, clock string) {
		given := []string{index, utilization, memory, power, temperature, clock}
		for i, field := range given {
			if strings.ContainsAny(field, ",\r\n") {
				return
			}
			given[i] = strings.TrimSpace(field)
		}
		var table gpu.Table
		if _, kind := table.Line("index, utilization.gpu [%], memory.used [MiB], power.draw [W], temperature.gpu, clocks.sm [MHz]"); kind != gpu.RowHeader {
			t.Fatal("the header is not understood")
		}
		s, kind := table.Line(strings.Join([]string{index, utilization, memory, power, temperature, clock}, ", "))
		if kind == gpu.RowHeader {
			return // fields that are names of columns
		}
		n, err := strconv.ParseUint(given[0], 10, 16)
		if valid := err == nil && n <= 1023; valid != (kind == gpu.RowSample) {
			t.Fatalf("index %q: kind %d", given[0], kind)
		} else if !valid {
			return
		}
		want := fmt.Sprint(
			n,
			slowFigure(given[1], "%", map[string]float64{"%": 0.01}, 0, 1),
			slowCount(slowFigure(given[2], "MiB", map[string]float64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
				"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}, 0, 1e15)),
			slowFigure(given[3], "W", map[string]float64{"mW": 1e-3, "W": 1, "kW": 1e3}, 0, 1e5),
			slowFigure(given[4], "C", map[string]float64{"C": 1, "°C": 1}, -100, 1000),
			slowCount(slowFigure(given[5], "MHz", map[string]float64{"Hz": 1, "kHz": 1e3, "KHz": 1e3, "MHz": 1e6, "GHz": 1e9}, 0, 1e11)),
		)
		if got := fmt.Sprint(s.Index, s.Utilization, s.MemoryUsedBytes, s.PowerW, s.TemperatureC, s.SMClockHz); got != want {
			t.Fatalf("%q: %s, want %s", given, got, want)
		}
	})
}

// FuzzGPUOutput reads any output whole: whatever it is, samples are within
// bounds, and reading it line by line from a header on is all the state there
// is.
func FuzzGPUOutput(f *testing.F) {
	for _, name := range []string{"h200-pair", "mig", "absent", "units", "noise"} {
		text, err := os.ReadFile("../gpu/testdata/" + name + ".csv")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		var table gpu.Table
		header := ""
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			s, kind := table.Line(line)
			if kind == gpu.RowHeader {
				header = line
				continue
			}
			var fresh gpu.Table
			if _, again := fresh.Line(header); (again == gpu.RowHeader) != (header != "") {
				t.Fatalf("%q was a header", header)
			}
			if s2, again := fresh.Line(line); again != kind || fmt.Sprint(s2) != fmt.Sprint(s) {
				t.Fatalf("%q under %q: %v then %v", line, header, s, s2)
			}
			if kind == gpu.RowSample {
				gpuBounds(t, s)
			}
		}
	})
}

// gpuBounds demands what every sample promises.
func gpuBounds(t *testing.T, s gpu.Sample) {
	t.Helper()
	ok := func(v, least, most float64) bool { return math.IsNaN(v) || v >= least && v <= most }
	if s.Index < 0 || s.Index > 1023 || !ok(s.Utilization, 0, 1) || !ok(s.PowerW, 0, 1e5) || !ok(s.PowerLimitW, 0, 1e5) || !ok(s.TemperatureC, -100, 1000) ||
		s.MemoryUsedBytes < -1 || s.MemoryTotalBytes < -1 || s.SMClockHz < -1 || s.SMClockHz > 1e11 {
		t.Fatalf("%+v", s)
	}
	known := gpu.ThrottleReasons()
	for i, word := range s.Throttle {
		if i > 0 && word == s.Throttle[i-1] || !strings.Contains(" "+strings.Join(known, " ")+" ", " "+word+" ") {
			t.Fatalf("throttle %q", s.Throttle)
		}
	}
}
