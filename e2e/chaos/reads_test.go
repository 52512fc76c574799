package chaos

import "testing"

// TestWholeTextReads: an answer that the engine gave up must not pass for a
// success, whatever text it has.
func TestWholeTextReads(t *testing.T) {
	t.Parallel()
	const output = `"output":[{"content":[{"text":"a b"}]}]`
	for _, c := range []struct {
		name, path, body string
		ok, aborted      bool
	}{
		{"chat", "/v1/chat/completions", `{"choices":[{"message":{"content":"a b"},"finish_reason":"stop"}]}`, true, false},
		{"text at the limit", "/v1/completions", `{"choices":[{"text":"a b","finish_reason":"length"}]}`, true, false},
		{"messages", "/v1/messages", `{"content":[{"text":"a b"}],"stop_reason":"end_turn"}`, true, false},
		{"responses", "/v1/responses", `{"status":"completed",` + output + `}`, true, false},
		{"responses at the limit", "/v1/responses", `{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},` + output + `}`, true, false},
		{"responses given up", "/v1/responses", `{"status":"incomplete","incomplete_details":null,` + output + `}`, false, true},
		{"chat given up", "/v1/chat/completions", `{"choices":[{"message":{"content":"a b"},"finish_reason":"abort"}]}`, false, false},
	} {
		text, ok, aborted := wholeText(c.path, []byte(c.body))
		if text != "a b" || ok != c.ok || aborted != c.aborted {
			t.Errorf("%s: %q, ended %v, given up %v", c.name, text, ok, aborted)
		}
	}
}
