package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// qualifiedBy is a request that was decided well.
func qualifiedBy(change func(x *qualified)) *qualified {
	var x qualified
	err := json.Unmarshal([]byte(`{"request_id":"q","prompt_tokens":100,"keys":"exact","engine":"a",
		"candidates":[{"engine":"a","match_tokens":80,"match_exact_tokens":80},{"engine":"b","match_tokens":0,"match_exact_tokens":0}],
		"shadow":{"engine":"a","agreement":"agree"},"result":{"end":"done","prompt_tokens":100,"cached_tokens":80}}`), &x)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	change(&x)
	return &x
}

func good(*qualified) {}

func word(s string) *string { return &s }

// TestQualifyBounds: each way to fail fails, with a line that says what it is.
func TestQualifyBounds(t *testing.T) {
	t.Parallel()
	trusted := []engineOf{{Name: "a", State: "ready", Trust: "exact"}, {Name: "b", State: "ready", Trust: "exact"}}
	zero := 0
	for _, c := range []struct {
		name    string
		change  func(x *qualified)
		engines []engineOf
		failed  int
		ok      bool
		lines   []string
	}{
		{name: "good", change: good, ok: true, lines: []string{"ok   tokenized 10/10", "ok   exact agrees with approximate 10/10 (apart: 0 ties, 0 cold, 0 untrusted)",
			"ok   match equals reported 10/10", "ok   duplicate prefill tokens 0 of 1000", "ok   errors 0", "note: engine b (ready) served none"}},
		{name: "a tie", change: func(x *qualified) { x.Shadow.Agreement = "tie" }, ok: true, lines: []string{"agrees with approximate 9/9 (apart: 1 ties"}},
		{name: "cold", change: func(x *qualified) { x.Shadow.Agreement = "cold" }, ok: true, lines: []string{"9/9 (apart: 0 ties, 1 cold"}},
		{name: "moves", change: func(x *qualified) { x.Shadow.Agreement, x.Shadow.Engine = "would-move", word("b") },
			lines: []string{"FAIL exact agrees with approximate 9/10", "problem: exact and approximate routing chose different engines for 1 requests (q: a, and b the other way)"}},
		{name: "lies", change: func(x *qualified) { x.Result.Cached = &zero },
			lines: []string{"FAIL match equals reported 9/10", "problem: engine a lies about its cache: 1 of 10 answers report another number of cached tokens than its events say (q: 80 by its events, 0 reported)"}},
		{name: "silent", change: func(x *qualified) { x.Result.Cached = nil }, lines: []string{"FAIL match equals reported 9/10", "engine a does not report cached tokens"}},
		{name: "miscount", change: func(x *qualified) { x.Tokens = 90 }, lines: []string{"FAIL tokenized 9/10", "problem: tokens do not match: for 1 requests the engine counted other prompt tokens (q: 90 here, 100 at engine a)"}},
		{name: "no tokens", change: func(x *qualified) { x.Keys, x.Note = "approximate", word("foreign tokenizer") },
			lines: []string{"FAIL tokenized 9/10", "problem: tokens do not match: the tokenizer is not the model's"}},
		{name: "no tokenizer", change: func(x *qualified) { x.Keys, x.Note = "approximate", word("no tokenizer") },
			lines: []string{"FAIL tokenized 9/10", "problem: tokens are not known for 1 requests: no tokenizer"}},
		{name: "no usage", change: func(x *qualified) { x.Result.Prompt = nil }, lines: []string{"FAIL tokenized 9/10", "the engine reported no prompt tokens"}},
		{name: "shadowing", change: func(x *qualified) { x.Keys, x.Note = "approximate", word("exact routing only shadows") }, ok: true, lines: []string{"ok   tokenized 10/10"}},
		{name: "untrusted", change: func(x *qualified) { x.Shadow.Agreement = "untrusted" }, lines: []string{"FAIL exact agrees with approximate 9/9 (apart: 0 ties, 0 cold, 1 untrusted)"}},
		{name: "duplicate", change: func(x *qualified) { x.Candidates[1].Match = 160 }, lines: []string{"FAIL duplicate prefill tokens 80 of 1000"}},
		{name: "failed", change: good, failed: 1, lines: []string{"FAIL tokenized 10/11", "FAIL errors 1", "problem: 1 requests failed (q-1: no)"}},
		{name: "blind", change: good, engines: []engineOf{trusted[0], {Name: "b", Trust: "blind", TrustReason: "events are off"}},
			lines: []string{"problem: engine b has no events that can be used: events are off"}},
		{name: "degraded", change: good, engines: []engineOf{{Name: "a", Trust: "degraded", TrustReason: "predictions are off"}, trusted[1]},
			lines: []string{"problem: the events of engine a are not believed: predictions are off"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tally := newTally()
			for range 9 {
				tally.add(qualifiedBy(good))
			}
			tally.add(qualifiedBy(c.change))
			for i := range c.failed {
				tally.failed(fmt.Sprint("q-", i+1), errors.New("no"))
			}
			if c.engines == nil {
				c.engines = trusted
			}
			v := tally.judge(c.engines)
			if v.OK != c.ok {
				t.Errorf("ok is %v: %+v", v.OK, v)
			}
			if !v.OK && v.failed() == "" {
				t.Error("the error says nothing")
			}
			var out bytes.Buffer
			v.print(&out)
			for _, line := range c.lines {
				if !strings.Contains(out.String(), line) {
					t.Errorf("no %q in\n%s", line, out.String())
				}
			}
		})
	}
}

