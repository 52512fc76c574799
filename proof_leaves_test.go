package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"ramjet/engine"
	"ramjet/tokens"
	"ramjet/wire"
)

// TestForeignEngineLeaves: the ids of a model are not used while one of its
// engines has another tokenizer, and are again when that engine left.
func TestForeignEngineLeaves(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"count":1,"tokens":[99999999],"token_strs":null}`))
	}))
	t.Cleanup(s.Close)
	stays, leaves := simulated(t, 0), serving(t, s.URL, 1)
	leaves.engine.SetModels(engine.NewModels([]string{"m", "adapter"}, [][]byte{[]byte(`{"id":"m"}`), []byte(`{"id":"adapter"}`)}, nil))
	p := running(t, []*member{stays, leaves})
	body := []byte(`{"prompt":"the engine sails by night"}`)
	note := func(model string) string {
		var peek wire.Peeked
		var prep tokens.Prepared
		if err := peek.Peek(body); err != nil {
			t.Fatal(err)
		}
		p.model.Prepare(&prep, tokens.EndpointCompletions, []byte(model), body, &peek)
		defer prep.Release()
		return prep.Note
	}
	soon(t, "the model's ids are not used", func() bool { return note("m") == "foreign tokenizer" })
	for model, want := range map[string]string{"adapter": "foreign tokenizer", "": "foreign tokenizer", "n": ""} {
		if got := note(model); got != want {
			t.Errorf("model %q: %q, want %q", model, got, want)
		}
	}
	p.setEngines([]*member{stays})
	if got := note("m"); got != "" {
		t.Errorf("the engine left, and a prompt's ids are not known: %s", got)
	}
}
