package cli

import (
	"fmt"
	"strings"
)

// talk is one conversation of the demo: a long text, and questions about it.
// One goroutine uses it.
type talk struct {
	number   int
	turn     int // questions asked
	messages []message
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// talkTurns is after how many questions another conversation begins.
const talkTurns = 8

// rules are what all conversations begin with.
var rules = "You answer questions about texts. " + strings.Repeat("Keep to the text, and say so where it is silent. ", 20)

// newTalk begins a conversation. Its text has some 5,000 to 22,000 tokens by
// the demo's tokenizer.
func newTalk(number int) *talk {
	text := fmt.Sprintf("Text %d. ", number)
	for i := range 250 * (1 + number%4) {
		text += fmt.Sprintf("The river runs to the sea and never comes back, mile %d. ", i)
	}
	return &talk{number: number, messages: []message{{"system", rules}, {"user", text}}}
}

// next is the body of the next question. Every second one has
// kv_transfer_params of its own, so that its ids stay here: in the same
// conversations, with the same prompts, that shows what handing over gains.
func (t *talk) next(model string) map[string]any {
	question := fmt.Sprintf("Question %d: what does it say of mile %d?", t.turn, 7*t.turn)
	if t.turn == 0 {
		t.messages[1].Content += question
	} else {
		t.messages = append(t.messages, message{"user", question})
	}
	body := map[string]any{
		"model": model, "stream": true, "max_tokens": 8 << (t.turn % 5), "user": fmt.Sprintf("talk-%d", t.number),
		"stream_options": map[string]any{"include_usage": true}, "messages": t.messages,
	}
	if (t.number+t.turn)%2 == 1 {
		body["kv_transfer_params"] = map[string]any{}
	}
	t.turn++
	return body
}

// answered takes the answer into the conversation.
func (t *talk) answered(text string) {
	t.messages = append(t.messages, message{"assistant", text})
}