// TestQualifyNothingCompared: ties alone prove nothing.
func TestQualifyNothingCompared(t *testing.T) {
	t.Parallel()
	tally := newTally()
	tally.add(qualifiedBy(func(x *qualified) { x.Shadow.Agreement = "cold" }))
	if v := tally.judge([]engineOf{{Name: "a", Trust: "exact"}}); v.OK || len(v.Problems) != 1 || !strings.Contains(v.Problems[0], "could not be compared") {
		t.Errorf("%+v", v)
	}
}

// oneRamjet plays both ports; every answer hits what the session's last one
// left.
type oneRamjet struct {
	*httptest.Server
	mu     sync.Mutex // guards what follows
	bodies []string
	heads  []http.Header
	known  map[string]int // tokens by session
	spoil  func(n int, x map[string]any)
	asked  map[string]string // records by id
	status int
}

func newOneRamjet(t *testing.T) *oneRamjet {
	r := &oneRamjet{known: map[string]int{}, asked: map[string]string{}, status: 200}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	return r
}

func (r *oneRamjet) serve(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case q.URL.Path == "/v1/models":
		fmt.Fprint(w, `{"data":[{"id":"m"},{"id":"other"}]}`)
	case q.URL.Path == "/api/v1/topology":
		fmt.Fprint(w, `{"engines":[{"name":"a","state":"ready","trust":"exact","trust_reason":"r","block_tokens":32}]}`)
	case strings.HasPrefix(q.URL.Path, "/api/v1/explain/"):
		fmt.Fprint(w, r.asked[strings.TrimPrefix(q.URL.Path, "/api/v1/explain/")])
	default:
		r.generate(w, q, string(body))
	}
}

func (r *oneRamjet) generate(w http.ResponseWriter, q *http.Request, body string) {
	r.bodies, r.heads = append(r.bodies, body), append(r.heads, q.Header)
	if r.status != 200 {
		http.Error(w, "not today", r.status)
		return
	}
	session := q.Header.Get("X-Session-Id")
	tokens, match := len(body), r.known[session]
	r.known[session] = tokens
	agreement := "agree"
	if match == 0 {
		agreement = "cold"
	}
	x := map[string]any{
		"request_id": q.Header.Get("X-Request-Id"), "prompt_tokens": tokens, "keys": "exact", "engine": "a",
		"candidates": []any{map[string]any{"engine": "a", "match_tokens": match, "match_exact_tokens": match}},
		"shadow":     map[string]any{"engine": "a", "agreement": agreement},
		"result":     map[string]any{"end": "done", "prompt_tokens": tokens, "cached_tokens": match},
	}
	if r.spoil != nil {
		r.spoil(len(r.bodies), x)
	}
	text, _ := json.Marshal(x)
	r.asked[q.Header.Get("X-Request-Id")] = string(text)
	var b struct{ Stream bool }
	_ = json.Unmarshal([]byte(body), &b)
	if b.Stream {
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"streamed\"}}]}\n\ndata: {\"choices\":[],\"usage\":{}}\n\ndata: [DONE]\n\n")
		return
	}
	fmt.Fprint(w, `{"choices":[{"message":{"content":"whole"}}]}`)
}

func (r *oneRamjet) qualify(t *testing.T, o QualifyOptions) (string, error) {
	t.Helper()
	var out bytes.Buffer
	o.Out, o.URL, o.Timeout = &out, r.URL, 10*time.Second
	err := Qualify(context.Background(), []string{"--admin=" + strings.TrimPrefix(r.URL, "http://")}, nil, o)
	return out.String(), err
}

