package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// TestStateDrain: a drained engine gets nothing new, what runs there runs on,
// and whatever happens to it, it stays drained until an operator says ready.
func TestStateDrain(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Settings("--route.policy=round-robin")...)
	a.On(rig.TokensFor(1500 * time.Millisecond))
	b.On(rig.TokensFor(1500 * time.Millisecond))
	cs := rig.Streams(t, r, 4)
	a.On(nil)
	b.On(nil)
	r.Orders(t, "b", "drain", "draining")
	r.Is(t, rig.Patience, "b", "draining")
	before := len(b.ByIDPrefix("drained"))
	for i := range 6 {
		id := r.ID("drained")
		if resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(i%2 == 0))); resp.Status != 200 || resp.Fields.Get("X-Ramjet-Engine") != "a" {
			t.Errorf("while b drains: %d by %q", resp.Status, resp.Fields.Get("X-Ramjet-Engine"))
		}
	}
	if n := len(b.ByIDPrefix("drained")); n != before {
		t.Errorf("a draining engine got %d requests", n-before)
	}
	for i, c := range cs {
		if resp := c.Response(2 * rig.Patience); !resp.Complete || !strings.HasSuffix(string(resp.Body), rig.DoneEvent) {
			t.Errorf("stream %d was cut by the drain", i)
		}
	}
	b.Down()
	r.Stays(t, 500*time.Millisecond, "b", "draining")
	b.Up(t)
	r.Stays(t, 300*time.Millisecond, "b", "draining")
	r.Orders(t, "b", "ready", "slow-start")
	r.Went(t, rig.Patience, "b", "ready", "draining", "slow-start", "ready")
	on := len(b.ByIDPrefix("again"))
	for range 4 {
		r.Do(t, rig.Request("POST", rig.ChatPath, r.ID("again"), rig.ChatBody(false)))
	}
	if n := len(b.ByIDPrefix("again")); n-on != 2 {
		t.Errorf("b got %d of 4 requests after its drain, want 2", n-on)
	}
}

// TestStateAllDrained: an operator's word counts even for the last engine: a
// drained one is not failed open to.
func TestStateAllDrained(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Swift...)
	r.Orders(t, "a", "drain", "draining")
	r.Orders(t, "b", "drain", "draining")
	resp := r.Post(t, rig.ChatPath, rig.ChatBody(false))
	if resp.Status != 503 || resp.Code() != "no_engine" || resp.Fields.Get("Retry-After") != "5" {
		t.Errorf("all drained: %d %q Retry-After %q", resp.Status, resp.Code(), resp.Fields.Get("Retry-After"))
	}
	status, body := r.AdminGet("/readyz")
	if status != 503 || !strings.Contains(body, "draining") {
		t.Errorf("/readyz %d %s", status, body)
	}
	if resp := r.Do(t, rig.Request("GET", "/health", r.ID("health"), "", "Connection: close")); resp.Status != 503 || !strings.Contains(string(resp.Body), `"unhealthy"`) {
		t.Errorf("/health %d %s", resp.Status, resp.Body)
	}
	if n := len(a.ByIDPrefix("t-")) + len(b.ByIDPrefix("t-")); n != 0 {
		t.Errorf("%d requests reached a drained engine", n)
	}
	r.Orders(t, "a", "ready", "slow-start")
	r.Orders(t, "b", "ready", "slow-start")
}

// TestStateEject: an operator's ejection lasts for the longest one, then the
// engine starts slowly; ready ends it before.
func TestStateEject(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Settings("--eject.max=6s")...)
	r.Orders(t, "b", "eject", "ejected")
	r.Is(t, rig.Patience, "b", "ejected")
	for range 4 {
		if resp := r.Post(t, rig.ChatPath, rig.ChatBody(false)); resp.Status != 200 || resp.Fields.Get("X-Ramjet-Engine") != "a" {
			t.Errorf("while b is ejected: %d by %q", resp.Status, resp.Fields.Get("X-Ramjet-Engine"))
		}
	}
	if n := r.Metrics().Sum("ramjet_ejections_total", "engine", "b", "reason", "operator"); n != 1 {
		t.Errorf("%v ejections by an operator counted", n)
	}
	list := r.Went(t, 4*rig.Patience, "b", "ready", "ejected", "slow-start", "ready")
	if d := list[2].Time.Sub(list[1].Time); d < 5900*time.Millisecond || d > 20*time.Second {
		t.Errorf("it was ejected for %v, want 6 s", d)
	}
	r.Orders(t, "b", "eject", "ejected")
	r.Orders(t, "b", "ready", "slow-start")
	r.Went(t, rig.Patience, "b", "ready", "ejected", "slow-start", "ready", "ejected", "slow-start", "ready")
}

