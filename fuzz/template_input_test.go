package fuzz

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"ramjet/sim"
	"ramjet/tokens"
	"ramjet/wire"
)

var simTemplate = sync.OnceValues(func() (*tokens.Template, error) {
	return tokens.LoadTemplate("../sim/model", "", nil)
})

// FuzzTemplateInput: no body makes the reading or the rendering of its prompt panic or run away; what is rendered is
// what a plain twin renders (encoding/json and the simulator's own renderer of the same template), and rendering by
// the end gives the same as the whole.
func FuzzTemplateInput(f *testing.F) {
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"hi"}]}`,
		`{"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],"tools":[{"type":"function","function":{"parameters":{"z":1.0,"a":[null,true]},"name":"f","strict":null}}]}`,
		`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"reasoning":"r","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"b\":1,\"a\":[2,3.0]}"}}]},{"role":"tool","tool_call_id":"1","content":"out"},{"role":"assistant","content":"done"},{"role":"user","content":"more"}]}`,
		`{"messages":[{"role":"user","content":"ok \ud83d end"}],"chat_template_kwargs":{"enable_thinking":false}}`,
		`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y "}],"add_generation_prompt":false,"continue_final_message":true}`,
		`{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"t"}]}]}],"system":[{"type":"text","text":"s"}]}`,
		`{"input":[{"role":"user","content":"x"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"o"}]}`,
		`{"prompt":[[1,2],[3]]}`, `{"prompt":"x"}`, `{"messages":[{"role":"developer","content":"d"}]}`, `{"messages":{}}`, `[]`, `{"messages":[[]]}`,
	} {
		for e := range 4 {
			f.Add(byte(e), []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		tpl, err := simTemplate()
		if err != nil {
			t.Fatal(err)
		}
		var p wire.Peeked
		if p.Peek(body) != nil {
			return
		}
		var c tokens.Conversation
		e := tokens.Endpoint(kind % 4)
		if c.Parse(e, body, &p) != "" || e == tokens.EndpointCompletions {
			return
		}
		out, note := c.Render(nil, tpl)
		if note != "" {
			if len(out) > 0 {
				t.Fatalf("%s: %d bytes and the note %q", body, len(out), note)
			}
			return
		}
		if e != tokens.EndpointChat {
			return
		}
		if want, ok := twinChat(body); ok && want != string(out) {
			t.Fatalf("%s:\ngot  %q\ntwin %q", body, out, want)
		}
		compareEnds(t, tpl, &c, string(out))
	})
}

// compareEnds renders the conversation by its end from every message on.
func compareEnds(t *testing.T, tpl *tokens.Template, c *tokens.Conversation, whole string) {
	t.Helper()
	shape := c.Shape()
	for n := 1; n < c.Items() && n < 8; n++ {
		end, ok := c.RenderFrom(nil, tpl, n, shape)
		if ok && !strings.HasSuffix(whole, string(end)) {
			t.Fatalf("from message %d on: %q is no end of %q", n, end, whole)
		}
	}
}

// twinChat renders the plainest chats: text contents, tools, calls, reasoning. It says no to everything else.
func twinChat(body []byte) (string, bool) {
	var known map[string]json.RawMessage
	if json.Unmarshal(body, &known) != nil {
		return "", false
	}
	for name := range known {
		if name != "messages" && name != "tools" && name != "model" && name != "stream" {
			return "", false
		}
	}
	var list []map[string]json.RawMessage
	if json.Unmarshal(known["messages"], &list) != nil {
		return "", false
	}
	var messages []sim.ChatMessage
	for _, raw := range list {
		m, ok := twinMessage(raw)
		if !ok {
			return "", false
		}
		messages = append(messages, m)
	}
	options := sim.ChatOptions{AddGenerationPrompt: true}
	if known["tools"] != nil && !twinTools(known["tools"], &options) {
		return "", false
	}
	out, err := sim.RenderChat(messages, options)
	return out, err == nil
}

func twinMessage(raw map[string]json.RawMessage) (m sim.ChatMessage, ok bool) {
	for name, value := range raw {
		switch name {
		case "role":
			ok = json.Unmarshal(value, &m.Role) == nil
		case "content":
			ok = value[0] == '"' && json.Unmarshal(value, &m.Content) == nil
		case "reasoning":
			ok = value[0] == '"' && json.Unmarshal(value, &m.Reasoning) == nil
		case "tool_call_id":
			ok = true
		default:
			ok = false // calls are compared with vLLM's own rendering (tokens/testdata/chat)
		}
		if !ok {
			return m, false
		}
	}
	switch m.Role {
	case "user", "assistant", "tool":
	default:
		return m, false // system messages lose a billing line, developers are rewritten
	}
	if m.Role != "assistant" {
		m.Reasoning = ""
	}
	return m, !strings.ContainsRune(m.Content+m.Reasoning, '\ufffd')
}

// twinTools puts definitions in the engine's order of members.
func twinTools(raw json.RawMessage, options *sim.ChatOptions) bool {
	var list []struct {
		Type     string
		Function *struct {
			Name       *string
			Parameters json.RawMessage
		}
	}
	if strings.Contains(string(raw), "description") || strings.Contains(string(raw), "strict") || strings.Contains(string(raw), "defer") || strings.ContainsRune(string(raw), '\\') || json.Unmarshal(raw, &list) != nil {
		return false
	}
	for _, tool := range list {
		if tool.Function == nil || tool.Function.Name == nil || len(tool.Function.Parameters) == 0 {
			return false
		}
		name, _ := json.Marshal(*tool.Function.Name)
		if strings.ContainsAny(string(name), `\`) {
			return false
		}
		options.Tools = append(options.Tools, json.RawMessage(`{"type":"function","function":{"name":`+string(name)+`,"description":null,"parameters":`+string(tool.Function.Parameters)+`}}`))
	}
	return true
}
