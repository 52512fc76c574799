package proxy

import (
	"strings"
	"testing"

	"ramjet/route"
	"ramjet/telemetry"
	"ramjet/tokens"
)

// knowing gives the server a model that knows no ids, as without a tokenizer.
func knowing(s *setup) { s.Prompts = tokens.NewModel(tokens.ModelOptions{}) }

// TestUsageIsOfItsRequest: what an engine counted for one request says nothing
// about the next one on the connection, which no engine sees.
func TestUsageIsOfItsRequest(t *testing.T) {
	f := start(t, []script{answering(plainAnswer)}, knowing)
	c := f.dial()
	defer c.close()
	c.send(post(chatPath, chatBody))
	c.receive().want(t, 200, answerBody)
	c.send(get("/v1/models"))
	if got := c.rest(c.head("GET")); got.StatusCode != 200 {
		t.Fatalf("models: %d", got.StatusCode)
	}
	c.send(get("/health"))
	c.rest(c.head("GET"))
	f.ends(telemetry.EndDone, telemetry.EndDone, telemetry.EndDone)
}

// TestMovedRequestKeepsItsPrompt: an answer that was aborted without a token
// leaves nothing in its engine's cache, and the engine that does better is the
// one to come back to.
func TestMovedRequestKeepsItsPrompt(t *testing.T) {
	const aborted = `{"id":"c","object":"text_completion","model":"m","choices":[{"index":0,"text":"","finish_reason":"abort"}],"usage":{"prompt_tokens":200,"completion_tokens":0,"total_tokens":200}}`
	const good = `{"id":"c","object":"text_completion","model":"m","choices":[{"index":0,"text":"x","finish_reason":"stop"}],"usage":{"prompt_tokens":200,"completion_tokens":1,"total_tokens":201}}`
	f := start(t, []script{
		answering(sized("200 OK", "application/json", aborted)),
		answering(sized("200 OK", "application/json", good)),
	}, knowing, func(s *setup) { s.policy = route.PolicyLatency; s.Decisions = route.NewRing(10) })
	body := `{"model":"m","prompt":[7` + strings.Repeat(",7", 199) + `]}`
	for i, want := range []string{"0", "192", "192"} {
		got := f.ask(post("/v1/completions", body))
		got.want(t, 200, good)
		f.checkIdle() // what was learnt of an answer stands behind its last byte
		if h := got.Header; h.Get("X-Ramjet-Engine") != "b" || h.Get("X-Ramjet-Match") != want {
			t.Errorf("request %d: engine %s with a match of %s, want b with %s", i, h.Get("X-Ramjet-Engine"), h.Get("X-Ramjet-Match"), want)
		}
	}
	f.ends(telemetry.EndDone, telemetry.EndDone, telemetry.EndDone)
}

// TestLongNamesAreNotKept: where no engine tells its models a name is as long
// as a body may be.
func TestLongNamesAreNotKept(t *testing.T) {
	ring := route.NewRing(10)
	f := start(t, []script{func(x *exchange) { x.reset() }}, knowing, func(s *setup) { s.Decisions = ring })
	f.members[0].SetModels(nil)
	f.ask(post(chatPath, `{"model":"`+strings.Repeat("m", 1<<20)+`","messages":[]}`))
	f.checkIdle()
	for _, x := range ring.List(route.Filter{}, 10) {
		if len(x.Model) > 1000 {
			t.Errorf("a name of %d bytes is kept", len(x.Model))
		}
	}
}
