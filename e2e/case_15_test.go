package e2e

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"ramjet/e2e/rig"
)

// storeResponses plays an engine that stores responses under ids of its own and
// knows no others. With a stream the id comes in response.created.
func storeResponses(e *rig.Engine, made *atomic.Int64) {
	e.On(func(x *rig.Exchange) {
		if strings.HasSuffix(x.Target, "/cancel") {
			x.Write(rig.JSONResponse(200, `{"status":"cancelled","engine":"`+e.Name+`"}`))
			return
		}
		if !strings.HasPrefix(x.Target, rig.ResponsesPath) {
			x.Plain()
			return
		}
		if prev := previousID(string(x.Body)); prev != "" && !strings.Contains(prev, "-"+e.Name+"-") {
			x.Write(rig.JSONResponse(404, `{"error":{"message":"not here","type":"invalid_request_error","param":"previous_response_id","code":404}}`))
			return
		}
		id := fmt.Sprintf("resp-%s-%d", e.Name, made.Add(1))
		if !strings.Contains(string(x.Body), `"stream":true`) {
			x.Write(rig.JSONResponse(200, `{"id":"`+id+`","object":"response","status":"completed","output":[]}`))
			return
		}
		x.StreamHead()
		x.Events("event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\""+id+"\",\"object\":\"response\"}}\n\n",
			"event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":1,\"response\":{\"id\":\""+id+"\",\"status\":\"completed\"}}\n\n")
		x.Write(rig.LastChunk)
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
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	var made atomic.Int64
	storeResponses(a, &made)
	storeResponses(b, &made)
	for _, e := range []*rig.Engine{a, b} {
		for i := range 400 {
			id := fmt.Sprintf("resp-%s-%d", e.Name, i)
			e.Get(rig.ResponsesPath+"/"+id, rig.JSONResponse(200, `{"id":"`+id+`","engine":"`+e.Name+`"}`))
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
			resp := r.Post(t, rig.ResponsesPath, body+"}")
			if resp.Status != 200 {
				t.Fatalf("chain %d turn %d after %q: %d %.200q", chain, turn, previous, resp.Status, resp.Body)
			}
			previous = responseID(string(resp.Body))
			used[resp.Fields.Get("X-Ramjet-Engine")]++
			if (chain+turn)%3 == 0 { // other load moves the rotation, oddly
				r.Post(t, rig.ChatPath, rig.ChatBody(false))
			}
		}
		owner := strings.Split(previous, "-")[1]
		if resp := r.Do(t, rig.Request("GET", rig.ResponsesPath+"/"+previous, r.ID("c15"), "")); resp.Status != 200 || !strings.Contains(string(resp.Body), `"engine":"`+owner+`"`) {
			t.Errorf("GET %s: %d %.200q", previous, resp.Status, resp.Body)
		}
		if resp := r.Do(t, rig.Request("POST", rig.ResponsesPath+"/"+previous+"/cancel", r.ID("c15"), "")); resp.Status != 200 || !strings.Contains(string(resp.Body), `"engine":"`+owner+`"`) {
			t.Errorf("cancel %s: %d %.200q", previous, resp.Status, resp.Body)
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
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	b.Get(rig.ResponsesPath+"/resp-from-before", rig.JSONResponse(200, `{"id":"resp-from-before"}`))
	id := r.ID("c15")
	if resp := r.Do(t, rig.Request("GET", rig.ResponsesPath+"/resp-from-before", id, "")); resp.Status != 200 || !strings.Contains(string(resp.Body), "resp-from-before") {
		t.Errorf("an id of before the start: %d %.200q", resp.Status, resp.Body)
	}
	id = r.ID("c15")
	if resp := r.Do(t, rig.Request("GET", rig.ResponsesPath+"/resp-nobody", id, "")); resp.Status != 404 {
		t.Errorf("an id of nobody: %d %.200q", resp.Status, resp.Body)
	}
	if len(a.ByID(id)) == 0 || len(b.ByID(id)) == 0 {
		t.Errorf("asked of a %d times, of b %d times", len(a.ByID(id)), len(b.ByID(id)))
	}
	var made atomic.Int64
	storeResponses(a, &made)
	storeResponses(b, &made)
	if resp := r.Post(t, rig.ResponsesPath, `{"model":"m","input":"x","previous_response_id":"resp-nobody"}`); resp.Status != 404 || !strings.Contains(string(resp.Body), "not here") {
		t.Errorf("a follow-up to nobody: %d %.200q", resp.Status, resp.Body)
	}
}

// TestCaseC15Cancel: a cancelled response is what the client asked for, no
// failure of its engine.
func TestCaseC15Cancel(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--health.interval=1h")
	var made atomic.Int64
	storeResponses(a, &made)
	storeResponses(b, &made)
	for range 4 {
		previous := responseID(string(r.Post(t, rig.ResponsesPath, `{"model":"m","store":true,"input":"x"}`).Body))
		id := r.ID("cancel")
		if resp := r.Do(t, rig.Request("POST", rig.ResponsesPath+"/"+previous+"/cancel", id, "")); resp.Status != 200 || !strings.Contains(string(resp.Body), "cancelled") {
			t.Errorf("cancel %s: %d %.200q", previous, resp.Status, resp.Body)
		}
		r.Ended(t, id, "done")
	}
	rig.NeverMoved(t, r, a, b)
}

// TestCaseC15SuspectOwner: an engine that is only suspect still gets the
// follow-ups to the responses that it alone has.
func TestCaseC15SuspectOwner(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b, "--health.interval=1h", "--route.policy=round-robin")
	var made atomic.Int64
	storeResponses(a, &made)
	storeResponses(b, &made)
	first := r.Post(t, rig.ResponsesPath, `{"model":"m","store":true,"input":"x"}`)
	previous, owner := responseID(string(first.Body)), first.Fields.Get("X-Ramjet-Engine")
	suspect := a
	if owner == "b" {
		suspect = b
	}
	suspect.On(func(x *rig.Exchange) { x.Write(rig.AbortAnswers[1].Raw) })
	for range 4 { // one of them meets the owner
		r.Post(t, rig.ChatPath, rig.ChatBody(false))
	}
	rig.Eventually(t, rig.Patience, "the owner's state", func() string {
		if s := r.EngineState(owner); s != "suspect" {
			return "is " + s
		}
		return ""
	})
	storeResponses(suspect, &made)
	for range 4 {
		resp := r.Post(t, rig.ResponsesPath, `{"model":"m","store":true,"input":"x","previous_response_id":"`+previous+`"}`)
		if resp.Status != 200 || resp.Fields.Get("X-Ramjet-Engine") != owner {
			t.Errorf("a follow-up to %s went to %q: %d %.200q", previous, resp.Fields.Get("X-Ramjet-Engine"), resp.Status, resp.Body)
		}
	}
}
