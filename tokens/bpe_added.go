package tokens

import (
	"cmp"
	"slices"
	"strings"
)

// addedTokens finds the tokens that cut the text before anything else looks at it.
type addedTokens struct {
	byFirst [256][]*addedToken // by first byte, the longest first
	only    int                // the one byte that all of them begin with, else -1
	special map[uint32]bool
}

type addedToken struct {
	text string
	id   uint32
}

func newAddedTokens(list []addedEntry) addedTokens {
	a := addedTokens{only: -1, special: map[uint32]bool{}}
	for _, e := range list {
		first := e.Content[0]
		a.byFirst[first] = append(a.byFirst[first], &addedToken{e.Content, e.ID})
		if e.Special {
			a.special[e.ID] = true
		}
	}
	kinds := 0
	for first, l := range a.byFirst {
		if len(l) == 0 {
			continue
		}
		kinds++
		a.only = first
		slices.SortStableFunc(l, func(x, y *addedToken) int { return cmp.Compare(len(y.text), len(x.text)) })
	}
	if kinds != 1 {
		a.only = -1
	}
	return a
}

// find returns where the first added token of text begins, the longest one there, and that token; len(text) and nil
// if there is none.
func (a *addedTokens) find(text string) (int, *addedToken) {
	for i := 0; i < len(text); i++ {
		if a.only >= 0 {
			n := strings.IndexByte(text[i:], byte(a.only))
			if n < 0 {
				break
			}
			i += n
		}
		for _, t := range a.byFirst[text[i]] {
			if strings.HasPrefix(text[i:], t.text) {
				return i, t
			}
		}
	}
	return len(text), nil
}
