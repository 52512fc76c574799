package sdk

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// traceFile holds real prompts of three agents (LMCache's agent trace). It lies beside the repository, not in it.
const traceFile = "../../../shared/traces/lmcache_agent_text.jsonl.gz"

// tracePrompts returns n real prompts, spread over the whole trace.
func tracePrompts(t *testing.T, n int) []string {
	t.Helper()
	path := traceFile
	if _, err := os.Stat(path); err != nil {
		path = strings.TrimPrefix(traceFile, "../") // beside the root's own files
	}
	f, err := os.Open(path)
	if err != nil {
		t.Skipf("no traces beside the repository (%s), so no real prompts are sent", traceFile)
	}
	defer f.Close()
	zr, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	lines := bufio.NewScanner(zr)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var record struct{ Input string }
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
			t.Fatal(err)
		}
		if record.Input != "" {
			all = append(all, record.Input)
		}
	}
	if len(all) < n {
		t.Fatalf("the trace holds %d prompts, want %d: %v", len(all), n, lines.Err())
	}
	prompts := make([]string, n)
	for i := range prompts {
		prompts[i] = all[i*len(all)/n]
	}
	return prompts
}

// varying is what two answers to one question may differ in: when it was asked, and what was cached by then.
var varying = regexp.MustCompile(`"(created|created_at|completed_at|cached_tokens|created_cache_tokens|cache_read_input_tokens|cache_creation_input_tokens)":[0-9.]+`)

// Real prompts through Ramjet get exactly the answers that the engine gives when it is asked directly, and the engine
// gets exactly the bytes that the client sent.
func TestRealPromptsGetTheEnginesOwnAnswers(t *testing.T) {
	t.Parallel()
	const requests, workers = 240, 12
	prompts := tracePrompts(t, requests)
	s := start(t, "40")
	sent := make([]string, requests)
	work := make(chan int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range work {
				sent[i] = compare(t, s, i, prompts[i])
			}
		})
	}
	for i := range prompts {
		work <- i
	}
	close(work)
	wg.Wait()

	// Each engine remembers the sums of its last 1,000 bodies.
	seen := map[string]int{}
	for name, url := range s.engines {
		var state struct{ Bodies []string }
		if err := json.Unmarshal([]byte(s.get(t, url+"/sim/state")), &state); err != nil {
			t.Fatalf("engine %s: %v", name, err)
		}
		for _, sum := range state.Bodies {
			seen[sum]++
		}
	}
	for i, sum := range sent {
		if seen[sum] < 2 {
			t.Errorf("request %d: its bytes came to an engine %d times, want twice: through Ramjet and directly", i, seen[sum])
		}
	}
}

// compare sends one prompt through Ramjet and then to the engine that answered, and returns the sum of the body.
func compare(t *testing.T, s *setup, i int, prompt string) string {
	path, body := traceRequest(i, prompt)
	id := fmt.Sprintf("trace-%d", i)
	engine, got := post(t, s.public+path, id, body)
	if s.engines[engine] == "" {
		t.Errorf("request %d: no engine in the answer: %.300s", i, got)
		return ""
	}
	_, want := post(t, s.engines[engine]+path, id, body)
	if digest(got) != digest(want) {
		t.Errorf("request %d %s to %s: the answer differs\ngot  %.600s\nwant %.600s", i, path, engine, got, want)
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// traceRequest makes a request of the i-th prompt: every API in turn, streamed and not.
func traceRequest(i int, prompt string) (path string, body []byte) {
	request := map[string]any{"model": "sim", "stream": i%2 == 0}
	messages := []map[string]string{{"role": "user", "content": prompt}}
	const tokens = 24
	switch i / 2 % 4 {
	case 0, 1:
		path = "/v1/chat/completions"
		request["messages"], request["max_tokens"] = messages, tokens
	case 2:
		path = "/v1/completions"
		request["prompt"], request["max_tokens"] = prompt, tokens
	case 3:
		path = "/v1/messages"
		request["messages"], request["max_tokens"] = messages, tokens
	}
	body, err := json.Marshal(request)
	if err != nil {
		panic("BUG: a map of plain values cannot be marshalled: " + err.Error())
	}
	return path, body
}

func post(t *testing.T, url, id string, body []byte) (engine string, answer []byte) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return "", nil
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)
	resp, err := client.Do(req)
	if err != nil {
		t.Errorf("%s %s: %v", url, id, err)
		return "", nil
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s %s: status %d, %v: %.300s", url, id, resp.StatusCode, err, answer)
	}
	return resp.Header.Get("X-Ramjet-Engine"), answer
}

// digest is the sum of an answer. Of a stream it is that of the events put together, since how many tokens come in
// one event is a matter of timing on an engine that predicts several.
func digest(answer []byte) [32]byte {
	if !bytes.Contains(answer, []byte("\ndata: ")) && !bytes.HasPrefix(answer, []byte("data: ")) {
		return sha256.Sum256(varying.ReplaceAll(answer, nil))
	}
	whole := sha256.New()
	for line := range bytes.Lines(answer) {
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		var event struct {
			Type    string
			Choices []struct {
				Text         string
				Delta        struct{ Content string }
				FinishReason *string `json:"finish_reason"`
			}
			Delta struct {
				Text       string
				StopReason *string `json:"stop_reason"`
			}
		}
		if json.Unmarshal(data, &event) != nil {
			whole.Write(data) // [DONE]
			continue
		}
		if event.Type != "" && event.Type != "content_block_delta" {
			fmt.Fprint(whole, event.Type)
		}
		for _, c := range event.Choices {
			fmt.Fprint(whole, c.Text, c.Delta.Content)
			if c.FinishReason != nil {
				fmt.Fprint(whole, "\x00", *c.FinishReason)
			}
		}
		fmt.Fprint(whole, event.Delta.Text)
		if event.Delta.StopReason != nil {
			fmt.Fprint(whole, "\x00", *event.Delta.StopReason)
		}
	}
	return [32]byte(whole.Sum(nil))
}
