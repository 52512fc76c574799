package tokens

import (
	"strings"

	"github.com/ardanlabs/jinja"
)

// checkResponses finds what keeps a Responses request from being known, before anything is decoded.
func (c *Conversation) checkResponses() string {
	switch truncation := c.raw("truncation"); {
	case c.raw("previous_response_id") != "":
		return noteStored
	case c.raw("previous_input_messages") != "" || c.raw("prompt") != "":
		return noteItem
	case truncation != "" && truncation != `"disabled"`:
		return noteTruncate
	case len(c.items) == 0 && !strings.HasPrefix(c.raw("input"), `"`):
		return noteInvalid
	}
	return ""
}

// responses converts a Responses body to a chat request as vLLM does (openai/responses/utils.py).
func (c *Conversation) responses(t *Template, r *chatRequest) {
	r.tools = c.responseTools(c.member("tools"))
	v := t.variant(!r.tools.IsNone())
	var list []jinja.Value
	switch instructions := c.member("instructions"); {
	case instructions.IsString() && instructions.AsString() != "":
		list = append(list, chatMessage("system", instructions))
	case !instructions.IsUndefined() && !instructions.IsString():
		c.fail(noteInvalid)
	}
	if len(c.items) == 0 {
		list = append(list, chatMessage("user", c.member("input")))
	}
	first := len(list)
	for i := range c.items {
		item := c.decode(c.Item(i))
		if !item.IsDict() {
			c.fail(noteInvalid)
			return
		}
		list = c.responseItem(list, first, item)
		if i == len(c.items)-1 {
			r.goOn = isPartial(item)
		}
	}
	for _, m := range list {
		r.messages = append(r.messages, c.message(m, v))
	}
	effort := attribute(c.member("reasoning"), "effort")
	if effort.IsNone() {
		effort = jinja.Undefined()
	}
	r.vars = c.arguments(effort)
	r.vars["add_generation_prompt"] = jinja.NewBool(!r.goOn)
}

// isPartial reports whether the last item is an assistant's message that is to go on.
func isPartial(item jinja.Value) bool {
	kind, status := attribute(item, "type"), attribute(item, "status")
	if kind.IsString() && kind.AsString() != "message" && kind.AsString() != "reasoning" {
		return false
	}
	return status.IsString() && (status.AsString() == "in_progress" || status.AsString() == "incomplete")
}

// responseItem adds one item: a message of its own, or a part of the assistant's message before it. Only messages
// from index first on may be added to.
func (c *Conversation) responseItem(list []jinja.Value, first int, item jinja.Value) []jinja.Value {
	var before *jinja.Dict
	if n := len(list); n > first && isRole(list[n-1], "assistant") {
		before = list[n-1].AsDict()
	}
	kind := attribute(item, "type")
	role := attribute(item, "role")
	word := ""
	if kind.IsString() {
		word = kind.AsString()
	}
	switch {
	case word == "function_call":
		return c.responseCall(list, before, item)
	case word == "reasoning":
		return c.responseReasoning(list, before, item)
	case word == "function_call_output":
		id := attribute(item, "call_id")
		output := attribute(item, "output")
		if !id.IsString() || !output.IsString() && !output.IsList() {
			c.fail(noteInvalid)
		}
		m := chatMessage("tool", output)
		m.AsDict().Set("tool_call_id", id)
		return append(list, m)
	case word != "" && word != "message" || !role.IsString():
		c.fail(noteItem)
		return list
	case role.AsString() == "assistant":
		return c.responseAnswer(list, before, item)
	}
	return append(list, chatMessage(role.AsString(), attribute(item, "content")))
}

func (c *Conversation) responseCall(list []jinja.Value, before *jinja.Dict, item jinja.Value) []jinja.Value {
	id, name, arguments := attribute(item, "call_id"), attribute(item, "name"), attribute(item, "arguments")
	if space := attribute(item, "namespace"); !space.IsUndefined() && !space.IsNone() {
		c.fail(noteItem)
	}
	if !id.IsString() || !name.IsString() || !arguments.IsString() {
		c.fail(noteInvalid)
	}
	function, call := jinja.NewDict(), jinja.NewDict()
	function.AsDict().Set("name", name)
	function.AsDict().Set("arguments", arguments)
	call.AsDict().Set("id", id)
	call.AsDict().Set("function", function)
	call.AsDict().Set("type", jinja.NewString("function"))
	if before == nil {
		m := chatMessage("assistant", jinja.Undefined())
		m.AsDict().Set("tool_calls", jinja.NewList([]jinja.Value{call}))
		return append(list, m)
	}
	if calls, ok := before.Get("tool_calls"); ok {
		calls.AsList().Append(call)
	} else {
		before.Set("tool_calls", jinja.NewList([]jinja.Value{call}))
	}
	return list
}

func (c *Conversation) responseReasoning(list []jinja.Value, before *jinja.Dict, item jinja.Value) []jinja.Value {
	summary, content, hidden := attribute(item, "summary"), attribute(item, "content"), attribute(item, "encrypted_content")
	if hidden.IsString() && hidden.AsString() != "" {
		c.fail(noteInvalid) // vLLM refuses it
	}
	if !summary.IsList() {
		c.fail(noteItem)
		return list
	}
	text := jinja.NewString("")
	switch {
	case content.IsList() && content.AsList().Len() > 0:
		text = attribute(content.AsList().Get(0), "text")
	case summary.AsList().Len() > 0:
		text = attribute(summary.AsList().Get(0), "text")
	}
	if !text.IsString() {
		c.fail(noteInvalid)
		return list
	}
	if before != nil && !before.Has("reasoning") {
		before.Set("reasoning", text)
		return list
	}
	m := chatMessage("assistant", jinja.Undefined())
	m.AsDict().Set("reasoning", text)
	return append(list, m)
}

// responseAnswer takes an assistant's message, of whose parts vLLM reads the first only.
func (c *Conversation) responseAnswer(list []jinja.Value, before *jinja.Dict, item jinja.Value) []jinja.Value {
	content := attribute(item, "content")
	text := content
	if content.IsList() {
		for _, part := range content.AsList().Items {
			if kind := attribute(part, "type"); !kind.IsString() || kind.AsString() != "output_text" {
				c.fail(noteItem)
			}
		}
		if content.AsList().Len() == 0 {
			c.fail(noteItem)
			return list
		}
		text = attribute(content.AsList().Get(0), "text")
	}
	if !text.IsString() {
		c.fail(noteInvalid)
		return list
	}
	if before != nil && !before.Has("content") {
		before.Set("content", text)
		return list
	}
	return append(list, chatMessage("assistant", text))
}

func (c *Conversation) responseTools(tools jinja.Value) jinja.Value {
	if tools.IsUndefined() || tools.IsList() && tools.AsList().Len() == 0 {
		return jinja.None()
	}
	if !tools.IsList() {
		c.fail(noteInvalid)
		return jinja.None()
	}
	var list []jinja.Value
	for _, tool := range tools.AsList().Items {
		if kind := attribute(tool, "type"); !kind.IsString() || kind.AsString() != "function" {
			c.fail(noteTools)
			return jinja.None()
		}
		list = append(list, c.tool(tool.AsDict(), jinja.Undefined()))
	}
	return jinja.NewList(list)
}
