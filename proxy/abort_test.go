package proxy

import (
	"strings"
	"testing"

	"ramjet/engine"
	"ramjet/telemetry"
)

// aborted answers of a stopping engine, which look as if all were well.
var aborted = []struct {
	name, path, body string
	stream, plain    string // what the engine sends
	whole            string // what an engine that goes on sends
	wholePlain       string
}{
	{
		name: "chat", path: "/v1/chat/completions", body: chatBody,
		stream: chunk(roleEvent) + chunk(abortEvent) + chunk(doneEvent) + endOfBody,
		plain:  `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"abort"}],"usage":{"prompt_tokens":9,"completion_tokens":0,"total_tokens":9}}`,
	},
	{
		name: "completions", path: "/v1/completions", body: `{"model":"m","prompt":"hi"}`,
		stream: chunk(`data: {"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"abort"}]}`+"\n\n") + chunk(doneEvent) + endOfBody,
		plain:  `{"id":"c","object":"text_completion","choices":[{"index":0,"text":"","finish_reason":"abort"}],"usage":{"prompt_tokens":9,"completion_tokens":0,"total_tokens":9}}`,
	},
	{
		name: "responses", path: "/v1/responses", body: `{"model":"m","input":"hi"}`,
		stream: chunk(dialectBodies[2].events[0]) + chunk(namedEvent("response.incomplete", `{"response":{"id":"r","output":[],"status":"incomplete","incomplete_details":null,"usage":null},"sequence_number":1,"type":"response.incomplete"}`)) + endOfBody,
		plain:  `{"id":"r","object":"response","status":"incomplete","incomplete_details":null,"output":[],"usage":null}`,
	},
	{
		name: "anthropic", path: "/v1/messages", body: `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`,
		stream: chunk(dialectBodies[3].events[0]) + chunk(namedEvent("message_delta", `{"type":"message_delta","delta":{"stop_reason":null},"usage":{"input_tokens":9,"output_tokens":0}}`)) + chunk(dialectBodies[3].events[3]) + endOfBody,
		plain:  `{"id":"m","type":"message","role":"assistant","content":[],"model":"m","stop_reason":null,"usage":{"input_tokens":9,"output_tokens":0}}`,
	},
}

// TestAbortMoves: an abort without a token is a failure that the client need
// not see, if nothing of the body is out.
func TestAbortMoves(t *testing.T) {
	t.Parallel()
	for _, c := range aborted {
		for name, first := range map[string]script{
			"stream, one write":    answering(streamHead + c.stream),
			"stream, head earlier": func(x *exchange) { x.write(streamHead); x.taken(); x.write(c.stream) },
			"plain":                answering(sized("200 OK", "application/json", c.plain)),
		} {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				want := "data: from b\n\n"
				f := start(t, []script{first, func(x *exchange) {
					if name == "plain" {
						x.write(sized("200 OK", "application/json", want))
						return
					}
					x.write(streamHead, chunk(want), endOfBody)
				}})
				cl := f.dial()
				cl.send(post(c.path, c.body))
				cl.receive().want(t, 200, want)
				if r := f.ends(telemetry.EndDone)[0]; r.Attempts != 2 || r.BytesOut != int64(len(want)) && name == "plain" {
					t.Errorf("record %+v", r)
				}
				f.outcomes(verdictOn{"a", engine.OutcomeAborted}, verdictOn{"b", engine.OutcomeOK})
				cl.send(get("/health"))
				cl.receive().want(t, 200, `{"status":"ok","engines":{}}`)
			})
		}
	}
}

// TestAbortOfEveryEngine: when all abort, the last answer passes as it came.
func TestAbortOfEveryEngine(t *testing.T) {
	t.Parallel()
	for _, c := range aborted {
		stream, _, _ := unchunk([]byte(c.stream))
		for name, e := range map[string]struct {
			script script
			want   string
		}{
			"stream, one write":    {answering(streamHead + c.stream), stream},
			"stream, head earlier": {func(x *exchange) { x.write(streamHead); x.taken(); x.write(c.stream) }, stream},
			"plain":                {answering(sized("200 OK", "application/json", c.plain)), c.plain},
		} {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				f := start(t, []script{e.script, e.script})
				cl := f.dial()
				cl.send(post(c.path, c.body))
				cl.receive().want(t, 200, e.want)
				f.ends(telemetry.EndEngineDied)
				f.outcomes(verdictOn{"a", engine.OutcomeAborted}, verdictOn{"b", engine.OutcomeAborted})
				cl.send(get("/health"))
				cl.receive().want(t, 200, `{"status":"ok","engines":{}}`)
			})
		}
	}
}

