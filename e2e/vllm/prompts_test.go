package vllm

import (
	"testing"

	"ramjet/tokens"
)

// chatArguments let a server take requests with tools, and take thoughts apart from answers, as most in use do.
var chatArguments = []string{"--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"}

// TestPrompts: with the vocabulary and template of Qwen3 Ramjet knows what vLLM gives to the model, id by id; through
// Ramjet the counts are the same; and ids that Ramjet hands over spare the engine the work.
func TestPrompts(t *testing.T) {
	e := startEngines(t, options{model: "long", context: 131072, blockSize: 128, events: true, arguments: chatArguments})[0]
	t.Run("chats", func(t *testing.T) { testChats(t, e, 200) })
	t.Run("completions", func(t *testing.T) { testCompletions(t, e, 48) })
	t.Run("messages", func(t *testing.T) {
		testCounts(t, e, tokens.EndpointMessages, "/v1/messages", newWriter(3).anthropic(60))
	})
	t.Run("responses", func(t *testing.T) {
		testCounts(t, e, tokens.EndpointResponses, "/v1/responses", newWriter(4).responses(60))
	})
	t.Run("drift", func(t *testing.T) { testDrift(t, e) })
	t.Run("ids", func(t *testing.T) { testIDs(t, e) })
	t.Run("through", func(t *testing.T) {
		testThrough(t, e)
	})
	t.Run("handoff", func(t *testing.T) {
		testHandoff(t, e)
	})
}
