package tokens

import (
	"strings"

	"github.com/ardanlabs/jinja"
)

// anthropic converts a /v1/messages body to a chat request as vLLM does (anthropic/serving.py).
func (c *Conversation) anthropic(t *Template, r *chatRequest) {
	r.tools = c.anthropicTools(c.member("tools"))
	v := t.variant(!r.tools.IsNone())
	var system []string
	switch top := c.member("system"); {
	case top.IsString() && top.AsString() != "":
		system = append(system, top.AsString())
	case top.IsList():
		system = append(system, c.systemTexts(top)...)
	case !top.IsUndefined() && !top.IsString():
		c.fail(noteInvalid)
	}
	var list []jinja.Value
	for i := range c.items {
		m := c.decode(c.Item(i))
		if t.mergeSystem && isRole(m, "system") {
			if text := c.systemText(m); text != "" {
				system = append(system, text)
			}
			continue
		}
		list = c.anthropicMessage(list, m)
	}
	if len(system) > 0 {
		r.messages = append(r.messages, c.message(chatMessage("system", jinja.NewString(strings.Join(system, ""))), v))
	}
	for _, m := range list {
		r.messages = append(r.messages, c.message(m, v))
	}
	r.vars = c.arguments(c.anthropicEffort(t))
	r.vars["add_generation_prompt"] = jinja.NewBool(true)
}

func isRole(m jinja.Value, role string) bool {
	return m.IsDict() && attribute(m, "role").IsString() && attribute(m, "role").AsString() == role
}

func chatMessage(role string, content jinja.Value) jinja.Value {
	m := jinja.NewDict()
	m.AsDict().Set("role", jinja.NewString(role))
	if !content.IsUndefined() {
		m.AsDict().Set("content", content)
	}
	return m
}

// systemTexts lists the texts of system blocks, without Claude Code's billing header.
func (c *Conversation) systemTexts(blocks jinja.Value) []string {
	var texts []string
	for _, b := range blocks.AsList().Items {
		kind, text := attribute(b, "type"), attribute(b, "text")
		if !kind.IsString() || kind.AsString() != "text" {
			c.fail(noteTools) // tool_addition and the like change the tools; anything else is refused
			continue
		}
		if text.IsString() && text.AsString() != "" && !strings.HasPrefix(text.AsString(), billingHeader) {
			texts = append(texts, text.AsString())
		}
	}
	return texts
}

func (c *Conversation) systemText(m jinja.Value) string {
	content := attribute(m, "content")
	switch {
	case content.IsString() && !strings.HasPrefix(content.AsString(), billingHeader):
		return content.AsString()
	case content.IsList():
		return strings.Join(c.systemTexts(content), "")
	case !content.IsString():
		c.fail(noteInvalid)
	}
	return ""
}

// anthropicMessage appends what one message becomes: results of tools are messages of their own, in front.
func (c *Conversation) anthropicMessage(list []jinja.Value, m jinja.Value) []jinja.Value {
	role, content := attribute(m, "role"), attribute(m, "content")
	if !role.IsString() || role.AsString() != "user" && role.AsString() != "assistant" && role.AsString() != "system" {
		c.fail(noteInvalid)
		return list
	}
	if role.AsString() == "system" {
		if text := c.systemText(m); text != "" {
			list = append(list, chatMessage("system", jinja.NewString(text)))
		}
		return list
	}
	if content.IsString() {
		return append(list, chatMessage(role.AsString(), content))
	}
	if !content.IsList() {
		c.fail(noteInvalid)
		return list
	}
	b := anthropicBlocks{c: c, role: role.AsString(), list: list}
	for _, block := range content.AsList().Items {
		b.block(block)
	}
	return b.finish()
}

// anthropicBlocks gathers the blocks of one message.
type anthropicBlocks struct {
	c         *Conversation
	role      string
	list      []jinja.Value
	parts     []jinja.Value
	calls     []jinja.Value
	reasoning []string
	reasoned  bool
}

func (b *anthropicBlocks) block(block jinja.Value) {
	kind := attribute(block, "type")
	if !kind.IsString() {
		b.c.fail(noteInvalid)
		return
	}
	switch kind.AsString() {
	case "text":
		if text := attribute(block, "text"); text.IsString() && text.AsString() != "" {
			part := jinja.NewDict()
			part.AsDict().Set("type", jinja.NewString("text"))
			part.AsDict().Set("text", text)
			b.parts = append(b.parts, part)
		}
	case "thinking":
		if text := attribute(block, "thinking"); text.IsString() {
			b.reasoning, b.reasoned = append(b.reasoning, text.AsString()), true
		}
	case "redacted_thinking", "tool_reference":
	case "tool_use":
		b.use(block)
	case "tool_result":
		b.result(block)
	case "image":
		b.c.fail(noteMedia)
	case "tool_addition", "tool_removal":
		b.c.fail(noteTools)
	default:
		b.c.fail(noteInvalid)
	}
}

