package rig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// DialectShape checks the error object of a path: Anthropic's has an outer type
// "error", OpenAI's has message, type, param and code and no outer type.
func DialectShape(t testing.TB, path string, resp *Response) {
	t.Helper()
	outer, e, ok := ParseAPIError(string(resp.Body))
	if !ok || e.Message == "" || e.Type == "" {
		t.Errorf("no error object: %.300q", resp.Body)
		return
	}
	if anthropic := strings.HasPrefix(path, MessagesPath); anthropic != (outer == "error") {
		t.Errorf("outer type %q on %s: %.300q", outer, path, resp.Body)
	}
	if !strings.HasPrefix(path, MessagesPath) && !strings.Contains(string(resp.Body), `"param"`) {
		t.Errorf("no param: %.300q", resp.Body)
	}
}

// KeysFile writes a file of keys, one a line.
func KeysFile(t testing.TB, keys string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(keys), 0o600); err != nil {
		t.Fatalf("cannot write keys: %v", err)
	}
	return path
}

// Dialect is one streaming API: a request, events that begin an answer, and the
// event that says that the engine died.
type Dialect struct {
	Name, Path, Body string
	Events           []string
	errorType        string // name of the SSE event, "" for none
}

// Dialects are the four APIs, each with the first events of a stream.
var Dialects = []Dialect{
	{"chat", ChatPath, ChatBody(true), ChatEvents(3)[:3], ""},
	{"completions", "/v1/completions", `{"model":"m","prompt":"x","stream":true}`, []string{
		`data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"one","logprobs":null,"finish_reason":null,"stop_reason":null}],"usage":null}` + "\n\n",
	}, ""},
	{"responses", ResponsesPath, `{"model":"m","input":"x","stream":true}`, []string{
		"event: response.created\n" + `data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","status":"in_progress"}}` + "\n\n",
		"event: response.output_text.delta\n" + `data: {"type":"response.output_text.delta","sequence_number":1,"item_id":"i","output_index":0,"content_index":0,"delta":"one","logprobs":[]}` + "\n\n",
	}, "error"},
	{"messages", MessagesPath, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],"stream":true}`, []string{
		"event: message_start\n" + `data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m","usage":{"input_tokens":1,"output_tokens":0}}}` + "\n\n",
		"event: content_block_start\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}` + "\n\n",
		"event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"one"}}` + "\n\n",
	}, "error"},
}

// DiedWell checks the end of a stream whose engine died after d.events.
func (d Dialect) DiedWell(t testing.TB, resp *Response) {
	t.Helper()
	events, rest := resp.Events()
	if resp.Status != 200 || !resp.Complete || rest != "" {
		t.Errorf("status %d, properly ended %v, rest %q; body %.500q", resp.Status, resp.Complete, rest, resp.Body)
	}
	if len(events) != len(d.Events)+1 || strings.Join(events[:min(len(events), len(d.Events))], "") != strings.Join(d.Events, "") {
		t.Fatalf("events %q, want the engine's %d and one error", events, len(d.Events))
	}
	last := events[len(events)-1]
	if strings.Contains(string(resp.Body), "[DONE]") {
		t.Error("a sentinel that no engine sent")
	}
	name, data, _ := strings.Cut(last, "data: ")
	if want := d.errorType; want == "" && name != "" || want != "" && name != "event: "+want+"\n" {
		t.Errorf("the error event begins %q", name)
	}
	outer, e, ok := ParseAPIError(data)
	if !ok || e.Code != "engine_died" && d.Path != MessagesPath {
		t.Errorf("error event %q, want code engine_died", last)
	}
	switch d.Path {
	case ResponsesPath: // flat, and numbered after the last event
		if outer != "error" || strings.Contains(data, `"error":{`) || !strings.Contains(data, `"sequence_number":2`) || !strings.Contains(data, `"param"`) {
			t.Errorf("Responses error event %q", last)
		}
	case MessagesPath:
		if outer != "error" || !strings.Contains(data, `"error":{`) || e.Type == "" || e.Message == "" {
			t.Errorf("Anthropic error event %q", last)
		}
	default:
		if e.Type == "" || e.Message == "" {
			t.Errorf("error event %q", last)
		}
	}
}
