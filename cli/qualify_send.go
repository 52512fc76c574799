package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"

	"ramjet/config"
)

const chatPath = "/v1/chat/completions"

// publicPort is where clients send requests.
type publicPort struct {
	url, key string
	client   *http.Client
}

// findPublic finds the public port by --url, else by the configuration.
func findPublic(cfg *config.Config, url string, timeout time.Duration) (*publicPort, error) {
	p := &publicPort{url: strings.TrimSuffix(url, "/"), client: &http.Client{Timeout: timeout, Transport: &http.Transport{Proxy: nil}}}
	for _, listen := range cfg.Listen {
		if p.url == "" && !strings.HasPrefix(listen, "unix://") {
			p.url = "http://" + reachable(listen)
			if cfg.TLS.Cert != "" {
				p.url = "https://" + reachable(listen)
			}
		}
	}
	if p.url == "" {
		return nil, errors.New("cannot reach the public port: it is a socket file; give --url")
	}
	if cfg.Auth.KeysFile != "" {
		text, err := os.ReadFile(cfg.Auth.KeysFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read auth.keys_file: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				p.key = line
				break
			}
		}
	}
	return p, nil
}

// do sends one request and reads the whole answer.
func (p *publicPort) do(ctx context.Context, method, path, id, session, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("cannot ask %s: %w", p.url, err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if p.key != "" {
		req.Header.Set("Authorization", "Bearer "+p.key)
	}
	if id != "" {
		req.Header.Set("X-Request-Id", id)
	}
	if session != "" {
		req.Header.Set("X-Session-Id", session)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot reach Ramjet's public port (--url names it): %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAdminAnswer))
	if err != nil {
		return nil, fmt.Errorf("cannot read the answer to its end: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered %s: %.200s", resp.Status, answer)
	}
	return answer, nil
}

// post sends one request and returns the text that was generated.
func (p *publicPort) post(ctx context.Context, path, id, session, body string) (string, error) {
	answer, err := p.do(ctx, http.MethodPost, path, id, session, body)
	if err != nil {
		return "", err
	}
	return generated(answer)
}

// generated takes the text out of an answer, streamed or not. Of other APIs
// than chat it finds none, which only sessions of our own would need.
func generated(answer []byte) (string, error) {
	var text strings.Builder
	take := func(data []byte) error {
		var v struct {
			Choices []struct {
				Delta   struct{ Content string } `json:"delta"`
				Message struct{ Content string } `json:"message"`
			} `json:"choices"`
			Error any `json:"error"`
		}
		if err := json.Unmarshal(data, &v); err != nil {
			return fmt.Errorf("cannot read the answer: %w", err)
		}
		if v.Error != nil {
			return fmt.Errorf("the answer is an error: %.200s", data)
		}
		for _, c := range v.Choices {
			text.WriteString(c.Delta.Content + c.Message.Content)
		}
		return nil
	}
	if bytes.HasPrefix(answer, []byte("{")) {
		err := take(answer)
		return text.String(), err
	}
	for line := range bytes.Lines(answer) {
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: "))
		if !ok || string(data) == "[DONE]" {
			continue
		}
		if err := take(data); err != nil {
			return "", err
		}
	}
	return text.String(), nil
}

// model is the one to ask for.
func (q *qualifier) model(ctx context.Context) (string, error) {
	if q.o.Model != "" {
		return q.o.Model, nil
	}
	text, err := q.do(ctx, http.MethodGet, "/v1/models", "", "", "")
	if err != nil {
		return "", fmt.Errorf("cannot find out the model: %w", err)
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &list); err != nil || len(list.Data) == 0 {
		return "", errors.New("cannot find out the model: /v1/models lists none; give --model")
	}
	return list.Data[0].ID, nil
}

const (
	// together is how many sessions take turns, so that the events of an answer
	// have come before the session's next turn.
	together = 4
	// turns is how long a session is.
	turns = 5
	// settle is the least time between an answer and its session's next turn.
	settle = 50 * time.Millisecond
	// learnTurns bounds the turns that are not counted. They teach how many
	// blocks of a hit an engine computes again, which only answers can show
	// (vLLM up to 0.32 with MTP: one).
	learnTurns = 10
)

// chat is one session of ours.
type chat struct {
	q        *qualifier
	id       string
	model    string
	cap      int // most tokens of an answer
	words    int // of a message
	messages []map[string]string
	rng      *rand.Rand
	answered time.Time
	equal    int // turns in a row whose match was what was reported
}

// newChat begins a session. Short and long answers are asked for in turn: the
// profiles of engines can prefer either.
func (q *qualifier) newChat(model string, n, block int) *chat {
	c := &chat{
		q: q, id: fmt.Sprintf("qualify-%s-%d", q.run, n), model: model, cap: 16,
		words: max(96, block+block/4),                   // a word is a token at least
		rng:   rand.New(rand.NewPCG(q.seed, uint64(n))), //nolint:gosec // texts, not secrets
	}
	if n%2 == 1 {
		c.cap = 300
	}
	return c
}

// turn sends the session's next message.
func (c *chat) turn(ctx context.Context, counted bool) error {
	sleep(ctx, settle-time.Since(c.answered))
	text := c.text(c.words)
	if len(c.messages) == 0 {
		// Like no other from its first block on: one block in common would draw
		// all sessions to the engine that holds it. A model's own system
		// prompt would be such a block.
		c.message("system", fmt.Sprintf("%016x is the name of this conversation.", c.rng.Uint64()))
	}
	c.message("user", text)
	stream := c.rng.IntN(2) == 0
	body := map[string]any{
		"model": c.model, "messages": c.messages, "max_tokens": c.cap, "stream": stream,
		"stop": []string{".", "\n"}, // nobody reads long answers
	}
	if stream {
		body["stream_options"] = map[string]any{"include_usage": true}
	}
	written, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("cannot write a request: %w", err)
	}
	answer, x, err := c.q.ask(ctx, chatPath, c.id, string(written), counted)
	if err != nil {
		return err
	}
	c.answered = time.Now()
	c.message("assistant", answer)
	if x != nil {
		c.learn(x)
	}
	return nil
}

func (c *chat) message(role, content string) {
	c.messages = append(c.messages, map[string]string{"role": role, "content": content})
}

// learn counts the warm turns in a row that were foreseen.
func (c *chat) learn(x *qualified) {
	w := x.winner()
	switch reported := x.reported(); {
	case reported != w.MatchExact:
		c.equal = 0
	case reported > 0:
		c.equal++
	}
}

var qualifyWords = strings.Fields("river stone window paper garden winter letter bridge market silver corner engine forest mirror candle harbor")

func (c *chat) text(words int) string {
	var b strings.Builder
	for range words {
		b.WriteString(qualifyWords[c.rng.IntN(len(qualifyWords))])
		b.WriteByte(' ')
	}
	b.WriteString("Which word came first?")
	return b.String()
}

// sendOwn sends sessions of our own.
func (q *qualifier) sendOwn(ctx context.Context, block int) error {
	model, err := q.model(ctx)
	if err != nil {
		return err
	}
	n := 0
	begin := func(count int) (list []*chat) {
		for range count {
			list = append(list, q.newChat(model, n, block))
			n++
		}
		return list
	}
	learning := begin(2)
	for range learnTurns {
		for _, c := range learning {
			if c.equal >= 2 {
				continue
			}
			if err := c.turn(ctx, false); err != nil {
				return err
			}
		}
	}
	q.tally.Learning = q.sent
	for q.sent-q.tally.Learning < q.o.Requests {
		chats := begin(together)
		for range turns {
			for _, c := range chats {
				if q.sent-q.tally.Learning == q.o.Requests {
					return nil
				}
				if err := c.turn(ctx, true); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
