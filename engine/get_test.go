package engine

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
)

func TestPost(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/teapot" {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = fmt.Fprintf(w, "%s %s %d %s %s %q %s", r.Method, r.URL.Path, r.ContentLength, r.Header.Get("Content-Type"), r.Header.Get("Authorization"), r.Header.Values("Idempotency-Key"), body)
	}))
	defer srv.Close()
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	e := New(Options{Name: "a", URL: u, APIKey: "k"})
	defer e.Close()
	long := strings.Repeat("x", 300_000)
	for _, c := range []struct {
		path, body string
		limit      int64
		status     int
		want       string
	}{
		{"/tokenize", `{"prompt":"a"}`, 1000, 200, `POST /tokenize 14 application/json Bearer k [] {"prompt":"a"}`},
		{"/tokenize", "", 1000, 200, `POST /tokenize 0 application/json Bearer k [] `},
		{"/teapot", "b", 1000, 418, `POST /teapot 1 application/json Bearer k [] b`},
		{"/long", long, 1 << 20, 200, "POST /long 300000 application/json Bearer k [] " + long},
		{"/long", long, 10, 200, "POST /long"},
	} {
		status, answer, err := e.Post(t.Context(), c.path, []byte(c.body), c.limit)
		if status != c.status || string(answer) != c.want || err != nil {
			t.Errorf("%s: %d %.100q, %v", c.path, status, answer, err)
		}
	}
	// A kept connection that the engine has closed is no reason to fail.
	srv.CloseClientConnections()
	before := asked.Load()
	if status, _, err := e.Post(t.Context(), "/tokenize", []byte("again"), 1000); status != 200 || err != nil || asked.Load() != before+1 {
		t.Errorf("after the engine closed: %d, %v, asked %d times", status, err, asked.Load()-before)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := e.Post(ctx, "/tokenize", nil, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	srv.Close()
	if _, _, err := e.Post(t.Context(), "/tokenize", nil, 1); !Refused(err) {
		t.Errorf("nobody listens: %v", err)
	}
}