func TestQualifySendsSessions(t *testing.T) {
	t.Parallel()
	r := newOneRamjet(t)
	out, err := r.qualify(t, QualifyOptions{Requests: 23})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"ok   tokenized 23/23", "ok   match equals reported 23/23", "note: 6 requests before those were not counted"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	streams, caps := 0, map[int]int{}
	for i, body := range r.bodies {
		var b struct {
			Model    string
			Stream   bool
			Max      int `json:"max_tokens"`
			Messages []map[string]string
		}
		if err := json.Unmarshal([]byte(body), &b); err != nil || b.Model != "m" || len(b.Messages)%2 != 0 {
			t.Fatalf("body %d: %v %.200s", i, err, body)
		}
		if b.Stream {
			streams++
		}
		caps[b.Max]++
		for k, m := range b.Messages {
			if k > 1 && k%2 == 0 && m["content"] != "streamed" && m["content"] != "whole" {
				t.Errorf("the answer is not taken up: %q", m["content"])
			}
		}
	}
	if streams == 0 || streams == len(r.bodies) || len(caps) != 2 {
		t.Errorf("%d of %d streamed, caps %v", streams, len(r.bodies), caps)
	}
	other := newOneRamjet(t)
	if _, err := other.qualify(t, QualifyOptions{Requests: 1}); err != nil && !strings.Contains(err.Error(), "compared") {
		t.Fatal(err)
	}
	if other.bodies[0] == r.bodies[0] {
		t.Error("two runs send the same texts: the second is not cold")
	}
}

// TestQualifyLearnsBeforeItCounts: an engine that computes a block of each hit
// again is taken as it is once that was seen.
func TestQualifyLearnsBeforeItCounts(t *testing.T) {
	t.Parallel()
	r := newOneRamjet(t)
	r.spoil = func(n int, x map[string]any) {
		if n < 9 {
			x["result"].(map[string]any)["cached_tokens"] = 1 //nolint:forcetypeassert // a test's own
		}
	}
	if out, err := r.qualify(t, QualifyOptions{Requests: 20}); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	r.spoil = func(_ int, x map[string]any) { x["result"].(map[string]any)["cached_tokens"] = 1 } //nolint:forcetypeassert // a test's own
	out, err := r.qualify(t, QualifyOptions{Requests: 20})
	if err == nil || !strings.Contains(err.Error(), "engine a lies") || !strings.Contains(out, "note: 20 requests before") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestQualifyFromAFile(t *testing.T) {
	t.Parallel()
	r := newOneRamjet(t)
	name := filepath.Join(t.TempDir(), "bodies.jsonl")
	write := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"messages":[]}` + "\n\n" + `{"prompt":"p"}` + "\n" + `{"input":"i"}` + "\n" + `{"messages":[1]}` + "\n")
	out, err := r.qualify(t, QualifyOptions{Requests: 3, From: name, JSON: true})
	if err != nil {
		t.Fatal(err)
	}
	var v verdict
	if err := json.Unmarshal([]byte(out), &v); err != nil || !v.OK || v.Requests != 3 || len(v.Checks) != 5 || len(r.bodies) != 3 {
		t.Errorf("%v %+v", err, v)
	}
	for _, c := range []struct{ text, err string }{{"", "holds no request"}, {"{\n", "bodies.jsonl:1"}, {"\n{}\n", "bodies.jsonl:2"}} {
		write(c.text)
		if _, err := r.qualify(t, QualifyOptions{Requests: 3, From: name}); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %v", c.text, err)
		}
	}
	if _, err := r.qualify(t, QualifyOptions{Requests: 3, From: name + "x"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestQualifyGivesUp where nothing succeeds.
func TestQualifyGivesUp(t *testing.T) {
	t.Parallel()
	r := newOneRamjet(t)
	r.status = 503
	if _, err := r.qualify(t, QualifyOptions{Requests: 50}); err == nil || !strings.Contains(err.Error(), "no request succeeds") || len(r.bodies) != hopeless {
		t.Errorf("%d requests, %v", len(r.bodies), err)
	}
	if _, err := r.qualify(t, QualifyOptions{}); err == nil || !strings.Contains(err.Error(), "at least 1") {
		t.Errorf("%v", err)
	}
}

// TestQualifyFindsThePublicPort by the configuration, with a key where one is
// wanted.
func TestQualifyFindsThePublicPort(t *testing.T) {
	t.Parallel()
	r := newOneRamjet(t)
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("# ours\n\nfirst-key\nsecond-key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := strings.TrimPrefix(r.URL, "http://")
	public := httptest.NewServer(http.HandlerFunc(r.serve)) // the two ports must differ
	t.Cleanup(public.Close)
	listen := "--listen=" + strings.TrimPrefix(public.URL, "http://")
	var out bytes.Buffer
	err := Qualify(context.Background(), []string{"--admin=" + addr, "--listen=unix:///nowhere", listen, "--auth.keys-file=" + keys}, nil,
		QualifyOptions{Requests: 8, Model: "named", Out: &out, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if got := r.heads[0].Get("Authorization"); got != "Bearer first-key" || !strings.Contains(r.bodies[0], `"model":"named"`) {
		t.Errorf("key %q, body %.100s", got, r.bodies[0])
	}
	if err := Qualify(context.Background(), []string{"--admin=" + addr, "--listen=unix:///nowhere"}, nil, QualifyOptions{Requests: 8, Out: &out}); err == nil || !strings.Contains(err.Error(), "--url") {
		t.Errorf("%v", err)
	}
}
