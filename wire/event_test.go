package wire

import (
	"fmt"
	"strings"
	"testing"
)

// show makes an EventInfo comparable and readable.
func show(i EventInfo) string {
	var words []string
	for _, f := range []struct {
		set  bool
		word string
	}{
		{i.Comment, "comment"}, {i.Generated, "generated"}, {i.Delta, "delta"}, {i.Error, "error"}, {i.Done, "done"},
		{i.Finished, "finished"}, {i.Abort, "abort"},
	} {
		if f.set {
			words = append(words, f.word)
		}
	}
	return strings.Join(words, " ") + showUsage(i.HasUsage, i.Usage, i.ResponseID)
}

func showUsage(has bool, u Usage, id []byte) string {
	s := ""
	if has || u != unknownUsage {
		s = fmt.Sprintf(" usage %d/%d/%d", u.Prompt, u.Cached, u.Completion)
	}
	if !has && u != unknownUsage {
		s += " (not flagged)"
	}
	if id != nil {
		s += " id " + string(id)
	}
	return s
}

func chunk(choices, more string) string {
	return `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[` + choices + `]` + more + "}\n\n"
}

// samples are events with what they mean: prompt/cached/completion for usage.
var samples = []struct {
	name  string
	d     Dialect
	event string
	want  string
}{
	{"chat role", DialectOpenAI, chatRole, "generated"},
	{"chat delta", DialectOpenAI, chatDelta, "generated delta"},
	{"chat finish with its token", DialectOpenAI, chatStop, "generated delta finished"},
	{"chat abort without a token", DialectOpenAI, chatAbort, "finished abort"},
	{"chat abort with a token", DialectOpenAI, strings.Replace(chatAbort, `"content":""`, `"content":"x"`, 1), "generated delta finished abort"},
	{"chat usage", DialectOpenAI, chatUsage, " usage 150/128/32"},
	{"chat error", DialectOpenAI, chatError, "error"},
	{"done", DialectOpenAI, "data: [DONE]\n\n", "done"},
	{"done without a space", DialectOpenAI, "data:[DONE]\n\n", "done"},
	{"done with spaces", DialectOpenAI, "data:  [DONE] \r\n\r\n", "done"},
	{"done in text", DialectOpenAI, chunk(`{"index":0,"delta":{"content":"[DONE]"},"finish_reason":null}`, ""), "generated delta"},
	{"no space", DialectOpenAI, "data:" + chatDelta[6:], "generated delta"},
	{"CRLF", DialectOpenAI, strings.ReplaceAll(chatDelta, "\n", "\r\n"), "generated delta"},
	{"CR", DialectOpenAI, strings.ReplaceAll(chatStop, "\n", "\r"), "generated delta finished"},
	{"empty content", DialectOpenAI, strings.Replace(chatDelta, `" token"`, `""`, 1), "generated"},
	{"reasoning", DialectOpenAI, strings.Replace(chatDelta, `"content"`, `"reasoning"`, 1), "generated delta"},
	{"old reasoning", DialectOpenAI, strings.Replace(chatDelta, `"content"`, `"reasoning_content"`, 1), "generated delta"},
	{"tool call", DialectOpenAI, chunk(`{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"usage\":1}"}}]},"logprobs":null,"finish_reason":null}`, ""), "generated delta"},
	{"no tool call", DialectOpenAI, chunk(`{"index":0,"delta":{"content":null,"tool_calls":[]},"finish_reason":null}`, ""), "generated"},
	{"empty delta at the end", DialectOpenAI, chunk(`{"index":0,"delta":{},"finish_reason":"tool_calls"}`, ""), "generated finished"},
	{"token ids without text", DialectOpenAI, strings.Replace(strings.Replace(chatDelta, `" token"`, `""`, 1), `"token_ids":null`, `"token_ids":[5]`, 1), "generated delta"},
	{"two choices, the second finishes", DialectOpenAI, chunk(`{"index":0,"delta":{"content":"a"},"finish_reason":null},{"index":1,"delta":{"content":"b"},"finish_reason":"length"}`, ""), "generated delta finished"},
	{"usage on every chunk", DialectOpenAI, chunk(`{"index":0,"delta":{"content":"a"},"finish_reason":null}`, `,"usage":{"prompt_tokens":5,"total_tokens":6,"completion_tokens":1}`), "generated delta usage 5/-1/1"},
	{"null usage", DialectOpenAI, chunk(`{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}`, `,"usage":null`), "generated delta"},
	{"null details", DialectOpenAI, chunk(``, `,"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":null}`), " usage 5/-1/1"},
	{"usage in front", DialectOpenAI, `data: {"usage":{"completion_tokens":1,"prompt_tokens":5},"choices":[]}` + "\n\n", " usage 5/-1/1"},
	{"text that looks like keys", DialectOpenAI, chunk(`{"index":0,"delta":{"content":"\",\"usage\":{\"prompt_tokens\":9},\"error\":{\"finish_reason\":\"abort\"}"},"logprobs":null,"finish_reason":null}`, ""), "generated delta"},
	{"text that ends in a backslash", DialectOpenAI, chunk(`{"index":0,"delta":{"content":"\\"},"logprobs":null,"finish_reason":null}`, ""), "generated delta"},
	{"finish behind a backslash", DialectOpenAI, chunk(`{"index":0,"delta":{"content":"\\"},"logprobs":null,"finish_reason":"stop"}`, ""), "generated delta finished"},
	{"text of one quote", DialectOpenAI, chunk(`{"index":0,"delta":{"content":"\""},"logprobs":null,"finish_reason":null}`, ""), "generated delta"},
	{"tokens named like keys", DialectOpenAI, chunk(`{"index":0,"delta":{"content":"usage"},"logprobs":{"content":[{"token":"usage","logprob":-0.1e-5,"bytes":[1],"top_logprobs":[{"token":"error"}]}]},"finish_reason":null}`, ""), "generated delta"},
	{"keys at other places", DialectOpenAI, chunk(`{"index":0,"delta":{"content":"a"},"x":{"usage":{"prompt_tokens":1},"error":{},"finish_reason":"abort"},"finish_reason":null}`, `,"y":[{"usage":{"prompt_tokens":1},"error":"no"}]`), "generated delta"},
	{"choices at another place", DialectOpenAI, `data: {"x":{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}}` + "\n\n", ""},
	{"error next to choices", DialectOpenAI, chunk(`{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}`, `,"error":{"message":"x"}`), "generated delta error"},
	{"null error", DialectOpenAI, chunk(`{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}`, `,"error":null`), "generated delta"},
	{"error as text", DialectOpenAI, `data: {"error":"Unauthorized"}` + "\n\n", "error"},
	{"old error", DialectOpenAI, `data: {"object":"error","message":"x","code":500}` + "\n\n", "error"},
	{"error by name", DialectOpenAI, "event: error\ndata: {\"message\":\"x\"}\n\n", "error"},
	{"completions delta", DialectOpenAI, textDelta, "generated delta"},
	{"completions finish", DialectOpenAI, strings.Replace(textDelta, `"finish_reason":null`, `"finish_reason":"length"`, 1), "generated delta finished"},
	{"completions abort", DialectOpenAI, strings.Replace(strings.Replace(textDelta, `"finish_reason":null`, `"finish_reason":"abort"`, 1), `" foo"`, `""`, 1), "finished abort"},
	{"several data lines", DialectOpenAI, "data: {\"choices\":[{\"index\":0,\n: between\ndata:  \"delta\":{\"content\":\"a\"},\nid: 7\ndata: \"finish_reason\":\ndata\ndata: \"stop\"}],\ndata: \"usage\":{\"prompt_tokens\":1}}\n\n", "generated delta finished usage 1/-1/-1"},
	{"comment", DialectOpenAI, ": keep-alive\n\n", "comment"},
	{"comment and data", DialectOpenAI, ": x\n" + chatDelta, "generated delta"},
	{"retry", DialectOpenAI, "retry: 100\n\n", "comment"},
	{"id", DialectOpenAI, "id: 1\n\n", "comment"},
	{"blank", DialectOpenAI, "\n", "comment"},
	{"nothing", DialectOpenAI, "", "comment"},
	{"byte order mark", DialectOpenAI, byteOrderMark, "comment"},
	{"later byte order mark is part of a name", DialectOpenAI, byteOrderMark + chatDelta, "comment"},
	{"name with a space", DialectOpenAI, " " + chatDelta, "comment"},
	{"name in capitals", DialectOpenAI, "DATA" + chatDelta[4:], "comment"},
	{"empty data", DialectOpenAI, "data:\n\n", "comment"},
	{"data without a colon", DialectOpenAI, "data\n\n", "comment"},
	{"not JSON", DialectOpenAI, "data: hello\n\n", ""},
	{"unfinished JSON", DialectOpenAI, "data: {\"choices\":[\n\n", ""},
	{"counts that are none", DialectOpenAI, chunk(``, `,"usage":{"prompt_tokens":-5,"completion_tokens":1.5,"prompt_tokens_details":{"cached_tokens":"7"}}`), " usage -1/-1/-1"},

	{"responses created", DialectResponses, responseCreated, " id resp_abc"},
	{"responses in progress", DialectResponses, strings.ReplaceAll(responseCreated, "created", "in_progress"), ""},
	{"responses queued", DialectResponses, strings.ReplaceAll(responseCreated, "response.created", "response.queued"), ""},
	{"responses item", DialectResponses, "event: response.output_item.added\ndata: {\"item\":{\"content\":[],\"type\":\"message\"},\"type\":\"response.output_item.added\"}\n\n", "generated"},
	{"responses delta", DialectResponses, responseDelta, "generated delta"},
	{"responses delta without a name", DialectResponses, responseDelta[strings.Index(responseDelta, "data:"):], "generated delta"},
	{"responses empty delta", DialectResponses, strings.Replace(responseDelta, `" foo"`, `""`, 1), "generated"},
	{"responses reasoning", DialectResponses, strings.ReplaceAll(responseDelta, "output_text", "reasoning_text"), "generated delta"},
	{"responses arguments", DialectResponses, "event: response.function_call_arguments.delta\ndata: {\"delta\":\"{\\\"a\\\"\",\"item_id\":\"x\",\"type\":\"response.function_call_arguments.delta\"}\n\n", "generated delta"},
	{"responses text done", DialectResponses, "event: response.output_text.done\ndata: {\"text\":\"foo\",\"type\":\"response.output_text.done\"}\n\n", "generated"},
	{"responses completed", DialectResponses, responseCompleted, "generated done finished usage 36/32/8"},
	{"responses completed at the limit", DialectResponses, atLimit(strings.Replace(responseCompleted, `"status":"completed","usage"`, `"status":"incomplete","usage"`, 1)), "generated done finished usage 36/32/8"},
	{"responses completed without a word", DialectResponses, "event: response.completed\ndata: {\"response\":{\"status\":\"completed\",\"output\":[],\"usage\":null}}\n\n", "generated done finished"},
	{"responses cut", DialectResponses, "event: response.incomplete\ndata: {\"response\":{\"status\":\"incomplete\",\"output\":[],\"usage\":{\"input_tokens\":3,\"output_tokens\":0}}}\n\n", "done finished abort usage 3/-1/0"},
	{"responses cut, called completed", DialectResponses, "event: response.completed\ndata: {\"response\":{\"status\":\"incomplete\",\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"\"}]}],\"usage\":null}}\n\n", "done finished abort"},
	{"responses limit used up by thought", DialectResponses, "event: response.incomplete\ndata: {\"response\":{\"status\":\"incomplete\",\"incomplete_details\":{\"reason\":\"max_output_tokens\"},\"output\":[]}}\n\n", "done finished"},
	{"responses cut behind output", DialectResponses, "event: response.incomplete\ndata: {\"response\":{\"status\":\"incomplete\",\"output\":[{\"type\":\"function_call\",\"arguments\":\"\"}]}}\n\n", "generated delta done finished abort"},
	{"responses cancelled behind output", DialectResponses, "event: response.completed\ndata: {\"response\":{\"status\":\"cancelled\",\"output\":[],\"usage\":{\"input_tokens\":3,\"output_tokens\":2}}}\n\n", "generated delta done finished abort usage 3/-1/2"},
	{"responses failed behind output", DialectResponses, "event: response.failed\ndata: {\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\"},\"output\":[{\"type\":\"function_call\"}]}}\n\n", "generated error done finished"},
	{"responses failed", DialectResponses, "event: response.failed\ndata: {\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"x\"},\"output\":[]}}\n\n", "error done finished abort"},
	{"responses error", DialectResponses, "event: error\ndata: {\"type\":\"error\",\"code\":\"x\",\"message\":\"y\",\"param\":null,\"sequence_number\":3}\n\n", "error"},
	{"responses error without a name", DialectResponses, "data: {\"type\":\"error\",\"code\":\"x\"}\n\n", "error"},
	{"responses error of another dialect", DialectResponses, chatError, "error"},
	{"responses keep-alive", DialectResponses, ": x\n\n", "comment"},

	{"anthropic start", DialectAnthropic, messageStart, "generated usage 22/-1/0"},
	{"anthropic block", DialectAnthropic, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n", "generated"},
	{"anthropic delta", DialectAnthropic, blockDelta, "generated delta"},
	{"anthropic delta in the other order", DialectAnthropic, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"a\"}}\n\n", "generated delta"},
	{"anthropic delta without a name", DialectAnthropic, blockDelta[strings.Index(blockDelta, "data:"):], "generated delta"},
	{"anthropic empty delta", DialectAnthropic, strings.Replace(blockDelta, `" foo"`, `""`, 1), "generated"},
	{"anthropic arguments", DialectAnthropic, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\"}}\n\n", "generated delta"},
	{"anthropic signature", DialectAnthropic, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"abc\"}}\n\n", "generated"},
	{"anthropic message delta", DialectAnthropic, messageDelta, "generated finished usage 32/16/9"},
	{"anthropic all from the cache write", DialectAnthropic, strings.Replace(messageDelta, `"input_tokens":6,"output_tokens":9,"cache_read_input_tokens":16,"cache_creation_input_tokens":10`, `"input_tokens":0,"output_tokens":9,"cache_creation_input_tokens":32`, 1), "generated finished usage 32/-1/9"},
	{"anthropic output count alone", DialectAnthropic, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":9}}\n\n", "generated finished usage -1/-1/9"},
	{"anthropic abort", DialectAnthropic, strings.Replace(messageDelta, "end_turn", "abort", 1), "finished abort usage 32/16/9"},
	{"anthropic abort without a word", DialectAnthropic, strings.Replace(messageDelta, `"end_turn"`, "null", 1), "finished abort usage 32/16/9"},
	{"anthropic abort without a member", DialectAnthropic, strings.Replace(messageDelta, `"stop_reason":"end_turn"`, "", 1), "finished abort usage 32/16/9"},
	{"anthropic abort without a name", DialectAnthropic, `data: {"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":0}}` + "\n\n", "finished abort usage -1/-1/0"},
	{"anthropic unfinished delta", DialectAnthropic, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\n\n", "generated"},
	{"anthropic stop", DialectAnthropic, messageStop, "done"},
	{"anthropic old end", DialectAnthropic, "data: [DONE]\n\n", "done"},
	{"anthropic error", DialectAnthropic, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"x\"}}\n\n", "error"},
	{"anthropic ping", DialectAnthropic, "event: ping\ndata: {\"type\": \"ping\"}\n\n", "comment"},
	{"anthropic last name wins", DialectAnthropic, "event: ping\nevent: message_stop\ndata: {}\n\n", "done"},
}

func init() {
	for _, reason := range []string{"max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "model_context_window_exceeded"} {
		s := samples[0]
		s.name, s.d = "anthropic "+reason, DialectAnthropic
		s.event, s.want = strings.Replace(messageDelta, "end_turn", reason, 1), "generated finished usage 32/16/9"
		samples = append(samples, s)
	}
}

func TestClassifyEvent(t *testing.T) {
	t.Parallel()
	for _, s := range samples {
		// What an earlier event left must not shine through.
		info := EventInfo{true, true, true, true, true, true, true, true, Usage{1, 2, 3}, []byte("old")}
		ClassifyEvent(s.d, []byte(s.event), &info)
		if got := show(info); got != s.want {
			t.Errorf("%s: %q, want %q\n%s", s.name, got, s.want, s.event)
		}
	}
}

// TestClassifyEventFastPath: the events that streams consist of must take the
// short way, or the cost per token is ten times what it should be.
func TestClassifyEventFastPath(t *testing.T) {
	t.Parallel()
	var info EventInfo
	for _, event := range []string{chatDelta, textDelta, strings.Replace(chatDelta, `"content"`, `"reasoning"`, 1), strings.Replace(chatDelta, `,"token_ids":null`, "", 1)} {
		if !plainDelta([]byte(event), &info) {
			t.Errorf("not taken: %s", event)
		}
	}
	for d, event := range map[Dialect]string{DialectResponses: responseDelta, DialectAnthropic: blockDelta} {
		if !namedDelta(d, []byte(event), &info) {
			t.Errorf("not taken: %s", event)
		}
	}
}

// TestClassifyEventCut: no prefix of an event may crash the reading, and the
// short way never sees an event in what is none.
func TestClassifyEventCut(t *testing.T) {
	t.Parallel()
	for _, s := range samples {
		for cut := range len(s.event) {
			var info EventInfo
			ClassifyEvent(s.d, []byte(s.event[:cut]), &info)
			if cut < len(s.event)-1 && (plainDelta([]byte(s.event[:cut]), &info) || namedDelta(s.d, []byte(s.event[:cut]), &info)) {
				t.Fatalf("%s: the first %d bytes pass for an event", s.name, cut)
			}
		}
	}
}

// abridged passes an event through a scanner in small reads.
func abridged(t *testing.T, event string) []byte {
	t.Helper()
	var s EventScanner
	for at := 0; ; at += 5000 {
		_, got, complete, short := s.Next([]byte(event[at:min(at+5000, len(event))]))
		if complete {
			if !short {
				t.Fatal("the event is too short for this test")
			}
			return got
		}
	}
}

func TestClassifyAbbreviatedEvent(t *testing.T) {
	t.Parallel()
	ids := "[" + strings.Repeat("12345,", 12000) + "1]"
	// Text in which every cut looks like keys, and quotes are escaped.
	text := strings.Repeat(`\"usage\":{\"prompt_tokens\":1},\\\"}]}\"finish_reason\":\"abort\",`, 1100)
	for i := range 70 { // shift the joint over every place in the text
		pad := strings.Repeat("a", i)
		for _, c := range []struct {
			name  string
			d     Dialect
			event string
			want  string
		}{
			{"role with prompt ids", DialectOpenAI, strings.Replace(chatRole, `"prompt_token_ids":null`, `"`+pad+`":0,"prompt_token_ids":`+ids, 1), "generated"},
			{"usage behind prompt ids", DialectOpenAI, chunk(``, `,"`+pad+`":`+ids+`,"usage":{"prompt_tokens":150,"completion_tokens":32,"prompt_tokens_details":{"cached_tokens":128}}`), " usage 150/128/32"},
			{"usage deeper in front of and behind usage", DialectOpenAI, chunk(``, `,"p":"`+pad+text+`","x":{"y":{"usage":{"prompt_tokens":1}}},"usage":{"prompt_tokens":150},"z":{"y":{"usage":{"prompt_tokens":2},"x":"`+pad+`"}}`), " usage 150/-1/-1"},
			{"long text", DialectOpenAI, chunk(`{"index":0,"delta":{"content":"`+pad+text+`"},"finish_reason":"stop"}`, `,"x":"`+pad+`","usage":{"prompt_tokens":5,"completion_tokens":7}`), "generated delta finished usage 5/-1/7"},
			{"long arguments, aborted", DialectOpenAI, chunk(`{"index":0,"delta":{"tool_calls":[{"function":{"arguments":"`+pad+text+`"}}]},"finish_reason":"abort"}`, ""), "generated delta finished abort"},
			{"long output", DialectResponses, strings.Replace(responseCompleted, "foo bar", pad+text, 1), "generated done finished usage 36/32/8"},
			{"long output without a name", DialectResponses, strings.TrimPrefix(strings.Replace(responseCompleted, "foo bar", pad+text, 1), "event: response.completed\n"), "generated done finished usage 36/32/8"},
			{"long instructions", DialectResponses, strings.Replace(responseCreated, `"instructions":null`, `"instructions":"`+pad+text+`"`, 1), " id resp_abc"},
			{"long instructions, cut", DialectResponses, "event: response.incomplete\ndata: {\"response\":{\"id\":\"r\",\"instructions\":\"" + pad + text + "\",\"output\":[],\"status\":\"incomplete\",\"usage\":{\"input_tokens\":3,\"output_tokens\":0}}}\n\n", "done finished abort usage 3/-1/0"},
			{"long arguments", DialectAnthropic, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"" + pad + text + "\"},\"index\":0}\n\n", "generated delta"},
			{"long error", DialectOpenAI, `data: {"error":{"message":"` + pad + text + `"}}` + "\n\n", "error"},
		} {
			var info EventInfo
			ClassifyEvent(c.d, abridged(t, c.event), &info)
			if got := show(info); got != c.want {
				t.Errorf("%s, shifted by %d: %q, want %q", c.name, i, got, c.want)
			}
		}
	}
}

// TestClassifyDeepNesting: nesting costs neither stack nor time.
func TestClassifyDeepNesting(t *testing.T) {
	t.Parallel()
	for _, d := range []Dialect{DialectOpenAI, DialectResponses, DialectAnthropic} {
		for _, open := range []string{`{"message":`, `{"response":`, `{"output":[{"content":[`, `{"content":[{"content":[`, `[`, `{"x":`, `{"choices":[{"delta":`} {
			var info EventInfo
			ClassifyEvent(d, []byte("data: "+strings.Repeat(open, 200000)+"\n\n"), &info)
			var answer AnswerInfo
			ClassifyAnswer(d, []byte(strings.Repeat(open, 200000)), &answer)
		}
	}
}
