package rig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	createdAt   = regexp.MustCompile(`"created":[0-9]+`)
	contentText = regexp.MustCompile(`"content":"[^"]*"`)
)

// Skeleton is a stream without its times and without how its tokens were spread
// over events, which differs from one answer to the next: the first event, those
// at the end, and the text.
func (p *Reply) Skeleton() string {
	events := strings.Split(createdAt.ReplaceAllString(string(p.Raw), "CREATED"), "\n\n")
	for i := range events {
		events[i] = contentText.ReplaceAllString(events[i], "CONTENT")
	}
	end := max(len(events)-3, 0)
	return events[0] + "\n" + strings.Join(events[end:], "\n") + "\n" + p.Text
}

// Asker sends requests over connections of its own, kept alive.
type Asker struct {
	Base   string
	Client *http.Client
	Close  func()
}

// Asker returns one for the public port; its connections end with the test, or
// with Close.
func (r *Ramjet) Asker(t testing.TB) *Asker { return NewAsker(t, "http://"+r.Public) }

// NewAsker returns one for a base URL; its connections end with the test, or with
// Close.
func NewAsker(t testing.TB, base string) *Asker {
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	a := &Asker{Base: base, Client: &http.Client{Transport: tr, Timeout: 6 * Patience}, Close: tr.CloseIdleConnections}
	t.Cleanup(a.Close)
	return a
}

// Reply is what a client sees of one answer.
type Reply struct {
	ID             string
	Status         int
	Engine, Reason string
	Match          int // X-Ramjet-Match; -1 without
	Route          float64
	Usage          bool
	Prompt, Cached int
	Output         int
	Text           string
	Raw            []byte
	Err            error
	Began, Ended   time.Time
}

// Ok reports whether the answer is whole.
func (p *Reply) Ok() bool { return p.Err == nil && p.Status == 200 && p.Output > 0 }

func (p *Reply) String() string {
	return fmt.Sprintf("%s %d %s(%s): match %d, cached %d of %d, output %d, error %v", p.ID, p.Status, p.Engine, p.Reason, p.Match, p.Cached, p.Prompt, p.Output, p.Err)
}

// Chat sends one streamed chat request and reads the answer.
func (a *Asker) Chat(id, body string) (p Reply) { return a.Post("/v1/chat/completions", id, body) }

// Post sends a request under an id and reads the answer to its end.
func (a *Asker) Post(path, id, body string) (p Reply) {
	p = Reply{ID: id, Match: -1, Began: time.Now()}
	defer func() { p.Ended = time.Now() }()
	req, err := http.NewRequest("POST", a.Base+path, strings.NewReader(body))
	if err != nil {
		p.Err = err
		return p
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)
	resp, err := a.Client.Do(req)
	if err != nil {
		p.Err = err
		return p
	}
	defer func() { _ = resp.Body.Close() }()
	p.Status, p.Engine, p.Reason = resp.StatusCode, resp.Header.Get("X-Ramjet-Engine"), resp.Header.Get("X-Ramjet-Reason")
	if n, err := strconv.Atoi(resp.Header.Get("X-Ramjet-Match")); err == nil {
		p.Match = n
	}
	for part := range strings.SplitSeq(resp.Header.Get("Server-Timing"), ",") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(part), "route;dur="); ok {
			p.Route, _ = strconv.ParseFloat(v, 64)
			p.Route /= 1000
		}
	}
	if p.Raw, p.Err = io.ReadAll(resp.Body); p.Err == nil {
		p.Read()
	}
	return p
}

// Read takes the text and the usage out of the answer.
func (p *Reply) Read() {
	var text strings.Builder
	events := bytes.Split(p.Raw, []byte("\n\n"))
	if !bytes.HasPrefix(p.Raw, []byte("data:")) {
		events = [][]byte{p.Raw}
	}
	for _, e := range events {
		e = bytes.TrimPrefix(bytes.TrimSpace(e), []byte("data: "))
		if len(e) == 0 || string(e) == "[DONE]" {
			continue
		}
		var v struct {
			Choices []struct {
				Text    string                   `json:"text"`
				Delta   struct{ Content string } `json:"delta"`
				Message struct{ Content string } `json:"message"`
			} `json:"choices"`
			Usage *struct {
				Prompt  int `json:"prompt_tokens"`
				Output  int `json:"completion_tokens"`
				Details *struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			} `json:"usage"`
			Error any `json:"error"`
		}
		if err := json.Unmarshal(e, &v); err != nil {
			p.Err = fmt.Errorf("event %.200q: %w", e, err)
			return
		}
		if v.Error != nil {
			p.Err = fmt.Errorf("error event: %v", v.Error)
			return
		}
		for _, c := range v.Choices {
			text.WriteString(c.Text + c.Delta.Content + c.Message.Content)
		}
		if v.Usage != nil {
			p.Usage, p.Prompt, p.Output = true, v.Usage.Prompt, v.Usage.Output
			if d := v.Usage.Details; d != nil {
				p.Cached = d.Cached
			}
		}
	}
	p.Text = text.String()
}