// TestAbortPasses when something of the body is out: no event waits.
func TestAbortPasses(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) {
		x.write(streamHead, chunk(roleEvent))
		x.taken()
		x.write(chunk(abortEvent), chunk(doneEvent), endOfBody)
	}, streaming})
	f.ask(post(chatPath, chatSBody)).want(t, 200, roleEvent+abortEvent+doneEvent)
	f.ends(telemetry.EndEngineDied)
	f.outcomes(verdictOn{"a", engine.OutcomeAborted})
}

// TestAbortBehindOutputPasses in every dialect and shape: tokens are out, so
// the request stays where it is, and its engine is to blame.
func TestAbortBehindOutputPasses(t *testing.T) {
	t.Parallel()
	delta := func(i, n int) string { return dialectBodies[i].events[n] }
	for _, c := range []struct{ name, path, body, stream, plain string }{
		{
			"chat", chatPath, chatBody, roleEvent + tokenEvent + abortEvent + doneEvent,
			`{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"foo"},"finish_reason":"abort"}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`,
		},
		{
			"responses", "/v1/responses", `{"model":"m","input":"hi"}`,
			delta(2, 0) + delta(2, 2) + namedEvent("response.incomplete", `{"response":{"id":"r","incomplete_details":null,"output":[{"type":"message","content":[{"type":"output_text","text":" foo"}]}],"status":"incomplete","usage":{"input_tokens":9,"output_tokens":1}},"type":"response.incomplete"}`),
			`{"id":"r","object":"response","incomplete_details":null,"output":[{"type":"message","content":[{"type":"output_text","text":"foo"}]}],"status":"incomplete","usage":{"input_tokens":9,"output_tokens":1}}`,
		},
		{
			"responses, cancelled", "/v1/responses", `{"model":"m","input":"hi"}`,
			delta(2, 0) + delta(2, 2) + namedEvent("response.completed", `{"response":{"id":"r","output":[],"status":"cancelled","usage":null},"type":"response.completed"}`),
			`{"id":"r","object":"response","output":[{"type":"message","content":[{"type":"output_text","text":"foo"}]}],"status":"cancelled","usage":null}`,
		},
		{
			"anthropic", "/v1/messages", `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`,
			delta(3, 0) + delta(3, 1) + namedEvent("message_delta", `{"type":"message_delta","delta":{"stop_reason":"abort"},"usage":{"input_tokens":9,"output_tokens":1}}`) + delta(3, 3),
			`{"id":"m","type":"message","role":"assistant","content":[{"type":"text","text":"foo"}],"stop_reason":"abort","usage":{"input_tokens":9,"output_tokens":1}}`,
		},
		{
			"anthropic, null", "/v1/messages", `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`,
			delta(3, 0) + delta(3, 1) + namedEvent("message_delta", `{"type":"message_delta","delta":{"stop_reason":null},"usage":{"input_tokens":9,"output_tokens":1}}`) + delta(3, 3),
			`{"id":"m","type":"message","role":"assistant","content":[{"type":"text","text":"foo"}],"stop_reason":null,"usage":{"input_tokens":9,"output_tokens":1}}`,
		},
	} {
		for shape, sent := range map[string]string{
			"stream": streamHead + chunk(c.stream) + endOfBody,
			"plain":  sized("200 OK", "application/json", c.plain),
		} {
			t.Run(c.name+"/"+shape, func(t *testing.T) {
				t.Parallel()
				f := start(t, []script{answering(sent), streaming})
				want := c.stream
				if shape == "plain" {
					want = c.plain
				}
				f.ask(post(c.path, c.body)).want(t, 200, want)
				f.ends(telemetry.EndEngineDied)
				f.outcomes(verdictOn{"a", engine.OutcomeAborted})
			})
		}
	}
}

// TestErrorEventPasses and ends the request engine-error.
func TestErrorEventPasses(t *testing.T) {
	t.Parallel()
	event := `data: {"error":{"message":"EngineCore encountered an issue.","type":"InternalServerError","param":null,"code":500}}` + "\n\n"
	f := start(t, []script{func(x *exchange) { x.write(streamHead, chunk(roleEvent), chunk(event), chunk(doneEvent), endOfBody) }})
	a := f.ask(post(chatPath, chatSBody))
	a.want(t, 200, roleEvent+event+doneEvent)
	if strings.Count(string(a.body), "error") != 1 {
		t.Errorf("an error was added: %q", a.body)
	}
	f.ends(telemetry.EndEngineError)
	f.outcomes(verdictOn{"a", engine.OutcomeDied})
}
