package sim

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestChatGolden compares the native renderer with jinja2's output of the template; testdata/make_chat_golden.py
// makes the file.
func TestChatGolden(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/chat_golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Messages []struct {
			Role, Content, Reasoning string
			ToolCalls                []struct{ Function ChatToolCall } `json:"tool_calls"`
		}
		Tools               []string
		AddGenerationPrompt bool  `json:"add_generation_prompt"`
		EnableThinking      *bool `json:"enable_thinking"`
		Text                string
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		var msgs []ChatMessage
		for _, m := range row.Messages {
			msg := ChatMessage{Role: m.Role, Content: m.Content, Reasoning: m.Reasoning}
			for _, c := range m.ToolCalls {
				msg.ToolCalls = append(msg.ToolCalls, c.Function)
			}
			msgs = append(msgs, msg)
		}
		o := ChatOptions{AddGenerationPrompt: row.AddGenerationPrompt, EnableThinking: row.EnableThinking}
		for _, tool := range row.Tools {
			o.Tools = append(o.Tools, json.RawMessage(tool))
		}
		if got, err := RenderChat(msgs, o); err != nil || got != row.Text {
			t.Errorf("row %d, error %v:\n%q\nwanted\n%q", i, err, got, row.Text)
		}
	}
}

func TestRenderChatErrors(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"{", "{} {}", "nope", "[1", `{"a"}`, `{1:2}`, strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000)} {
		if _, err := RenderChat(nil, ChatOptions{Tools: []json.RawMessage{json.RawMessage(bad)}}); err == nil {
			t.Errorf("tool %.20q was rendered", bad)
		}
		call := ChatMessage{Role: "assistant", ToolCalls: []ChatToolCall{{Name: "f", Arguments: bad}}}
		if _, err := RenderChat([]ChatMessage{call}, ChatOptions{}); err == nil || !strings.Contains(err.Error(), `"f"`) {
			t.Errorf("arguments %.20q: error %v", bad, err)
		}
	}
}

// TestWriteModel writes the folder that the sim's clients load, and every file is what the sim itself uses.
func TestWriteModel(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "model")
	for range 2 { // the second time over the first
		if err := WriteModel(dir); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]string{}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got[name] = string(data)
	}
	if got["tokenizer.json"] != string(tokenizerJSON) {
		t.Error("tokenizer.json differs from the one in use")
	}
	var config struct {
		VocabSize int    `json:"vocab_size"`
		EOS       uint32 `json:"eos_token_id"`
		Pad       uint32 `json:"pad_token_id"`
	}
	if err := json.Unmarshal([]byte(got["config.json"]), &config); err != nil {
		t.Fatal(err)
	}
	pad, _ := Tokenizer().TokenID(tokenEndOfText)
	if config.VocabSize != Tokenizer().Size() || config.EOS != EndOfTurn() || config.Pad != pad {
		t.Errorf("config.json %+v does not fit the tokenizer", config)
	}
	if err := WriteModel(filepath.Join(dir, "config.json")); err == nil {
		t.Error("a model was written into a file")
	}
}

// TestPrefixProperty: a conversation that goes on keeps its tokens, generated ones included, so that the next turn
// hits what this one left in the cache.
func TestPrefixProperty(t *testing.T) {
	t.Parallel()
	msgs := []ChatMessage{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Tell me more about it."}}
	for turn := range 20 {
		text, err := RenderChat(msgs, ChatOptions{AddGenerationPrompt: true})
		if err != nil {
			t.Fatal(err)
		}
		prompt := Tokenizer().Encode(text)
		made := ExpectedTokens(5, prompt, 30+turn)
		msgs = append(msgs, ChatMessage{Role: "assistant", Content: ExpectedText(5, prompt, 30+turn)}, ChatMessage{Role: "user", Content: "Go on"})
		next, err := RenderChat(msgs, ChatOptions{AddGenerationPrompt: true})
		if err != nil {
			t.Fatal(err)
		}
		whole := slices.Concat(prompt, made, []uint32{EndOfTurn()})
		if got := Tokenizer().Encode(next); len(got) < len(whole) || !slices.Equal(got[:len(whole)], whole) {
			t.Fatalf("turn %d: the next prompt does not begin with this one and its answer", turn)
		}
	}
}

// FuzzPythonJSON: what encoding/json takes, the Python printer prints as JSON of the same value, in one way only.
func FuzzPythonJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.50,-0,1e16],"b":{"c":null}}`, `"\u0001\n\u20ac"`, `{"a":1,"a":2}`, `[]`, `{}`, `1e400`, ` true `, `[1] 2`, `{"a"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := appendPythonJSON(nil, raw)
		if (err == nil) != json.Valid(raw) {
			t.Fatalf("%q: error %v, valid %v", raw, err, json.Valid(raw))
		}
		if err != nil || strings.Contains(string(got), "Infinity") {
			return
		}
		var want, back any
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, want) {
			t.Errorf("%q is printed as %q, error %v", raw, got, err)
		}
		if again, err := appendPythonJSON(nil, got); err != nil || string(again) != string(got) {
			t.Errorf("%q is printed as %q, then as %q", raw, got, again)
		}
	})
}
