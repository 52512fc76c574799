package rig

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Helpers of the residency tests: a load of conversations made from a seed, and
// the comparison of what Ramjet expected with what the engines report.

// TalkLoad makes the requests of a multi-turn load from a seed. Some
// conversations begin alike, some fork off from the middle of another, and old
// ones are taken up again.
type TalkLoad struct {
	rng   *rand.Rand
	words int      // of a user's message, at most
	Heads []string // system prompts
	talks [][]TalkMessage
	Cap   int // of the answers, in tokens
}

// TalkMessage is one message of a conversation.
type TalkMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// NewTalkLoad returns a load whose messages have some words up to the number
// given, and whose system prompts have as many.
func NewTalkLoad(seed uint64, words int) *TalkLoad {
	l := &TalkLoad{rng: rand.New(rand.NewPCG(seed, 1)), words: words, Cap: 24}
	for i := range 6 {
		l.Heads = append(l.Heads, fmt.Sprintf("System %d. ", i)+l.Text(words))
	}
	return l
}

var talkWords = strings.Fields(`the engine keeps blocks of tokens while a prompt comes back with one more message and
nobody knows where it was before so ask again later about seven ships or another harbour in winter light`)

// Text makes a text of that many words.
func (l *TalkLoad) Text(words int) string {
	var b strings.Builder
	for range words {
		b.WriteString(talkWords[l.rng.IntN(len(talkWords))])
		b.WriteByte(' ')
		if l.rng.IntN(9) == 0 {
			fmt.Fprintf(&b, "%d. ", l.rng.IntN(100000))
		}
	}
	return b.String()
}

// Next returns the body of the next request and what to do with the text of its
// answer. Conversations are picked anew for each: it must be told an answer
// before the next request only where that is to continue it.
func (l *TalkLoad) Next() (body string, answer func(text string)) {
	var at int
	switch n := len(l.talks); {
	case n == 0 || n < 40 && l.rng.IntN(5) == 0: // a new one
		l.talks = append(l.talks, []TalkMessage{{"system", l.Heads[l.rng.IntN(len(l.Heads))]}})
		at = n
	case l.rng.IntN(8) == 0: // a fork of the beginning of another
		from := l.talks[l.rng.IntN(n)]
		cut := 1 + 2*l.rng.IntN((len(from)+1)/2)
		l.talks = append(l.talks, append([]TalkMessage(nil), from[:min(cut, len(from))]...))
		at = n
	case l.rng.IntN(12) == 0: // the same request again
		m := l.talks[l.rng.IntN(n)]
		if len(m) > 1 {
			return l.Body(m[:len(m)-1]), func(string) {}
		}
		at = l.rng.IntN(n)
	default:
		at = max(l.rng.IntN(n), l.rng.IntN(n)) // rather a recent one
	}
	if len(l.talks[at]) > 16 { // it is over
		l.talks[at] = l.talks[at][:1]
	}
	l.talks[at] = append(l.talks[at], TalkMessage{"user", l.Text(1 + l.rng.IntN(l.words))})
	return l.Body(l.talks[at]), func(text string) { l.talks[at] = append(l.talks[at], TalkMessage{"assistant", text}) }
}

// Body is the request with these messages.
func (l *TalkLoad) Body(m []TalkMessage) string {
	b, err := json.Marshal(map[string]any{
		"model": "m", "messages": m, "max_tokens": l.Cap, "stream": true, "stream_options": map[string]any{"include_usage": true},
	})
	if err != nil {
		panic("BUG: cannot render a request: " + err.Error())
	}
	return string(b)
}
