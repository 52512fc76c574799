package tokens

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// Classes of characters that the split rules tell apart. A character has the bits of all classes that it is in.
const (
	classUpper   uint8 = 1 << iota // \p{Lu} and \p{Lt}
	classLower                     // \p{Ll}
	classNoCase                    // \p{Lm} and \p{Lo}
	classMark                      // \p{M}
	classNumber                    // \p{N}
	classSpace                     // \s as Hugging Face's regular expressions read it: Unicode's White_Space
	classSymbol                    // \p{P} and \p{S}
	classNewline                   // \r and \n, which are white space too

	classLetter = classUpper | classLower | classNoCase // \p{L}
)

// classTable knows the classes of every character: pages of 256, equal ones shared.
type classTable struct {
	ascii [utf8.RuneSelf]uint8
	page  [(unicode.MaxRune + 1) / 256]uint16
	pages [][256]uint8
}

// laterClasses are the characters of Unicode 15.1 and 16.0 (DerivedGeneralCategory.txt), which Hugging Face's library
// knows and Go's tables of Unicode 15.0 do not.
var laterClasses = []struct {
	bits   uint8
	ranges [][2]rune
}{
	{classUpper, [][2]rune{{0x1c89, 0x1c89}, {0xa7cb, 0xa7cc}, {0xa7da, 0xa7da}, {0xa7dc, 0xa7dc}, {0x10d50, 0x10d65}}},
	{classLower, [][2]rune{{0x1c8a, 0x1c8a}, {0xa7cd, 0xa7cd}, {0xa7db, 0xa7db}, {0x10d70, 0x10d85}}},
	{classNoCase, [][2]rune{
		{0x105c0, 0x105f3}, {0x10d4a, 0x10d4f}, {0x10d6f, 0x10d6f}, {0x10ec2, 0x10ec4}, {0x11380, 0x11389}, {0x1138b, 0x1138b},
		{0x1138e, 0x1138e}, {0x11390, 0x113b5}, {0x113b7, 0x113b7}, {0x113d1, 0x113d1}, {0x113d3, 0x113d3}, {0x11bc0, 0x11be0},
		{0x13460, 0x143fa}, {0x16100, 0x1611d}, {0x16d40, 0x16d6c}, {0x18cff, 0x18cff}, {0x1e5d0, 0x1e5ed}, {0x1e5f0, 0x1e5f0},
		{0x2ebf0, 0x2ee5d},
	}},
	{classMark, [][2]rune{
		{0x897, 0x897}, {0x10d69, 0x10d6d}, {0x10efc, 0x10efc}, {0x113b8, 0x113c0}, {0x113c2, 0x113c2}, {0x113c5, 0x113c5},
		{0x113c7, 0x113ca}, {0x113cc, 0x113d0}, {0x113d2, 0x113d2}, {0x113e1, 0x113e2}, {0x11f5a, 0x11f5a}, {0x1611e, 0x1612f},
		{0x1e5ee, 0x1e5ef},
	}},
	{classNumber, [][2]rune{
		{0x10d40, 0x10d49}, {0x116d0, 0x116e3}, {0x11bf0, 0x11bf9}, {0x16130, 0x16139}, {0x16d70, 0x16d79}, {0x1ccf0, 0x1ccf9},
		{0x1e5f1, 0x1e5fa},
	}},
	{classSymbol, [][2]rune{
		{0x1b4e, 0x1b4f}, {0x1b7f, 0x1b7f}, {0x2427, 0x2429}, {0x2ffc, 0x2fff}, {0x31e4, 0x31e5}, {0x31ef, 0x31ef}, {0x10d6e, 0x10d6e},
		{0x10d8e, 0x10d8f}, {0x113d4, 0x113d5}, {0x113d7, 0x113d8}, {0x11be1, 0x11be1}, {0x16d6d, 0x16d6f}, {0x1cc00, 0x1ccef},
		{0x1cd00, 0x1ceb3}, {0x1e5ff, 0x1e5ff}, {0x1f8b2, 0x1f8bb}, {0x1f8c0, 0x1f8c1}, {0x1fa89, 0x1fa89}, {0x1fa8f, 0x1fa8f},
		{0x1fabe, 0x1fabe}, {0x1fac6, 0x1fac6}, {0x1fadc, 0x1fadc}, {0x1fadf, 0x1fadf}, {0x1fae9, 0x1fae9}, {0x1fbcb, 0x1fbef},
	}},
}

