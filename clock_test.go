package main

import (
	"os"
	"strings"
	"testing"
)

// Times by the wall clock, and why they are no intervals. A jump of the clock
// (row 47 of the fault table) must neither eject an engine nor stop anything;
// time.Time compares by the monotonic clock, a Unix time cannot.
var byTheWall = map[string]string{
	"telemetry/stamp.go":       "the time of a record, for people",
	"telemetry/metrics.go":     "the time of a reload, for people",
	"tokens/source.go":         "the date in a prompt",
	"kvevents/apply.go":        "compared with an engine's stamp; jumps since the connection came are taken out",
	"telemetry/access_json.go": "the second that a line shows, for people",
	"gpu/ring.go":              "places on a time axis, for people",
	"proxy/explain.go":         "the time of a record, for people",
	"proxy/conn.go":            "a deadline long past",
	"engine/conn.go":           "a deadline long past",
	"tokens/template.go":       "the date in a prompt",
	"tokens/template_probe.go": "the date in a prompt",
}

// TestB7Row47IntervalsAreMonotonic finds Unix times outside of what is shown to people.
func TestB7Row47IntervalsAreMonotonic(t *testing.T) {
	for _, s := range sources(t) {
		dir, _, _ := strings.Cut(s.path, "/")
		if strings.HasSuffix(s.path, "_test.go") || dir == "sim" || dir == "e2e" || dir == "benchmarks" || byTheWall[s.path] != "" {
			continue
		}
		text, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, call := range []string{".UnixNano()", ".UnixMicro()", ".UnixMilli()", ".Unix()", "time.Unix("} {
				if strings.Contains(line, call) {
					t.Errorf("%s:%d: %s: an interval by it jumps with the wall clock; keep a time.Time, or the time since one", s.path, i+1, call)
				}
			}
		}
	}
}
