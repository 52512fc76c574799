package sim

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// toolCall is the one call that an answer makes in place of text. Its
// arguments are a function of the tool's schema and the prompt, and their
// tokens come at the engine's pace. A nil *toolCall is an answer in text.
type toolCall struct {
	id, name  string
	arguments []uint32 // as tokens
	named     bool     // tool_choice named it: the finish reason stays "stop"
	sent      int      // of arguments, in the first choice (calls are for n = 1)
	opened    bool     // the delta with id and name is out
	detok     *detokenizer
	text      []byte // arguments so far
}

// chooseTool decides whether the answer is a call: with tool_choice
// "required" or a named function always, with "auto" if the last user
// message holds the word TOOL. It caps the job at the call's length.
func (s *Server) chooseTool(a *answerRequest, m members, c *conversation) (*toolCall, *apiError) {
	mode, named, e := toolChoice(m, len(c.options.Tools) > 0)
	if e != nil || mode == "none" || mode == "auto" && !wantsTool(c.messages) {
		return nil, e
	}
	name, schema := findTool(c.options.Tools, named)
	if name == "" {
		return nil, badRequest("tool_choice", "The tool specified in `tool_choice` does not match any of the specified `tools`")
	}
	args := argumentsFor(schema, s.core.Options().Seed^PromptHash(a.prompts[0]), 0)
	t := &toolCall{id: "chatcmpl-tool-" + newID(), name: name, named: named != "", arguments: Tokenizer().Encode(args), detok: newDetokenizer(nil, false)}
	if a.job.MaxTokens == 0 || a.job.MaxTokens > len(t.arguments) {
		a.job.MaxTokens = len(t.arguments)
	}
	a.job.NaturalStop, a.job.StopTokens, a.stops, a.choices = false, nil, nil, 1
	return t, nil
}

// toolChoice reads tool_choice: a mode, and for a named function its name.
func toolChoice(m members, haveTools bool) (mode, named string, e *apiError) {
	if !m.given("tool_choice") {
		if haveTools {
			return "auto", "", nil
		}
		return "none", "", nil
	}
	if json.Unmarshal(m["tool_choice"], &mode) == nil {
		if !slices.Contains([]string{"none", "auto", "required"}, mode) {
			return "", "", invalid("value_error", "tool_choice", "Value error, Invalid value for `tool_choice`: "+mode)
		}
	} else {
		var choice struct {
			Name     string // Responses' form
			Function struct{ Name string }
		}
		if json.Unmarshal(m["tool_choice"], &choice) != nil || choice.Name+choice.Function.Name == "" {
			return "", "", invalid("value_error", "tool_choice", "Value error, Correctly formatted `tool_choice`: {\"type\": \"function\", \"function\": {\"name\": \"my_function\"}}")
		}
		mode, named = "named", choice.Function.Name+choice.Name
	}
	if mode != "none" && !haveTools {
		if mode == "auto" {
			return "none", "", nil
		}
		return "", "", invalid("value_error", "tool_choice", "Value error, When using `tool_choice`, `tools` must be set.")
	}
	return mode, named, nil
}

func wantsTool(msgs []ChatMessage) bool {
	for i := len(msgs) - 1; i >= 0; i-- {
		if msgs[i].Role == "user" {
			return strings.Contains(msgs[i].Content, "TOOL")
		}
	}
	return false
}

// findTool returns the tool of that name, or the first one for "". Both the
// nested form of chat and the flat one of Responses are read.
func findTool(tools []json.RawMessage, name string) (string, json.RawMessage) {
	for _, raw := range tools {
		var t struct {
			Name       string
			Parameters json.RawMessage
			Function   struct {
				Name       string
				Parameters json.RawMessage
			}
		}
		if json.Unmarshal(raw, &t) != nil {
			continue
		}
		if t.Function.Name != "" {
			t.Name, t.Parameters = t.Function.Name, t.Function.Parameters
		}
		if t.Name != "" && (name == "" || t.Name == name) {
			return t.Name, t.Parameters
		}
	}
	return "", nil
}

