package vllm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// client keeps connections, as SDKs do.
var client = &http.Client{Timeout: 5 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: 4 * time.Second}}

// answer is a whole response.
type answer struct {
	status int
	header http.Header
	body   []byte
	ttft   time.Duration // of a stream: until its first event
}

// post sends a body and reads the answer to its end.
func post(t *testing.T, url, body string, header ...string) *answer {
	t.Helper()
	a, err := tryPost(context.Background(), url, body, header...)
	if err != nil {
		t.Fatalf("POST %s: %v", url, err)
	}
	return a
}

func tryPost(ctx context.Context, url, body string, header ...string) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode, header: resp.Header}
	r := bufio.NewReader(resp.Body)
	if _, err := r.Peek(1); err == nil {
		a.ttft = time.Since(began)
	}
	a.body, err = io.ReadAll(r)
	return a, err
}

// ok fails the test unless the answer is a 200.
func (a *answer) ok(t *testing.T, what string) *answer {
	t.Helper()
	if a.status != http.StatusOK {
		t.Fatalf("%s: answered %d %.600s", what, a.status, a.body)
	}
	return a
}

// decode reads a JSON answer.
func decode[T any](t *testing.T, body []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("not the JSON that was expected: %v\n%.600s", err, body)
	}
	return v
}

// usage is what every API says of a request's tokens, brought to one form.
type usage struct {
	Prompt, Cached, Output int
}

type cachedTokens struct {
	N int `json:"cached_tokens"`
}

// usageOf reads usage out of a plain answer of any API.
func usageOf(t *testing.T, path string, body []byte) usage {
	t.Helper()
	v := decode[struct {
		Usage struct {
			PromptTokens     int          `json:"prompt_tokens"`
			CompletionTokens int          `json:"completion_tokens"`
			Details          cachedTokens `json:"prompt_tokens_details"`
			InputTokens      int          `json:"input_tokens"`
			OutputTokens     int          `json:"output_tokens"`
			InputDetails     cachedTokens `json:"input_tokens_details"`
			CacheRead        int          `json:"cache_read_input_tokens"`
			CacheCreation    int          `json:"cache_creation_input_tokens"`
		}
	}](t, body)
	u := v.Usage
	switch path {
	case "/v1/messages": // input_tokens are those that the cache had nothing to do with
		return usage{u.InputTokens + u.CacheRead + u.CacheCreation, u.CacheRead, u.OutputTokens}
	case "/v1/responses":
		return usage{u.InputTokens, u.InputDetails.N, u.OutputTokens}
	}
	return usage{u.PromptTokens, u.Details.N, u.CompletionTokens}
}

// event is what a chat stream's event holds of interest.
type event struct {
	Choices []struct {
		Delta struct {
			Content   string
			Reasoning string
		}
		FinishReason string `json:"finish_reason"`
	}
	Usage *json.RawMessage
}

// streamed puts a chat stream's text together and reads its usage (stream_options.include_usage).
func streamed(t *testing.T, body []byte) (text string, u usage) {
	t.Helper()
	for line := range bytes.Lines(body) {
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: "))
		if !ok || string(data) == "[DONE]" {
			continue
		}
		e := decode[event](t, data)
		for _, c := range e.Choices {
			text += c.Delta.Reasoning + c.Delta.Content
		}
		if e.Usage != nil && string(*e.Usage) != "null" {
			u = usageOf(t, "", fmt.Appendf(nil, `{"usage":%s}`, *e.Usage))
		}
	}
	if u.Prompt == 0 {
		t.Fatalf("a stream without usage: %.300s ..", body)
	}
	return text, u
}

// running reads a server's metrics and says what it still works on, "" for nothing.
func running(metrics io.Reader) string {
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		if line := lines.Text(); strings.HasPrefix(line, "vllm:num_requests_running") || strings.HasPrefix(line, "vllm:num_requests_waiting{") {
			if fields := strings.Fields(line); fields[len(fields)-1] != "0.0" {
				return line
			}
		}
	}
	if err := lines.Err(); err != nil {
		return err.Error()
	}
	return ""
}
