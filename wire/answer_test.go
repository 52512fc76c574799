package wire

import (
	"strings"
	"testing"
)

func showAnswer(a AnswerInfo) string {
	s := ""
	for _, f := range []struct {
		set  bool
		word string
	}{{a.Abort, "abort"}, {a.Error, "error"}, {a.NoOutput, "no-output"}} {
		if f.set {
			s = strings.TrimSpace(s + " " + f.word)
		}
	}
	return s + showUsage(a.HasUsage, a.Usage, a.ResponseID)
}

const (
	chatAnswer = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"tiny","choices":[{"index":0,"message":{"role":"assistant","content":"foo bar","refusal":null,"annotations":null,"audio":null,"function_call":null,"tool_calls":[],"reasoning":null},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}],"service_tier":null,"system_fingerprint":"vllm-0.32.0-abc","usage":{"prompt_tokens":150,"total_tokens":182,"completion_tokens":32,"prompt_tokens_details":{"cached_tokens":128}},"prompt_logprobs":null,"prompt_token_ids":null,"kv_transfer_params":null}`
	textAnswer = `{"id":"cmpl-1","object":"text_completion","created":1,"model":"tiny","choices":[{"index":0,"text":" foo","logprobs":null,"finish_reason":"length","stop_reason":null}],"usage":{"prompt_tokens":5,"total_tokens":21,"completion_tokens":16,"prompt_tokens_details":null}}`
	response   = `{"id":"resp_1","created_at":1,"incomplete_details":null,"error":null,"model":"tiny","object":"response","output":[{"id":"msg_1","content":[{"annotations":[],"text":"foo","type":"output_text"}],"role":"assistant","status":"completed","type":"message"}],"status":"completed","usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":32},"output_tokens":8,"total_tokens":44}}`
	message    = `{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"foo"}],"model":"tiny","stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":6,"output_tokens":9,"cache_read_input_tokens":16,"cache_creation_input_tokens":10}}`
)

// atLimit is a Responses text that says, as vLLM does, which limit it reached.
func atLimit(text string) string {
	return strings.Replace(text, `"incomplete_details":null`, `"incomplete_details":{"reason":"max_output_tokens"}`, 1)
}

var answers = []struct {
	name string
	d    Dialect
	body string
	want string
}{
	{"chat", DialectOpenAI, chatAnswer, " usage 150/128/32"},
	{"chat with white space", DialectOpenAI, "\n" + strings.ReplaceAll(chatAnswer, ",\"", " ,\r\n\t\"") + "\n", " usage 150/128/32"},
	{"chat abort behind output", DialectOpenAI, strings.Replace(chatAnswer, `"stop"`, `"abort"`, 1), "abort usage 150/128/32"},
	{"chat abort without output", DialectOpenAI, `{"choices":[{"message":{"role":"assistant","content":""},"finish_reason":"abort"}],"usage":{"prompt_tokens":5,"completion_tokens":0}}`, "abort no-output usage 5/-1/0"},
	{"chat abort, null content, no usage", DialectOpenAI, `{"choices":[{"message":{"content":null,"tool_calls":[]},"finish_reason":"abort"}]}`, "abort no-output"},
	{"chat of special tokens only", DialectOpenAI, `{"choices":[{"message":{"content":""},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1}}`, " usage 5/-1/1"},
	{"chat tool call", DialectOpenAI, `{"choices":[{"message":{"content":null,"tool_calls":[{"type":"function"}]},"finish_reason":"tool_calls"}]}`, ""},
	{"one of two choices aborted", DialectOpenAI, `{"choices":[{"text":"a","finish_reason":"stop"},{"text":"","finish_reason":"abort"}]}`, "abort"},
	{"completions", DialectOpenAI, textAnswer, " usage 5/-1/16"},
	{"completions swallowed by a stopping engine", DialectOpenAI, `{"choices":[{"index":0,"text":"","finish_reason":"abort"}],"usage":{"prompt_tokens":5,"total_tokens":5,"completion_tokens":0}}`, "abort no-output usage 5/-1/0"},
	{"embeddings", DialectOpenAI, `{"object":"list","data":[{"embedding":[0.1,-2e-5,NaN],"index":0}],"usage":{"prompt_tokens":5,"total_tokens":5}}`, "no-output usage 5/-1/-1"},
	{"error", DialectOpenAI, `{"error":{"message":"x","type":"BadRequestError","param":null,"code":400}}`, "error no-output"},
	{"error as text", DialectOpenAI, `{"error":"Unauthorized"}`, "error no-output"},
	{"detail", DialectOpenAI, `{"detail":"Not Found"}`, "no-output"},
	{"text that looks like keys", DialectOpenAI, strings.Replace(chatAnswer, "foo bar", `\"},\"finish_reason\":\"abort\",\"usage\":{\"prompt_tokens\":1}`, 1), " usage 150/128/32"},
	{"nothing", DialectOpenAI, "", "no-output"},
	{"not JSON", DialectOpenAI, "Invalid HTTP request received.", "no-output"},
	{"last usage wins", DialectOpenAI, `{"usage":{"prompt_tokens":1},"usage":{"prompt_tokens":2}}`, "no-output usage 2/-1/-1"},

	{"responses", DialectResponses, response, " usage 36/32/8 id resp_1"},
	{"responses at the limit", DialectResponses, atLimit(strings.Replace(response, `"status":"completed","usage"`, `"status":"incomplete","usage"`, 1)), " usage 36/32/8 id resp_1"},
	{"responses cut behind output", DialectResponses, strings.Replace(response, `"status":"completed","usage"`, `"status":"incomplete","usage"`, 1), "abort usage 36/32/8 id resp_1"},
	{"responses cancelled behind output", DialectResponses, strings.Replace(response, `"status":"completed","usage"`, `"status":"cancelled","usage"`, 1), "abort usage 36/32/8 id resp_1"},
	{"responses in the background", DialectResponses, `{"id":"resp_1","status":"queued","output":[],"usage":null}`, "no-output id resp_1"},
	{"responses cut", DialectResponses, `{"id":"resp_1","status":"incomplete","output":[],"usage":null}`, "abort no-output id resp_1"},
	{"responses cancelled", DialectResponses, `{"id":"resp_1","status":"cancelled","output":[]}`, "abort no-output id resp_1"},
	{"responses failed", DialectResponses, `{"id":"resp_1","status":"failed","error":{"code":"server_error"},"output":[]}`, "abort error no-output id resp_1"},
	{"responses tool call", DialectResponses, `{"id":"resp_1","status":"incomplete","output":[{"type":"function_call","name":"f","arguments":"{}"}]}`, "abort id resp_1"},
	{"responses thought only", DialectResponses, `{"id":"resp_1","status":"incomplete","output":[{"type":"reasoning","content":[{"type":"reasoning_text","text":"hm"}]}]}`, "abort id resp_1"},
	{"responses filtered", DialectResponses, `{"id":"resp_1","status":"incomplete","incomplete_details":{"reason":"content_filter"},"output":[]}`, "no-output id resp_1"},
	{"responses error", DialectResponses, `{"error":{"message":"x"}}`, "error no-output"},

	{"anthropic", DialectAnthropic, message, " usage 32/16/9"},
	{"anthropic abort", DialectAnthropic, strings.Replace(strings.Replace(message, "end_turn", "abort", 1), `"text":"foo"`, `"text":""`, 1), "abort usage 32/16/9"},
	{"anthropic abort without output", DialectAnthropic, `{"type":"message","content":[],"stop_reason":"abort","usage":{"input_tokens":5,"output_tokens":0}}`, "abort no-output usage 5/-1/0"},
	{"anthropic abort without a word", DialectAnthropic, strings.Replace(message, `"end_turn"`, "null", 1), "abort usage 32/16/9"},
	{"anthropic abort without a member", DialectAnthropic, `{"type":"message","content":[],"usage":{"input_tokens":5,"output_tokens":0}}`, "abort no-output usage 5/-1/0"},
	{"anthropic unfinished", DialectAnthropic, `{"type":"message","content":[`, "no-output"},
	{"anthropic of another kind", DialectAnthropic, `{"type":"other","stop_reason":null}`, "no-output"},
	{"anthropic tool", DialectAnthropic, `{"type":"message","content":[{"type":"tool_use","name":"f","input":{}}],"stop_reason":"tool_use"}`, ""},
	{"anthropic error", DialectAnthropic, `{"type":"error","error":{"type":"not_found_error","message":"x"}}`, "error no-output"},
	{"anthropic error in the other shape", DialectAnthropic, `{"error":{"message":"x","code":400}}`, "error no-output"},
	{"anthropic count", DialectAnthropic, `{"input_tokens":32,"context_management":{"original_input_tokens":32}}`, "no-output"},
}

