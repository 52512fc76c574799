package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// TestB7Row08SmugglingVectors sends every vector of testdata/requests. A
// request is refused and the connection closed, or exactly one well-formed
// request reaches the engine; the byte-recording engine is the judge. One
// engine, so that nothing hides at the other.
func TestB7Row08SmugglingVectors(t *testing.T) {
	t.Parallel()
	e := newEngine(t, "a")
	r := startWith(t, setup{engines: []*engine{e}, flags: []string{"--timeouts.client-header=3s", "--limits.body=1MiB"}})
	for _, v := range readVectors(t, "requests") {
		t.Run(v.name, func(t *testing.T) {
			e.forget()
			judgeRequest(t, r, e, v)
			id := r.id(autoID + "after")
			if after := r.do(t, request("POST", chatPath, id, chatBody(false))); after.status != 200 {
				t.Errorf("the next request was answered %d %.200q", after.status, after.body)
			}
		})
	}
}

func judgeRequest(t *testing.T, r *ramjet, e *engine, v vector) {
	t.Helper()
	c := r.dial(t)
	defer c.close()
	c.method, _, _ = strings.Cut(v.bytes, " ")
	c.send(v.bytes)
	if v.words["fin"] {
		c.closeWrite()
	}
	got := firstAnswer(c)
	if !oneOf(got, v.want) {
		t.Errorf("%s: got %s, want %v; sent %.300q, received %.300q", v.rule, got, v.want, v.bytes, c.raw)
	}
	if v.words["close"] && got != "200" && !c.gone(patience) {
		t.Errorf("%s: the connection stays open after %s", v.rule, got)
	}
	judgeUpstream(t, e, v, got)
}

// firstAnswer waits for an answer or the end of the connection and names it:
// its status, "none", or what was wrong with it.
func firstAnswer(c *client) string {
	resp, err := c.until(patience, func(r *response) bool { return r != nil && (r.complete || r.closed) || r == nil && c.closed })
	switch {
	case resp != nil && err == nil:
		return strconv.Itoa(resp.status)
	case c.closed && len(c.raw) == 0:
		return "none"
	}
	return fmt.Sprintf("no answer (%v)", err)
}

func oneOf(got string, want []string) bool {
	for _, w := range want {
		if got == w || w == "one" && got == "200" {
			return true
		}
	}
	return false
}

// judgeUpstream looks at what the engine recorded.
func judgeUpstream(t *testing.T, e *engine, v vector, got string) {
	t.Helper()
	xs, anomalies := e.seen()
	for _, odd := range anomalies {
		t.Errorf("%s: the engine received something malformed: %s", v.rule, odd)
	}
	for _, x := range xs {
		if strings.Contains(string(x.head), "smuggled") {
			t.Errorf("%s: a smuggled request reached the engine: %.300q", v.rule, x.head)
		}
	}
	if got != "200" || !oneOf("one", v.want) {
		if len(xs) > 0 {
			t.Errorf("%s: refused with %s, yet the engine received %d requests, first %.300q", v.rule, got, len(xs), xs[0].head)
		}
		return
	}
	if len(xs) != 1 {
		t.Errorf("%s: %d requests at the engine, want exactly one", v.rule, len(xs))
		return
	}
	x := xs[0]
	if string(x.body) != vectorBody {
		t.Errorf("%s: the engine's body is %.200q", v.rule, x.body)
	}
	hopFieldsStripped(t, x)
}

// hopFieldsStripped checks that no field of the client's own hop went on
// (RFC 9110 section 7.6.1), and nothing that makes vLLM drop a body (h2c).
func hopFieldsStripped(t testing.TB, x *exchange) {
	t.Helper()
	for _, name := range []string{"Upgrade", "HTTP2-Settings", "TE", "Trailer", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "X-Hop", "Expect"} {
		if v := x.fields.all(name); len(v) > 0 {
			t.Errorf("%s: %q reached the engine", name, v)
		}
	}
	for _, v := range x.fields.all("Connection") {
		if !strings.EqualFold(v, "keep-alive") && !strings.EqualFold(v, "close") {
			t.Errorf("Connection: %q reached the engine", v)
		}
	}
}
