package tokens

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ramjet/wire"
)

// randomBody makes a request out of members that may come twice, may be null, and may be spelt with escapes and blanks.
func randomBody(r *rand.Rand) string {
	names := append(slices.Clone(headMembers[:]), "messages", "messages", "input", "model", "stream", "", "a", "b", "echo", "cache_salt", "tool_choice",
		"prompt_logprobs", "prompt_token_ids", "kv_transfer_params", "prompt_embeds", "add_special_tokens", "logprobs", `\u006dessages`, `to\u006fls`, `a\"b`)
	values := []string{"null", "true", "false", "12", "-1.5e+3", `"none"`, `"a\"b"`, `""`, "[]", "[ ]", `[{"role":"user","content":"x"}, {} ,[1,"]"]]`, `{"type":"none","a":[{}]}`, "NaN"}
	var b strings.Builder
	if r.IntN(4) == 0 {
		b.WriteString(" \n")
	}
	b.WriteString("{")
	for i := range r.IntN(24) {
		if i > 0 {
			b.WriteString([]string{",", " , "}[r.IntN(2)])
		}
		fmt.Fprintf(&b, `"%s"%s%s`, names[r.IntN(len(names))], []string{":", " :\t"}[r.IntN(2)], values[r.IntN(len(values))])
	}
	b.WriteString([]string{"}", " }\n"}[r.IntN(2)])
	return b.String()
}

// What Peek listed is what a second reading finds.
func TestOpenMembersTwin(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // a test
	var peek wire.Peeked
	listed := 0
	for range 50_000 {
		body := []byte(randomBody(r))
		if err := peek.Peek(body); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if _, ok := peek.Members(); ok {
			listed++
		}
		list := []string{"messages", "input", ""}[r.IntN(3)]
		var got, want Conversation
		got.body, want.body = string(body), string(body)
		if !got.openMembers(&peek, body, list) || !want.readAll(&peek, body, list) {
			t.Fatalf("%s: not read", body)
		}
		if !slices.Equal(got.members, want.members) || !slices.Equal(got.items, want.items) {
			t.Fatalf("%s: %v %v, want %v %v", body, got.members, got.items, want.members, want.items)
		}
		for _, m := range want.members {
			if raw := body[m.span.Start:m.span.End]; string(raw) != "null" && got.raw(m.name) != string(raw) {
				t.Fatalf("%s: %q is %q", body, m.name, got.raw(m.name))
			}
		}
	}
	if listed == 0 || listed == 50_000 {
		t.Fatalf("%d of the bodies were listed", listed)
	}
}