// TestStateOrdersRefused: who may not give an order, and for what.
func TestStateOrdersRefused(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Swift...)
	for _, order := range []string{"drain", "ready", "eject"} {
		path := "/api/v1/engines/b/" + order
		for _, c := range []struct {
			what, method, path string
			headers            []string
			status             int
		}{
			{"a foreign host", "POST", path, []string{"Host: ramjet.example.com"}, 421},
			{"a foreign host with the port", "POST", path, []string{"Host: evil.example:9900"}, 421},
			{"a foreign origin", "POST", path, []string{"Origin: http://evil.example"}, 403},
			{"a foreign page without an origin", "POST", path, []string{"Sec-Fetch-Site: cross-site"}, 403},
			{"an opaque origin", "POST", path, []string{"Origin: null"}, 403},
			{"GET", "GET", path, nil, 405},
			{"DELETE", "DELETE", path, nil, 405},
			{"an unknown engine", "POST", "/api/v1/engines/nobody/" + order, nil, 404},
			{"an unknown order", "POST", path + "x", nil, 404},
		} {
			status, body := r.Order(t, c.method, c.path, c.headers...)
			_, e, ok := rig.ParseAPIError(body)
			if status != c.status || !ok || e.Message == "" || e.Type == "" || fmt.Sprint(e.Code) == "" {
				t.Errorf("%s, %s: %d %.300s, want %d and an error body", order, c.what, status, body, c.status)
			}
		}
	}
	for _, name := range []string{"a", "b"} {
		if got := rig.Path(r.Changes(t, name)); got != "ready" {
			t.Errorf("refused orders took %s to %s", name, got)
		}
	}
	// The page's own requests carry its origin.
	if status, body := r.Order(t, "POST", "/api/v1/engines/b/ready", "Origin: http://"+r.Admin, "Sec-Fetch-Site: same-origin"); status != 200 {
		t.Errorf("the admin page's own order: %d %s", status, body)
	}
}

// toB sends requests in turns until b answered one by the script, and returns
// what the client got of it.
func toB(t *testing.T, r *rig.Ramjet, b *rig.Engine, s rig.Script) *rig.Response {
	t.Helper()
	b.On(s)
	defer b.On(nil)
	for range 4 {
		id := r.ID("to-b")
		resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(false)))
		if len(b.ByID(id)) > 0 {
			return resp
		}
	}
	t.Fatal("no request went to b")
	return nil
}

// TestStateEjectedByFailures: eject.after own failures in a row eject an
// engine. Answers of 4xx and a client that leaves are neutral: they neither
// count nor clear; a good answer clears.
func TestStateEjectedByFailures(t *testing.T) {
	t.Parallel()
	leave := func(t *testing.T, r *rig.Ramjet, b *rig.Engine) {
		t.Helper()
		b.On(func(x *rig.Exchange) { x.Gone(0) })
		defer b.On(nil)
		for range 4 {
			c, id := r.Dial(t), r.ID("leaves")
			c.Send(rig.Request("POST", rig.ChatPath, id, rig.ChatBody(false)))
			rig.Eventually(t, rig.Patience, "an answer, or the request at b", func() string {
				if len(b.ByID(id)) > 0 {
					return ""
				}
				if resp, err := c.Until(time.Millisecond, func(resp *rig.Response) bool { return resp != nil && resp.Complete }); err == nil && resp.Complete {
					return ""
				}
				return "neither"
			})
			c.Close()
			if len(b.ByID(id)) > 0 {
				r.Ended(t, id, "client-gone-waiting")
				return
			}
		}
		t.Error("no request went to b")
	}
	fail := func(s rig.Script) func(*testing.T, *rig.Ramjet, *rig.Engine) {
		return func(t *testing.T, r *rig.Ramjet, b *rig.Engine) { t.Helper(); toB(t, r, b, s) }
	}
	server, client, good := fail(rig.Failing(500)), fail(rig.Failing(400)), fail(nil)
	reset := fail((*rig.Exchange).Reset)
	junk := fail(func(x *rig.Exchange) { x.Write("HTTP/1.1 2x0 no\r\n\r\n"); x.Close() })
	for _, c := range []struct {
		name    string
		steps   []func(*testing.T, *rig.Ramjet, *rig.Engine)
		ejected bool
		reason  string
	}{
		{"three 500s", []func(*testing.T, *rig.Ramjet, *rig.Engine){server, server, server}, true, "server-error"},
		{"two are too few", []func(*testing.T, *rig.Ramjet, *rig.Engine){server, server}, false, ""},
		{"a 400 counts nothing", []func(*testing.T, *rig.Ramjet, *rig.Engine){server, server, client, client}, false, ""},
		{"a 400 clears nothing", []func(*testing.T, *rig.Ramjet, *rig.Engine){server, client, server, client, server}, true, "server-error"},
		{"who leaves counts nothing", []func(*testing.T, *rig.Ramjet, *rig.Engine){server, server, leave, leave}, false, ""},
		{"who leaves clears nothing", []func(*testing.T, *rig.Ramjet, *rig.Engine){server, leave, server, leave, server}, true, "server-error"},
		{"a good answer clears", []func(*testing.T, *rig.Ramjet, *rig.Engine){server, server, good, server, server}, false, ""},
		{"resets", []func(*testing.T, *rig.Ramjet, *rig.Engine){reset, reset, reset}, true, "reset"},
		{"junk", []func(*testing.T, *rig.Ramjet, *rig.Engine){junk, junk, junk}, true, "bad-response"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
			r := rig.Start(t, a, b, rig.Settings("--route.policy=round-robin", "--eject.base=700ms")...)
			for _, step := range c.steps {
				step(t, r, b)
			}
			if !c.ejected {
				r.Stays(t, 150*time.Millisecond, "b", "ready")
				return
			}
			list := r.Went(t, 2*rig.Patience, "b", "ready", "ejected", "slow-start", "ready")
			if !strings.Contains(list[1].Reason, "3 failures in a row") {
				t.Errorf("ejected for %q", list[1].Reason)
			}
			if m := r.Metrics(); m.Sum("ramjet_ejections_total", "engine", "b") != 1 || m.Sum("ramjet_ejections_total", "engine", "b", "reason", c.reason) != 1 {
				t.Errorf("ejections of b by reason: want one of %s; %+v", c.reason, labelled(m, "ramjet_ejections_total", "reason"))
			}
			if d := list[2].Time.Sub(list[1].Time); d < 690*time.Millisecond {
				t.Errorf("ejected for %v, want 700 ms", d)
			}
		})
	}
}

