package rig

import (
	"fmt"
	"strings"
)

// AbortAnswers are what a stopping vLLM says: 200, well formed, no token, and an
// abort that no client asked for. The body of a stream comes in one write, so
// that nothing of it is out when the abort is seen.
var AbortAnswers = []struct{ Name, Path, Body, Raw string }{
	{"chat, stream", ChatPath, ChatBody(true), StreamHead + Chunked([]string{RoleEvent(), FinishEvent("abort"), DoneEvent})},
	{"chat, no stream", ChatPath, ChatBody(false), JSONResponse(200, strings.NewReplacer(`"stop"`, `"abort"`, `"hello"`, `""`, `"completion_tokens":2`, `"completion_tokens":0`).Replace(ChatAnswer("hello")))},
	{"completions, no stream", "/v1/completions", `{"model":"m","prompt":"x"}`,
		JSONResponse(200, `{"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"abort","stop_reason":null}],"usage":{"prompt_tokens":3,"total_tokens":3,"completion_tokens":0}}`)},
	{"completions, stream", "/v1/completions", `{"model":"m","prompt":"x","stream":true}`,
		StreamHead + Chunked([]string{`data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"abort","stop_reason":null}]}` + "\n\n", DoneEvent})},
	{"messages, no stream", MessagesPath, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}`,
		JSONResponse(200, `{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m","stop_reason":"abort","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":0}}`)},
	{"responses, no stream", ResponsesPath, `{"model":"m","input":"x"}`,
		JSONResponse(200, `{"id":"resp_1","object":"response","created_at":1,"status":"incomplete","incomplete_details":{"reason":"abort"},"model":"m","output":[],"usage":{"input_tokens":3,"output_tokens":0,"total_tokens":3}}`)},
}

// The words below are shaped as vLLM 0.32 writes them; content is ours.

const (
	// ChatPath is where chat completions are asked for.
	ChatPath = "/v1/chat/completions"
	// MessagesPath is Anthropic's API.
	MessagesPath = "/v1/messages"
	// ResponsesPath is OpenAI's newer API.
	ResponsesPath = "/v1/responses"

	// StreamHead is vLLM's head of a stream (uvicorn's lower-case names).
	StreamHead = "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 06:00:00 GMT\r\nserver: uvicorn\r\n" +
		"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"

		// DoneEvent ends a stream of the OpenAI APIs.
	DoneEvent = "data: [DONE]\n\n"
)

// ChatBody is a small chat request, padded with extra members (`"x":1`).
func ChatBody(stream bool, extra ...string) string {
	members := append([]string{`"model":"m"`, `"messages":[{"role":"user","content":"hello"}]`,
		fmt.Sprintf(`"stream":%v`, stream), `"max_tokens":64`}, extra...)
	return "{" + strings.Join(members, ",") + "}"
}

// LongChatBody carries a prompt of about n bytes, so that its lease outweighs
// every small request.
func LongChatBody(stream bool, n int) string {
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%s"}],"stream":%v,"max_tokens":64}`,
		strings.Repeat("word ", n/5), stream)
}

// Request renders a request with one Host, an id and a Content-Length; headers
// are whole lines without CRLF.
func Request(method, target, id, body string, headers ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: ramjet.test\r\n", method, target)
	if id != "" {
		fmt.Fprintf(&b, "X-Request-Id: %s\r\n", id)
	}
	if body != "" || method == "POST" {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	return b.String() + "\r\n" + body
}

// RoleEvent is the first event of a chat stream as vLLM writes it.
func RoleEvent() string {
	return `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}` + "\n\n"
}

// DeltaEvent is an event with a piece of text.
func DeltaEvent(text string) string {
	return fmt.Sprintf(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":%q},"logprobs":null,"finish_reason":null}]}`+"\n\n", text)
}

// FinishEvent is the last event with a choice; it names why the text ends.
func FinishEvent(reason string) string {
	return fmt.Sprintf(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":%q,"stop_reason":null}]}`+"\n\n", reason)
}

// ChatEvents are the events of a whole streamed chat answer with n deltas.
func ChatEvents(n int) []string {
	events := []string{RoleEvent()}
	for i := range n {
		events = append(events, DeltaEvent(fmt.Sprintf("tok%d ", i)))
	}
	return append(events, FinishEvent("stop"), DoneEvent)
}

// Chunked frames events as vLLM does, one chunk each, and ends the body.
func Chunked(events []string) string {
	var b strings.Builder
	for _, ev := range events {
		b.WriteString(Chunk(ev))
	}
	return b.String() + LastChunk
}

// ChatAnswer is the body of a plain chat answer.
func ChatAnswer(text string) string {
	return fmt.Sprintf(`{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%q},"logprobs":null,"finish_reason":"stop","stop_reason":null}],"usage":{"prompt_tokens":9,"total_tokens":11,"completion_tokens":2}}`, text)
}

// JSONResponse renders an answer with a Content-Length as uvicorn does.
func JSONResponse(status int, body string) string {
	return FullResponse(status, "application/json", body)
}

// FullResponse is a whole answer with a length, under uvicorn's headers.
func FullResponse(status int, contentType, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\ndate: Mon, 30 Nov 2026 06:00:00 GMT\r\nserver: uvicorn\r\ncontent-length: %d\r\ncontent-type: %s\r\n\r\n%s",
		status, map[int]string{200: "OK"}[status], len(body), contentType, body)
}
