package proxy

import (
	"fmt"
	"strings"

	"ramjet/wire"
)

// dialectBody is one stream as an engine of that dialect writes it (shapes of
// vLLM 0.32), event by event.
type dialectBody struct {
	name    string
	dialect wire.Dialect
	kind    kind
	path    string
	events  []string
}

func namedEvent(event, data string) string { return "event: " + event + "\ndata: " + data + "\n\n" }

// dialectBodies has one stream of each dialect.
var dialectBodies = []dialectBody{
	{"chat", wire.DialectOpenAI, kindChat, "/v1/chat/completions", []string{roleEvent, tokenEvent, tokenEvent, stopEvent, usageEvent, doneEvent}},
	{"completions", wire.DialectOpenAI, kindComplete, "/v1/completions", []string{
		`data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" foo","logprobs":null,"finish_reason":null,"stop_reason":null}]}` + "\n\n",
		`data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" bar","logprobs":null,"finish_reason":"length","stop_reason":null}]}` + "\n\n",
		doneEvent,
	}},
	{"responses", wire.DialectResponses, kindResponses, "/v1/responses", []string{
		namedEvent("response.created", `{"response":{"id":"resp_1","object":"response","output":[],"status":"in_progress","usage":null},"sequence_number":0,"type":"response.created"}`),
		namedEvent("response.in_progress", `{"response":{"id":"resp_1","object":"response","output":[],"status":"in_progress","usage":null},"sequence_number":1,"type":"response.in_progress"}`),
		namedEvent("response.output_text.delta", `{"content_index":0,"delta":" foo","item_id":"msg_1","logprobs":[],"output_index":0,"sequence_number":2,"type":"response.output_text.delta"}`),
		namedEvent("response.completed", `{"response":{"id":"resp_1","output":[{"id":"msg_1","content":[{"text":"foo","type":"output_text"}],"type":"message"}],"status":"completed","usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":3}},"sequence_number":3,"type":"response.completed"}`),
	}},
	{"anthropic", wire.DialectAnthropic, kindMessages, "/v1/messages", []string{
		namedEvent("message_start", `{"type":"message_start","message":{"id":"msg_1","content":[],"model":"m","stop_reason":null,"usage":{"input_tokens":9,"output_tokens":0}}}`),
		namedEvent("content_block_delta", `{"type":"content_block_delta","delta":{"type":"text_delta","text":" foo"},"index":0}`),
		namedEvent("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":9,"output_tokens":3}}`),
		namedEvent("message_stop", `{"type":"message_stop"}`),
	}},
}

// dresses change how the same events are spelt.
var dresses = []struct {
	name  string
	split bool // a block may end inside what was one event, so a read may too
	wear  func(event string) string
}{
	{"as vLLM writes", false, func(e string) string { return e }},
	{"comments", true, func(e string) string { return ": ping\n\n" + e }},
	{"CRLF", true, func(e string) string { return strings.ReplaceAll(e, "\n", "\r\n") }},
	{"CR", false, func(e string) string { return strings.ReplaceAll(e, "\n", "\r") }},
	{"multi-line data", false, func(e string) string { return strings.ReplaceAll(e, `,"`, ",\ndata: \"") }},
	{"ids and retry", false, func(e string) string { return "id: 7\nretry: 100\n" + e }},
}

// framed is how events become a body: its head's fields and its bytes.
type framed struct {
	name    string
	head    string
	frame   func(events []string) string
	aligned bool // a chunk ends where an event ends, and nothing must be dropped
	closes  bool // the body ends with the connection
}

const sseHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"

var framings = []framed{
	{name: "chunk an event", head: sseHead + "Transfer-Encoding: chunked\r\n\r\n", aligned: true, frame: func(events []string) string {
		out := ""
		for _, e := range events {
			out += chunk(e)
		}
		return out + endOfBody
	}},
	{name: "one chunk", head: sseHead + "Transfer-Encoding: chunked\r\n\r\n", frame: func(events []string) string {
		return chunk(strings.Join(events, "")) + endOfBody
	}},
	{name: "chunks of 50", head: sseHead + "Transfer-Encoding: chunked\r\n\r\n", frame: func(events []string) string {
		return inChunks(strings.Join(events, ""), 50) + endOfBody
	}},
	{name: "chunks of 7 across events", head: sseHead + "Transfer-Encoding: chunked\r\n\r\n", frame: func(events []string) string {
		return inChunks(strings.Join(events, ""), 7) + endOfBody
	}},
	{name: "extensions", head: sseHead + "Transfer-Encoding: chunked\r\n\r\n", aligned: true, frame: func(events []string) string {
		out := ""
		for _, e := range events {
			out += fmt.Sprintf("00%x;a=b;c=\"d e\"\r\n%s\r\n", len(e), e)
		}
		return out + "000;z\r\n\r\n"
	}},
	{name: "trailers", head: sseHead + "Transfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n", frame: func(events []string) string {
		out := ""
		for _, e := range events {
			out += chunk(e)
		}
		return out + "0\r\nX-T: secret\r\nX-U: v\r\n\r\n"
	}},
	{name: "length", head: sseHead + "Content-Length: %d\r\n\r\n", aligned: true, frame: func(events []string) string {
		return strings.Join(events, "")
	}},
	{name: "until close", head: sseHead + "\r\n", closes: true, frame: func(events []string) string {
		return strings.Join(events, "")
	}},
}

func inChunks(s string, size int) string {
	var out []byte
	for len(s) > 0 {
		n := min(size, len(s))
		out = appendChunk(out, []byte(s[:n]))
		s = s[n:]
	}
	return string(out)
}

// headFor fills in the length where the head has one.
func (fr framed) headFor(body string) string {
	if strings.Contains(fr.head, "%d") {
		return fmt.Sprintf(fr.head, len(body))
	}
	return fr.head
}

// combination is one body of the corpus.
type combination struct {
	name string
	dialectBody
	framed
	split   bool
	decoded string
	wire    string
}

// corpus returns every dialect in every dress and framing.
func corpus() []combination {
	var out []combination
	for _, d := range dialectBodies {
		for _, dress := range dresses {
			events := make([]string, len(d.events))
			for i, e := range d.events {
				events[i] = dress.wear(e)
			}
			for _, fr := range framings {
				out = append(out, combination{
					name: d.name + "/" + dress.name + "/" + fr.name, dialectBody: d, framed: fr, split: dress.split,
					decoded: strings.Join(events, ""), wire: fr.frame(events),
				})
			}
		}
	}
	return out
}

// slowBlocks cuts a stream into its blocks, each up to and including the blank
// line, as plainly as can be. rest is what is unfinished. An LF directly
// behind a CR belongs to it, and further blank lines are blocks of their own.
func slowBlocks(s string) (blocks []string, rest string) {
	at := 0
	empty := true
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\n' && i > 0 && s[i-1] == '\r' {
			if at == i { // the block ended at the CR
				blocks[len(blocks)-1] += "\n"
				at = i + 1
			}
			continue
		}
		if c != '\n' && c != '\r' {
			empty = false
			continue
		}
		if empty {
			blocks = append(blocks, s[at:i+1])
			at = i + 1
		}
		empty = true
	}
	return blocks, s[at:]
}
