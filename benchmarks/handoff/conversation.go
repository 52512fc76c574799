package handoff

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// words are what the conversation is made of, so that tokens are as long as those of prose.
var words = strings.Fields(`the committee of this harbour sent a report about every ship that left before winter and somebody asked
	whether the index holds more blocks than a cache can keep because nobody counts tokens while they wait for an answer so the
	question came back with one more message and another clock stood still in the room where letters are read aloud`)

// conversation is a chat that grows, so that a shorter size of it is a prefix of a longer one.
type conversation struct {
	rng   *rand.Rand
	parts []string // JSON of messages
	bytes int
	turns int
}

func newConversation(seed uint64) *conversation {
	c := &conversation{rng: rand.New(rand.NewPCG(seed, 1))}
	c.add(`{"role":"system","content":"You are careful."}`)
	return c
}

func (c *conversation) add(message string) {
	c.parts = append(c.parts, message)
	c.bytes += len(message) + 1
}

// grow adds pairs of messages until the body has about that many bytes.
func (c *conversation) grow(bytes int) {
	for c.bytes < bytes {
		c.add(`{"role":"user","content":"` + c.prose(150) + `"}`)
		c.add(`{"role":"assistant","content":"` + c.prose(150) + `"}`)
	}
}

func (c *conversation) prose(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString([]string{" ", " ", " ", " ", ", ", ". "}[c.rng.IntN(6)])
		}
		b.WriteString(words[c.rng.IntN(len(words))])
	}
	return b.String()
}

// turn is the conversation with one new short message, which no turn before had; the answer is one token.
func (c *conversation) turn() []byte {
	c.turns++
	return fmt.Appendf(nil, `{"model":"tiny","temperature":0,"max_tokens":1,"stream":true,"stream_options":{"include_usage":true},"messages":[%s,{"role":"user","content":"Question %d: what does it hold?"}]}`,
		strings.Join(c.parts, ","), c.turns)
}
