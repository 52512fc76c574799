package tokens

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ramjet/wire"
)

// TestManySmallThings: bodies of 2 MB that are made of nothing but members,
// messages or prompts cost a time in proportion, and are not looked at further.
func TestManySmallThings(t *testing.T) {
	t.Parallel()
	list := func(element string, n int) string {
		return strings.TrimSuffix(strings.Repeat(element+",", n), ",")
	}
	var members strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&members, `,"m%d":1`, i)
	}
	for _, c := range []struct {
		name string
		e    Endpoint
		body string
	}{
		{"members", EndpointChat, `{"messages":[{"role":"user","content":"hi"}]` + members.String() + `}`},
		{"messages", EndpointMessages, `{"messages":[` + list(`{}`, 700_000) + `]}`},
		{"items", EndpointResponses, `{"input":[` + list(`{}`, 700_000) + `]}`},
		{"prompts", EndpointCompletions, `{"prompt":[` + list(`"a"`, 500_000) + `]}`},
		{"prompts of ids", EndpointCompletions, `{"prompt":[` + list(`[1]`, 500_000) + `]}`},
	} {
		body := []byte(c.body)
		var peek wire.Peeked
		if err := peek.Peek(body); err != nil {
			t.Fatal(err)
		}
		var p Prepared
		began := time.Now()
		NewModel(ModelOptions{Source: testSource(t)}).Prepare(&p, c.e, nil, body, &peek)
		if took := time.Since(began); p.Exact || p.Note != noteTooLong || took > 5*time.Second {
			t.Errorf("%s: note %q after %s", c.name, p.Note, took)
		}
		var conversation Conversation
		if note := conversation.Parse(c.e, body, &peek); c.name != "messages" && c.name != "items" && note != noteTooLong {
			t.Errorf("%s: Parse notes %q", c.name, note)
		}
	}
}

// TestOwnIdsTeachNothing of how long tokens of text are.
func TestOwnIdsTeachNothing(t *testing.T) {
	t.Parallel()
	m := NewModel(ModelOptions{})
	before := m.BytesPerToken()
	for _, c := range []struct {
		e    Endpoint
		body string
	}{
		{EndpointCompletions, `{"prompt":[7` + strings.Repeat(",7", 5000) + `]}`},
		{EndpointChat, `{"messages":[{"role":"user","content":"` + strings.Repeat("text ", 1000) + `"}],"prompt_token_ids":[7]}`},
	} {
		var peek wire.Peeked
		if err := peek.Peek([]byte(c.body)); err != nil {
			t.Fatal(err)
		}
		var p Prepared
		m.Prepare(&p, c.e, nil, []byte(c.body), &peek)
		if !p.Exact {
			m.ObserveTokens(p.Bytes, 100_000)
		}
	}
	if after := m.BytesPerToken(); after != before {
		t.Errorf("%v bytes a token, %v before", after, before)
	}
}

// TestPromptLogprobsReadNoCache: measured with vLLM 0.32.
func TestPromptLogprobsReadNoCache(t *testing.T) {
	t.Parallel()
	m := NewModel(ModelOptions{})
	for body, want := range map[string]bool{
		`{"prompt":[1,2,3]}`:                          true,
		`{"prompt":[1,2,3],"prompt_logprobs":null}`:   true,
		`{"prompt":[1,2,3],"prompt_logprobs":0}`:      false,
		`{"prompt":[1,2,3],"logprobs":1}`:             true,
		`{"prompt":[1,2,3],"echo":true}`:              true,
		`{"prompt":[1,2,3],"echo":true,"logprobs":1}`: false,
	} {
		var peek wire.Peeked
		if err := peek.Peek([]byte(body)); err != nil {
			t.Fatal(err)
		}
		var p Prepared
		m.Prepare(&p, EndpointCompletions, nil, []byte(body), &peek)
		if p.ReadsCache() != want {
			t.Errorf("%s: reads the cache: %v", body, !want)
		}
	}
}
