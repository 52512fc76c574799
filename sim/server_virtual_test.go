package sim

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipeListener is a listener in memory. Inside a synctest bubble it lets the
// whole server run in virtual time, and a read from its connections returns
// exactly one write of the server.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

func (l *pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	l.conns <- server
	return client
}

// virtual runs f against a server in virtual time and checks that the server
// ends without leaving a goroutine behind.
func virtual(t *testing.T, o ServerOptions, f func(t *testing.T, s *Server, dial func() net.Conn)) {
	t.Helper()
	Tokenizer() // built once, outside of every bubble
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		o.Listener = l
		s, err := NewServer(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx) }()
		f(t, s, l.dial)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		// The bubble fails here if a goroutine is still blocked.
	})
}

// writes sends raw and returns every write of the server until it has been
// quiet for ten virtual minutes or has closed the connection.
func writes(t *testing.T, c net.Conn, raw string) (out []string, closed bool) {
	t.Helper()
	if _, err := io.WriteString(c, raw); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	for {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Minute))
		n, err := c.Read(buf)
		if n > 0 {
			out = append(out, string(buf[:n]))
		}
		if err != nil {
			return out, errors.Is(err, io.EOF)
		}
	}
}

// slowOptions are an engine at its real pace, which costs no time here.
func slowOptions() ServerOptions {
	return ServerOptions{Core: CoreOptions{Seed: 7, KVBlocks: 4096}, Model: "m"}
}

func TestKeepAliveEndsAfterFiveSeconds(t *testing.T) {
	virtual(t, slowOptions(), func(t *testing.T, _ *Server, dial func() net.Conn) {
		c := dial()
		r := bufio.NewReader(c)
		for range 2 { // the wait starts anew with each answer
			go func() { _, _ = io.WriteString(c, get("/health")) }()
			if a := readAnswer(t, r); a.status != 200 || a.body != "" || a.header.Get("Server") != "uvicorn" {
				t.Fatalf("health: %+v", a)
			}
			time.Sleep(4990 * time.Millisecond)
		}
		begin := time.Now()
		if _, err := r.ReadByte(); err != io.EOF {
			t.Fatalf("after an idle time: %v", err)
		}
		if d := time.Since(begin); d != 10*time.Millisecond {
			t.Errorf("closed %v after the fifth second", d-10*time.Millisecond)
		}
	})
}

func TestUnfinishedRequestsAreNeverTimedOut(t *testing.T) {
	for _, part := range []string{"", "POST /v1/chat/comp", "POST /v1/completions HTTP/1.1\r\nContent-Length: 10\r\n\r\n{"} {
		virtual(t, slowOptions(), func(t *testing.T, _ *Server, dial func() net.Conn) {
			c := dial()
			if part != "" {
				if _, err := io.WriteString(c, part); err != nil {
					t.Fatal(err)
				}
			}
			_ = c.SetReadDeadline(time.Now().Add(time.Hour))
			if _, err := c.Read(make([]byte, 1)); !isTimeout(err) {
				t.Errorf("%q: after an hour %v", part, err)
			}
			_ = c.Close()
		})
	}
}

func TestPartialHeadAfterAnAnswerIsNotTimedOut(t *testing.T) {
	virtual(t, slowOptions(), func(t *testing.T, _ *Server, dial func() net.Conn) {
		c := dial()
		r := bufio.NewReader(c)
		go func() { _, _ = io.WriteString(c, get("/version")) }()
		readAnswer(t, r)
		go func() {
			_, _ = io.WriteString(c, "G")
			time.Sleep(time.Minute)
			_, _ = io.WriteString(c, get("/version")[1:])
		}()
		if a := readAnswer(t, r); a.body != `{"version":"0.32.0"}` {
			t.Errorf("got %+v", a)
		}
		_ = c.Close()
	})
}

