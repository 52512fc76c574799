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
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// load sends streamed chats and counts what comes back. It is safe for
// concurrent use.
type load struct {
	url    string
	model  string
	client *http.Client
	start  time.Time

	mu      sync.Mutex // guards what follows
	engines map[string]*tally
	active  int
	failed  int
	err     error
}

// tally is what one engine served.
type tally struct {
	requests int
	tokens   int
	ttft     *hdrhistogram.Histogram // microseconds
}

func newLoad(url, model string) *load {
	return &load{
		url: url, model: model, start: time.Now(), engines: make(map[string]*tally),
		client: &http.Client{Transport: &http.Transport{Proxy: nil, MaxIdleConnsPerHost: 64}},
	}
}

// waitReady waits until the proxy says that it can serve.
func (l *load) waitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return fmt.Errorf("cannot ask %s: %w", url, err)
		}
		resp, err := l.client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot see the proxy become ready: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// request runs one streamed chat. Short and long prompts and answers mix, and
// each worker's turns share a conversation's beginning.
func (l *load) request(ctx context.Context, worker, turn int) {
	l.mu.Lock()
	l.active++
	l.mu.Unlock()
	engine, tokens, ttft, err := l.chat(ctx, prompt(worker, turn), 16<<(turn%4))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active--
	if err != nil {
		if ctx.Err() == nil {
			l.failed++
			l.err = err
		}
		return
	}
	t := l.engines[engine]
	if t == nil {
		t = &tally{ttft: hdrhistogram.New(1, 120_000_000, 2)}
		l.engines[engine] = t
	}
	t.requests++
	t.tokens += tokens
	_ = t.ttft.RecordValue(max(ttft.Microseconds(), 1))
}

func prompt(worker, turn int) string {
	text := fmt.Sprintf("Conversation %d. ", worker)
	return text + strings.Repeat("The river runs to the sea. ", 4<<(turn%5)) + fmt.Sprintf("Question %d?", turn)
}

func (l *load) chat(ctx context.Context, prompt string, limit int) (engine string, tokens int, ttft time.Duration, err error) {
	body, err := json.Marshal(map[string]any{
		"model": l.model, "stream": true, "max_tokens": limit,
		"stream_options": map[string]any{"include_usage": true},
		"messages":       []map[string]string{{"role": "user", "content": prompt}},
	})
	if err != nil {
		return "", 0, 0, fmt.Errorf("cannot write a request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", 0, 0, fmt.Errorf("cannot make a request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	start := time.Now()
	resp, err := l.client.Do(req)
	if err != nil {
		return "", 0, 0, fmt.Errorf("cannot send a request: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return "", 0, 0, fmt.Errorf("cannot get an answer: %s: %s", resp.Status, text)
	}
	tokens, ttft, err = readStream(resp.Body, start)
	return resp.Header.Get("X-Ramjet-Engine"), tokens, ttft, err
}

// readStream returns the tokens of usage and the time to the first event.
func readStream(r io.Reader, start time.Time) (tokens int, ttft time.Duration, err error) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return 0, 0, fmt.Errorf("cannot read the stream to its end: %w", err)
		}
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: "))
		if !ok {
			continue
		}
		if ttft == 0 {
			ttft = time.Since(start)
		}
		if string(data) == "[DONE]" {
			_, err := io.Copy(io.Discard, lines)
			return tokens, ttft, err
		}
		var event struct {
			Error *struct{ Message string }
			Usage *struct {
				Completion int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal(data, &event); err != nil {
			return 0, 0, fmt.Errorf("cannot read an event: %w", err)
		}
		if event.Error != nil {
			return 0, 0, errors.New("the stream ended with an error: " + event.Error.Message)
		}
		if event.Usage != nil {
			tokens = event.Usage.Completion
		}
	}
}

// totals is one reading of what was served.
type totals struct {
	requests, tokens map[string]int
	active, failed   int
	at               time.Time
}

func (l *load) totals() totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := totals{requests: map[string]int{}, tokens: map[string]int{}, active: l.active, failed: l.failed, at: time.Now()}
	for name, e := range l.engines {
		t.requests[name], t.tokens[name] = e.requests, e.tokens
	}
	return t
}

// line tells what happened since before.
func (t totals) line(before totals) string {
	seconds := t.at.Sub(before.at).Seconds()
	var b strings.Builder
	fmt.Fprintf(&b, "%s  in flight %2d", t.at.Format(time.TimeOnly), t.active)
	for _, name := range sortedKeys(t.requests) {
		fmt.Fprintf(&b, "   %s: %4.1f requests/s %6.0f tokens/s", name,
			float64(t.requests[name]-before.requests[name])/seconds, float64(t.tokens[name]-before.tokens[name])/seconds)
	}
	if t.failed > 0 {
		fmt.Fprintf(&b, "   failed %d", t.failed)
	}
	return b.String()
}

// printTable prints what each engine served.
func (l *load) printTable(out io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seconds := time.Since(l.start).Seconds()
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "engine\trequests\ttokens/s\tTTFT p50\tTTFT p99")
	names := make(map[string]int)
	for name := range l.engines {
		names[name] = 0
	}
	total, tokens := 0, 0
	for _, name := range sortedKeys(names) {
		t := l.engines[name]
		total += t.requests
		tokens += t.tokens
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%s\t%s\n", name, t.requests, float64(t.tokens)/seconds,
			micros(t.ttft.ValueAtQuantile(50)), micros(t.ttft.ValueAtQuantile(99)))
	}
	fmt.Fprintf(w, "all\t%d\t%.0f\t\t\n", total, float64(tokens)/seconds)
	_ = w.Flush()
	if l.failed > 0 {
		fmt.Fprintf(out, "%d requests failed\n", l.failed)
	}
}

func micros(v int64) string {
	return (time.Duration(v) * time.Microsecond).Round(100 * time.Microsecond).String()
}

func (l *load) firstError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func sortedKeys(m map[string]int) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
