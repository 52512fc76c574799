package tokens

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// addedTokens are the tokens that cut the text before it is split into pieces. Those not flagged `normalized` are
// looked for first, in the text as it is; the others then in what lies between, after the normalizer.
type addedTokens struct {
	raw, normal addedSet
	cuts        addedSet // those found wherever they stand; see BPE.Cuts
	byID        map[uint32]*addedToken
}

type addedToken struct {
	addedEntry
	match string // what is looked for: the content, normalized where the token is flagged so
	cut   bool   // see BPE.Cuts
}

// addedSet finds the leftmost token of a set, and there the longest.
type addedSet struct {
	tokens []*addedToken
	only   int // the one byte that all of them begin with, else -1
	root   [256]int32
	nodes  []addedNode // a trie by bytes; node 0 is none
}

type addedNode struct {
	token *addedToken // that ends here, or nil
	edges []addedEdge
}

type addedEdge struct {
	char byte
	to   int32
}

func newAddedSet(tokens []*addedToken) addedSet {
	a := addedSet{tokens: tokens, only: -1, nodes: make([]addedNode, 1)}
	for i, t := range tokens {
		first := int(t.match[0])
		if i == 0 {
			a.only = first
		} else if a.only != first {
			a.only = -1
		}
		at := &a.root[first]
		if *at == 0 {
			*at = a.grow()
		}
		node := *at
		for _, c := range []byte(t.match[1:]) {
			next := a.follow(node, c)
			if next == 0 {
				next = a.grow()
				a.nodes[node].edges = append(a.nodes[node].edges, addedEdge{c, next})
			}
			node = next
		}
		a.nodes[node].token = t
	}
	return a
}

func (a *addedSet) grow() int32 {
	a.nodes = append(a.nodes, addedNode{})
	return int32(len(a.nodes) - 1)
}

func (a *addedSet) follow(node int32, c byte) int32 {
	for _, e := range a.nodes[node].edges {
		if e.char == c {
			return e.to
		}
	}
	return 0
}

// longest returns the longest token that begins at i, or nil.
func (a *addedSet) longest(text string, i int) *addedToken {
	var found *addedToken
	node := a.root[text[i]]
	for node != 0 {
		if t := a.nodes[node].token; t != nil {
			found = t
		}
		if i++; i == len(text) {
			break
		}
		node = a.follow(node, text[i])
	}
	return found
}

// find returns where the first token from i on begins, and that token; len(text) and nil if there is none.
func (a *addedSet) find(text string, i int, w *work) (int, *addedToken) {
	if len(a.tokens) == 0 {
		return len(text), nil
	}
	for ; i < len(text); i++ {
		if a.only >= 0 {
			n := strings.IndexByte(text[i:], byte(a.only))
			if n < 0 {
				break
			}
			i += n
		}
		if a.root[text[i]] == 0 {
			continue
		}
		if !w.spend(candidateStep) {
			break
		}
		if t := a.longest(text, i); t != nil {
			return i, t
		}
	}
	return len(text), nil
}

// addedScan walks through a text from token to token.
type addedScan struct {
	set  *addedSet
	text string
	from int // where to look on
	done int // up to where the text was given out
}

// next returns the text before the next token and that token, which is nil at the end.
func (s *addedScan) next(w *work) (string, *addedToken) {
	for {
		start, t := s.set.find(s.text, s.from, w)
		if t == nil {
			plain := s.text[s.done:]
			s.done = len(s.text)
			return plain, nil
		}
		end := start + len(t.match)
		s.from = end
		if t.SingleWord && (wordBefore(s.text[:start]) || wordAfter(s.text[end:])) {
			continue
		}
		if t.Lstrip {
			start = max(s.done, len(strings.TrimRightFunc(s.text[:start], unicode.IsSpace)))
		}
		if t.Rstrip {
			end = len(s.text) - len(strings.TrimLeftFunc(s.text[end:], unicode.IsSpace))
		}
		plain := s.text[s.done:max(start, s.done)]
		s.done = end
		return plain, t
	}
}

func wordBefore(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && wordRune(r)
}

func wordAfter(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && wordRune(r)
}

// wordRune is \w as Hugging Face's library reads it for single_word (Unicode TS 18, annex C).
func wordRune(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}

// readAdded fills in the added tokens. Hugging Face's library gives them ids of its own accord, in the order of the
// file; a file in which others stand is refused, for an engine would not use those.
func (b *BPE) readAdded(f *tokenizerFile) error {
	b.added.byID = make(map[uint32]*addedToken, len(f.Added))
	var raw, normal []*addedToken
	seen := map[string]bool{}
	next := uint32(b.vocabSize)
	for _, e := range f.Added {
		t := &addedToken{addedEntry: e, match: e.Content}
		want := next
		if old, ok := f.vocabIDs[e.Content]; ok {
			want = old
		}
		next = max(next, want+1)
		switch {
		case e.Content == "":
			return fmt.Errorf("added token %d is empty", e.ID)
		case !utf8.ValidString(e.Content):
			return fmt.Errorf("added token %q is not UTF-8", e.Content)
		case seen[e.Content]:
			return fmt.Errorf("added token %q is there twice", e.Content)
		case e.ID != want:
			return fmt.Errorf("added token %q has id %d and would be given %d", e.Content, e.ID, want)
		case !b.vocab.add(e.Content, e.ID, false):
			return fmt.Errorf("id %d stands for two tokens", e.ID)
		}
		seen[e.Content] = true
		b.added.byID[e.ID] = t
		if !e.Normalized {
			raw = append(raw, t)
			continue
		}
		if b.nfc {
			t.match = norm.NFC.String(t.match)
		}
		normal = append(normal, t)
	}
	b.added.raw, b.added.normal = newAddedSet(raw), newAddedSet(normal)
	cuts := cutTokens(raw, nil)
	if !b.nfc {
		// Else a mark that follows such a token would join with its last character.
		cuts = append(cuts, cutTokens(normal, raw)...)
	}
	for _, t := range cuts {
		t.cut = true
	}
	b.added.cuts = newAddedSet(cuts)
	return nil
}
