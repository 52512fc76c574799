package e2e

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
)

// storeResponses plays an engine that stores responses under ids of its own and
// knows no others. With a stream the id comes in response.created.
func storeResponses(e *engine, made *atomic.Int64) {
	e.on(func(x *exchange) {
		if strings.HasSuffix(x.target, "/cancel") {
			x.write(jsonResponse(200, `{"status":"cancelled","engine":"`+e.name+`"}`))
			return
		}
		if !strings.HasPrefix(x.target, responsesPath) {
			x.plain()
			return
		}
		if prev := previousID(string(x.body)); prev != "" && !strings.Contains(prev, "-"+e.name+"-") {
			x.write(jsonResponse(404, `{"error":{"message":"not here","type":"invalid_request_error","param":"previous_response_id","code":404}}`))
			return
		}
		id := fmt.Sprintf("resp-%s-%d", e.name, made.Add(1))
		if !strings.Contains(string(x.body), `"stream":true`) {
			x.write(jsonResponse(200, `{"id":"`+id+`","object":"response","status":"completed","output":[]}`))
			return
		}
		x.streamHead()
		x.events("event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\""+id+"\",\"object\":\"response\"}}\n\n",
			"event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":1,\"response\":{\"id\":\""+id+"\",\"status\":\"completed\"}}\n\n")
		x.write(lastChunk)
	})
}

func previousID(body string) string {
	_, rest, ok := strings.Cut(body, `"previous_response_id":"`)
	if !ok {
		return ""
	}
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

func responseID(body string) string {
	_, rest, _ := strings.Cut(body, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// TestCaseC15StoredChains: thirty chains of five turns, streamed and not, under
// other load: each turn goes to the engine that made the response it names, and
// so do GET and cancel.
func TestCaseC15StoredChains(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	var made atomic.Int64
	storeResponses(a, &made)
	storeResponses(b, &made)
	for _, e := range []*engine{a, b} {
		for i := range 400 {
			id := fmt.Sprintf("resp-%s-%d", e.name, i)
			e.get(responsesPath+"/"+id, jsonResponse(200, `{"id":"`+id+`","engine":"`+e.name+`"}`))
		}
	}
	used := map[string]int{}
	for chain := range 30 {
		previous := ""
		for turn := range 5 {
			body := fmt.Sprintf(`{"model":"m","store":true,"input":"chain %d turn %d","stream":%v`, chain, turn, (chain+turn)%2 == 0)
			if previous != "" {
				body += `,"previous_response_id":"` + previous + `"`
			}
			resp := r.post(t, responsesPath, body+"}")
			if resp.status != 200 {
				t.Fatalf("chain %d turn %d after %q: %d %.200q", chain, turn, previous, resp.status, resp.body)
			}
			previous = responseID(string(resp.body))
			used[resp.fields.get("X-Ramjet-Engine")]++
			if (chain+turn)%3 == 0 { // other load moves the rotation, oddly
				r.post(t, chatPath, chatBody(false))
			}
		}
		owner := strings.Split(previous, "-")[1]
		if resp := r.do(t, request("GET", responsesPath+"/"+previous, r.id("c15"), "")); resp.status != 200 || !strings.Contains(string(resp.body), `"engine":"`+owner+`"`) {
			t.Errorf("GET %s: %d %.200q", previous, resp.status, resp.body)
		}
		if resp := r.do(t, request("POST", responsesPath+"/"+previous+"/cancel", r.id("c15"), "")); resp.status != 200 || !strings.Contains(string(resp.body), `"engine":"`+owner+`"`) {
			t.Errorf("cancel %s: %d %.200q", previous, resp.status, resp.body)
		}
	}
	if used["a"] == 0 || used["b"] == 0 {
		t.Errorf("engines used: %v; a chain that never had a choice proves nothing", used)
	}
}

// TestCaseC15Unknown: an id that nobody remembers is asked of every engine
// before 404; a follow-up to one is a normal choice whose 404 passes.
func TestCaseC15Unknown(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b)
	b.get(responsesPath+"/resp-from-before", jsonResponse(200, `{"id":"resp-from-before"}`))
	id := r.id("c15")
	if resp := r.do(t, request("GET", responsesPath+"/resp-from-before", id, "")); resp.status != 200 || !strings.Contains(string(resp.body), "resp-from-before") {
		t.Errorf("an id of before the start: %d %.200q", resp.status, resp.body)
	}
	id = r.id("c15")
	if resp := r.do(t, request("GET", responsesPath+"/resp-nobody", id, "")); resp.status != 404 {
		t.Errorf("an id of nobody: %d %.200q", resp.status, resp.body)
	}
	if len(a.byID(id)) == 0 || len(b.byID(id)) == 0 {
		t.Errorf("asked of a %d times, of b %d times", len(a.byID(id)), len(b.byID(id)))
	}
	var made atomic.Int64
	storeResponses(a, &made)
	storeResponses(b, &made)
	if resp := r.post(t, responsesPath, `{"model":"m","input":"x","previous_response_id":"resp-nobody"}`); resp.status != 404 || !strings.Contains(string(resp.body), "not here") {
		t.Errorf("a follow-up to nobody: %d %.200q", resp.status, resp.body)
	}
}

// TestCaseC15Cancel: a cancelled response is what the client asked for, no
// failure of its engine.
func TestCaseC15Cancel(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--health.interval=1h")
	var made atomic.Int64
	storeResponses(a, &made)
	storeResponses(b, &made)
	for range 4 {
		previous := responseID(string(r.post(t, responsesPath, `{"model":"m","store":true,"input":"x"}`).body))
		id := r.id("cancel")
		if resp := r.do(t, request("POST", responsesPath+"/"+previous+"/cancel", id, "")); resp.status != 200 || !strings.Contains(string(resp.body), "cancelled") {
			t.Errorf("cancel %s: %d %.200q", previous, resp.status, resp.body)
		}
		r.ended(t, id, "done")
	}
	neverMoved(t, r, a, b)
}

// TestCaseC15SuspectOwner: an engine that is only suspect still gets the
// follow-ups to the responses that it alone has.
func TestCaseC15SuspectOwner(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--health.interval=1h")
	var made atomic.Int64
	storeResponses(a, &made)
	storeResponses(b, &made)
	first := r.post(t, responsesPath, `{"model":"m","store":true,"input":"x"}`)
	previous, owner := responseID(string(first.body)), first.fields.get("X-Ramjet-Engine")
	suspect := a
	if owner == "b" {
		suspect = b
	}
	suspect.on(func(x *exchange) { x.write(abortAnswers[1].raw) })
	for range 4 { // one of them meets the owner
		r.post(t, chatPath, chatBody(false))
	}
	eventually(t, patience, "the owner's state", func() string {
		if s := r.engineState(owner); s != "suspect" {
			return "is " + s
		}
		return ""
	})
	storeResponses(suspect, &made)
	for range 4 {
		resp := r.post(t, responsesPath, `{"model":"m","store":true,"input":"x","previous_response_id":"`+previous+`"}`)
		if resp.status != 200 || resp.fields.get("X-Ramjet-Engine") != owner {
			t.Errorf("a follow-up to %s went to %q: %d %.200q", previous, resp.fields.get("X-Ramjet-Engine"), resp.status, resp.body)
		}
	}
}