// argumentsFor makes a JSON value that fits a schema: every property of an
// object in sorted order, the first value of an enumeration, else words and
// numbers drawn from seed.
func argumentsFor(schema json.RawMessage, seed uint64, depth int) string {
	var sc struct {
		Type       json.RawMessage
		Enum       []json.RawMessage
		Const      json.RawMessage
		Properties map[string]json.RawMessage
		Items      json.RawMessage
	}
	_ = json.Unmarshal(schema, &sc)
	var kind string
	if json.Unmarshal(sc.Type, &kind) != nil {
		var kinds []string
		if json.Unmarshal(sc.Type, &kinds) == nil && len(kinds) > 0 {
			kind = kinds[0]
		}
	}
	draw := seed*0x9e3779b97f4a7c15 + uint64(depth)
	draw ^= draw >> 29
	switch {
	case len(sc.Const) > 0:
		return string(sc.Const)
	case len(sc.Enum) > 0:
		return string(sc.Enum[0])
	case kind == "object" || depth == 0 || sc.Properties != nil:
		return objectFor(sc.Properties, draw, depth)
	case kind == "array" && depth < 8:
		return "[" + argumentsFor(sc.Items, draw+1, depth+1) + "]"
	case kind == "integer" || kind == "number":
		return strconv.FormatUint(draw%100, 10)
	case kind == "boolean":
		return strconv.FormatBool(draw%2 == 0)
	case kind == "null":
		return "null"
	}
	return `"w` + strconv.FormatUint(draw%100000, 36) + `"`
}

func objectFor(properties map[string]json.RawMessage, seed uint64, depth int) string {
	if depth >= 8 {
		return "{}"
	}
	b := []byte{'{'}
	for i, name := range slices.Sorted(maps.Keys(properties)) {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendString(b, name)
		b = append(b, ": "...)
		b = append(b, argumentsFor(properties[name], seed+uint64(i)+1, depth+1)...)
	}
	return string(append(b, '}'))
}

// advance moves the call on by n generated tokens and returns the new text of
// its arguments.
func (t *toolCall) advance(c *choice, n int) string {
	end := min(t.sent+n, len(t.arguments))
	text, _ := t.detok.push(t.arguments[t.sent:end], c.over)
	t.sent = end
	t.text = append(t.text, text...)
	return string(text)
}

// appendDelta advances by n tokens and appends the inside of a chat delta:
// id and name in the first one, pieces of the arguments afterwards.
func (t *toolCall) appendDelta(b []byte, c *choice, n int) []byte {
	text := t.advance(c, n)
	b = append(b, `"tool_calls":[{`...)
	if !t.opened {
		t.opened = true
		b = append(b, `"id":`...)
		b = appendString(b, t.id)
		b = append(b, `,"type":"function","index":0,"function":{"name":`...)
		b = appendString(b, t.name)
		b = append(b, `,"arguments":`...)
	} else {
		b = append(b, `"index":0,"function":{"arguments":`...)
	}
	b = appendString(b, text)
	return append(b, "}}]"...)
}

// appendContent appends the message's text, which a call replaces.
func (t *toolCall) appendContent(b []byte, text string) []byte {
	switch {
	case t == nil:
		return appendString(b, text)
	case t.named:
		return append(b, `""`...)
	}
	return append(b, "null"...)
}

// appendCall appends the finished call.
func (t *toolCall) appendCall(b []byte, c *choice) []byte {
	if t == nil {
		return b
	}
	b = append(b, `{"id":`...)
	b = appendString(b, t.id)
	b = append(b, `,"type":"function","function":{"name":`...)
	b = appendString(b, t.name)
	b = append(b, `,"arguments":`...)
	b = appendString(b, string(t.text))
	return append(b, "}}"...)
}

// finish is the reason that the client sees: a complete call ends as
// "tool_calls", one that tool_choice named as "stop" (vLLM 0.32).
func (t *toolCall) finish(reason string) string {
	if t == nil || reason == FinishAbort || t.sent < len(t.arguments) {
		return reason
	}
	if t.named {
		return FinishStop
	}
	return "tool_calls"
}