// classes is the one table; it never changes. Making it takes some milliseconds, which only those pay who read a
// tokenizer.
var classes = sync.OnceValue(newClassTable)

func newClassTable() *classTable {
	flat := make([]uint8, unicode.MaxRune+1)
	for _, c := range []struct {
		bits   uint8
		tables []*unicode.RangeTable
	}{
		{classUpper, []*unicode.RangeTable{unicode.Lu, unicode.Lt}},
		{classLower, []*unicode.RangeTable{unicode.Ll}},
		{classNoCase, []*unicode.RangeTable{unicode.Lm, unicode.Lo}},
		{classMark, []*unicode.RangeTable{unicode.M}},
		{classNumber, []*unicode.RangeTable{unicode.N}},
		{classSpace, []*unicode.RangeTable{unicode.White_Space}},
		{classSymbol, []*unicode.RangeTable{unicode.P, unicode.S}},
	} {
		for _, table := range c.tables {
			for _, r := range table.R16 {
				for i := uint32(r.Lo); i <= uint32(r.Hi); i += uint32(r.Stride) {
					flat[i] |= c.bits
				}
			}
			for _, r := range table.R32 {
				for i := r.Lo; i <= r.Hi; i += r.Stride {
					flat[i] |= c.bits
				}
			}
		}
	}
	for _, c := range laterClasses {
		for _, r := range c.ranges {
			for i := r[0]; i <= r[1]; i++ {
				if flat[i] == 0 {
					flat[i] = c.bits
				}
			}
		}
	}
	flat['\r'] |= classNewline
	flat['\n'] |= classNewline
	t := &classTable{}
	copy(t.ascii[:], flat)
	known := map[[256]uint8]uint16{}
	for i := range t.page {
		page := [256]uint8(flat[i*256:])
		at, ok := known[page]
		if !ok {
			at = uint16(len(t.pages))
			known[page] = at
			t.pages = append(t.pages, page)
		}
		t.page[i] = at
	}
	return t
}

// of returns the classes of a character.
func (t *classTable) of(r rune) uint8 { return t.pages[t.page[r>>8]][r&0xff] }

// at returns the classes and the length of the character at i; 0 and 0 at the end of s.
func (t *classTable) at(s string, i int) (uint8, int) {
	if i >= len(s) {
		return 0, 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		return t.ascii[c], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return t.of(r), n
}

// skip returns the end of the run from i of characters that have one of the classes.
func (t *classTable) skip(s string, i int, classes uint8) int {
	for i < len(s) {
		if c := s[i]; c < utf8.RuneSelf {
			if t.ascii[c]&classes == 0 {
				return i
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if t.of(r)&classes == 0 {
			return i
		}
		i += n
	}
	return i
}

// skipNone returns the end of the run from i of characters that have none of the classes.
func (t *classTable) skipNone(s string, i int, classes uint8) int {
	for i < len(s) {
		if c := s[i]; c < utf8.RuneSelf {
			if t.ascii[c]&classes != 0 {
				return i
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if t.of(r)&classes != 0 {
			return i
		}
		i += n
	}
	return i
}

// space is \s*[\r\n]+|\s+(?!\S)|\s+ from i, where s[i] is white space: up to the last line break of the run if it has
// one and breaks is set, else the whole run at the end of the text, else all but the run's last character, else that
// one.
func (t *classTable) space(s string, i int, breaks bool) int {
	end, last, lineEnd := i, i, 0
	for end < len(s) {
		c, n := t.at(s, end)
		if c&classSpace == 0 {
			break
		}
		last = end
		end += n
		if c&classNewline != 0 {
			lineEnd = end
		}
	}
	switch {
	case breaks && lineEnd > 0:
		return lineEnd
	case end == len(s) || last == i:
		return end
	}
	return last
}
