package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

func engineAt(t *testing.T, addr string) *engine.Engine {
	t.Helper()
	u, err := url.Parse(addr)
	if err != nil {
		t.Fatal(err)
	}
	return engine.New(engine.Options{Name: "a", URL: u, APIKey: "secret"})
}

func TestTrialAgainstARealServer(t *testing.T) {
	t.Parallel()
	for body, good := range map[string]bool{
		`{"choices":[{"text":"x","finish_reason":"length"}]}`: true,
		`{"choices":[{"text":"","finish_reason":"stop"}]}`:    true,
		`{"choices":[{"text":"","finish_reason":"abort"}]}`:   false,
		`{"choices":[]}`:   false,
		`{"error":"busy"}`: false,
		`<html>`:           false,
	} {
		var got atomic.Value
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var b strings.Builder
			_ = r.Write(&b)
			got.Store(b.String())
			fmt.Fprint(w, body)
		}))
		e := engineAt(t, srv.URL)
		e.SetModels(engine.NewModels([]string{`m"1`}, [][]byte{[]byte("{}")}, nil))
		err := tryCompletion(t.Context(), e)
		srv.Close()
		if (err == nil) != good {
			t.Errorf("%s: %v", body, err)
		}
		req := got.Load().(string)
		for _, part := range []string{"POST /v1/completions HTTP/1.1\r\n", "Authorization: Bearer secret\r\n", `"model":"m\"1"`, `"max_tokens":1`} {
			if !strings.Contains(req, part) {
				t.Errorf("the trial %q lacks %q", req, part)
			}
		}
		if e.Pool().Open() != 0 {
			t.Error("the trial's connection is still open")
		}
	}
}

// TestTrialOfOtherEngines: one that generates nothing is asked for an
// embedding, and a key that is missing is told apart from a failure.
func TestTrialOfOtherEngines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		completion, embedding int
		good, refused         bool
	}{
		{404, 200, true, false},
		{400, 200, true, false},
		{501, 200, true, false},
		{404, 404, false, true},
		{400, 500, false, false},
		{401, 200, false, true}, // where it wants a key there is no need to ask for more
		{403, 200, false, true},
		{500, 200, false, false},
		{503, 200, false, false},
		{429, 200, false, false}, // overload is no recovery
		{408, 200, false, false},
		{404, 429, false, false},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			switch {
			case r.URL.Path == "/v1/completions":
				w.WriteHeader(c.completion)
			case r.URL.Path == "/v1/embeddings" && string(body) == `{"input":"1","model":"m"}`:
				w.WriteHeader(c.embedding)
			default:
				t.Errorf("%s got %s", r.URL.Path, body)
			}
		}))
		e := engineAt(t, srv.URL)
		e.SetModels(engine.NewModels([]string{"m"}, [][]byte{[]byte("{}")}, nil))
		err := tryCompletion(t.Context(), e)
		srv.Close()
		if (err == nil) != c.good || errors.Is(err, ErrTrialRefused) != c.refused {
			t.Errorf("completion %d, embedding %d: %v", c.completion, c.embedding, err)
		}
	}
}

func TestTrialEnds(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		// net/http notices a client that leaves only once its body was read.
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := tryCompletion(ctx, engineAt(t, srv.URL)); err == nil {
		t.Error("a trial without an answer is good")
	}
	srv503 := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
	addr := srv503.URL
	if err := tryCompletion(t.Context(), engineAt(t, addr)); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("503 gives %v", err)
	}
	srv503.Close()
	if err := tryCompletion(t.Context(), engineAt(t, addr)); !engine.Refused(err) {
		t.Errorf("a closed port gives %v", err)
	}
}

// TestMonitorAgainstARealServer lets a whole engine come and go, with every
// duration shortened.
func TestMonitorAgainstARealServer(t *testing.T) {
	t.Parallel()
	var sick atomic.Bool
	var auth atomic.Value
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth.Store(r.Header.Get("Authorization"))
		if sick.Load() && r.URL.Path == "/health" {
			w.WriteHeader(503)
			return
		}
		if r.URL.Path == "/v1/models" {
			fmt.Fprint(w, `{"data":[{"id":"m"}]}`)
		}
	}))
	defer srv.Close()
	e := engineAt(t, srv.URL)
	o := Defaults()
	o.Interval, o.Timeout = 5*time.Millisecond, 5*time.Second
	o.Stable, o.SlowStart = 20*time.Millisecond, 20*time.Millisecond
	m := New(o, []*engine.Engine{e})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	waitState(t, e, ready)
	if !e.Models().Serves([]byte("m")) || auth.Load() != "Bearer secret" {
		t.Errorf("models %v, key %v", e.Models(), auth.Load())
	}
	sick.Store(true)
	waitState(t, e, down)
	if !m.Accepts(e) {
		t.Error("its port takes connections")
	}
	sick.Store(false)
	waitState(t, e, ready)
	srv.CloseClientConnections()
	srv.Close()
	waitState(t, e, down)
	for limit := time.Now().Add(10 * time.Second); m.Accepts(e) && time.Now().Before(limit); {
		time.Sleep(time.Millisecond)
	}
	if m.Accepts(e) || e.Status().Reason != "connection refused" {
		t.Errorf("a closed port: %q", e.Status().Reason)
	}
	cancel()
	<-done
}

func waitState(t *testing.T, e *engine.Engine, want telemetry.State) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); e.State() != want; {
		if time.Now().After(limit) {
			t.Fatalf("%s (%s), want %s", e.State(), e.Status().Reason, want)
		}
		time.Sleep(time.Millisecond)
	}
}
