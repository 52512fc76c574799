package e2e

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// abortAnswers are what a stopping vLLM says: 200, well formed, no token, and an
// abort that no client asked for. The body of a stream comes in one write, so
// that nothing of it is out when the abort is seen.
var abortAnswers = []struct{ name, path, body, raw string }{
	{"chat, stream", chatPath, chatBody(true), streamHead + chunked([]string{roleEvent(), finishEvent("abort"), doneEvent})},
	{"chat, no stream", chatPath, chatBody(false), jsonResponse(200, strings.NewReplacer(`"stop"`, `"abort"`, `"hello"`, `""`, `"completion_tokens":2`, `"completion_tokens":0`).Replace(chatAnswer("hello")))},
	{"completions, no stream", "/v1/completions", `{"model":"m","prompt":"x"}`,
		jsonResponse(200, `{"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"abort","stop_reason":null}],"usage":{"prompt_tokens":3,"total_tokens":3,"completion_tokens":0}}`)},
	{"completions, stream", "/v1/completions", `{"model":"m","prompt":"x","stream":true}`,
		streamHead + chunked([]string{`data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"abort","stop_reason":null}]}` + "\n\n", doneEvent})},
	{"messages, no stream", messagesPath, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}`,
		jsonResponse(200, `{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m","stop_reason":"abort","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":0}}`)},
	{"responses, no stream", responsesPath, `{"model":"m","input":"x"}`,
		jsonResponse(200, `{"id":"resp_1","object":"response","created_at":1,"status":"incomplete","incomplete_details":{"reason":"abort"},"model":"m","output":[],"usage":{"input_tokens":3,"output_tokens":0,"total_tokens":3}}`)},
}

// TestB7Row29AbortMoves: an abort with no token at one engine moves the request,
// the client sees only the other's answer, and the engine is suspect.
func TestB7Row29AbortMoves(t *testing.T) {
	t.Parallel()
	for i, tc := range abortAnswers {
		apart := i == 0 // one of the streams with its head out before
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a, b := newEngine(t, "a"), newEngine(t, "b")
			r := start(t, a, b, "--health.interval=1h")
			var stopping atomic.Pointer[engine] // the first that is asked
			play := func(x *exchange) {
				if stopping.CompareAndSwap(nil, x.e); stopping.Load() == x.e {
					playAbort(x, tc.raw, apart)
					return
				}
				x.plain()
			}
			a.on(play)
			b.on(play)
			id := r.id("abort")
			resp := r.do(t, request("POST", tc.path, id, tc.body))
			if resp.status != 200 || !resp.whole() || strings.Contains(string(resp.body), "abort") || len(a.byID(id)) != 1 || len(b.byID(id)) != 1 {
				t.Errorf("answered %d %.400q; a had it %d times, b %d times", resp.status, resp.body, len(a.byID(id)), len(b.byID(id)))
			}
			if line := r.ended(t, id, "done"); line.num("attempts") != 2 {
				t.Errorf("attempts %v, want 2", line["attempts"])
			}
			eventually(t, patience, "the stopping engine's state", func() string {
				if s := r.engineState(stopping.Load().name); s != "suspect" {
					return "is " + s + ", want suspect"
				}
				return ""
			})
		})
	}
}

// playAbort sends an answer, its head apart if asked, as vLLM sends the head of
// a stream before it queues the request.
func playAbort(x *exchange, raw string, apart bool) {
	if apart {
		head, _, _ := strings.Cut(raw, "\r\n\r\n")
		x.write(head + "\r\n\r\n")
		x.pause(50 * time.Millisecond)
		raw = raw[len(head)+4:]
	}
	x.write(raw)
}

// TestB7Row29AbortPasses: when the abort comes behind what is out already, or
// from every engine, it passes as it came and the request ends engine-died. A
// cut after tokens is the engine's answer.
func TestB7Row29AbortPasses(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--health.interval=1h", "--eject.after=1000000")
	for i, tc := range abortAnswers {
		play := func(x *exchange) { playAbort(x, tc.raw, i == 0) }
		a.on(play)
		b.on(play)
		id := r.id("abort")
		resp := r.do(t, request("POST", tc.path, id, tc.body))
		want, _, _ := parseResponse([]byte(tc.raw), "POST", false)
		if resp.status != 200 || string(resp.body) != string(want.body) {
			t.Errorf("%s at every engine: %d %.300q", tc.name, resp.status, resp.body)
		}
		r.ended(t, id, "engine-died")
	}
	late := func(x *exchange) {
		x.streamHead()
		x.events(roleEvent())
		x.pause(100 * time.Millisecond)
		x.events(finishEvent("abort"), doneEvent)
		x.write(lastChunk)
	}
	a.on(late)
	b.on(late)
	id := r.id("late")
	if resp := r.do(t, request("POST", chatPath, id, chatBody(true))); string(resp.body) != roleEvent()+finishEvent("abort")+doneEvent || len(a.byID(id))+len(b.byID(id)) != 1 {
		t.Errorf("an abort behind the role chunk: %.400q", resp.body)
	}
	r.ended(t, id, "engine-died")
}
