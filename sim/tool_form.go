package sim

import "encoding/json"

// The form in which vLLM 0.32 hands tools and calls to the template, whatever the request's was: pydantic's dump of
// ChatCompletionToolsParam (entrypoints/generate/base/protocol.py) and parsed arguments (renderers/chat_utils.py).

// normalTool is one definition with its members in the model's order: unknown ones are left out, description and
// parameters null where they are absent, strict and defer_loading left out then. lazy is the tool's own defer_loading.
func normalTool(function members, lazy json.RawMessage) (json.RawMessage, *apiError) {
	if name, e := function.text("name"); e != nil || name == "" {
		return nil, invalid("missing", "tools", "Field required")
	}
	b := []byte(`{"type":"function","function":{"name":`)
	b = append(b, function["name"]...)
	for _, name := range []string{"description", "parameters"} {
		b = append(append(b, `,"`+name+`":`...), orNull(function[name])...)
	}
	if function.given("strict") {
		b = append(append(b, `,"strict":`...), function["strict"]...)
	}
	lazily := string(orNull(lazy)) != "null"
	switch {
	case function.given("defer_loading"):
		b = append(append(b, `,"defer_loading":`...), function["defer_loading"]...)
	case lazily:
		b = append(append(b, `,"defer_loading":`...), lazy...)
	}
	b = append(b, '}')
	if lazily {
		b = append(append(b, `,"defer_loading":`...), lazy...)
	}
	return append(b, '}'), nil
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// addTools takes chat's tools.
func (c *conversation) addTools(m members) *apiError {
	if !m.given("tools") {
		return nil
	}
	var tools []struct {
		Function members         `json:"function"`
		Lazy     json.RawMessage `json:"defer_loading"`
	}
	if json.Unmarshal(m["tools"], &tools) != nil {
		return invalid("list_type", "tools", "Input should be a valid list")
	}
	for _, t := range tools {
		if e := c.addTool(t.Function, t.Lazy); e != nil {
			return e
		}
	}
	return nil
}

func (c *conversation) addTool(function members, lazy json.RawMessage) *apiError {
	tool, e := normalTool(function, lazy)
	if e == nil {
		c.options.Tools = append(c.options.Tools, tool)
	}
	return e
}

// normalArguments is the text of an object: that of a call's arguments, be they an object or text, or {} for all that
// is none. Bad arguments stand in the history, where refusing them would end the conversation.
func normalArguments(raw json.RawMessage) string {
	text := string(raw)
	var quoted string
	if json.Unmarshal(raw, &quoted) == nil {
		text = quoted
	}
	v, err := parsePython([]byte(text))
	if _, object := v.(*pyObject); err != nil || !object {
		return "{}"
	}
	return text
}
