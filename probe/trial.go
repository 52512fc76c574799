package probe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// trialTimes is how many check time-outs a trial may take and how far apart
// trials are: it waits behind whatever the engine is busy with.
const trialTimes = 10

// try sends a trial to a suspect engine that answers its checks but finished
// no request since.
func (m *Monitor) try(ctx context.Context, w *watch, trials *sync.WaitGroup) {
	m.mu.Lock()
	due := w.h.state == telemetry.StateSuspect && w.h.good >= recoverGood && !w.h.finished
	m.mu.Unlock()
	limit := trialTimes * m.tuning.Load().Timeout
	if !due || time.Since(w.tried) < limit || w.trying.Swap(true) {
		return
	}
	w.tried = time.Now()
	trials.Go(func() {
		defer w.trying.Store(false)
		tctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		err := m.o.Trial(tctx, w.e)
		switch {
		case err == nil:
			m.apply(w, event{kind: requestGood})
		case ctx.Err() == nil:
			m.o.Log.Throttled("trial "+w.e.Name, telemetry.LevelWarn, "trial request failed", "engine", w.e.Name, "error", err)
		}
	})
}

// tryCompletion asks for a completion of one token and demands a whole answer
// that the engine did not give up: a stopping vLLM answers 200 with
// finish_reason "abort".
func tryCompletion(ctx context.Context, e *engine.Engine) error {
	c, err := e.Pool().Dial(ctx)
	if err != nil {
		return fmt.Errorf("cannot try %s: %w", e.Name, err)
	}
	defer func() { _ = c.Close() }()
	if d, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(d)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if _, err := c.Write(trialRequest(e)); err != nil {
		return fmt.Errorf("cannot try %s: %w", e.Name, err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return fmt.Errorf("cannot try %s: %w", e.Name, err)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxModels))
	_ = resp.Body.Close()
	if err != nil {
		return fmt.Errorf("cannot try %s: %w", e.Name, err)
	}
	return judgeTrial(e, resp.StatusCode, body)
}

func judgeTrial(e *engine.Engine, status int, body []byte) error {
	if status != http.StatusOK {
		return fmt.Errorf("cannot try %s: it answered %d", e.Name, status)
	}
	var answer struct {
		Choices []struct {
			FinishReason string `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("cannot try %s: %w", e.Name, err)
	}
	if len(answer.Choices) == 0 || answer.Choices[0].FinishReason == "abort" {
		return fmt.Errorf("cannot try %s: it gave the request up", e.Name)
	}
	return nil
}

func trialRequest(e *engine.Engine) []byte {
	body := map[string]any{"prompt": "1", "max_tokens": 1, "temperature": 0}
	if m := e.Models(); m != nil && len(m.IDs) > 0 {
		body["model"] = m.IDs[0]
	}
	raw, err := json.Marshal(body)
	if err != nil {
		panic("BUG: a trial cannot be written: " + err.Error())
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /v1/completions HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nAccept-Encoding: identity\r\n", e.Address())
	if key := e.Settings().APIKey; key != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", key)
	}
	fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(raw), raw)
	return b.Bytes()
}
