package engine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"
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

// TestGetReadsEveryFraming: whatever way the engine frames its answer, Get returns it, keeps the connection where it may,
// and asks the next question on it.
func TestGetReadsEveryFraming(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string
		limit  int64
		status int
		want   string
		bad    string
		kept   bool
	}{
		"length":           {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 5, 200, "hello", "", false},
		"room left":        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 6, 200, "hello", "", true},
		"empty":            {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 9, 200, "", "", true},
		"no body":          {"HTTP/1.1 204 No Content\r\n\r\n", 9, 204, "", "", true},
		"chunks":           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", 9, 200, "hello", "", true},
		"until it closes":  {"HTTP/1.0 200 OK\r\n\r\nhello", 9, 200, "hello", "", false},
		"goodbye":          {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", 9, 200, "hello", "", false},
		"announced":        {"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 503 Busy\r\nContent-Length: 1\r\n\r\nx", 9, 503, "x", "", true},
		"cut by the limit": {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 2, 200, "he", "", false},
		"and more":         {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello", 9, 200, "he", "", false},
		"broken off":       {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", 99, 200, "", "cannot read the answer: unexpected EOF", false},
		"head broken off":  {"HTTP/1.1 200 OK\r\nConte", 99, 0, "", "cannot read the answer's head", false},
		"nothing":          {"", 99, 0, "", "EOF", false},
		"no HTTP":          {"+PONG\r\n\r\n", 99, 0, "", "malformed HTTP", false},
		"endless head":     {"HTTP/1.1 200 OK\r\n" + strings.Repeat("a: b\r\n", 20_000), 99, 0, "", "head: it is longer than 65536 bytes", false},
		"endless hints":    {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 5_000), 99, 0, "", "head: it is longer than 65536 bytes", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := accepting(t, func(nc net.Conn) {
				r := bufio.NewReader(nc)
				for readQuestion(t, r, "GET /metrics HTTP/1.1") {
					_, _ = io.WriteString(nc, c.answer)
					if !c.kept {
						return
					}
				}
			})
			ask := func() {
				status, body, err := e.Get(t.Context(), "/metrics", c.limit)
				if status != c.status || c.bad == "" && string(body) != c.want || (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
					t.Errorf("%d %q, %v", status, body, err)
				}
			}
			ask()
			if open := e.checks.Open() == 1; open != c.kept {
				t.Errorf("kept %v", open)
			}
			if c.kept {
				ask()
			}
			if n := e.Pool().Open(); n != 0 {
				t.Errorf("%d of the requests' connections are open", n)
			}
		})
	}
}

// accepting returns an engine that serves one connection after the other.
func accepting(t *testing.T, serve func(nc net.Conn)) *Engine {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := New(Options{Name: "a", URL: &url.URL{Scheme: "http", Host: ln.Addr().String()}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			serve(nc)
			_ = nc.Close()
		}
	}()
	t.Cleanup(func() {
		e.Close()
		_ = ln.Close()
		<-done
	})
	return e
}

// readQuestion reads a question without a body and reports whether there was one.
func readQuestion(t *testing.T, r *bufio.Reader, want string) bool {
	t.Helper()
	first, err := r.ReadString('\n')
	if err != nil {
		return false
	}
	if strings.TrimSpace(first) != want {
		t.Errorf("asked %q", first)
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return false
		}
		if line == "\r\n" {
			return true
		}
	}
}

// TestGetEnds: an engine that says nothing holds Get no longer than its context, and the connection is gone with it.
func TestGetEnds(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 2)
	e := accepting(t, func(nc net.Conn) {
		arrived <- struct{}{}
		_, _ = io.Copy(io.Discard, nc)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := e.Get(ctx, "/health", 99); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("late: %v", err)
	}
	<-arrived
	ctx, cancel = context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if _, _, err := e.Get(ctx, "/health", 99); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if n := e.checks.Open(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
}

// TestGetIntoReusesRoom: a page that fits is read where the last one was.
func TestGetIntoReusesRoom(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 100_000))
	}))
	defer srv.Close()
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	e := New(Options{Name: "a", URL: u})
	defer e.Close()
	room := make([]byte, 0, 200_000)
	_, body, err := e.GetInto(t.Context(), "/metrics", room, 1<<20)
	if err != nil || len(body) != 100_000 || &body[0] != &room[:1][0] {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	if _, grown, err := e.GetInto(t.Context(), "/metrics", nil, 1<<20); err != nil || !bytes.Equal(grown, body) {
		t.Errorf("%d bytes, %v", len(grown), err)
	}
}

// TestErrorsAreBrief: an engine that talks no HTTP is not repeated at length.
func TestErrorsAreBrief(t *testing.T) {
	t.Parallel()
	for _, page := range []string{strings.Repeat("x", 60<<10) + "\r\n\r\n", strings.Repeat("é", 30<<10) + "\r\n\r\n", "HTTP/1.1 200 OK\r\n" + strings.Repeat("y", 60<<10) + "\r\n\r\n"} {
		p := newPeer(t)
		e := p.engine(t)
		go func() {
			nc := p.conn(t, 0)
			_, _ = nc.Read(make([]byte, 1000))
			_, _ = nc.Write([]byte(page))
		}()
		_, _, err := e.Get(t.Context(), "/health", 10)
		if err == nil || len(err.Error()) > 300 || !utf8.ValidString(err.Error()) {
			t.Errorf("%.400v", err)
		}
	}
}
