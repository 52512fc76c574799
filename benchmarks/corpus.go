package benchmarks

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Corpora of prompts, all seeded: the same call sends the same prompts.
const (
	CorpusHot   = "hot64"        // 64 prompts, drawn at random
	CorpusCold  = "cold"         // no two alike from the first byte on
	CorpusMixed = "mixed90"      // nine of ten out of the 64, the rest cold
	CorpusShort = "short-prefix" // the first eighth is the same in all
	CorpusLong  = "long-prefix"  // the first seven eighths are the same in all
	CorpusCJK   = "cjk"          // cold, of Chinese characters, three bytes each
	CorpusTurns = "returning"    // a known conversation with two new messages of 100 bytes at its end
)

// hotPrompts is the size of the hot set.
const hotPrompts = 64

// messageBytes is the length of one message of a long conversation: sessions of coding agents are made of many.
const messageBytes = 4 << 10

// PromptSpec says what prompts a run of the load generator sends.
type PromptSpec struct {
	Corpus string `json:"corpus"`
	// Bytes is the length of the text of one prompt.
	Bytes int `json:"bytes"`
	// HotSeed makes what is common to all runs; the seed of the run makes the rest.
	HotSeed uint64 `json:"hot_seed"`
	// Warm sends everything that HotSeed makes, once, and nothing else.
	Warm bool `json:"warm,omitempty"`
}

// conversation is the text of a prompt: a user's and an assistant's messages in turns, the first a user's.
type conversation struct{ messages []string }

// common says how many conversations HotSeed makes.
func (p PromptSpec) common(streams int) int {
	switch p.Corpus {
	case CorpusHot, CorpusMixed:
		return hotPrompts
	case CorpusTurns:
		return streams
	case CorpusShort, CorpusLong:
		return 1
	}
	return 0
}

// hot returns common conversation i.
func (p PromptSpec) hot(i int) conversation {
	return conversation{messages: prompt(rand.New(rand.NewPCG(p.HotSeed, uint64(i))), p.Bytes, false)}
}

// next returns request n of connection index.
func (p PromptSpec) next(seed uint64, index, n int) conversation {
	rng := rand.New(rand.NewPCG(seed, uint64(index)<<32|uint64(n)))
	switch p.Corpus {
	case CorpusHot:
		return p.hot(rng.IntN(hotPrompts))
	case CorpusMixed:
		if rng.IntN(10) > 0 {
			return p.hot(rng.IntN(hotPrompts))
		}
	case CorpusShort:
		return p.behind(rng, p.Bytes/8)
	case CorpusLong:
		return p.behind(rng, p.Bytes/8*7)
	case CorpusTurns:
		c := p.hot(index)
		c.messages = append(c.messages, text(rng, 100, false), text(rng, 100, false))
		return c
	case CorpusCJK:
		return conversation{messages: prompt(rng, p.Bytes, true)}
	}
	return conversation{messages: prompt(rng, p.Bytes, false)}
}

// behind returns the first n bytes of the common prompt with new text behind them, up to the length of the prompt.
func (p PromptSpec) behind(rng *rand.Rand, n int) conversation {
	first := p.hot(0)
	var out []string
	left := n
	for _, m := range first.messages {
		if left <= len(m) {
			out = append(out, m[:left]+" "+text(rng, len(m)-left, false))
			break
		}
		out = append(out, m)
		left -= len(m)
	}
	for i := len(out); i < len(first.messages); i++ {
		out = append(out, text(rng, len(first.messages[i]), false))
	}
	return conversation{messages: out}
}

// prompt makes the messages of a conversation of about n bytes, an odd number: the last one is the user's.
func prompt(rng *rand.Rand, n int, cjk bool) []string {
	count := n/messageBytes | 1
	var out []string
	for i := range count {
		out = append(out, text(rng, n*(i+1)/count-n*i/count, cjk))
	}
	return out
}

// commonWords make four of five words of a text. The rest are made up, so that a tokenizer that remembers words meets
// new ones at about the rate of prose with names and identifiers in it.
var commonWords = strings.Fields(`the of and to in a is that it for was on are as with be at this have from or had by not but what all were when we there
can an your which their said if do will each about how up out them then she many some so these would other into has more her two like him see time
could no make than first been its who now people my made over did down only way find use may water long little very after words called just where
most know get through back much before go good new write our used me man too any day same right look think also around another came come work three
word must because does part even place well such here take why things help put years different away again off went old number great tell men say
small every found still between name should home big give air line set own under read last never us left end along while might next sound below
saw something thought both few those always looked show large often together asked house world going want school important until form food keep`)

// text makes about n bytes of words, or of Chinese characters.
func text(rng *rand.Rand, n int, cjk bool) string {
	var w strings.Builder
	w.Grow(n + 12)
	for w.Len() < n {
		switch {
		case cjk:
			_, _ = w.WriteRune(rune(0x4e00 + rng.IntN(3000)))
		case rng.IntN(5) == 0:
			_, _ = w.WriteString(word(rng))
		default:
			_, _ = w.WriteString(commonWords[rng.IntN(len(commonWords))])
			_ = w.WriteByte(' ')
		}
	}
	return w.String()
}

// appendPrompt appends the JSON body that asks for an answer of so many tokens to c. The texts have nothing to escape.
func appendPrompt(dst []byte, c conversation, tokens int, stream bool) []byte {
	dst = append(dst, `{"model":"`+Model+`","messages":[`...)
	for i, m := range c.messages {
		role := "user"
		if i%2 == 1 {
			role = "assistant"
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"role":"`...)
		dst = append(dst, role...)
		dst = append(dst, `","content":"`...)
		dst = append(dst, m...)
		dst = append(dst, `"}`...)
	}
	return fmt.Appendf(dst, `],"stream":%t,"max_tokens":%d,"ignore_eos":true}`, stream, tokens)
}
