package handoff

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const chatPath = "/v1/chat/completions"

// seen is what a client saw of one answer.
type seen struct {
	first          time.Duration // until the first event of the body: vLLM sends its head before it queues the request
	prompt, cached int           // tokens, as the engine counted them
}

// send posts a body and reads the whole stream.
func send(c *http.Client, base string, body []byte) (s seen, err error) {
	began := time.Now()
	resp, err := c.Post(base+chatPath, "application/json", bytes.NewReader(body))
	if err != nil {
		return s, fmt.Errorf("cannot ask: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			if resp.StatusCode != http.StatusOK {
				return s, fmt.Errorf("status %d: %.300s", resp.StatusCode, lines.Bytes())
			}
			continue
		}
		if s.first == 0 {
			s.first = time.Since(began)
		}
		var event struct {
			Error any `json:"error"`
			Usage *struct {
				Prompt  int `json:"prompt_tokens"`
				Details *struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			} `json:"usage"`
		}
		if json.Unmarshal(data, &event) == nil && event.Usage != nil {
			s.prompt = event.Usage.Prompt
			if event.Usage.Details != nil {
				s.cached = event.Usage.Details.Cached
			}
		}
		if event.Error != nil {
			return s, fmt.Errorf("the stream ended in an error: %.300s", data)
		}
	}
	if err := lines.Err(); err != nil {
		return s, fmt.Errorf("cannot read the answer: %w", err)
	}
	if s.prompt == 0 {
		return s, errors.New("the answer has no usage")
	}
	return s, nil
}