func (b *anthropicBlocks) use(block jinja.Value) {
	id, name, input := attribute(block, "id"), attribute(block, "name"), attribute(block, "input")
	if !id.IsString() || id.AsString() == "" {
		b.c.fail(noteInvalid) // vLLM makes one up from its clock
	}
	if !name.IsString() {
		name = jinja.NewString("")
	}
	if !input.IsDict() {
		input = jinja.NewDict()
	}
	function, call := jinja.NewDict(), jinja.NewDict()
	function.AsDict().Set("name", name)
	function.AsDict().Set("arguments", input)
	call.AsDict().Set("id", id)
	call.AsDict().Set("function", function)
	call.AsDict().Set("type", jinja.NewString("function"))
	b.calls = append(b.calls, call)
}

func (b *anthropicBlocks) result(block jinja.Value) {
	if b.role != "user" {
		b.c.fail(notePart)
		return
	}
	var texts []string
	content := attribute(block, "content")
	switch {
	case content.IsString():
		texts = append(texts, content.AsString())
	case content.IsList():
		for _, item := range content.AsList().Items {
			kind, text := attribute(item, "type"), attribute(item, "text")
			switch {
			case !kind.IsString():
			case kind.AsString() == "text" && text.IsString():
				texts = append(texts, text.AsString())
			case kind.AsString() == "text" && text.IsUndefined():
				texts = append(texts, "")
			case kind.AsString() == "image":
				b.c.fail(noteMedia)
			case kind.AsString() == "tool_reference", kind.AsString() == "text":
				b.c.fail(notePart)
			}
		}
	}
	m := chatMessage("tool", jinja.NewString(strings.Join(texts, "\n")))
	id := attribute(block, "tool_use_id")
	if !id.IsString() {
		id = jinja.NewString("")
	}
	m.AsDict().Set("tool_call_id", id)
	b.list = append(b.list, m)
}

func (b *anthropicBlocks) finish() []jinja.Value {
	content := jinja.Undefined()
	switch {
	case len(b.parts) == 1:
		content = attribute(b.parts[0], "text")
	case len(b.parts) > 1:
		content = jinja.NewList(b.parts)
	case b.role == "user":
		return b.list
	}
	m := chatMessage(b.role, content)
	if b.reasoned {
		m.AsDict().Set("reasoning", jinja.NewString(strings.Join(b.reasoning, "")))
	}
	if len(b.calls) > 0 {
		m.AsDict().Set("tool_calls", jinja.NewList(b.calls))
	}
	return append(b.list, m)
}

// anthropicEffort is the reasoning effort that vLLM derives; undefined for none.
func (c *Conversation) anthropicEffort(t *Template) jinja.Value {
	effort := attribute(c.member("output_config"), "effort")
	if effort.IsNone() {
		effort = jinja.Undefined()
	}
	if kind := attribute(c.member("thinking"), "type"); kind.IsString() && kind.AsString() == "disabled" {
		if t.disabledEffort == "" {
			c.fail(errUnsupported.Error())
		}
		effort = jinja.NewString(t.disabledEffort)
	}
	return effort
}

func (c *Conversation) anthropicTools(tools jinja.Value) jinja.Value {
	if tools.IsUndefined() {
		return jinja.None()
	}
	if !tools.IsList() {
		c.fail(noteInvalid)
		return jinja.None()
	}
	var list []jinja.Value
	for _, tool := range tools.AsList().Items {
		schema := attribute(tool, "input_schema")
		if !schema.IsDict() {
			c.fail(noteInvalid) // a tool of Anthropic's own servers
			return jinja.None()
		}
		if !schema.AsDict().Has("type") {
			schema.AsDict().Set("type", jinja.NewString("object"))
		}
		function := jinja.NewDict()
		for _, name := range [...]string{"name", "description", "strict", "defer_loading"} {
			if v, ok := tool.AsDict().Get(name); ok {
				function.AsDict().Set(name, v)
			}
		}
		function.AsDict().Set("parameters", schema)
		list = append(list, c.tool(function.AsDict(), jinja.Undefined()))
	}
	return jinja.NewList(list)
}