// TestHeadComesBeforePrefill: vLLM sends the 200 head when tokenizing is done,
// and the role chunk with the first token, after the whole prefill.
func TestHeadComesBeforePrefill(t *testing.T) {
	virtual(t, slowOptions(), func(t *testing.T, s *Server, dial func() net.Conn) {
		words := strings.Repeat("word ", 8000)
		prompt := chatPrompt(t, ChatMessage{Role: "user", Content: words})
		c := dial()
		begin := time.Now()
		go func() {
			_, _ = io.WriteString(c, post("/v1/chat/completions", `{"model":"m","stream":true,"max_tokens":3,"messages":[{"role":"user","content":"`+words+`"}]}`))
		}()
		buf := make([]byte, 4096)
		n, err := c.Read(buf)
		if err != nil || !strings.HasPrefix(string(buf[:n]), "HTTP/1.1 200 OK\r\n") || !strings.HasSuffix(string(buf[:n]), "\r\n\r\n") {
			t.Fatalf("head: %q, %v", buf[:n], err)
		}
		if d, want := time.Since(begin), s.Core().TokenizeTime(len(prompt))+s.Core().FrontendTime(len(prompt)); d != want {
			t.Errorf("head after %v, want %v", d, want)
		}
		if _, err = c.Read(buf); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d < time.Duration(len(prompt))*90*time.Microsecond {
			t.Errorf("first token of %d prompt tokens after %v", len(prompt), d)
		}
		_ = c.Close()
	})
}

// TestLeavingAborts is the client's departure in five situations. in_flight
// and the engine's sequences fall before any (virtual) time passes.
func TestLeavingAborts(t *testing.T) {
	long := `"messages":[{"role":"user","content":"` + strings.Repeat("word ", 20000) + `"}]`
	short := `"messages":[{"role":"user","content":"Hello"}]`
	for _, tc := range []struct {
		name, body string
		after      time.Duration
		tokens     bool // the client has seen tokens
	}{
		{"while tokenizing", `{"stream":true,"max_tokens":500,` + long + `}`, 5 * time.Millisecond, false},
		{"stream in prefill", `{"stream":true,"max_tokens":500,` + long + `}`, 500 * time.Millisecond, false},
		{"stream in decode", `{"stream":true,"max_tokens":500,` + short + `}`, time.Second, true},
		{"plain in prefill", `{"max_tokens":500,` + long + `}`, 500 * time.Millisecond, false},
		{"plain in decode", `{"max_tokens":500,` + short + `}`, time.Second, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			virtual(t, slowOptions(), func(t *testing.T, s *Server, dial func() net.Conn) {
				c := dial()
				go func() { _, _ = io.WriteString(c, post("/v1/chat/completions", tc.body)) }()
				go func() { _, _ = io.Copy(io.Discard, c) }()
				time.Sleep(tc.after)
				if st := s.State(); st.InFlight != 1 || tc.tokens != (st.OutputTokens > 0) {
					t.Fatalf("before: %+v", st)
				}
				_ = c.Close()
				synctest.Wait()
				if st := s.State(); st.InFlight != 0 || st.Running+st.Waiting != 0 || st.Aborted != 1 || st.KVBlocksUsed != 0 {
					t.Errorf("after: %+v", st)
				}
			})
		})
	}
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	virtual(t, slowOptions(), func(t *testing.T, _ *Server, dial func() net.Conn) {
		c := dial()
		r := bufio.NewReader(c)
		go func() {
			_, _ = io.WriteString(c, post("/v1/completions", `{"prompt":"a","max_tokens":3}`)+get("/version")+get("/nothing"))
		}()
		for i, want := range []string{"text_completion", `{"version":"0.32.0"}`, `{"detail":"Not Found"}`} {
			if a := readAnswer(t, r); !strings.Contains(a.body, want) {
				t.Errorf("answer %d is %q", i, a.body)
			}
		}
		_ = c.Close()
	})
}

// TestMTPWritesSeveralTokensInOneChunk: with predicted tokens a chunk holds
// what one step accepted, one to four tokens.
func TestMTPWritesSeveralTokensInOneChunk(t *testing.T) {
	o := slowOptions()
	o.Core.Profile = ProfileMTP
	virtual(t, o, func(t *testing.T, s *Server, dial func() net.Conn) {
		out, _ := writes(t, dial(), post("/v1/completions", `{"prompt":"a b c","max_tokens":64,"stream":true,"return_token_ids":true}`, "Connection: close\r\n"))
		chunks := len(out) - 3 // head, [DONE], last chunk
		if chunks < 16 || chunks > 40 {
			t.Errorf("64 tokens in %d chunks", chunks)
		}
	})
}

