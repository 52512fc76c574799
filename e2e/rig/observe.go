package rig

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Metrics scrapes the admin port; a page that a scraper would refuse fails the
// test.
func (r *Ramjet) Metrics() *Metrics {
	r.T.Helper()
	status, body := r.AdminGet("/metrics")
	if status != 200 {
		r.T.Fatalf("/metrics: %d %s", status, body)
	}
	m, err := ParseMetrics(body)
	if err != nil {
		r.T.Fatalf("/metrics cannot be read: %v", err)
	}
	return m
}

// EngineState is an engine's state as the metrics tell it, "" when none is 1.
func (r *Ramjet) EngineState(name string) string {
	_, body := r.AdminGet("/metrics")
	m, err := ParseMetrics(body)
	if err != nil {
		return "unreadable: " + err.Error()
	}
	return m.engineState(name)
}

func (m *Metrics) engineState(name string) string {
	for _, s := range m.Samples {
		if s.Name == "ramjet_engine_state" && s.Labels["engine"] == name && s.Value == 1 {
			return s.Labels["state"]
		}
	}
	return ""
}

// Leases is the number of leases held on all engines.
func (m *Metrics) Leases() float64 { return m.Sum("ramjet_leases") }

// AccessLine is one line of the access log.
type AccessLine map[string]any

// Str returns a field as text.
func (a AccessLine) Str(key string) string { return fmt.Sprint(a[key]) }

// Num returns a number of the line, -1 when it is null or absent.
func (a AccessLine) Num(key string) float64 {
	if f, ok := a[key].(float64); ok {
		return f
	}
	return -1
}

// AccessLines returns the access lines so far: the JSON lines that have an end.
func (r *Ramjet) AccessLines() []AccessLine {
	var lines []AccessLine
	for _, text := range strings.Split(r.Out.String(), "\n") {
		var a AccessLine
		if !strings.HasPrefix(text, "{") || json.Unmarshal([]byte(text), &a) != nil {
			continue
		}
		_, hasEnd := a["end"]
		_, hasID := a["id"]
		if hasEnd && hasID {
			lines = append(lines, a)
		}
	}
	return lines
}

// Line returns the access line of a request, waiting for it.
func (r *Ramjet) Line(t testing.TB, id string) AccessLine {
	t.Helper()
	var found AccessLine
	last := Poll(Patience, func() string {
		for _, a := range r.AccessLines() {
			if a.Str("id") == id {
				found = a
				return ""
			}
		}
		return "not there"
	})
	if last != "" {
		t.Fatalf("no access line for %s within %v", id, Patience)
	}
	return found
}

// Ended checks how a request ended, by its access line.
func (r *Ramjet) Ended(t testing.TB, id string, want ...string) AccessLine {
	t.Helper()
	a := r.Line(t, id)
	for _, w := range want {
		if a.Str("end") == w {
			return a
		}
	}
	t.Errorf("request %s ended %q, want %v; line %v", id, a.Str("end"), want, a)
	return a
}

// Counted checks that ramjet_requests_total counts at least n requests with the
// given code and end.
func (r *Ramjet) Counted(t testing.TB, n int, code, end string) {
	t.Helper()
	Eventually(t, Patience, "ramjet_requests_total{code="+code+",end="+end+"}", func() string {
		if got := r.Metrics().Sum("ramjet_requests_total", "code", code, "end", end); got != float64(n) {
			return fmt.Sprintf("is %v, want %d", got, n)
		}
		return ""
	})
}

// Logged reports whether one line of the log has all the words.
func (r *Ramjet) Logged(words ...string) bool { return r.LogLine(words...) != "" }

// LogLine returns the first line of the log with all the words, "" without one.
func (r *Ramjet) LogLine(words ...string) string {
	for line := range strings.Lines(r.Out.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return line
		}
	}
	return ""
}
