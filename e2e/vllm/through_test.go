package vllm

import (
	"testing"
)

// testThrough: for requests of every API Ramjet's count of prompt tokens, made before the request was sent, is the
// engine's, and the decision record and the access line say so.
func testThrough(t *testing.T, e *engine) {
	r := startRamjet(t, []*engine{e})
	w := newWriter(5)
	r.awaitTrust() // keys are exact only where they can be compared with what an engine holds
	type request struct{ path, body string }
	var list []request
	for range 100 {
		list = append(list, request{"/v1/chat/completions", w.chat().body(`"max_tokens":1`)})
	}
	for _, body := range w.anthropic(30) {
		list = append(list, request{"/v1/messages", body})
	}
	for _, body := range w.responses(30) {
		list = append(list, request{"/v1/responses", body})
	}
	for range 20 {
		list = append(list, request{"/v1/completions", `{"model":"tiny","max_tokens":1,"prompt":` + w.quote("x"+w.text()) + `}`})
	}
	for i, q := range list {
		s := r.send(q.path, q.body)
		u := usageOf(t, q.path, s.body)
		x := r.explain(s.id)
		if x.Keys != "exact" || x.PromptTokens == nil || *x.PromptTokens != u.Prompt {
			t.Errorf("%d %s: keys %s (%s), %s prompt tokens; the engine counts %d\n%.400s", i, q.path, x.Keys, orNull(x.KeysNote), orNull(x.PromptTokens), u.Prompt, q.body)
		}
		if n := x.Result.PromptTokens; n == nil || *n != u.Prompt {
			t.Errorf("%d %s: the result says %s prompt tokens, the engine %d", i, q.path, orNull(n), u.Prompt)
		}
		line := r.accessLine(s.id)
		if line.Keys != "exact" || line.PromptTokens == nil || *line.PromptTokens != u.Prompt || line.Engine != e.name {
			t.Errorf("%d %s: the access line says engine %s, keys %s, %s prompt tokens; the engine counts %d", i, q.path, line.Engine, line.Keys, orNull(line.PromptTokens), u.Prompt)
		}
	}
	t.Logf("%d requests", len(list))
}
