package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// metrics scrapes the admin port; a page that a scraper would refuse fails the
// test.
func (r *ramjet) metrics() *metrics {
	r.t.Helper()
	status, body := r.adminGet("/metrics")
	if status != 200 {
		r.t.Fatalf("/metrics: %d %s", status, body)
	}
	m, err := parseMetrics(body)
	if err != nil {
		r.t.Fatalf("/metrics cannot be read: %v", err)
	}
	return m
}

// engineState is an engine's state as the metrics tell it, "" when none is 1.
func (r *ramjet) engineState(name string) string {
	_, body := r.adminGet("/metrics")
	m, err := parseMetrics(body)
	if err != nil {
		return "unreadable: " + err.Error()
	}
	for _, s := range m.samples {
		if s.name == "ramjet_engine_state" && s.labels["engine"] == name && s.value == 1 {
			return s.labels["state"]
		}
	}
	return ""
}

// leases is the number of leases held on all engines.
func (m *metrics) leases() float64 { return m.sum("ramjet_leases") }

// accessLine is one line of the access log.
type accessLine map[string]any

func (a accessLine) str(key string) string { return fmt.Sprint(a[key]) }

// num returns a number of the line, -1 when it is null or absent.
func (a accessLine) num(key string) float64 {
	if f, ok := a[key].(float64); ok {
		return f
	}
	return -1
}

// accessLines returns the access lines so far: the JSON lines that have an end.
func (r *ramjet) accessLines() []accessLine {
	var lines []accessLine
	for _, text := range strings.Split(r.out.String(), "\n") {
		var a accessLine
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

// line returns the access line of a request, waiting for it.
func (r *ramjet) line(t testing.TB, id string) accessLine {
	t.Helper()
	var found accessLine
	last := poll(patience, func() string {
		for _, a := range r.accessLines() {
			if a.str("id") == id {
				found = a
				return ""
			}
		}
		return "not there"
	})
	if last != "" {
		t.Fatalf("no access line for %s within %v", id, patience)
	}
	return found
}

// ended checks how a request ended, by its access line.
func (r *ramjet) ended(t testing.TB, id string, want ...string) accessLine {
	t.Helper()
	a := r.line(t, id)
	for _, w := range want {
		if a.str("end") == w {
			return a
		}
	}
	t.Errorf("request %s ended %q, want %v; line %v", id, a.str("end"), want, a)
	return a
}

// counted checks that ramjet_requests_total counts at least n requests with the
// given code and end.
func (r *ramjet) counted(t testing.TB, n int, code, end string) {
	t.Helper()
	eventually(t, patience, "ramjet_requests_total{code="+code+",end="+end+"}", func() string {
		if got := r.metrics().sum("ramjet_requests_total", "code", code, "end", end); got != float64(n) {
			return fmt.Sprintf("is %v, want %d", got, n)
		}
		return ""
	})
}
