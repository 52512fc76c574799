package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestCaseC34NamesInMetrics: no name that a client or an engine gives makes the
// metrics page unreadable or grows it.
func TestCaseC34NamesInMetrics(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	a.serveModels("m", `odd"model\one`, "new\nline")
	b.serveModels("m", `odd"model\one`)
	r := startWith(t, setup{engines: []*engine{a, b}, flags: []string{`--model.aliases=al"ias=m`}})
	odd := []string{`a"b\c`, "line\nfeed", "sep\u2028arator", strings.Repeat("x", 64<<10), "\x00", "}", `{model="m"} 1`}
	for _, name := range odd {
		r.post(t, chatPath, `{"model":`+jsonString(name)+`,"messages":[]}`)
		r.metrics() // fails on a page that cannot be read
	}
	before := len(r.metrics().samples)
	unknown := 1000
	if testing.Short() {
		unknown = 200
	}
	c := r.dial(t)
	for i := range unknown {
		c.send(request("POST", chatPath, r.id("c34"), fmt.Sprintf(`{"model":"nobody-%d","messages":[]}`, i)))
		if resp := c.response(patience); resp.status != 404 {
			t.Fatalf("an unknown model is answered %d", resp.status)
		}
	}
	m := r.metrics()
	if n := len(m.samples) - before; n > 0 {
		t.Errorf("%d unknown names made %d new series", unknown, n)
	}
	eventually(t, patience, `requests of model="unknown"`, func() string {
		if n := r.metrics().sum("ramjet_requests_total", "model", "unknown"); int(n) != unknown+len(odd) {
			return fmt.Sprintf("%v, want %d", n, unknown+len(odd))
		}
		return ""
	})
	for _, name := range []string{`odd"model\one`, "new\nline", `al"ias`} {
		if resp := r.post(t, chatPath, `{"model":`+jsonString(name)+`,"messages":[]}`); resp.status != 200 {
			t.Errorf("the served model %q is answered %d %.200q", name, resp.status, resp.body)
		}
	}
	for _, name := range []string{`odd"model\one`, "new\nline"} {
		eventually(t, patience, "the served model "+name+" as a label", func() string {
			if r.metrics().count("ramjet_requests_total", "model", name) == 0 {
				return "is not there"
			}
			return ""
		})
	}
	for _, line := range r.accessLines() {
		if line.str("status") == "" {
			t.Errorf("broken access line %v", line)
		}
	}
}
