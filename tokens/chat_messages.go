package tokens

import (
	"strings"

	"github.com/ardanlabs/jinja"
)

// Shape says what in a conversation may make a template render old messages anew when others follow.
type Shape uint8

// The bits of a Shape.
const (
	ShapeReasoning Shape = 1 << iota // an assistant message has reasoning
	ShapeOpen                        // one has since the last user message
	ShapeMarker                      // a text holds what the template looks for in texts
	ShapeOther                       // roles or forms that the load-time probes do not cover
)

// shapes counts the classes for which stability is proven apart (see window.go).
const shapes = 3

// chat reads a chat completion's messages from item `from` on, and its variables, beside the tools in r.
func (c *Conversation) chat(t *Template, r *chatRequest, from int) {
	v := t.variant(!r.tools.IsNone())
	for i := from; i < len(c.items); i++ {
		r.messages = append(r.messages, c.message(c.decode(c.Item(i)), v))
	}
	effort := c.member("reasoning_effort")
	r.vars = c.arguments(effort)
	if documents := c.member("documents"); !documents.IsUndefined() {
		r.vars["documents"] = documents
	}
	generation, isFlag := c.flag("add_generation_prompt", true)
	goOn, isFlag2 := c.flag("continue_final_message", false)
	if !isFlag || !isFlag2 || generation && goOn {
		c.fail(noteInvalid)
	}
	r.goOn = goOn
	r.vars["add_generation_prompt"] = jinja.NewBool(generation)
}

