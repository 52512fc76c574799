package gpu

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata/*.want")

// show writes a sample as one line.
func show(s Sample) string {
	at := "-"
	if !s.At.IsZero() {
		at = s.At.Format("15:04:05.000")
	}
	return fmt.Sprintf("%s #%d %q %q util %.4g mem %d/%d power %.5g/%.5g temp %.4g clock %d %v",
		at, s.Index, s.UUID, s.Name, s.Utilization, s.MemoryUsedBytes, s.MemoryTotalBytes, s.PowerW, s.PowerLimitW, s.TemperatureC, s.SMClockHz, s.Throttle)
}

// table reads whole output as SMI.rows does, without its clock.
func table(text string) (samples []Sample) {
	var t Table
	for line := range strings.Lines(text) {
		if line, whole := strings.CutSuffix(line, "\n"); whole {
			if s, kind := t.Line(line); kind == RowSample {
				samples = append(samples, s)
			}
		}
	}
	return samples
}

func TestFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.*")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, name := range files {
		read := map[string]func(text string) []Sample{".csv": table, ".prom": func(text string) []Sample { return ParseDCGM([]byte(text)) }}[filepath.Ext(name)]
		if read == nil {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, s := range read(string(text)) {
			fmt.Fprintln(&got, show(s))
		}
		want := strings.TrimSuffix(name, filepath.Ext(name)) + filepath.Ext(name) + ".want"
		if *update {
			if err := os.WriteFile(want, []byte(got.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if text, err := os.ReadFile(want); err != nil || got.String() != string(text) {
			t.Errorf("%s: %v\ngot:\n%s\nwant:\n%s", name, err, got.String(), text)
		}
	}
}

// An output that ends anywhere gives the samples that were whole by then and
// no other.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"h200-pair", "units", "noise"} {
		text, err := os.ReadFile("testdata/" + name + ".csv")
		if err != nil {
			t.Fatal(err)
		}
		all := table(string(text))
		for cut := range text {
			for i, s := range table(string(text[:cut])) {
				if show(s) != show(all[i]) {
					t.Fatalf("%s cut at %d: sample %d is %s, want %s", name, cut, i, show(s), show(all[i]))
				}
			}
		}
	}
	text, err := os.ReadFile("testdata/exporter.prom")
	if err != nil {
		t.Fatal(err)
	}
	all := ParseDCGM(text)
	for cut := range text {
		for i, s := range ParseDCGM(text[:cut]) {
			// What is there is right; only the total of memory is a sum of several lines.
			for what, pair := range map[string][2]float64{"utilization": {s.Utilization, all[i].Utilization}, "power": {s.PowerW, all[i].PowerW},
				"temperature": {s.TemperatureC, all[i].TemperatureC}, "clock": {float64(s.SMClockHz), float64(all[i].SMClockHz)}} {
				if !same(pair[0], pair[1]) && !same(pair[0], math.NaN()) && pair[0] != -1 {
					t.Fatalf("cut at %d: %s is %v, want %v", cut, what, pair[0], pair[1])
				}
			}
		}
	}
}

func TestThrottleWords(t *testing.T) {
	t.Parallel()
	for mask, want := range map[uint64]string{
		0: "[]", 1: "[]", 2: "[application-clocks]", 4: "[power-cap]", 0xE8: "[hardware-slowdown thermal hardware-thermal power-brake]",
		0x111: "[sync-boost display-clocks]", 1 << 40: "[other]", 0x5 | 1<<63: "[power-cap other]",
	} {
		if got := fmt.Sprint(throttleWords(mask)); got != want {
			t.Errorf("%#x: %s, want %s", mask, got, want)
		}
	}
	if n := len(ThrottleReasons()); n != len(throttleBits)+1 {
		t.Errorf("%d words", n)
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	at := time.Unix(0, 0)
	for _, c := range []struct {
		gaps []time.Duration
		want time.Duration
	}{
		{nil, 0},
		{[]time.Duration{500}, 500},
		{[]time.Duration{500, 500, 500, 9000}, 500},
		{[]time.Duration{1000, 5000, 1000, 30000, 1000, 60000}, 1000},
		{[]time.Duration{0, -5, 700}, 700}, // a clock that goes back teaches nothing
	} {
		var p pace
		now := at
		p.tick(now)
		for _, g := range c.gaps {
			now = now.Add(g)
			p.tick(now)
		}
		if got := p.interval(); got != c.want {
			t.Errorf("%v: %d, want %d", c.gaps, got, c.want)
		}
	}
	var p pace
	for i := range 40 { // it forgets
		p.tick(at.Add(time.Duration(i * i)))
	}
	if got := p.interval(); got < 50 {
		t.Errorf("old gaps still count: %d", got)
	}
}
