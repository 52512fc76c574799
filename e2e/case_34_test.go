package e2e

import (
	"fmt"
	"strings"
	"testing"

	"ramjet/e2e/rig"
)

// TestCaseC34NamesInMetrics: no name that a client or an engine gives makes the
// metrics page unreadable or grows it.
func TestCaseC34NamesInMetrics(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	a.ServeModels("m", `odd"model\one`, "new\nline")
	b.ServeModels("m", `odd"model\one`)
	r := rig.StartWith(t, rig.Setup{Engines: []*rig.Engine{a, b}, Flags: []string{`--model.aliases=al"ias=m`}})
	odd := []string{`a"b\c`, "line\nfeed", "sep\u2028arator", strings.Repeat("x", 64<<10), "\x00", "}", `{model="m"} 1`}
	for _, name := range odd {
		r.Post(t, rig.ChatPath, `{"model":`+rig.JSONString(name)+`,"messages":[]}`)
		r.Metrics() // fails on a page that cannot be read
	}
	before := len(r.Metrics().Samples)
	unknown := 1000
	if testing.Short() {
		unknown = 200
	}
	c := r.Dial(t)
	for i := range unknown {
		c.Send(rig.Request("POST", rig.ChatPath, r.ID("c34"), fmt.Sprintf(`{"model":"nobody-%d","messages":[]}`, i)))
		if resp := c.Response(rig.Patience); resp.Status != 404 {
			t.Fatalf("an unknown model is answered %d", resp.Status)
		}
	}
	m := r.Metrics()
	if n := len(m.Samples) - before; n > 0 {
		t.Errorf("%d unknown names made %d new series", unknown, n)
	}
	rig.Eventually(t, rig.Patience, `requests of model="unknown"`, func() string {
		if n := r.Metrics().Sum("ramjet_requests_total", "model", "unknown"); int(n) != unknown+len(odd) {
			return fmt.Sprintf("%v, want %d", n, unknown+len(odd))
		}
		return ""
	})
	for _, name := range []string{`odd"model\one`, "new\nline", `al"ias`} {
		if resp := r.Post(t, rig.ChatPath, `{"model":`+rig.JSONString(name)+`,"messages":[]}`); resp.Status != 200 {
			t.Errorf("the served model %q is answered %d %.200q", name, resp.Status, resp.Body)
		}
	}
	for _, name := range []string{`odd"model\one`, "new\nline"} {
		rig.Eventually(t, rig.Patience, "the served model "+name+" as a label", func() string {
			if r.Metrics().Count("ramjet_requests_total", "model", name) == 0 {
				return "is not there"
			}
			return ""
		})
	}
	for _, line := range r.AccessLines() {
		if line.Str("status") == "" {
			t.Errorf("broken access line %v", line)
		}
	}
}
