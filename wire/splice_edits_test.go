package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

var someIDs = []uint32{0, 7, 151643, 4294967295}

func TestTokenForms(t *testing.T) {
	t.Parallel()
	const list = `[0,7,151643,4294967295]`
	for _, c := range []struct {
		form       TokenForm
		body, want string // "" for left out
	}{
		{TokenField, `{"messages":[{"role":"user"}],"stream":true}`, `{"messages":[{"role":"user"}],"stream":true,"prompt_token_ids":` + list + `}`},
		{TokenField, "\xef\xbb\xbf {\"messages\":[] } \n", "\xef\xbb\xbf {\"messages\":[] ,\"prompt_token_ids\":" + list + "} \n"},
		{TokenKVTransfer, `{"kv_transfer_params":null,"messages":[]}`, `{"kv_transfer_params":null,"messages":[],"kv_transfer_params":{"prompt_token_ids":` + list + `}}`},
		{TokenKVTransfer, `{"messages":{"a":"}"}}`, `{"messages":{"a":"}"},"kv_transfer_params":{"prompt_token_ids":` + list + `}}`},
		{TokenPrompt, `{"prompt":"a\"]","n":1}`, `{"prompt":` + list + `,"n":1}`},
		{TokenPrompt, `{"prompt":"a","x":{"prompt":"b"},"pr\u006fmpt" : ["c"]}`, `{"prompt":"a","x":{"prompt":"b"},"pr\u006fmpt" : ` + list + `}`},
		{TokenPrompt, `{"messages":[]}`, ""},
		{TokenPrompt, `{"prompt":null}`, ""},
		{TokenField, `{"prompt":"a"}`, ""},
		{TokenField, `{}`, ""},
		{TokenKVTransfer, `{"messages":null}`, ""},
		{TokenKVTransfer, `["messages"]`, ""},
		{TokenNone, `{"messages":[],"prompt":""}`, ""},
		{TokenForm(9), `{"messages":[],"prompt":""}`, ""},
	} {
		out, done := AppendEdits([]byte("head "), []byte(c.body), mustPeek(t, c.body), Edits{Tokens: TokenSplice{c.form, someIDs}})
		want := c.want
		if want == "" {
			want = c.body
		}
		if string(out) != "head "+want || done != (Edited{Tokens: c.want != ""}) {
			t.Errorf("%v: %s becomes %s, %+v", c.form, c.body, out, done)
		}
	}
	body := `{"messages":[]}`
	if out, done := AppendEdits(nil, []byte(body), mustPeek(t, body), Edits{Tokens: TokenSplice{Form: TokenField}}); string(out) != body || done.Tokens {
		t.Errorf("no ids become %s", out)
	}
}

// All edits at once, in any order of the members.
func TestEditsTogether(t *testing.T) {
	t.Parallel()
	const ids = `[0,7,151643,4294967295]`
	for _, c := range []struct {
		form       TokenForm
		body, want string
	}{
		{TokenField, `{"model":"a","messages":[],"stream":true}`, `{"model":"b","messages":[],"stream":true,"stream_options":{"include_usage":true},"prompt_token_ids":` + ids + `}`},
		{TokenKVTransfer, `{"stream_options":{"x":1},"stream":true,"messages":[],"model":"a"}`,
			`{"stream_options":{"x":1,"include_usage":true},"stream":true,"messages":[],"model":"b","kv_transfer_params":{"prompt_token_ids":` + ids + `}}`},
		{TokenPrompt, `{"prompt":"x","stream":true,"model":"a"}`, `{"prompt":` + ids + `,"stream":true,"model":"b","stream_options":{"include_usage":true}}`},
		{TokenPrompt, `{"stream":true,"model":"a","stream_options":null,"prompt":"x"}`, `{"stream":true,"model":"b","stream_options":{"include_usage":true},"prompt":` + ids + `}`},
	} {
		out, done := AppendEdits(nil, []byte(c.body), mustPeek(t, c.body), Edits{Model: "b", Usage: true, Tokens: TokenSplice{c.form, someIDs}})
		if string(out) != c.want || done != (Edited{true, true, true}) {
			t.Errorf("%s becomes\n%s, %+v", c.body, out, done)
		}
	}
}