func TestClassifyAnswer(t *testing.T) {
	t.Parallel()
	for _, a := range answers {
		info := AnswerInfo{true, true, true, true, Usage{1, 2, 3}, []byte("old")}
		ClassifyAnswer(a.d, []byte(a.body), &info)
		if got := showAnswer(info); got != a.want {
			t.Errorf("%s: %q, want %q", a.name, got, a.want)
		}
		for cut := range len(a.body) { // must not crash
			ClassifyAnswer(a.d, []byte(a.body[:cut]), &info)
		}
	}
}

// TestClassifyAbbreviatedAnswer passes answers above the limit through an
// Abridger. The joint must not be taken for structure whatever it cuts.
func TestClassifyAbbreviatedAnswer(t *testing.T) {
	t.Parallel()
	text := strings.Repeat(`\"usage\":{\"prompt_tokens\":1},\\\"}]}\"finish_reason\":\"abort\",`, 1100)
	for shift := range 70 {
		long := strings.Repeat("a", shift) + text
		for _, c := range []struct {
			name string
			d    Dialect
			body string
			want string
		}{
			{"chat", DialectOpenAI, strings.Replace(strings.Replace(chatAnswer, "foo bar", long, 1), "vllm", strings.Repeat("v", shift), 1), " usage 150/128/32"},
			{"chat abort", DialectOpenAI, strings.Replace(strings.Replace(chatAnswer, "foo bar", long, 1), `"stop"`, `"abort"`, 1), "abort usage 150/128/32"},
			{"completions", DialectOpenAI, strings.Replace(textAnswer, " foo", long, 1), " usage 5/-1/16"},
			{"responses", DialectResponses, strings.Replace(response, "foo", long, 1), " usage 36/32/8 id resp_1"},
			{"anthropic", DialectAnthropic, strings.Replace(message, "foo", long, 1), " usage 32/16/9"},
			{"anthropic, the end first", DialectAnthropic, `{"type":"message","stop_reason":"end_turn","content":[{"type":"text","text":"` + long + `"}]}`, ""},
			{"anthropic, the end in the middle", DialectAnthropic, `{"type":"message","a":"` + long + `","stop_reason":"end_turn","content":[{"type":"text","text":"` + long + `"}]}`, ""},
			{"anthropic abort without a word", DialectAnthropic, strings.Replace(strings.Replace(message, "foo", long, 1), `"end_turn"`, "null", 1), "abort usage 32/16/9"},
			{"responses cut", DialectResponses, `{"id":"resp_1","instructions":"` + long + `","output":[],"status":"incomplete","usage":{"input_tokens":9,"output_tokens":0}}`, "abort no-output usage 9/-1/0 id resp_1"},
			{"anthropic", DialectAnthropic, strings.Replace(message, "foo", long, 1), " usage 32/16/9"},
			{"embeddings", DialectOpenAI, `{"object":"list","data":[{"embedding":[` + strings.Repeat("0.25,", 14000+shift) + `1]}],"usage":{"prompt_tokens":5,"total_tokens":5}}`, " usage 5/-1/-1"},
			{"usage in the part left out", DialectOpenAI, strings.Replace(textAnswer, `null}}`, `null},"x":"`+strings.Repeat("y", 70<<10)+`"}`, 1), ""},
		} {
			if c.name == "usage in the part left out" {
				c.body = strings.Replace(c.body, `{"id"`, `{"w":"`+strings.Repeat("z", 8000)+`","id"`, 1)
			}
			var a Abridger
			for at := 0; at < len(c.body); at += 3000 {
				a.Add([]byte(c.body[at:min(at+3000, len(c.body))]))
			}
			kept, short := a.Bytes()
			if !short {
				t.Fatal(c.name, "is too short for this test")
			}
			var info AnswerInfo
			ClassifyAnswer(c.d, kept, &info)
			if got := showAnswer(info); got != c.want {
				t.Errorf("%s, shifted by %d: %q, want %q", c.name, shift, got, c.want)
			}
			a.Release()
		}
	}
}