func TestServeEndsWithConnectionsOpen(t *testing.T) {
	virtual(t, slowOptions(), func(t *testing.T, s *Server, dial func() net.Conn) {
		for range 3 {
			c := dial()
			go func() {
				_, _ = io.WriteString(c, post("/v1/chat/completions", `{"stream":true,"max_tokens":4000,"messages":[{"role":"user","content":"x"}]}`))
				_, _ = io.Copy(io.Discard, c)
			}()
		}
		time.Sleep(time.Second)
		if st := s.State(); st.InFlight != 3 {
			t.Errorf("in flight: %d", st.InFlight)
		}
	})
}

func TestShutdownAbortsCleanly(t *testing.T) {
	virtual(t, slowOptions(), func(t *testing.T, s *Server, dial func() net.Conn) {
		stream, plain := dial(), dial()
		got := make(chan answer, 2)
		for c, body := range map[net.Conn]string{
			stream: `{"stream":true,"max_tokens":500,"messages":[{"role":"user","content":"x"}],"stream_options":{"include_usage":true}}`,
			plain:  `{"max_tokens":500,"messages":[{"role":"user","content":"x"}]}`,
		} {
			go func() {
				_, _ = io.WriteString(c, post("/v1/chat/completions", body))
				got <- readAnswer(t, bufio.NewReader(c))
			}()
		}
		time.Sleep(time.Second)
		s.Shutdown(t.Context(), true)
		for range 2 {
			a := <-got
			if a.status != 200 || !strings.Contains(a.body, `"finish_reason":"abort"`) {
				t.Errorf("status %d, body %q", a.status, a.body)
			}
			if strings.HasPrefix(a.body, "data:") && !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
				t.Errorf("stream ends with %q", a.body[max(0, len(a.body)-200):])
			}
		}
		_, _ = stream.Close(), plain.Close()
	})
}

// TestDrainSwallowsNewRequests: with --shutdown-timeout vLLM accepts
// connections and looks healthy, but generates nothing for new requests.
func TestDrainSwallowsNewRequests(t *testing.T) {
	virtual(t, slowOptions(), func(t *testing.T, s *Server, dial func() net.Conn) {
		old := dial()
		ended := make(chan answer, 1)
		go func() {
			_, _ = io.WriteString(old, post("/v1/completions", `{"prompt":"a","max_tokens":300}`))
			ended <- readAnswer(t, bufio.NewReader(old))
		}()
		time.Sleep(100 * time.Millisecond)
		drained := make(chan struct{})
		go func() { s.Shutdown(t.Context(), false); close(drained) }()
		time.Sleep(100 * time.Millisecond)
		c := dial()
		r := bufio.NewReader(c)
		for _, tc := range []struct {
			raw    string
			status int
			part   string
		}{
			{get("/health"), 200, ""},
			{post("/v1/completions", `{"prompt":"a"}`), 200, `"text":"","logprobs":null,"finish_reason":"abort"`},
			{post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`), 500, "cannot schedule new futures after shutdown"},
		} {
			go func() { _, _ = io.WriteString(c, tc.raw) }()
			if a := readAnswer(t, r); a.status != tc.status || !strings.Contains(a.body, tc.part) {
				t.Errorf("%.30q: %d %s", tc.raw, a.status, a.body)
			}
		}
		if a := <-ended; !strings.Contains(a.body, `"completion_tokens":300`) {
			t.Errorf("old request: %s", a.body)
		}
		<-drained
		_, _ = old.Close(), c.Close()
	})
}

// TestHungSchedulerKeepsHealth: only missing progress shows a hung engine.
func TestHungSchedulerKeepsHealth(t *testing.T) {
	virtual(t, slowOptions(), func(t *testing.T, s *Server, dial func() net.Conn) {
		if err := s.Fault(Fault{Kind: "hung", Seconds: 30}); err != nil {
			t.Fatal(err)
		}
		c := dial()
		begin := time.Now()
		out, _ := writes(t, c, post("/v1/chat/completions", `{"stream":true,"max_tokens":2,"messages":[{"role":"user","content":"x"}]}`))
		if len(out) != 6 { // head, role, two tokens, [DONE], end; the connection then idles out
			t.Errorf("%d writes: %q", len(out), out)
		}
		if d := time.Since(begin); d < 30*time.Second {
			t.Errorf("done after %v", d)
		}
		h := dial()
		s.core.Hang(true)
		go func() { _, _ = io.WriteString(h, get("/health")) }()
		if a := readAnswer(t, bufio.NewReader(h)); a.status != 200 {
			t.Errorf("health %d", a.status)
		}
		_ = h.Close()
	})
}
