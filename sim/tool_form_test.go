package sim

import (
	"encoding/json"
	"strings"
	"testing"
)

// rendered is the prompt's text that a chat, messages or responses body gives.
func rendered(t *testing.T, path, body string) string {
	t.Helper()
	var m members
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatal(err)
	}
	var c *conversation
	var e *apiError
	switch path {
	case "chat":
		c, e = readConversation(m)
	case "messages":
		c, e = readAnthropic(m)
	default:
		c, e = (&responsesRequest{}).conversation(m)
	}
	if e != nil {
		t.Fatalf("%s: %+v", body, e)
	}
	text, e := c.render()
	if e != nil {
		t.Fatalf("%s: %+v", body, e)
	}
	return text
}

// TestToolForm: what the template sees of a definition, in each dialect (the order of Python's model_dump of vLLM 0.32).
func TestToolForm(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ path, tools, want string }{
		{"chat", `{"type":"function","function":{"parameters":{"type":"object","properties":{"z":{"default":1.0},"a":{}}},"name":"run","extra":1,"description":"d","strict":null}}`,
			`{"type": "function", "function": {"name": "run", "description": "d", "parameters": {"type": "object", "properties": {"z": {"default": 1.0}, "a": {}}}}}`},
		{"chat", `{"function":{"name":"run"}}`, `{"type": "function", "function": {"name": "run", "description": null, "parameters": null}}`},
		{"chat", `{"defer_loading":true,"type":"function","function":{"strict":true,"name":"run"}}`,
			`{"type": "function", "function": {"name": "run", "description": null, "parameters": null, "strict": true, "defer_loading": true}, "defer_loading": true}`},
		{"chat", `{"type":"function","function":{"defer_loading":false,"name":"run"}}`,
			`{"type": "function", "function": {"name": "run", "description": null, "parameters": null, "defer_loading": false}}`},
		{"responses", `{"type":"function","strict":true,"name":"run","parameters":{"b":1,"a":2}}`,
			`{"type": "function", "function": {"name": "run", "description": null, "parameters": {"b": 1, "a": 2}, "strict": true}}`},
		{"messages", `{"input_schema":{"properties":{"x":{}}},"name":"run"}`,
			`{"type": "function", "function": {"name": "run", "description": null, "parameters": {"properties": {"x": {}}, "type": "object"}}}`},
		{"messages", `{"input_schema":{ },"description":"d","name":"run"}`,
			`{"type": "function", "function": {"name": "run", "description": "d", "parameters": {"type": "object"}}}`},
	} {
		text := rendered(t, tc.path, `{"input":"x",`+hello+`,"tools":[`+tc.tools+`]}`)
		_, text, _ = strings.Cut(text, "<tools>\n")
		if got, _, _ := strings.Cut(text, "\n</tools>"); got != tc.want {
			t.Errorf("%s %s:\n got %s\nwant %s", tc.path, tc.tools, got, tc.want)
		}
	}
}

// TestCallForm: a call's arguments as the template sees them.
func TestCallForm(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		`"{\"b\":1,\"a\":[2,3.0]}"`: `{"b": 1, "a": [2, 3.0]}`,
		`{"b":1,"a":[2,3.0]}`:       `{"b": 1, "a": [2, 3.0]}`,
		`""`:                        `{}`,
		`null`:                      `{}`,
		`"[1]"`:                     `{}`,
		`"\"text\""`:                `{}`,
		`"{cut"`:                    `{}`,
		`7`:                         `{}`,
	} {
		for path, body := range map[string]string{
			"chat":      `{"messages":[{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f","arguments":` + arguments + `}}]}]}`,
			"messages":  `{"messages":[{"role":"assistant","content":[{"type":"tool_use","name":"f","input":` + arguments + `}]}]}`,
			"responses": `{"input":[{"type":"function_call","name":"f","arguments":` + arguments + `}]}`,
		} {
			if text := rendered(t, path, body); !strings.Contains(text, `{"name": "f", "arguments": `+want+"}\n") {
				t.Errorf("%s: arguments %s are rendered as %q, wanted %s", path, arguments, text, want)
			}
		}
	}
}

func TestBadTools(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	for path, tools := range map[string][]string{
		"/v1/chat/completions": {`{}`, `{"type":"function"}`, `{"function":{"name":5}}`, `{"function":{"description":"d"}}`, `5`},
		"/v1/messages":         {`{"name":"x"}`, `{"name":"x","input_schema":5}`, `{"input_schema":{}}`},
		"/v1/responses":        {`{"type":"function"}`},
	} {
		for _, tool := range tools {
			if a := call(t, s, post(path, `{"max_tokens":1,"input":"x",`+hello+`,"tools":[`+tool+`]}`)); a.status != 400 {
				t.Errorf("%s %s: %d %s", path, tool, a.status, a.body)
			}
		}
	}
}
