package sim

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"ramjet/tokens"
)

//go:embed model/tokenizer.json
var tokenizerJSON []byte

// wordList is made with the tokenizer: " word" or " Word" a line, each one token.
//
//go:embed model/words.txt
var wordList string

// Texts of the added tokens that the simulator knows by name.
const (
	tokenEndOfText = "<|endoftext|>"
	tokenStart     = "<|im_start|>"
	tokenEnd       = "<|im_end|>"
)

// vocabulary is what the simulator speaks with. Every word is one pre-token of its own, so that the text encodes to
// the very ids it was made of: the next turn of a conversation hits the blocks of generated tokens.
type vocabulary struct {
	bpe         *tokens.BPE
	words       []uint32 // " word"
	spacedCaps  []uint32 // " Word"
	caps        []uint32 // "Word", the beginning of an answer
	stop, comma uint32
	endOfTurn   uint32
}

var vocab = sync.OnceValue(func() *vocabulary {
	bpe, err := tokens.LoadBPE(tokenizerJSON)
	if err != nil {
		panic(fmt.Sprintf("BUG: embedded tokenizer: %v", err))
	}
	v := &vocabulary{bpe: bpe}
	for word := range strings.Lines(wordList) {
		word = strings.TrimSuffix(word, "\n")
		id, ok := bpe.TokenID(word)
		if !ok {
			panic("BUG: embedded tokenizer lacks the word " + word)
		}
		if word[1] >= 'a' {
			v.words = append(v.words, id)
			continue
		}
		v.spacedCaps = append(v.spacedCaps, id)
		if bare := bpe.Encode(word[1:]); len(bare) == 1 {
			v.caps = append(v.caps, bare[0])
		}
	}
	for text, id := range map[string]*uint32{".": &v.stop, ",": &v.comma, tokenEnd: &v.endOfTurn} {
		var ok bool
		if *id, ok = bpe.TokenID(text); !ok {
			panic("BUG: embedded tokenizer lacks " + text)
		}
	}
	return v
})

// Tokenizer is the built-in model's tokenizer; safe for concurrent use. The first call loads it.
func Tokenizer() *tokens.BPE { return vocab().bpe }

// EndOfTurn is the id of the token that ends an answer, <|im_end|>.
func EndOfTurn() uint32 { return vocab().endOfTurn }

// PromptHash condenses a prompt for TokenAt. Its lowest bit says that the prompt ends with a line break, as chat
// prompts do: there an answer begins with a capital instead of a blank.
func PromptHash(prompt []uint32) uint64 {
	h := hashTokens(0, prompt) &^ 1
	if n := len(prompt); n > 0 && bytes.HasSuffix(Tokenizer().TokenBytes(prompt[n-1]), []byte("\n")) {
		h |= 1
	}
	return h
}

// Salts that keep the draws for one position apart.
const (
	drawWord = iota
	drawMark
	drawLength
	drawAcceptance
)

func draw(seed, promptHash uint64, kind, i int) uint64 {
	return mix(mix(mix(seed, promptHash), uint64(kind)), uint64(i))
}

// TokenAt is the i-th output token (from 0) for a prompt: words, now and then a comma or a full stop, never two marks
// in a row (they would become one pre-token). It depends on nothing but its arguments, so a test can know any answer
// from any engine with the same seed.
func TokenAt(seed, promptHash uint64, i int) uint32 {
	v := vocab()
	x := draw(seed, promptHash, drawWord, i)
	if i == 0 {
		if promptHash&1 == 1 {
			return v.caps[x%uint64(len(v.caps))]
		}
		return v.words[x%uint64(len(v.words))]
	}
	if mark := v.mark(seed, promptHash, i); mark != 0 {
		return mark
	}
	if v.mark(seed, promptHash, i-1) == v.stop {
		return v.spacedCaps[x%uint64(len(v.spacedCaps))]
	}
	return v.words[x%uint64(len(v.words))]
}

// mark returns the punctuation mark at position i, 0 if a word stands there.
func (v *vocabulary) mark(seed, promptHash uint64, i int) uint32 {
	wanted := func(i int) uint64 {
		if i <= 0 {
			return 0
		}
		return draw(seed, promptHash, drawMark, i) % 12
	}
	if wanted(i-1) >= 10 {
		return 0
	}
	switch wanted(i) {
	case 10:
		return v.comma
	case 11:
		return v.stop
	}
	return 0
}

// ExpectedTokens are the first n output tokens for a prompt, the end of the turn not considered.
func ExpectedTokens(seed uint64, prompt []uint32, n int) []uint32 {
	h := PromptHash(prompt)
	out := make([]uint32, n)
	for i := range out {
		out[i] = TokenAt(seed, h, i)
	}
	return out
}

// ExpectedText is the text of the first n output tokens for a prompt.
func ExpectedText(seed uint64, prompt []uint32, n int) string {
	return Tokenizer().Decode(ExpectedTokens(seed, prompt, n), true)
}

// NaturalLength is the number of output tokens, end of turn included, of a job with NaturalStop: 16 to 815, 216 on
// average, short ones more often.
func NaturalLength(seed, promptHash uint64) int {
	x := draw(seed, promptHash, drawLength, 0)
	return 16 + int((x>>10&1023)*(x>>40&1023)*800>>20)
}
