package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// trialTimes is how many check time-outs a trial may take and how far apart
// trials are: it waits behind whatever the engine is busy with.
const trialTimes = 10

// ErrTrialRefused is an answer 4xx to a trial that is for ever the same: the engine demands a key that
// only clients have, or serves none of what a trial asks for.
var ErrTrialRefused = errors.New("the engine refuses Ramjet's own request")

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
		case errors.Is(err, ErrTrialRefused):
			m.apply(w, event{kind: trialRefused})
			m.o.Log.Throttled("trial "+w.e.Name, telemetry.LevelWarn, "trial request refused: give the engine an api_key_file, or make it ready by hand", "engine", w.e.Name, "error", err)
		case ctx.Err() == nil:
			m.o.Log.Throttled("trial "+w.e.Name, telemetry.LevelWarn, "trial request failed", "engine", w.e.Name, "error", err)
		}
	})
}

// tryCompletion asks for a completion of one token and demands a whole answer
// that the engine did not give up: a stopping vLLM answers 200 with
// finish_reason "abort". An engine that generates nothing is asked for an
// embedding, which its scheduler has to compute as well.
func tryCompletion(ctx context.Context, e *engine.Engine) error {
	status, body, err := e.Post(ctx, "/v1/completions", trialBody(e, map[string]any{"prompt": "1", "max_tokens": 1, "temperature": 0}), maxModels)
	if err != nil {
		return fmt.Errorf("cannot try %s: %w", e.Name, err)
	}
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return tryEmbedding(ctx, e)
	}
	return judgeTrial(e, status, body)
}

func tryEmbedding(ctx context.Context, e *engine.Engine) error {
	status, _, err := e.Post(ctx, "/v1/embeddings", trialBody(e, map[string]any{"input": "1"}), maxModels)
	if err != nil {
		return fmt.Errorf("cannot try %s: %w", e.Name, err)
	}
	return judgeStatus(e, status)
}

func judgeStatus(e *engine.Engine, status int) error {
	switch {
	case status == http.StatusOK:
		return nil
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		// The word of an engine with too much to do, not of one that may do nothing for Ramjet.
	case status >= 400 && status < 500:
		return fmt.Errorf("cannot try %s: it answered %d: %w", e.Name, status, ErrTrialRefused)
	}
	return fmt.Errorf("cannot try %s: it answered %d", e.Name, status)
}

func judgeTrial(e *engine.Engine, status int, body []byte) error {
	if err := judgeStatus(e, status); err != nil {
		return err
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

func trialBody(e *engine.Engine, body map[string]any) []byte {
	if m := e.Models(); m != nil && len(m.IDs) > 0 {
		body["model"] = m.IDs[0]
	}
	raw, err := json.Marshal(body)
	if err != nil {
		panic("BUG: a trial cannot be written: " + err.Error())
	}
	return raw
}
