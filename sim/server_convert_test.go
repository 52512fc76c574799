package sim

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// wholeConversation is the same history in three dialects: with thinking, a
// call of a tool and its result.
var wholeConversation = []ChatMessage{
	{Role: "user", Content: "a\nb"},
	{Role: "assistant", Content: "c", Reasoning: "hm", ToolCalls: []ChatToolCall{{Name: "f", Arguments: `{"x": 1}`}}},
	{Role: "tool", Content: "done"},
	{Role: "user", Content: "next"},
}

func TestConversationsOfAllDialects(t *testing.T) {
	t.Parallel()
	decode := func(s string) (m members) {
		if err := json.Unmarshal([]byte(s), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	chat, e := readConversation(decode(`{"messages":[
		{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
		{"role":"assistant","content":"c","reasoning_content":"hm","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}}]},
		{"role":"tool","tool_call_id":"1","content":"done"},{"role":"user","content":"next"}]}`))
	if e != nil || !reflect.DeepEqual(chat.messages, wholeConversation) {
		t.Errorf("chat: %v %+v", e, chat)
	}
	anthropic, e := readAnthropic(decode(`{"messages":[
		{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
		{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"redacted_thinking","data":"z"},{"type":"text","text":"c"},{"type":"tool_use","id":"1","name":"f","input":{"x": 1}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"done"}]},{"type":"text","text":"next"}]}]}`))
	if e != nil || !reflect.DeepEqual(anthropic.messages, wholeConversation) {
		t.Errorf("messages: %v %+v", e, anthropic)
	}
	r := &responsesRequest{}
	responses, e := r.conversation(decode(`{"input":[
		{"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
		{"type":"reasoning","summary":[]},
		{"role":"assistant","content":[{"type":"output_text","text":"c"}]},
		{"type":"function_call","call_id":"1","name":"f","arguments":"{\"x\": 1}"},
		{"type":"function_call_output","call_id":"1","output":"done"},
		{"role":"user","content":"next"}]}`))
	want := []ChatMessage{
		wholeConversation[0], {Role: "assistant", Content: "c"},
		{Role: "assistant", ToolCalls: wholeConversation[1].ToolCalls}, wholeConversation[2], wholeConversation[3],
	}
	if e != nil || !reflect.DeepEqual(responses.messages, want) {
		t.Errorf("responses: %v %+v", e, responses)
	}
}

func TestConversationsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	for _, tc := range []struct{ path, body string }{
		{"/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]}`},
		{"/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":5}]}`},
		{"/v1/messages", `{"max_tokens":1,"messages":[{"role":5,"content":"x"}]}`},
		{"/v1/messages", `{"max_tokens":1,"system":5,` + hello + `}`},
		{"/v1/messages", `{"max_tokens":1,"tools":5,` + hello + `}`},
		{"/v1/messages", `{"max_tokens":1}`},
		{"/v1/responses", `{"input":5}`},
		{"/v1/responses", `{"input":[{"type":"computer_call"}]}`},
		{"/v1/responses", `{"input":"x","tools":5}`},
		{"/v1/responses", `{"input":"x","background":true,"stream":true}`},
		{"/v1/responses", `{"input":"x","store":5}`},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":5}]}`},
		{"/v1/chat/completions", `{"messages":[{"role":"assistant","tool_calls":5}]}`},
		{"/v1/chat/completions", `{"tools":5,` + hello + `}`},
		{"/v1/chat/completions", `{"tool_choice":"sometimes","tools":[` + weather + `],` + hello + `}`},
		{"/v1/chat/completions", `{"tool_choice":{"type":"function"},"tools":[` + weather + `],` + hello + `}`},
		{"/v1/chat/completions", `{"chat_template_kwargs":5,` + hello + `}`},
		{"/v1/chat/completions", `{"kv_transfer_params":{"prompt_token_ids":[99999999]},` + hello + `}`},
		{"/v1/chat/completions", `{"stop":5,` + hello + `}`},
		{"/v1/chat/completions", `{"stop_token_ids":["x"],` + hello + `}`},
		{"/v1/chat/completions", `{"top_p":0,` + hello + `}`},
		{"/v1/chat/completions", `{"top_p":"x",` + hello + `}`},
		{"/v1/chat/completions", `{"stream":"perhaps",` + hello + `}`},
		{"/v1/completions", `{"prompt":{"a":1}}`},
		{"/v1/completions", `{"prompt":[[]]}`},
		{"/detokenize", `{}`},
		{"/detokenize", `{"tokens":"x"}`},
		{"/tokenize", `{}`},
	} {
		if a := call(t, s, post(tc.path, tc.body)); a.status != 400 || !json.Valid([]byte(a.body)) {
			t.Errorf("%s %s: %d %s", tc.path, tc.body, a.status, a.body)
		}
	}
	if st := s.State(); st.Requests != 0 {
		t.Errorf("%d refused requests count as generation", st.Requests)
	}
}

func TestMessagesToolAnswerIsJSON(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	tool := `{"name":"weather","input_schema":{"type":"object","properties":{"city":{"type":"string"}}}}`
	for _, tc := range []struct{ choice, part string }{
		{`{"type":"tool","name":"weather"}`, `"stop_reason":"tool_use"`},
		{`{"type":"any"}`, `"content":[{"type":"tool_use","id":"`},
		{`{"type":"auto"}`, `"content":[{"type":"text"`},
		{`{"type":"none"}`, `"stop_reason":"max_tokens"`},
	} {
		a := call(t, s, post("/v1/messages", `{"max_tokens":50,"tool_choice":`+tc.choice+`,"tools":[`+tool+`],`+hello+`}`))
		if a.status != 200 || !json.Valid([]byte(a.body)) || !strings.Contains(a.body, tc.part) {
			t.Errorf("%s: %d %s", tc.choice, a.status, a.body)
		}
	}
	a := call(t, s, post("/v1/messages", `{"max_tokens":300,"stop_sequences":[" "],`+hello+`}`))
	if !strings.Contains(a.body, `"stop_reason":"stop_sequence","stop_sequence":" "`) {
		t.Errorf("stop sequence: %s", a.body)
	}
}

// FuzzAppendString: whatever the text, the result is JSON that reads back as
// the text with invalid bytes replaced.
func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\\b\f\n\r\t\x00\x1f\x7f", "<&>", "é日🙂\u2028", "\xff\xc3(\xe2\x82"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := appendString(nil, s)
		var back string
		if err := json.Unmarshal(out, &back); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		want := string([]rune(s)) // replaces each invalid byte
		if back != want || !utf8.Valid(out) {
			t.Errorf("%q became %q", s, back)
		}
	})
}
