package sim

import (
	"encoding/json"
	"strings"
)

// conversation is what the chat template is given.
type conversation struct {
	messages []ChatMessage
	options  ChatOptions
	goOn     bool // continue_final_message: the last message is left open
}

// readConversation takes messages and the template's arguments from a chat or
// tokenize body.
func readConversation(m members) (*conversation, *apiError) {
	var list []members
	if !m.given("messages") {
		return nil, invalid("missing", "messages", "Field required")
	}
	if json.Unmarshal(m["messages"], &list) != nil {
		return nil, invalid("list_type", "messages", "Input should be a valid list")
	}
	c := &conversation{}
	for _, raw := range list {
		msg, e := readMessage(raw)
		if e != nil {
			return nil, e
		}
		c.messages = append(c.messages, msg)
	}
	return c, c.readOptions(m)
}

func (c *conversation) readOptions(m members) (e *apiError) {
	if c.options.AddGenerationPrompt, e = m.flag("add_generation_prompt", true); e != nil {
		return e
	}
	if c.goOn, e = m.flag("continue_final_message", false); e != nil {
		return e
	}
	if c.goOn && c.options.AddGenerationPrompt {
		return badRequest("", "Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
	}
	if e = c.addTools(m); e != nil {
		return e
	}
	args, e := m.object("chat_template_kwargs")
	if e != nil {
		return e
	}
	if !args.given("enable_thinking") {
		return c.readEffort(m)
	}
	think, e := args.flag("enable_thinking", true)
	c.options.EnableThinking = &think
	return e
}

// readEffort takes reasoning_effort, of which the template sees only whether to think at all.
func (c *conversation) readEffort(m members) *apiError {
	effort, e := m.text("reasoning_effort")
	if e != nil || effort == "" {
		return e
	}
	think := effort != "none" // vLLM 0.32 entrypoints/openai/chat_completion/protocol.py
	c.options.EnableThinking = &think
	return nil
}

// readMessage takes one message; content may be text or a list of parts.
func readMessage(m members) (msg ChatMessage, e *apiError) {
	if msg.Role, e = m.text("role"); e != nil {
		return msg, e
	}
	if msg.Role == "" {
		return msg, invalid("missing", "messages", "Field required")
	}
	if msg.Content, e = readContent(m["content"]); e != nil {
		return msg, e
	}
	for _, name := range []string{"reasoning", "reasoning_content"} {
		if msg.Reasoning == "" {
			if msg.Reasoning, e = m.text(name); e != nil {
				return msg, e
			}
		}
	}
	if !m.given("tool_calls") {
		return msg, nil
	}
	var calls []struct {
		Function struct {
			Name      string
			Arguments json.RawMessage
		}
	}
	if json.Unmarshal(m["tool_calls"], &calls) != nil {
		return msg, invalid("list_type", "messages", "Input should be a valid list")
	}
	for _, call := range calls {
		msg.ToolCalls = append(msg.ToolCalls, ChatToolCall{call.Function.Name, normalArguments(call.Function.Arguments)})
	}
	return msg, nil
}

// readContent joins text parts with line ends, which is how vLLM hands a list
// of parts to a template that expects a string.
func readContent(raw json.RawMessage) (string, *apiError) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []members
	if json.Unmarshal(raw, &parts) != nil {
		return "", invalid("string_type", "messages", "Input should be a valid string")
	}
	var texts []string
	for _, p := range parts {
		kind, _ := p.text("type")
		if !strings.HasSuffix(kind, "text") && kind != "refusal" {
			return "", badRequest("", "At most 0 "+kind+"(s) may be provided in one prompt: the model is not a multimodal model.")
		}
		t, e := p.text("text")
		if e != nil {
			return "", e
		}
		texts = append(texts, t)
	}
	return strings.Join(texts, "\n"), nil
}

// render gives the prompt's text.
func (c *conversation) render() (string, *apiError) {
	text, err := RenderChat(c.messages, c.options)
	if err != nil {
		return "", badRequest("", err.Error())
	}
	if c.goOn && len(c.messages) > 0 {
		last := strings.TrimSpace(c.messages[len(c.messages)-1].Content)
		if i := strings.LastIndex(text, last); i >= 0 {
			text = text[:i+len(last)]
		}
	}
	return text, nil
}

// chatPrompt sets a's only prompt from a conversation, or from ids handed over.
func (s *Server) chatPrompt(a *answerRequest, m members, c *conversation) *apiError {
	a.templated = true
	echo, e := m.flag("echo", false)
	if e != nil {
		return e
	}
	if n := len(c.messages); echo && n > 0 && c.messages[n-1].Role == "assistant" {
		a.echoes = []string{c.messages[n-1].Content}
	}
	if !echo {
		ids, e := s.handedOver(m)
		if e != nil {
			return e
		}
		if ids != nil {
			a.prompts = [][]uint32{ids}
			return nil
		}
	}
	c.options.DropReasoning = s.o.DropReasoning
	text, e := c.render()
	if e != nil {
		return e
	}
	a.prompts, a.textual = [][]uint32{Tokenizer().Encode(text)}, true
	return nil
}
