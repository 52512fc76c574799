package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ramjet/e2e/ports"
)

// textSeed is the seed of every engine's words: an answer depends on it and on
// the prompt alone, so that any engine, and the undisturbed one, says the same.
const textSeed = "11"

// sim is a simulated engine in a process of its own. It keeps its ports when
// it comes back.
type sim struct {
	name  string
	path  string // of the binary
	flags []string

	mu   sync.Mutex // guards the following
	addr string
	live string // where its events are, "" for none
	past string
	cmd  *exec.Cmd     // nil while it is down
	done chan struct{} // closed when its process has ended
	told *exec.Cmd     // the process that was told to end last
	lost []string      // ends that nobody asked for, with the process's own words
}

// diedOnOrder is what a simulator says that ends because of a fault die.
const diedOnOrder = "the simulated engine died"

// crashed is the exit status of a Go program that panicked.
const crashed = 2

// lastWords keeps the beginning of what a process says on stderr, which holds
// the reason of a panic. To be read once the process has ended.
type lastWords struct{ kept []byte }

func (l *lastWords) Write(b []byte) (int, error) {
	l.kept = append(l.kept, b[:min(len(b), 8<<10-len(l.kept))]...)
	return len(b), nil
}

// ended judges the end of a process, which has come, and forgets the process.
func (s *sim) ended(cmd *exec.Cmd, words string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == cmd {
		s.cmd = nil
	}
	ordered := s.told == cmd || strings.Contains(words, diedOnOrder)
	if !ordered || cmd.ProcessState.ExitCode() == crashed {
		s.lost = append(s.lost, fmt.Sprintf("engine %s ended by itself (%v): %s", s.name, cmd.ProcessState, words))
	}
}

// losses returns the ends that nobody asked for.
func (s *sim) losses() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lost)
}

// anyHost begins an endpoint that an engine binds: by vLLM's rule (0.32) one
// without a star is one to connect to.
const anyHost = "tcp://*:"

// newSim starts an engine that ends with the test, which fails if a process of
// the engine ended in another way than by the test's doing.
func newSim(t testing.TB, name string, events bool, flags ...string) *sim {
	t.Helper()
	s := &sim{name: name, path: binary(t, false), addr: ports.Kept(t), flags: append([]string{"--model=m", "--seed=" + textSeed}, flags...)}
	if events {
		s.live, s.past = anyHost+port(ports.Kept(t)), anyHost+port(ports.Kept(t))
	}
	if err := s.start(); err != nil {
		t.Fatalf("cannot start engine %s: %v", name, err)
	}
	t.Cleanup(func() {
		s.end(syscall.SIGKILL)
		for _, l := range s.losses() {
			t.Error(l)
		}
	})
	return s
}

func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// start begins the process and waits until it listens. A second call while it
// runs does nothing.
func (s *sim) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		return nil
	}
	args := append([]string{"sim", "--listen=" + s.addr}, s.flags...)
	if s.live != "" {
		args = append(args, "--events="+s.live, "--replay="+s.past)
	}
	cmd := exec.Command(s.path, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var words lastWords
	cmd.Stderr = &words
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewReader(out)
	for _, w := range []struct {
		from string
		host bool
		to   *string
	}{{"http://", false, &s.addr}, {"events on ", true, &s.live}, {"replay on ", true, &s.past}} {
		if *w.to == "" {
			continue
		}
		line, err := lines.ReadString('\n')
		_, value, ok := strings.Cut(strings.TrimSpace(line), w.from)
		if !ok {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return fmt.Errorf("it said %q (%w)", line, err)
		}
		*w.to = value
		if w.host {
			*w.to = anyHost + port(value)
		}
	}
	done := make(chan struct{})
	s.cmd, s.done = cmd, done
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		_ = cmd.Wait()
		s.ended(cmd, string(words.kept))
		close(done)
	}()
	return nil
}

// signal signals the process, if there is one.
func (s *sim) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(sig)
	}
}

