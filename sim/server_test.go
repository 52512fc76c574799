package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"ramjet/e2e/ports"
)

// fast are options under which an answer takes milliseconds.
func fast() ServerOptions {
	return ServerOptions{Core: CoreOptions{Speed: 200, Seed: 7}, Model: "m"}
}

// start runs a server for the length of a test and fails it if the server
// does not end cleanly.
func start(t *testing.T, o ServerOptions) *Server {
	t.Helper()
	s, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil && !errors.Is(err, ErrDied) {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("Serve does not end")
		}
	})
	return s
}

// startKept is start at a port that stays the server's while it is closed.
func startKept(t *testing.T, o ServerOptions) *Server {
	t.Helper()
	o.Listen = ports.Kept(t)
	return start(t, o)
}

// dial opens a raw connection.
func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// post forms a raw POST with a JSON body and, in extra, whole header lines.
func post(path, body string, extra ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s",
		path, len(body), strings.Join(extra, ""), body)
}

// answer is one response read by net/http's reader.
type answer struct {
	status int
	header http.Header
	body   string
}

// exchange sends raw bytes on c and reads one response.
func exchange(t *testing.T, c net.Conn, raw string) answer {
	t.Helper()
	if _, err := io.WriteString(c, raw); err != nil {
		t.Fatal(err)
	}
	return readAnswer(t, bufio.NewReader(c))
}

func readAnswer(t *testing.T, r *bufio.Reader) answer {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("body: %v after %q", err, body)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// call makes one request on a connection of its own.
func call(t *testing.T, s *Server, raw string) answer {
	t.Helper()
	c := dial(t, s.Addr())
	defer c.Close()
	return exchange(t, c, raw)
}

func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n" }

// deltas joins the text of a chat stream and returns its events.
func deltas(t *testing.T, body string) (text string, events []string) {
	t.Helper()
	for _, e := range strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(e, "data: ")
		if !ok {
			t.Fatalf("event %q", e)
		}
		events = append(events, data)
		var c struct {
			Choices []struct {
				Delta struct{ Content string }
				Text  string
			}
		}
		if data != "[DONE]" {
			if err := json.Unmarshal([]byte(data), &c); err != nil {
				t.Fatalf("%v in %q", err, data)
			}
		}
		for _, ch := range c.Choices {
			text += ch.Delta.Content + ch.Text
		}
	}
	return text, events
}

// chatPrompt renders and tokenizes messages the way the server must.
func chatPrompt(t *testing.T, msgs ...ChatMessage) []uint32 {
	t.Helper()
	text, err := RenderChat(msgs, ChatOptions{AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	return Tokenizer().Encode(text)
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for !ok() {
		if time.Since(begin) > 10*time.Second {
			t.Fatal("never came: " + what)
		}
		time.Sleep(200 * time.Microsecond)
	}
	return time.Since(begin)
}

func TestChatStreamTellsTheWholeText(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	a := call(t, s, post("/v1/chat/completions", `{"model":"m","stream":true,"max_tokens":40,"messages":[{"role":"user","content":"Hello"}],"stream_options":{"include_usage":true}}`))
	text, events := deltas(t, a.body)
	want := ExpectedText(7, chatPrompt(t, ChatMessage{Role: "user", Content: "Hello"}), 40)
	if text != want || a.status != 200 {
		t.Errorf("status %d, text\n%q, want\n%q", a.status, text, want)
	}
	if events[len(events)-1] != "[DONE]" || !strings.Contains(events[len(events)-2], `"choices":[],`) {
		t.Errorf("ends with %q", events[len(events)-2:])
	}
	if !bytes.Contains([]byte(a.body), []byte(`"completion_tokens":40`)) {
		t.Error("no usage of 40 tokens")
	}
}
