package vllm

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"ramjet/tokens"
)

// handed writes ids as handing over does for chats and messages.
func handed(ids []uint32) string {
	list, _ := json.Marshal(ids)
	return `"kv_transfer_params":{"prompt_token_ids":` + string(list) + `}`
}

// testIDs shows what handing over rests on: vLLM takes the ids of a request instead of its messages, and the ids that
// Ramjet makes give the answer that the messages give.
func testIDs(t *testing.T, e *engine) {
	p, w := newPrompts(t, model(t, e.options.model)), newWriter(8)
	greedy := []string{`"temperature":0`, `"max_tokens":8`}
	for i := range 30 {
		c := w.chat()
		body := c.body(greedy...)
		ids, note := p.ids(t, tokens.EndpointChat, body)
		if note != "" {
			t.Fatalf("%s: %s", note, body)
		}
		post(t, e.url+"/v1/chat/completions", body).ok(t, "first") // from here on all find the same cache
		want := post(t, e.url+"/v1/chat/completions", body).ok(t, "messages")
		got := post(t, e.url+"/v1/chat/completions", c.body(append(greedy, handed(ids))...)).ok(t, "ids")
		if a, b := choices(t, got.body), choices(t, want.body); a != b {
			t.Errorf("chat %d: %s with ids, %s with messages", i, a, b)
		}
		if a, b := usageOf(t, "", got.body), usageOf(t, "", want.body); a != b {
			t.Errorf("chat %d: %+v with ids, %+v with messages", i, a, b)
		}
	}
	ids := bytes.Repeat([]byte("5,"), 70)
	list := `[` + string(ids[:len(ids)-1]) + `]`
	for _, c := range []struct {
		name, path, body string
		prompt           int // tokens; 0 = refused with 400
	}{
		{"chat", "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"kv_transfer_params":{"prompt_token_ids":` + list + `}}`, 70},
		{"chat with tools", "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"tools":[` + toolTexts[0] + `],"kv_transfer_params":{"prompt_token_ids":` + list + `}}`, 70},
		{"messages", "/v1/messages", `{"model":"tiny","messages":[{"role":"user","content":"x"}],"kv_transfer_params":{"prompt_token_ids":` + list + `}}`, 70},
		{"completions", "/v1/completions", `{"prompt":` + list + `}`, 70},
		{"an id that the vocabulary does not have", "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"kv_transfer_params":{"prompt_token_ids":[9999999]}}`, 0},
	} {
		a := post(t, e.url+c.path, strings.Replace(c.body, "{", `{"max_tokens":1,`, 1))
		if c.prompt == 0 {
			if a.status != 400 {
				t.Errorf("%s: answered %d %.300s", c.name, a.status, a.body)
			}
			continue
		}
		if n := usageOf(t, c.path, a.ok(t, c.name).body).Prompt; n != c.prompt {
			t.Errorf("%s: %d prompt tokens, %d ids were sent", c.name, n, c.prompt)
		}
	}
}

// choices is what an answer says, without ids and times.
func choices(t *testing.T, body []byte) string {
	t.Helper()
	v := decode[struct {
		Choices []struct {
			Message struct {
				Content, Reasoning *string
				ToolCalls          json.RawMessage `json:"tool_calls"`
			}
			FinishReason string `json:"finish_reason"`
		}
	}](t, body)
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