// labelled lists a family's values by one label.
func labelled(m *rig.Metrics, name, label string) map[string]float64 {
	values := map[string]float64{}
	for _, s := range m.Samples {
		if s.Name == name && s.Value != 0 {
			values[s.Labels[label]] += s.Value
		}
	}
	return values
}

// TestStateFailOpen: with no usable engine left, those that accept connections
// are tried, told as fail-open; when all refuse, 503.
func TestStateFailOpen(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Settings("--health.stable=1h")...) // nobody comes back
	a.Get("/health", rig.Ailing)
	b.Get("/health", rig.Ailing)
	r.Is(t, rig.Patience, "a", "down")
	r.Is(t, rig.Patience, "b", "down")
	open := 0
	for i := range 6 {
		id := r.ID("open")
		resp := r.Do(t, rig.Request("POST", rig.ChatPath, id, rig.ChatBody(i%2 == 0)))
		if resp.Status != 200 || !resp.Whole() {
			t.Errorf("failing open: %d %.200q", resp.Status, resp.Body)
		}
		if resp.Fields.Get("X-Ramjet-Reason") == "fail-open" {
			open++
		}
	}
	if open != 6 || r.Metrics().Sum("ramjet_route_decisions_total", "reason", "fail-open") != 6 {
		t.Errorf("%d of 6 answers tell fail-open, %v are counted", open, r.Metrics().Sum("ramjet_route_decisions_total", "reason", "fail-open"))
	}
	if status, body := r.AdminGet("/readyz"); status != 200 {
		t.Errorf("/readyz %d %s while requests are served", status, body)
	}
	if resp := r.Do(t, rig.Request("GET", "/health", r.ID("health"), "", "Connection: close")); resp.Status != 200 || !strings.Contains(string(resp.Body), `"degraded"`) {
		t.Errorf("/health %d %s", resp.Status, resp.Body)
	}
	a.Down()
	for range 4 { // the client does not notice which port is closed
		if resp := r.Post(t, rig.ChatPath, rig.ChatBody(true)); resp.Status != 200 || resp.Fields.Get("X-Ramjet-Engine") != "b" {
			t.Errorf("with one port closed: %d by %q", resp.Status, resp.Fields.Get("X-Ramjet-Engine"))
		}
	}
	b.Down()
	rig.Eventually(t, rig.Patience, "/readyz 503", func() string {
		if status, body := r.AdminGet("/readyz"); status != 503 {
			return body
		}
		return ""
	})
	if resp := r.Post(t, rig.ChatPath, rig.ChatBody(true)); resp.Status != 503 || resp.Code() != "no_engine" || resp.Fields.Get("Retry-After") != "5" {
		t.Errorf("all refuse: %d %q Retry-After %q", resp.Status, resp.Code(), resp.Fields.Get("Retry-After"))
	}
	var told struct{ Status string }
	resp := r.Do(t, rig.Request("GET", "/health", r.ID("health"), "", "Connection: close"))
	if err := json.Unmarshal(resp.Body, &told); err != nil || resp.Status != 503 || told.Status != "unhealthy" {
		t.Errorf("/health %d %s", resp.Status, resp.Body)
	}
	a.Well("/health")
	b.Well("/health")
	a.Up(t)
	b.Up(t)
	r.Orders(t, "a", "ready", "slow-start")
	r.Orders(t, "b", "ready", "slow-start")
}
