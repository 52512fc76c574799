package faults

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ramjet/e2e/rig"
)

// stormy is how the official SDKs retry: on 408, 409, 429 and 5xx, three times
// here, unless the answer says that it would not help.
func stormy(r *rig.Ramjet, c *rig.Client, body string) (answers []*rig.Response, err error) {
	for range 4 {
		id := r.ID("storm")
		c.Send(rig.Request("POST", rig.ChatPath, id, body))
		resp, err := c.Until(2*rig.Patience, func(resp *rig.Response) bool { return resp != nil && resp.Complete })
		if err != nil {
			return answers, fmt.Errorf("request %s: %w", id, err)
		}
		_, used, _ := rig.ParseResponse(c.Raw, "POST", c.Closed)
		c.Raw = c.Raw[used:]
		answers = append(answers, resp)
		if resp.Status == 200 || resp.Fields.Get("x-should-retry") == "false" || resp.Status < 500 && resp.Status != 429 && resp.Status != 408 {
			return answers, nil
		}
	}
	return answers, nil
}

// storm lets 200 clients send one request each, retried at once, which is worse
// than any SDK does.
func storm(t *testing.T, r *rig.Ramjet, body string) (answers []*rig.Response) {
	t.Helper()
	var mu sync.Mutex // guards answers
	var wg sync.WaitGroup
	for range 200 {
		c := r.Dial(t)
		wg.Go(func() {
			defer c.Close()
			got, err := stormy(r, c, body)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, got...)
		})
	}
	wg.Wait()
	return answers
}

// TestB7Row18DeadSet: 200 clients with three retries against engines that
// refuse: each answer says in whole seconds when to come again, none costs an
// engine a connection that it could not take, and the next request after the
// engines' return is served.
func TestB7Row18DeadSet(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	// A dial that a starved machine holds up must not end as one that timed out.
	r := rig.Start(t, a, b, rig.Settings("--health.interval=200ms", "--timeouts.dial=30s")...)
	a.Down()
	b.Down()
	r.Is(t, rig.Patience, "a", "down")
	r.Is(t, rig.Patience, "b", "down")
	began := time.Now()
	answers := storm(t, r, rig.ChatBody(true))
	t.Logf("%d answers in %v", len(answers), time.Since(began))
	if len(answers) != 800 {
		t.Errorf("%d answers, want one to each of 800 tries: the error can be retried", len(answers))
	}
	for _, resp := range answers {
		after, err := strconv.Atoi(resp.Fields.Get("Retry-After"))
		if resp.Status != 503 || resp.Code() != "no_engine" || err != nil || after < 1 || resp.Fields.Get("x-should-retry") == "false" {
			t.Fatalf("answered %d %q, Retry-After %q, x-should-retry %q", resp.Status, resp.Code(), resp.Fields.Get("Retry-After"), resp.Fields.Get("x-should-retry"))
		}
	}
	r.Counted(t, 800, "503", "engine-unreachable")
	a.Up(t)
	b.Up(t)
	r.Is(t, rig.Patience, "a", "ready")
	r.Is(t, rig.Patience, "b", "ready")
}

// TestB7Row18OwnRetries: engines that take every request and drop it are not
// stormed by Ramjet on top: each request costs each of them one attempt at most,
// and where a retry cannot help, the client is told so.
func TestB7Row18OwnRetries(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Settings("--eject.after=1000000")...)
	a.On((*rig.Exchange).Reset)
	b.On((*rig.Exchange).Reset)
	answers := storm(t, r, rig.ChatBody(false))
	tries := 0
	for _, e := range []*rig.Engine{a, b} {
		seen := map[string]int{}
		for _, x := range e.ByIDPrefix("storm") {
			tries++
			// Twice if the first was on a pooled connection, of which only the
			// warm-up left some: the others never served anything.
			if seen[x.ID()]++; seen[x.ID()] > 2 {
				t.Fatalf("engine %s got request %s %d times", e.Name, x.ID(), seen[x.ID()])
			}
		}
	}
	attempts := 0
	for _, resp := range answers {
		n, err := strconv.Atoi(resp.Fields.Get("X-Ramjet-Attempts"))
		if attempts += n; err != nil || n > 2 || resp.Status != 502 || resp.Fields.Get("x-should-retry") == "false" {
			t.Fatalf("answered %d %q after %q attempts, x-should-retry %q", resp.Status, resp.Code(), resp.Fields.Get("X-Ramjet-Attempts"), resp.Fields.Get("x-should-retry"))
		}
	}
	if tries-attempts > 8 || tries < attempts {
		t.Errorf("%d answers tell %d attempts, the engines were asked %d times", len(answers), attempts, tries)
	}
	if retries := int(r.Metrics().Sum("ramjet_retries_total")); retries < attempts-len(answers) || retries > tries-len(answers) {
		t.Errorf("%v retries counted for %d answers with %d attempts and %d tries", retries, len(answers), attempts, tries)
	}
	t.Logf("%d answers, %d attempts, %d tries", len(answers), attempts, tries)
}

// TestB7Row18NoRetry: what cannot become better by being sent again says so, so
// that no SDK tries.
func TestB7Row18NoRetry(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, rig.Settings("--limits.body=4KiB")...)
	for name, raw := range map[string]string{
		"no JSON":       rig.Request("POST", rig.ChatPath, r.ID("no"), `{"model":`, "Connection: close"),
		"unknown model": rig.Request("POST", rig.ChatPath, r.ID("no"), `{"model":"other","messages":[]}`, "Connection: close"),
		"too large":     rig.Request("POST", rig.ChatPath, r.ID("no"), rig.LongChatBody(false, 8<<10), "Connection: close"),
		"no such path":  rig.Request("POST", "/sleep", r.ID("no"), `{}`, "Connection: close"),
		"GET":           rig.Request("GET", rig.ChatPath, r.ID("no"), "", "Connection: close"),
		"gzip":          rig.Request("POST", rig.ChatPath, r.ID("no"), rig.ChatBody(false), "Content-Encoding: gzip", "Connection: close"),
	} {
		resp := r.Do(t, raw)
		if resp.Status < 400 || resp.Status > 499 || resp.Fields.Get("x-should-retry") != "false" || resp.Fields.Get("Retry-After") != "" {
			t.Errorf("%s: %d, x-should-retry %q, Retry-After %q", name, resp.Status, resp.Fields.Get("x-should-retry"), resp.Fields.Get("Retry-After"))
		}
	}
	for _, e := range []*rig.Engine{a, b} {
		if xs, _ := e.Seen(); len(xs) != 0 {
			t.Errorf("%d of them reached engine %s: %s", len(xs), e.Name, strings.TrimSpace(string(xs[0].Head)))
		}
	}
}
