package e2e

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestB7Row23KilledBeforeFirstByte: the engine dies with the request in its
// hands and nothing said; another one serves, the client does not notice.
func TestB7Row23KilledBeforeFirstByte(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--health.interval=1h", "--eject.after=1000000")
	for _, way := range []string{"rst", "fin", "head out, rst", "head out, fin"} {
		t.Run(way, func(t *testing.T) {
			var dying atomic.Pointer[engine] // the first that is asked
			play := func(x *exchange) {
				if dying.CompareAndSwap(nil, x.e); dying.Load() != x.e {
					x.plain()
					return
				}
				if strings.HasPrefix(way, "head out") {
					x.streamHead()
					x.pause(20 * time.Millisecond)
				}
				if strings.HasSuffix(way, "rst") {
					x.reset()
				} else {
					x.close()
				}
			}
			a.on(play)
			b.on(play)
			id := r.id("killed")
			resp := r.do(t, request("POST", chatPath, id, chatBody(true)))
			if resp.status != 200 || !resp.complete || !strings.HasSuffix(string(resp.body), doneEvent) || len(resp.errorEvents()) > 0 {
				t.Errorf("answered %d %.300q", resp.status, resp.body)
			}
			if !bytes.Equal(resp.body, []byte(strings.Join(chatEvents(3), ""))) {
				t.Errorf("body %.300q", resp.body)
			}
			if len(a.byID(id)) == 0 || len(b.byID(id)) == 0 {
				t.Errorf("a had it %d times, b %d times, want both", len(a.byID(id)), len(b.byID(id)))
			}
			if line := r.ended(t, id, "done"); line.num("attempts") != 2 {
				t.Errorf("attempts in the access line: %v, want 2", line["attempts"])
			}
		})
	}
	if n := r.metrics().sum("ramjet_retries_total"); n < 4 {
		t.Errorf("%v retries counted, want 4", n)
	}
}

// TestB7Row24KilledMidStream: whole events are kept, one error event in the
// dialect follows, no sentinel, and the proper end of the body.
func TestB7Row24KilledMidStream(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t, "a"), newEngine(t, "b")
	r := start(t, a, b, "--health.interval=1h", "--eject.after=1000000")
	for _, d := range dialects {
		for _, way := range []string{"fin", "rst", "inside an event", "inside a chunk"} {
			t.Run(d.name+" "+way, func(t *testing.T) {
				play := func(x *exchange) {
					x.streamHead()
					x.events(d.events...)
					if way == "inside an event" {
						x.write(chunk(`data: {"half`))
					} else if way == "inside a chunk" {
						x.write("40\r\ndata: {\"half")
					}
					x.pause(20 * time.Millisecond)
					if way == "rst" {
						x.reset()
					} else {
						x.close()
					}
				}
				a.on(play)
				b.on(play)
				id := r.id("killed")
				c := r.dial(t)
				c.send(request("POST", d.path, id, d.body))
				resp := c.response(patience)
				d.diedWell(t, resp)
				r.ended(t, id, "engine-died")
				if n := len(a.byID(id)) + len(b.byID(id)); n != 1 {
					t.Errorf("%d engines had it: what is out cannot move", n)
				}
			})
		}
	}
	r.counted(t, 4*len(dialects), "200", "engine-died")
}

// dialect is one streaming API: a request, events that begin an answer, and the
// event that says that the engine died.
type dialect struct {
	name, path, body string
	events           []string
	errorType        string // name of the SSE event, "" for none
}

var dialects = []dialect{
	{"chat", chatPath, chatBody(true), chatEvents(3)[:3], ""},
	{"completions", "/v1/completions", `{"model":"m","prompt":"x","stream":true}`, []string{
		`data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"one","logprobs":null,"finish_reason":null,"stop_reason":null}],"usage":null}` + "\n\n",
	}, ""},
	{"responses", responsesPath, `{"model":"m","input":"x","stream":true}`, []string{
		"event: response.created\n" + `data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","status":"in_progress"}}` + "\n\n",
		"event: response.output_text.delta\n" + `data: {"type":"response.output_text.delta","sequence_number":1,"item_id":"i","output_index":0,"content_index":0,"delta":"one","logprobs":[]}` + "\n\n",
	}, "error"},
	{"messages", messagesPath, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],"stream":true}`, []string{
		"event: message_start\n" + `data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m","usage":{"input_tokens":1,"output_tokens":0}}}` + "\n\n",
		"event: content_block_start\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}` + "\n\n",
		"event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"one"}}` + "\n\n",
	}, "error"},
}

// diedWell checks the end of a stream whose engine died after d.events.
func (d dialect) diedWell(t *testing.T, resp *response) {
	t.Helper()
	events, rest := resp.events()
	if resp.status != 200 || !resp.complete || rest != "" {
		t.Errorf("status %d, properly ended %v, rest %q; body %.500q", resp.status, resp.complete, rest, resp.body)
	}
	if len(events) != len(d.events)+1 || strings.Join(events[:min(len(events), len(d.events))], "") != strings.Join(d.events, "") {
		t.Fatalf("events %q, want the engine's %d and one error", events, len(d.events))
	}
	last := events[len(events)-1]
	if strings.Contains(string(resp.body), "[DONE]") {
		t.Error("a sentinel that no engine sent")
	}
	name, data, _ := strings.Cut(last, "data: ")
	if want := d.errorType; want == "" && name != "" || want != "" && name != "event: "+want+"\n" {
		t.Errorf("the error event begins %q", name)
	}
	outer, e, ok := parseAPIError(data)
	if !ok || e.Code != "engine_died" && d.path != messagesPath {
		t.Errorf("error event %q, want code engine_died", last)
	}
	switch d.path {
	case responsesPath: // flat, and numbered after the last event
		if outer != "error" || strings.Contains(data, `"error":{`) || !strings.Contains(data, `"sequence_number":2`) || !strings.Contains(data, `"param"`) {
			t.Errorf("Responses error event %q", last)
		}
	case messagesPath:
		if outer != "error" || !strings.Contains(data, `"error":{`) || e.Type == "" || e.Message == "" {
			t.Errorf("Anthropic error event %q", last)
		}
	default:
		if e.Type == "" || e.Message == "" {
			t.Errorf("error event %q", last)
		}
	}
}
