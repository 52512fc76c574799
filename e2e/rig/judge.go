package rig

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// JudgeRequest sends a vector to Ramjet and judges the answer and what reached
// the engine.
func JudgeRequest(t testing.TB, r *Ramjet, e *Engine, v Vector) {
	t.Helper()
	c := r.Dial(t)
	defer c.Close()
	c.Method, _, _ = strings.Cut(v.Bytes, " ")
	c.Send(v.Bytes)
	if v.Words["fin"] {
		c.CloseWrite()
	}
	got := nextAnswer(c)
	if !OneOf(got, v.Want) {
		t.Errorf("%s: got %s, want %v; sent %.300q, received %.300q", v.Rule, got, v.Want, v.Bytes, c.Raw)
	}
	if v.Words["close"] && got != "200" && !c.Gone(Patience) {
		t.Errorf("%s: the connection stays open after %s", v.Rule, got)
	}
	if got == "200" {
		judgeRest(t, c, v)
	}
	judgeUpstream(t, e, v, got)
}

// judgeRest waits for what becomes of the bytes behind the first request, so
// that the engine has it if it is to get it.
func judgeRest(t testing.TB, c *Client, v Vector) {
	t.Helper()
	var want []string
	switch {
	case v.Words["more"]:
		want = []string{"400", "404", "none"}
	case v.Words["alone"]:
		want = []string{"none"}
		c.CloseWrite()
	default:
		return
	}
	_, used, _ := ParseResponse(c.Raw, c.Method, c.Closed)
	c.Raw = c.Raw[used:]
	if second := nextAnswer(c); !OneOf(second, want) {
		t.Errorf("%s: behind the answer comes %s, want %v; received %.300q", v.Rule, second, want, c.Raw)
	}
}

// nextAnswer waits for an answer or the end of the connection and names it: its
// status, "none", or what was wrong with it.
func nextAnswer(c *Client) string {
	resp, err := c.Until(Patience, func(r *Response) bool { return r != nil && (r.Complete || r.Closed) || r == nil && c.Closed })
	switch {
	case resp != nil && err == nil:
		return strconv.Itoa(resp.Status)
	case c.Closed && len(c.Raw) == 0:
		return "none"
	}
	return fmt.Sprintf("no answer (%v)", err)
}

// OneOf reports whether a status is among those that a vector wants; the word one
// stands for 200.
func OneOf(got string, want []string) bool {
	for _, w := range want {
		if got == w || w == "one" && got == "200" {
			return true
		}
	}
	return false
}

// judgeUpstream looks at what the engine recorded.
func judgeUpstream(t testing.TB, e *Engine, v Vector, got string) {
	t.Helper()
	xs, anomalies := e.Seen()
	for _, odd := range anomalies {
		t.Errorf("%s: the engine received something malformed: %s", v.Rule, odd)
	}
	for _, x := range xs {
		if strings.Contains(string(x.Head), "smuggled") {
			t.Errorf("%s: a smuggled request reached the engine: %.300q", v.Rule, x.Head)
		}
	}
	if got != "200" || !OneOf("one", v.Want) {
		if len(xs) > 0 {
			t.Errorf("%s: refused with %s, yet the engine received %d requests, first %.300q", v.Rule, got, len(xs), xs[0].Head)
		}
		return
	}
	if len(xs) != 1 {
		t.Errorf("%s: %d requests at the engine, want exactly one", v.Rule, len(xs))
		return
	}
	x := xs[0]
	if string(x.Body) != VectorBody {
		t.Errorf("%s: the engine's body is %.200q", v.Rule, x.Body)
	}
	HopFieldsStripped(t, x)
}

// HopFieldsStripped checks that no field of the client's own hop went on
// (RFC 9110 section 7.6.1), and nothing that makes vLLM drop a body (h2c).
func HopFieldsStripped(t testing.TB, x *Exchange) {
	t.Helper()
	for _, name := range []string{"Upgrade", "HTTP2-Settings", "TE", "Trailer", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "X-Hop", "Expect"} {
		if v := x.Fields.All(name); len(v) > 0 {
			t.Errorf("%s: %q reached the engine", name, v)
		}
	}
	for _, v := range x.Fields.All("Connection") {
		if !strings.EqualFold(v, "keep-alive") && !strings.EqualFold(v, "close") {
			t.Errorf("Connection: %q reached the engine", v)
		}
	}
}

// NoAnomalies checks that the engines received nothing malformed.
func NoAnomalies(t testing.TB, engines ...*Engine) {
	t.Helper()
	for _, e := range engines {
		if _, odd := e.Seen(); len(odd) > 0 {
			t.Errorf("engine %s received: %q", e.Name, odd)
		}
	}
}