// On every body that Python accepts nothing changes but what was asked for: byte by byte, and as the engine reads it.
func TestEditsChangeNothingElse(t *testing.T) {
	t.Parallel()
	edited := 0
	for _, c := range loadGolden(t) {
		var p Peeked
		if !c.Accept || p.Peek(c.Body) != nil {
			continue
		}
		if out, done := AppendEdits(nil, c.Body, &p, Edits{}); !bytes.Equal(out, c.Body) || done != (Edited{}) {
			t.Errorf("%.100q changes though nothing was asked for", c.Body)
		}
		for form, inserted := range map[TokenForm]string{
			TokenField: `,"prompt_token_ids":[0,7,151643,4294967295]`, TokenKVTransfer: `,"kv_transfer_params":{"prompt_token_ids":[0,7,151643,4294967295]}`,
			TokenPrompt: `[0,7,151643,4294967295]`,
		} {
			out, done := AppendEdits(nil, c.Body, &p, Edits{Tokens: TokenSplice{form, someIDs}})
			if !done.Tokens {
				if !bytes.Equal(out, c.Body) {
					t.Errorf("%v: %.100q changes without an edit", form, c.Body)
				}
				continue
			}
			edited++
			at := p.Root.End - 1
			was := ""
			if form == TokenPrompt {
				at, was = p.Prompt.Start, string(p.Prompt.Of(c.Body))
			}
			if back := string(out[:at]) + was + string(out[at+len(inserted):]); string(out[at:at+len(inserted)]) != inserted || back != string(c.Body) {
				t.Errorf("%v: %.100q becomes %.200q", form, c.Body, out)
			}
			checkMembers(t, form, c.Body, out)
		}
	}
	if edited < 20 {
		t.Errorf("only %d bodies had a place for ids", edited)
	}
}

// checkMembers compares the members as Go reads them, which is as Python does but for what Go refuses.
func checkMembers(t *testing.T, form TokenForm, body, out []byte) {
	t.Helper()
	var before, after map[string]any
	if json.Unmarshal(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")), &before) != nil {
		return
	}
	if err := json.Unmarshal(bytes.TrimPrefix(out, []byte("\xef\xbb\xbf")), &after); err != nil {
		t.Errorf("%v: %.100q is no JSON any more: %v", form, out, err)
		return
	}
	name := form.String()
	got := after[name]
	if params, ok := got.(map[string]any); ok {
		got = params["prompt_token_ids"]
	}
	if list, ok := got.([]any); !ok || len(list) != len(someIDs) || list[2] != 151643.0 {
		t.Errorf("%v: %.100q: the engine would read %v", form, out, got)
	}
	delete(before, name)
	delete(after, name)
	if !reflect.DeepEqual(before, after) {
		t.Errorf("%v: %.100q: other members changed", form, out)
	}
}

func FuzzAppendEdits(f *testing.F) {
	for _, body := range []string{`{"model":"a","messages":[],"stream":true}`, `{"prompt":"x","pr\u006fmpt":[1]}`, `{"messages":1,"stream":true,"stream_options":{ }}`} {
		f.Add([]byte(body), uint8(1), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, form uint8, usage bool) {
		var p, again Peeked
		if p.Peek(body) != nil {
			return
		}
		out, done := AppendEdits(nil, body, &p, Edits{Model: "b", Usage: usage, Tokens: TokenSplice{TokenForm(form), someIDs}})
		if err := again.Peek(out); err != nil {
			t.Fatalf("%q becomes %q: %v", body, out, err)
		}
		if done.Tokens && TokenForm(form) == TokenKVTransfer && !again.KVTransfer || done.Model && string(again.ModelName) != "b" || done.Usage && !again.IncludeUsage {
			t.Fatalf("%q becomes %q without what was asked for", body, out)
		}
		if p.Object && !done.Model && !p.Model.Empty() {
			t.Fatalf("%q kept its model", body)
		}
	})
}

func TestFormWords(t *testing.T) {
	t.Parallel()
	var words []string
	for f := range TokenPrompt + 2 {
		words = append(words, f.String())
	}
	if got := strings.Join(words, " "); got != "none prompt_token_ids kv_transfer_params prompt none" {
		t.Error(got)
	}
}
