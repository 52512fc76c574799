package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// readModels reads /v1/models when it is due: never read since the engine was
// down, or longer ago than the interval. It runs before the check counts, so
// that an engine is not usable before it is known what it serves. A list that
// cannot be read leaves the last one in place.
func (m *Monitor) readModels(ctx context.Context, w *watch) {
	now := time.Now()
	if w.e.Models() != nil && !w.modelsRead.IsZero() && now.Sub(w.modelsRead) < m.o.ModelsEvery {
		return
	}
	cctx, cancel := context.WithTimeout(ctx, m.tuning.Load().Timeout)
	defer cancel()
	status, body, err := m.o.Get(cctx, w.e, "/v1/models", nil, maxModels)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("cannot read /v1/models: it answered %d", status)
	}
	var list *engine.Models
	if err == nil {
		list, err = parseModels(body)
	}
	if err != nil {
		if ctx.Err() == nil {
			m.o.Log.Throttled("models "+w.e.Name, telemetry.LevelWarn, "cannot read models", "engine", w.e.Name, "error", err)
		}
		return
	}
	w.modelsRead = now
	w.e.SetModels(list)
}

// parseModels reads an OpenAI model list, keeping each object's bytes. Entries
// without an id are dropped; a body without a data array is an error.
func parseModels(body []byte) (*engine.Models, error) {
	var list struct {
		Data *[]json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("cannot parse /v1/models: %w", err)
	}
	if list.Data == nil {
		return nil, fmt.Errorf("cannot parse /v1/models: there is no data array")
	}
	var ids []string
	var objects [][]byte
	for _, raw := range *list.Data {
		var obj struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(raw, &obj); err != nil || obj.ID == "" {
			continue
		}
		ids = append(ids, obj.ID)
		objects = append(objects, raw)
	}
	return engine.NewModels(ids, objects, body), nil
}
