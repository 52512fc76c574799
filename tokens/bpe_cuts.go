package tokens

import (
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Cut is an added token in a text: Text[Start:End] is its spelling.
type Cut struct {
	Start, End int
	ID         uint32
}

// Cuts yields the places where a text may be cut: for every cut c of a text, and indeed of any other text around the
// same spelling,
//
//	Encode(text) == Encode(text[:c.Start]) + c.ID + Encode(text[c.End:])
//
// so that parts between cuts can be encoded apart, and their ids kept. Added tokens for which this does not hold
// whatever stands around them (one spelled like the end of another; one that strips spaces) are not yielded.
func (b *BPE) Cuts(text string) iter.Seq[Cut] {
	return func(yield func(Cut) bool) {
		var w work
		w.begin(Limits{})
		for i := 0; ; {
			at, t := b.added.cuts.find(text, i, &w)
			if t == nil {
				return
			}
			i = at + len(t.match)
			if !yield(Cut{at, i, t.ID}) {
				return
			}
		}
	}
}

// IsCut says whether Cuts yields id wherever its spelling stands.
func (b *BPE) IsCut(id uint32) bool {
	t := b.added.byID[id]
	return t != nil && t.cut
}

// cutTokens returns those of tokens that are found wherever they stand: no other token of the set, nor one of those
// that are looked for earlier, can cover a part of them, reach over their edge, or look at the characters there. What
// begins within a token and ends there is harmless: the leftmost is taken.
func cutTokens(tokens, earlier []*addedToken) []*addedToken {
	all := slices.Concat(tokens, earlier)
	heads, tails := map[string]bool{}, map[string]bool{}
	curious := false // about what stands around it
	for _, t := range all {
		for i := 1; i < len(t.match); i++ {
			heads[t.match[:i]] = true
			tails[t.match[i:]] = true
		}
		curious = curious || t.SingleWord || t.Lstrip || t.Rstrip
	}
	var cuts []*addedToken
	for _, t := range tokens {
		ok := !t.SingleWord && !t.Lstrip && !t.Rstrip && !(curious && edgesMatter(t.match))
		for i := 1; ok && i < len(t.match); i++ {
			ok = !heads[t.match[i:]] && !tails[t.match[:i]]
		}
		for _, other := range all {
			ok = ok && (other == t || len(other.match) < len(t.match) || !strings.Contains(other.match, t.match))
		}
		for _, other := range earlier {
			ok = ok && !strings.Contains(t.match, other.match)
		}
		if ok {
			cuts = append(cuts, t)
		}
	}
	return cuts
}

// edgesMatter: a token that wants a whole word, or strips spaces, acts otherwise beside this one than at the end.
func edgesMatter(s string) bool {
	first, _ := utf8.DecodeRuneInString(s)
	last, _ := utf8.DecodeLastRuneInString(s)
	return wordRune(first) || wordRune(last) || unicode.IsSpace(first) || unicode.IsSpace(last)
}