// flag reads a member that is true or false; other forms that pydantic takes for a bool are left alone.
func (c *Conversation) flag(name string, absent bool) (on, ok bool) {
	switch c.raw(name) {
	case "":
		return absent, true
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

// reserved are arguments of transformers' apply_chat_template and names that the template's environment has: giving
// them through chat_template_kwargs changes more than a variable, or fails.
var reserved = map[string]bool{"conversation": true, "messages": true, "tools": true, "documents": true, "chat_template": true, "tokenize": true,
	"padding": true, "truncation": true, "max_length": true, "return_tensors": true, "return_dict": true, "return_assistant_tokens_mask": true,
	"tokenizer_kwargs": true, "raise_exception": true, "strftime_now": true, "range": true, "namespace": true, "dict": true, "cycler": true,
	"joiner": true, "lipsum": true, "processor_kwargs": true, "load_audio_from_video": true, "video_load_backend": true, "self": true}

// arguments merges chat_template_kwargs and what vLLM derives from the effort: thinking is on unless the effort is
// "none", if the caller does not say (openai/chat_completion/protocol.py). Arguments that are null or "auto" count
// as absent (renderers/params.py).
func (c *Conversation) arguments(effort jinja.Value) values {
	vars := values{"documents": jinja.None()}
	given := c.member("chat_template_kwargs")
	thinking := false
	if given.IsDict() {
		for _, name := range given.AsDict().Keys {
			v := given.AsDict().Data[name]
			thinking = thinking || name == "enable_thinking"
			switch {
			case name == "add_generation_prompt" || name == "continue_final_message":
				// The request's own members always win.
			case reserved[name] || strings.HasPrefix(name, ours) || !isIdentifier(name):
				c.fail(noteArgument)
			case v.IsNone() || v.IsString() && v.AsString() == "auto":
			default:
				vars[name] = v
			}
		}
	} else if !given.IsUndefined() {
		c.fail(noteInvalid)
	}
	if effort.IsString() {
		vars["reasoning_effort"] = effort
		if !thinking {
			vars["enable_thinking"] = jinja.NewBool(effort.AsString() != "none")
		}
	} else if !effort.IsUndefined() {
		c.fail(noteInvalid)
	}
	return vars
}

// chatTools puts tool definitions into the form that pydantic's model_dump gives them: members in the order of the
// model, `strict` and `defer_loading` only when set, unknown ones left out, the rest null when absent.
func (c *Conversation) chatTools(tools jinja.Value) jinja.Value {
	if tools.IsUndefined() {
		return jinja.None()
	}
	if !tools.IsList() || tools.AsList().Len() == 0 {
		c.fail(noteInvalid)
		return jinja.None()
	}
	var list []jinja.Value
	for _, tool := range tools.AsList().Items {
		if !tool.IsDict() {
			c.fail(noteInvalid)
			return jinja.None()
		}
		function, _ := tool.AsDict().Get("function")
		if kind, given := tool.AsDict().Get("type"); !function.IsDict() || given && (!kind.IsString() || kind.AsString() != "function") {
			c.fail(noteInvalid)
			return jinja.None()
		}
		lazy, _ := tool.AsDict().Get("defer_loading")
		list = append(list, c.tool(function.AsDict(), lazy))
	}
	return jinja.NewList(list)
}

// tool builds one definition from a function's members.
func (c *Conversation) tool(from *jinja.Dict, lazy jinja.Value) jinja.Value {
	function := jinja.NewDict()
	for _, name := range [...]string{"name", "description", "parameters", "strict", "defer_loading"} {
		v, ok := from.Get(name)
		if name == "defer_loading" && (!ok || v.IsNone()) && lazy.IsBool() {
			v, ok = lazy, true
		}
		if !ok {
			v = jinja.None()
		}
		switch {
		case name == "name" && !v.IsString(), name == "description" && !v.IsString() && !v.IsNone(), name == "parameters" && !v.IsDict() && !v.IsNone(),
			(name == "strict" || name == "defer_loading") && !v.IsBool() && !v.IsNone():
			c.fail(noteInvalid)
		case v.IsNone() && (name == "strict" || name == "defer_loading"):
		default:
			function.AsDict().Set(name, v)
		}
	}
	tool := jinja.NewDict()
	tool.AsDict().Set("type", jinja.NewString("function"))
	tool.AsDict().Set("function", function)
	if lazy.IsBool() {
		tool.AsDict().Set("defer_loading", lazy)
	}
	return tool
}

// billingHeader starts a line that Claude Code puts into the system prompt and that changes with every request; vLLM
// takes it out (renderers/chat_utils.py).
const billingHeader = "x-anthropic-billing-header"

// message turns one message into vLLM's own form: content as one string or a list of text parts, tool calls with
// arguments as objects, and the few other members that are kept.
func (c *Conversation) message(in jinja.Value, v *variant) jinja.Value {
	out := jinja.NewDict()
	if !in.IsDict() {
		c.fail(noteInvalid)
		return out
	}
	from, to := in.AsDict(), out.AsDict()
	roleValue, _ := from.Get("role")
	if !roleValue.IsString() {
		c.fail(noteInvalid)
		return out
	}
	role := roleValue.AsString()
	to.Set("role", roleValue)
	content, given := from.Get("content")
	if given && content.IsNone() && role != "assistant" && role != "function" {
		c.fail(noteInvalid)
	}
	to.Set("content", c.content(content, role, v))
	switch role {
	case "assistant":
		c.assistant(from, to)
	case "tool":
		if id, ok := from.Get("tool_call_id"); ok {
			to.Set("tool_call_id", id)
		}
	case "user":
		c.shape &^= ShapeOpen
		c.asked = true
	case "system":
	default:
		c.shape |= ShapeOther
	}
	for _, name := range [...]string{"name", "task"} {
		if text, ok := from.Get(name); ok {
			if !text.IsString() {
				c.fail(noteInvalid)
			}
			to.Set(name, text)
		}
	}
	if role == "developer" {
		tools, ok := from.Get("tools")
		if !ok {
			tools = jinja.None()
		} else if !tools.IsNone() {
			c.fail(noteTools)
		}
		to.Set("tools", tools)
	}
	return out
}

// content is a message's content as one string, or as parts if the template wants them (but never for a tool's
// result, which is always one string). Empty parts vanish from a string and stay in a list.
func (c *Conversation) content(content jinja.Value, role string, v *variant) jinja.Value {
	var texts []string
	switch {
	case content.IsUndefined() || content.IsNone():
	case content.IsString():
		texts = append(texts, content.AsString())
	case content.IsList():
		for _, part := range content.AsList().Items {
			if text, ok := c.part(part); ok {
				texts = append(texts, text)
			}
		}
	default:
		c.fail(noteInvalid)
	}
	if role == "system" {
		texts = withoutBilling(texts)
	}
	c.mark(texts, v)
	if v.parts && role != "tool" {
		items := make([]jinja.Value, len(texts))
		for i, text := range texts {
			part := jinja.NewDict()
			part.AsDict().Set("type", jinja.NewString("text"))
			part.AsDict().Set("text", jinja.NewString(text))
			items[i] = part
		}
		return jinja.NewList(items)
	}
	if len(texts) == 1 {
		return jinja.NewString(texts[0])
	}
	if !v.parts {
		full := texts[:0]
		for _, text := range texts {
			if text != "" {
				full = append(full, text)
			}
		}
		texts = full
	}
	return jinja.NewString(strings.Join(texts, "\n"))
}

// mark looks for the texts that the template looks for.
func (c *Conversation) mark(texts []string, v *variant) {
	if c.shape&ShapeMarker != 0 {
		return
	}
	for _, text := range texts {
		for _, marker := range v.markers {
			if strings.Contains(text, marker) {
				c.shape |= ShapeMarker
				return
			}
		}
	}
}

// part is the text of one content part; ok is false for parts that vanish.
func (c *Conversation) part(part jinja.Value) (text string, ok bool) {
	if !part.IsDict() {
		c.fail(notePart) // bare strings pass for some roles and not for others
		return "", false
	}
	d := part.AsDict()
	kind, _ := d.Get("type")
	if !kind.IsString() {
		c.fail(noteMedia)
		return "", false
	}
	if uuid, given := d.Get("uuid"); given && !uuid.IsNone() {
		c.fail(noteMedia)
		return "", false
	}
	name := "text"
	switch kind.AsString() {
	case "text", "input_text", "output_text":
	case "refusal", "thinking":
		name = kind.AsString()
	case "tool_reference":
		c.fail(notePart)
		return "", false
	default:
		c.fail(noteMedia)
		return "", false
	}
	// A part may carry members beside its text (cache_control); a template that keeps parts would be given them.
	v, _ := d.Get(name)
	if !v.IsString() {
		c.fail(notePart)
		return "", false
	}
	return v.AsString(), true
}

// withoutBilling drops the billing line.
func withoutBilling(texts []string) []string {
	var out []string
	for _, text := range texts {
		if strings.HasPrefix(text, billingHeader) {
			_, rest, _ := strings.Cut(text, "\n")
			if rest == "" {
				continue
			}
			text = rest
		}
		out = append(out, text)
	}
	return out
}

// assistant copies an assistant message's tool calls and reasoning.
func (c *Conversation) assistant(from, to *jinja.Dict) {
	if calls, ok := from.Get("tool_calls"); ok && !calls.IsNone() {
		if !calls.IsList() {
			c.fail(noteInvalid)
			return
		}
		if calls.AsList().Len() > 0 {
			list := make([]jinja.Value, calls.AsList().Len())
			for i, call := range calls.AsList().Items {
				list[i] = c.call(call)
			}
			to.Set("tool_calls", jinja.NewList(list))
		}
	}
	// reasoning_content is the older name; reasoning wins when both are given.
	reasoning, _ := from.Get("reasoning")
	if reasoning.IsUndefined() || reasoning.IsNone() {
		if c.endpoint == EndpointChat || c.endpoint == EndpointMessages {
			reasoning, _ = from.Get("reasoning_content")
		}
	}
	switch {
	case reasoning.IsUndefined() || reasoning.IsNone():
	case !reasoning.IsString():
		c.fail(noteInvalid)
	default:
		c.shape |= ShapeReasoning | ShapeOpen
		to.Set("reasoning", reasoning)
		to.Set("reasoning_content", reasoning)
	}
}

// call is a tool call in vLLM's order of members, arguments parsed: what is no JSON object becomes an empty one.
func (c *Conversation) call(in jinja.Value) jinja.Value {
	out := jinja.NewDict()
	if !in.IsDict() {
		c.fail(noteInvalid)
		return out
	}
	function, _ := in.AsDict().Get("function")
	if kind, given := in.AsDict().Get("type"); !function.IsDict() || given && (!kind.IsString() || kind.AsString() != "function") {
		c.fail(noteInvalid)
		return out
	}
	inner := jinja.NewDict()
	arguments, _ := function.AsDict().Get("arguments")
	inner.AsDict().Set("arguments", c.callArguments(arguments))
	copyRest(inner.AsDict(), function.AsDict(), "name")
	if id, ok := in.AsDict().Get("id"); ok {
		out.AsDict().Set("id", id)
	}
	out.AsDict().Set("function", inner)
	copyRest(out.AsDict(), in.AsDict(), "type")
	return out
}

// copyRest copies one named member first and then those that are still missing.
func copyRest(to, from *jinja.Dict, first string) {
	if v, ok := from.Get(first); ok {
		to.Set(first, v)
	}
	for _, name := range from.Keys {
		if !to.Has(name) {
			to.Set(name, from.Data[name])
		}
	}
}

func (c *Conversation) callArguments(in jinja.Value) jinja.Value {
	if in.IsDict() {
		return in
	}
	if in.IsString() && in.AsString() != "" {
		r := jsonReader{s: in.AsString(), left: c.left}
		v, ok := r.whole()
		if c.left = r.left; r.odd != "" {
			c.fail(r.odd)
		}
		if ok && v.IsDict() {
			return v
		}
	}
	return jinja.NewDict()
}
