package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// load sends streamed chats and counts what comes back. It is safe for
// concurrent use.
type load struct {
	url    string // of the public port
	admin  string // of the admin port
	model  string
	client *http.Client
	start  time.Time

	mu            sync.Mutex // guards what follows
	engines       map[string]*tally
	known         seen
	with, without *hdrhistogram.Histogram // microseconds to the first token of long prompts that came back
	active        int
	failed        int
	err           error
}

// tally is what one engine served.
type tally struct {
	requests int
	tokens   int
	ttft     *hdrhistogram.Histogram // microseconds
}

func newLoad(public, admin, model string) *load {
	return &load{
		url: public, admin: admin, model: model, start: time.Now(), engines: make(map[string]*tally), with: newTimes(), without: newTimes(),
		client: &http.Client{Transport: &http.Transport{Proxy: nil, MaxIdleConnsPerHost: 64}},
	}
}

// newTimes counts microseconds up to two minutes.
func newTimes() *hdrhistogram.Histogram { return hdrhistogram.New(1, 120_000_000, 2) }

// Waits for a proxy that has just started.
const (
	readyLimit = 10 * time.Second
	// knownLimit is for what is good to have: events that are followed, ids that
	// are handed over. Without them the load runs as well.
	knownLimit = 5 * time.Second
)

// waitReady waits until the proxy says that it can serve, and then a while
// until it knows its engines: with ids until it hands them over.
func (l *load) waitReady(ctx context.Context, ids bool) error {
	limit, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for _, err := l.get(limit, "/readyz"); err != nil; _, err = l.get(limit, "/readyz") {
		if sleep(limit, 20*time.Millisecond); limit.Err() != nil {
			return fmt.Errorf("cannot see the proxy become ready: %w", err)
		}
	}
	limit, cancel = context.WithTimeout(ctx, knownLimit)
	defer cancel()
	for !l.settled(limit, ids) && limit.Err() == nil {
		sleep(limit, 50*time.Millisecond)
	}
	l.start = time.Now()
	return ctx.Err()
}

// settled reports whether the proxy follows every engine's cache and, with
// ids, has found out whether the engines read them.
func (l *load) settled(ctx context.Context, ids bool) bool {
	var topology struct {
		Engines []struct {
			Trust string `json:"trust"`
		} `json:"engines"`
	}
	body, err := l.get(ctx, "/api/v1/topology")
	if err != nil || json.Unmarshal(body, &topology) != nil {
		return false
	}
	for _, e := range topology.Engines {
		if e.Trust != "exact" {
			return false
		}
	}
	if !ids {
		return true
	}
	body, err = l.get(ctx, "/metrics")
	return err == nil && bytes.Count(body, []byte(`outcome="probed"} 1`)) == len(topology.Engines)
}

// get asks the admin port. An answer other than 200 is an error.
func (l *load) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.admin+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("cannot ask %s: %w", path, err)
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot ask %s: %w", path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAdminAnswer))
	if err != nil {
		return nil, fmt.Errorf("cannot read the answer to %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("cannot use the answer to %s: %s", path, resp.Status)
	}
	return body, nil
}

// answer is what came of one chat.
type answer struct {
	engine, id     string
	text           string
	prompt, output int // tokens, by the engine's usage
	match          int // tokens that the proxy believed cached
	ttft           time.Duration
}

// longPrompt is the prompt tokens from which on handing over is looked at: it
// is the default of handoff.min_tokens.
const longPrompt = 2048

// request asks a conversation's next question. It reports whether it was
// answered.
func (l *load) request(ctx context.Context, t *talk) bool {
	l.mu.Lock()
	l.active++
	l.mu.Unlock()
	returning := t.turn > 0
	a, err := l.chat(ctx, t.next(l.model))
	exact, handed := false, false
	if err == nil {
		t.answered(a.text)
		exact, handed = l.explained(ctx, a.id)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active--
	if err != nil {
		if ctx.Err() == nil {
			l.failed++
			l.err = err
		}
		return false
	}
	l.count(&a, returning, exact, handed)
	return true
}

// count takes in one answer; l.mu is held.
func (l *load) count(a *answer, returning, exact, handed bool) {
	e := l.engines[a.engine]
	if e == nil {
		e = &tally{ttft: newTimes()}
		l.engines[a.engine] = e
	}
	e.requests++
	e.tokens += a.output
	_ = e.ttft.RecordValue(max(a.ttft.Microseconds(), 1))
	l.known.requests++
	l.known.prompt += a.prompt
	l.known.cached += a.match
	if exact {
		l.known.exact++
	}
	times := l.without
	if handed {
		l.known.handed++
		times = l.with
	}
	if returning && a.prompt >= longPrompt {
		_ = times.RecordValue(max(a.ttft.Microseconds(), 1))
	}
}

// explained asks how a request was decided, and whether its ids went along.
// The record is kept when the answer has been sent, perhaps a moment after it
// was read here.
func (l *load) explained(ctx context.Context, id string) (exact, handed bool) {
	for range 10 {
		body, err := l.get(ctx, "/api/v1/explain/"+url.PathEscape(id))
		var x explanation
		if err == nil && json.Unmarshal(body, &x) == nil {
			return x.Keys == "exact", x.Handoff
		}
		if sleep(ctx, 5*time.Millisecond); ctx.Err() != nil {
			break
		}
	}
	return false, false
}

func (l *load) chat(ctx context.Context, request map[string]any) (a answer, err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return a, fmt.Errorf("cannot write a request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return a, fmt.Errorf("cannot make a request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	start := time.Now()
	resp, err := l.client.Do(req)
	if err != nil {
		return a, fmt.Errorf("cannot send a request: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return a, fmt.Errorf("cannot get an answer: %s: %s", resp.Status, text)
	}
	a.engine, a.id = resp.Header.Get("X-Ramjet-Engine"), resp.Header.Get("X-Request-Id")
	a.match, _ = strconv.Atoi(resp.Header.Get("X-Ramjet-Match"))
	return a, a.read(resp.Body, start)
}

// event is what is read of one event of a stream.
type event struct {
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	} `json:"usage"`
}

// read takes text, usage and the time to the first event from a stream.
func (a *answer) read(r io.Reader, start time.Time) error {
	lines := bufio.NewReader(r)
	var text strings.Builder
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("cannot read the stream to its end: %w", err)
		}
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: "))
		if !ok {
			continue
		}
		if a.ttft == 0 {
			a.ttft = time.Since(start)
		}
		if string(data) == "[DONE]" {
			a.text = text.String()
			_, err := io.Copy(io.Discard, lines)
			return err
		}
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("cannot read an event: %w", err)
		}
		if e.Error != nil {
			return errors.New("the stream ended with an error: " + e.Error.Message)
		}
		for _, c := range e.Choices {
			text.WriteString(c.Delta.Content)
		}
		if e.Usage != nil {
			a.prompt, a.output = e.Usage.Prompt, e.Usage.Completion
		}
	}
}

func (l *load) firstError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
