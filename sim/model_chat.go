package sim

import (
	"encoding/json"
	"fmt"
)

// ChatMessage is one message of a conversation as the template sees it.
type ChatMessage struct {
	Role      string
	Content   string // text parts joined
	Reasoning string // assistant: earlier reasoning
	ToolCalls []ChatToolCall
}

// ChatToolCall is one call that the assistant made. Arguments is JSON text; empty means {}.
type ChatToolCall struct{ Name, Arguments string }

// ChatOptions are the template's other variables.
type ChatOptions struct {
	Tools               []json.RawMessage // tool definitions in the request's order
	AddGenerationPrompt bool
	DropReasoning       bool  // of messages before the last one of a user, which model/chat_template.jinja keeps
	EnableThinking      *bool // nil: not given
}

// RenderChat renders a conversation byte for byte as model/chat_template.jinja does in Python. It errs where arguments
// of a call or a tool are not JSON.
func RenderChat(msgs []ChatMessage, o ChatOptions) (string, error) {
	var out []byte
	var err error
	system := ""
	if len(msgs) > 0 && msgs[0].Role == "system" {
		system, msgs = msgs[0].Content, msgs[1:]
	}
	if system != "" || len(o.Tools) > 0 {
		if out, err = appendSystem(out, system, o.Tools); err != nil {
			return "", err
		}
	}
	kept := 0 // from here on reasoning is kept
	for i := range msgs {
		if o.DropReasoning && msgs[i].Role == "user" {
			kept = i
		}
	}
	for i := range msgs {
		switch m := &msgs[i]; m.Role {
		case "tool":
			out = appendToolResult(out, m.Content, i > 0 && msgs[i-1].Role == "tool", i+1 < len(msgs) && msgs[i+1].Role == "tool")
		case "assistant":
			if out, err = appendAssistant(out, m, i >= kept); err != nil {
				return "", err
			}
		default:
			out = append(out, "<|im_start|>"+m.Role+"\n"+m.Content+"<|im_end|>\n"...)
		}
	}
	if o.AddGenerationPrompt {
		out = append(out, "<|im_start|>assistant\n"...)
		if o.EnableThinking != nil && !*o.EnableThinking {
			out = append(out, "<think>\n\n</think>\n\n"...)
		}
	}
	return string(out), nil
}

func appendSystem(out []byte, system string, tools []json.RawMessage) ([]byte, error) {
	out = append(out, "<|im_start|>system\n"+system...)
	if len(tools) > 0 {
		if system != "" {
			out = append(out, "\n\n"...)
		}
		out = append(out, "You may call functions. Each line here describes one of them:\n<tools>"...)
		for i, tool := range tools {
			var err error
			if out, err = appendPythonJSON(append(out, '\n'), tool); err != nil {
				return nil, fmt.Errorf("cannot render tool %d: %w", i, err)
			}
		}
		out = append(out, "\n</tools>\nA call is written as\n<tool_call>\n{\"name\": the function's name, \"arguments\": an object}\n</tool_call>"...)
	}
	return append(out, "<|im_end|>\n"...), nil
}

func appendToolResult(out []byte, content string, follows, followed bool) []byte {
	if !follows {
		out = append(out, "<|im_start|>user\n"...)
	}
	out = append(out, "<tool_response>\n"+content+"\n</tool_response>"...)
	if followed {
		return append(out, '\n')
	}
	return append(out, "<|im_end|>\n"...)
}

func appendAssistant(out []byte, m *ChatMessage, reasoning bool) ([]byte, error) {
	out = append(out, "<|im_start|>assistant\n"...)
	if m.Reasoning != "" && reasoning {
		out = append(out, "<think>\n"+m.Reasoning+"\n</think>\n\n"...)
	}
	out = append(out, m.Content...)
	for i, call := range m.ToolCalls {
		if m.Content != "" || i > 0 {
			out = append(out, '\n')
		}
		out = append(out, "<tool_call>\n{\"name\": "...)
		out = appendPythonString(out, call.Name)
		out = append(out, ", \"arguments\": "...)
		var err error
		if out, err = appendArguments(out, call.Arguments); err != nil {
			return nil, fmt.Errorf("cannot render arguments of call %d of %q: %w", i, call.Name, err)
		}
		out = append(out, "}\n</tool_call>"...)
	}
	return append(out, "<|im_end|>\n"...), nil
}

// appendArguments renders a call's arguments, which vLLM parses before the template sees them: a JSON string becomes
// its bare content.
func appendArguments(out []byte, arguments string) ([]byte, error) {
	if arguments == "" {
		return append(out, "{}"...), nil
	}
	v, err := parsePython([]byte(arguments))
	if err != nil {
		return nil, err
	}
	if text, ok := v.(string); ok {
		return append(out, text...), nil
	}
	return appendPythonValue(out, v), nil
}