// end signals the process and waits until it is gone; one that does not go by
// itself is killed.
func (s *sim) end(sig syscall.Signal) {
	s.mu.Lock()
	cmd, done := s.cmd, s.done
	if cmd != nil {
		s.told = cmd
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Signal(sig)
	}
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		_ = cmd.Process.Kill()
		<-done
	}
}

// control sends an order to the simulator; one that is down obeys none.
func (s *sim) control(path, body string) error {
	r, err := plainHTTP.Post("http://"+s.addr+path, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if text, _ := io.ReadAll(r.Body); r.StatusCode != 200 {
		return fmt.Errorf("%s: %d %s", path, r.StatusCode, text)
	}
	return nil
}

// simState is what a simulator tells of itself.
type simState struct {
	InFlight int `json:"in_flight"`
	Blocks   int `json:"kv_blocks_cached"` // holding content
}

func (s *sim) state() (st simState, err error) {
	status, body := get("http://" + s.addr + "/sim/state")
	if status != 200 {
		return st, fmt.Errorf("/sim/state: %d %s", status, body)
	}
	return st, json.Unmarshal([]byte(body), &st)
}

// plainHTTP opens a connection per request, so that none counts as held.
var plainHTTP = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// get returns status 0 and the error when there is no answer.
func get(url string) (status int, body string) {
	r, err := plainHTTP.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err.Error()
	}
	return r.StatusCode, string(b)
}

// oracle is an engine that nobody disturbs: what it answers is what must be
// answered. Safe for concurrent use.
type oracle struct {
	s      *sim
	client *http.Client
}

func newOracle(t testing.TB) *oracle {
	t.Helper()
	return &oracle{s: newSim(t, "oracle", false, "--speed=1000"), client: &http.Client{Timeout: 30 * time.Second}}
}

// text returns the whole text that belongs to a request.
func (o *oracle) text(path string, body []byte) (string, error) {
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		return "", err
	}
	delete(m, "stream")
	delete(m, "stream_options")
	plain, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	r, err := o.client.Post("http://"+o.s.addr+path, "application/json", strings.NewReader(string(plain)))
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return "", err
	}
	text, finished, _ := wholeText(path, b)
	if r.StatusCode != 200 || !finished {
		return "", fmt.Errorf("the undisturbed engine answered %d %.300s", r.StatusCode, b)
	}
	return text, nil
}

// finished are the words for an answer that came to its proper end, of all
// dialects.
var finished = []string{"stop", "length", "end_turn", "max_tokens", "completed", "incomplete"}

// wholeText reads a plain answer of any of the APIs, and whether it came to its
// proper end or says that it was given up.
func wholeText(path string, body []byte) (text string, ok, aborted bool) {
	var a struct {
		Choices []struct {
			Text    string
			Message struct{ Content string }
			Finish  string `json:"finish_reason"`
		}
		Content []struct{ Text string }
		Stop    string `json:"stop_reason"`
		Status  string
		Details struct{ Reason string } `json:"incomplete_details"`
		Output  []struct{ Content []struct{ Text string } }
		Tokens  json.RawMessage
	}
	if json.Unmarshal(body, &a) != nil {
		return "", false, false
	}
	var b strings.Builder
	for _, c := range a.Choices {
		b.WriteString(c.Text + c.Message.Content)
		a.Stop = c.Finish
	}
	for _, c := range a.Content {
		b.WriteString(c.Text)
	}
	for _, item := range a.Output {
		for _, c := range item.Content {
			b.WriteString(c.Text)
		}
	}
	switch path {
	case "/tokenize":
		return string(a.Tokens), len(a.Tokens) > 0, false
	case "/v1/responses":
		// The same word stands for a limit and for an engine that gave up.
		if a.Stop = a.Status; a.Stop == "incomplete" && a.Details.Reason != "max_output_tokens" {
			return b.String(), false, true
		}
	}
	return b.String(), slices.Contains(finished, a.Stop), false
}
