package e2e

import (
	"fmt"
	"strings"
)

// The words below are shaped as vLLM 0.32 writes them; content is ours.

const (
	chatPath      = "/v1/chat/completions"
	messagesPath  = "/v1/messages"
	responsesPath = "/v1/responses"

	// streamHead is vLLM's head of a stream (uvicorn's lower-case names).
	streamHead = "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 06:00:00 GMT\r\nserver: uvicorn\r\n" +
		"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"

	doneEvent = "data: [DONE]\n\n"
)

// chatBody is a small chat request, padded with extra members (`"x":1`).
func chatBody(stream bool, extra ...string) string {
	members := append([]string{`"model":"m"`, `"messages":[{"role":"user","content":"hello"}]`,
		fmt.Sprintf(`"stream":%v`, stream), `"max_tokens":64`}, extra...)
	return "{" + strings.Join(members, ",") + "}"
}

// longChatBody carries a prompt of about n bytes, so that its lease outweighs
// every small request.
func longChatBody(stream bool, n int) string {
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%s"}],"stream":%v,"max_tokens":64}`,
		strings.Repeat("word ", n/5), stream)
}

// request renders a request with one Host, an id and a Content-Length; headers
// are whole lines without CRLF.
func request(method, target, id, body string, headers ...string) string {
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

func roleEvent() string {
	return `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}` + "\n\n"
}

func deltaEvent(text string) string {
	return fmt.Sprintf(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":%q},"logprobs":null,"finish_reason":null}]}`+"\n\n", text)
}

func finishEvent(reason string) string {
	return fmt.Sprintf(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":%q,"stop_reason":null}]}`+"\n\n", reason)
}

// chatEvents are the events of a whole streamed chat answer with n deltas.
func chatEvents(n int) []string {
	events := []string{roleEvent()}
	for i := range n {
		events = append(events, deltaEvent(fmt.Sprintf("tok%d ", i)))
	}
	return append(events, finishEvent("stop"), doneEvent)
}

// chunked frames events as vLLM does, one chunk each, and ends the body.
func chunked(events []string) string {
	var b strings.Builder
	for _, ev := range events {
		b.WriteString(chunk(ev))
	}
	return b.String() + lastChunk
}

// chatAnswer is the body of a plain chat answer.
func chatAnswer(text string) string {
	return fmt.Sprintf(`{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%q},"logprobs":null,"finish_reason":"stop","stop_reason":null}],"usage":{"prompt_tokens":9,"total_tokens":11,"completion_tokens":2}}`, text)
}

// jsonResponse renders an answer with a Content-Length as uvicorn does.
func jsonResponse(status int, body string) string {
	return fullResponse(status, "application/json", body)
}

func fullResponse(status int, contentType, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\ndate: Mon, 30 Nov 2026 06:00:00 GMT\r\nserver: uvicorn\r\ncontent-length: %d\r\ncontent-type: %s\r\n\r\n%s",
		status, map[int]string{200: "OK"}[status], len(body), contentType, body)
}
