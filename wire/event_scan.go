package wire

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// maxScanDepth bounds the nesting that docScan follows, in the values that it
// steps into and in a skipped one. Answers of engines nest less than ten deep.
const maxScanDepth = 64

// docScan walks the JSON of an answer. It does not validate: it finds values
// at their place and notices when a text cannot be JSON, as the joint of an
// abbreviated one. Reading on after bad is harmless and yields nothing.
type docScan struct {
	b     []byte
	i     int
	depth int  // objects and arrays entered
	sse   bool // b spans several data lines of one event
	bad   bool // b ended or went wrong within the value
}

// space skips white space. Between data lines of an event it also skips the
// line that follows if it is not data: a line break can only stand between
// tokens, since a JSON string holds none.
func (s *docScan) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t':
			s.i++
		case '\n', '\r':
			s.i++
			if s.sse {
				s.dataLine()
			}
		default:
			return
		}
	}
}

// dataLine moves from the start of a line to the value of a data field.
func (s *docScan) dataLine() {
	rest := s.b[s.i:]
	switch {
	case bytes.HasPrefix(rest, dataField):
		s.i += len(dataField)
	default:
		n := lineEnd(rest, 0)
		if n < 0 {
			n = len(rest)
		}
		s.i += n
	}
}

// peek returns the first byte of the next token.
func (s *docScan) peek() byte {
	if i := s.i; i < len(s.b) && s.b[i] > ' ' && !s.bad {
		return s.b[i]
	}
	return s.peekBeyond()
}

// peekBeyond is peek where white space may come first, or nothing at all.
func (s *docScan) peekBeyond() byte {
	s.space()
	if s.i >= len(s.b) || s.bad {
		s.bad = true
		return 0
	}
	return s.b[s.i]
}

// str reads the string at the present byte and returns what is between its
// quotes, escapes as they stand. An unterminated one is returned as far as it
// goes.
func (s *docScan) str() []byte {
	from := s.i + 1
	if end := nearQuote(s.b, from); end > 0 {
		s.i = end + 1
		return s.b[from:end]
	}
	return s.longStr(from)
}

// nearQuote returns the index of the quote that ends the string whose inside
// starts at from, or 0 if that is further away or an escape comes first. Member
// names and short words end within a few words of eight bytes, sooner than a
// search for the quote begins.
func nearQuote(b []byte, from int) int {
	const near = 32
	for at := from; at < from+near && len(b)-at >= 8; at += 8 {
		m := quoteOrEscape(binary.LittleEndian.Uint64(b[at:]))
		if m == 0 {
			continue
		}
		if at += bits.TrailingZeros64(m) >> 3; b[at] != '"' {
			return 0
		}
		return at
	}
	return 0
}

// quoteOrEscape marks, in the top bit of its byte, the first of the eight bytes
// of w that is a quote or a backslash; marks above that one mean nothing.
func quoteOrEscape(w uint64) uint64 {
	quote, slash := w^'"'*lowBits, w^'\\'*lowBits
	return ((quote-lowBits)&^quote | (slash-lowBits)&^slash) & highBits
}

// longStr is str for any string whose inside starts at from.
func (s *docScan) longStr(from int) []byte {
	for at := from; ; {
		n := bytes.IndexByte(s.b[at:], '"')
		if n < 0 {
			s.bad = true
			s.i = len(s.b)
			return s.b[from:]
		}
		at += n + 1
		if !escaped(s.b[from : at-1]) {
			s.i = at
			return s.b[from : at-1]
		}
	}
}

// escaped reports whether a quote behind b is escaped: an odd run of
// backslashes stands before it.
func escaped(b []byte) bool {
	odd := false
	for n := len(b); n > 0 && b[n-1] == '\\'; n-- {
		odd = !odd
	}
	return odd
}

// enter steps into an object ('{') or array ('['); any other value is skipped.
func (s *docScan) enter(open byte) bool {
	if s.peek() != open {
		s.skip()
		return false
	}
	s.i++
	if s.depth++; s.depth > maxScanDepth {
		s.bad = true // readers of nested members recurse
	}
	return !s.bad
}

// key returns the next key of the object that was entered, at whose value the
// scan then stands, or false behind the end of the object.
func (s *docScan) key() (key []byte, ok bool) {
	// Engines write no white space here; this is what most calls come to.
	b, i := s.b, s.i
	if i < len(b) && b[i] == ',' {
		i++
	}
	if i < len(b) && b[i] == '"' && !s.bad {
		if end := nearQuote(b, i+1); end > 0 && end+1 < len(b) && b[end+1] == ':' {
			s.i = end + 2
			return b[i+1 : end], true
		}
	}
	return s.spacedKey()
}

// spacedKey is key wherever the next one does not follow at once.
func (s *docScan) spacedKey() (key []byte, ok bool) {
	c := s.peek()
	if c == ',' {
		s.i++
		c = s.peek()
	}
	if c == '}' {
		s.i++
		s.depth--
		return nil, false
	}
	if c != '"' {
		s.bad = true
		return nil, false
	}
	key = s.str()
	if s.peek() != ':' {
		s.bad = true
		return nil, false
	}
	s.i++
	return key, !s.bad
}

// elem moves to the next element of the array that was entered, or reports
// false behind its end.
func (s *docScan) elem() bool {
	c := s.peek()
	if c == ',' {
		s.i++
		c = s.peek()
	}
	if c == ']' {
		s.i++
		s.depth--
		return false
	}
	return !s.bad
}

// text reads a string value; any other value is skipped and gives nil.
func (s *docScan) text() []byte {
	if s.peek() == '"' {
		return s.str()
	}
	s.skip()
	return nil
}

// filled skips a value and reports whether it is a string, array or object
// that is not empty.
func (s *docScan) filled() bool {
	switch c := s.peek(); c {
	case '"':
		return len(s.str()) > 0
	case '[', '{':
		at := s.i
		s.i++
		empty := s.peek() == c+2 // ']' is '['+2, '}' is '{'+2
		s.i = at
		s.skip()
		return !empty
	}
	s.skip()
	return false
}

// null skips a value and reports whether it was null.
func (s *docScan) null() bool {
	c := s.peek()
	s.skip()
	return c == 'n'
}

// count reads an integer that is not negative; anything else is -1.
func (s *docScan) count() int64 {
	s.space()
	from := s.i
	s.skip()
	if n, ok := decimal(s.b[from:min(s.i, len(s.b))]); ok && !s.bad {
		return n
	}
	return -1
}

// skip passes any value.
func (s *docScan) skip() {
	switch s.peek() {
	case '"':
		s.str()
	case '{', '[':
		s.skipNested()
	default:
		i := s.i
		for i < len(s.b) && classes[s.b[i]]&classScalar != 0 {
			i++
		}
		if i == s.i {
			s.bad = true
		}
		s.i = i
	}
}

// skipNested passes an object or array without recursion. kinds is a stack of
// bits: 1 for an object.
func (s *docScan) skipNested() {
	var kinds uint64
	for depth := 0; s.i < len(s.b); {
		switch c := s.b[s.i]; c {
		case '"':
			s.str()
			continue
		case '{', '[':
			if depth++; depth > maxScanDepth {
				s.bad = true
				return
			}
			kinds <<= 1
			if c == '{' {
				kinds |= 1
			}
		case '}', ']':
			if (kinds&1 == 1) != (c == '}') {
				s.bad = true
				return
			}
			kinds >>= 1
			if depth--; depth == 0 {
				s.i++
				return
			}
		case ',', ':':
		case ' ', '\t', '\n', '\r':
			s.space()
			continue
		default:
			if classes[c]&classScalar == 0 {
				s.bad = true
				return
			}
		}
		s.i++
	}
	s.bad = true
}

// finished reports whether one whole value and nothing else was read.
func (s *docScan) finished() bool {
	if s.bad {
		return false
	}
	s.space()
	return s.i == len(s.b)
}

// tailScan reads JSON from its end towards its start, so that the members at
// the end of an abbreviated text are found with certainty: read backwards, the
// end is known to be outside any string.
type tailScan struct {
	b     []byte
	i     int // everything from here on was read
	depth int // nesting at i; 1 is the outermost object
}

// next returns the next key from the end, the nesting of its object and the
// offset behind its colon, or false at the start of the text, or where it
// cannot be JSON.
func (t *tailScan) next() (key []byte, depth, value int, ok bool) {
	for t.i > 0 {
		t.i--
		switch c := t.b[t.i]; c {
		case '}', ']':
			t.depth++
		case '{', '[':
			if t.depth--; t.depth <= 0 {
				return nil, 0, 0, false
			}
		case '"':
			end := t.i
			if !t.opening() {
				return nil, 0, 0, false
			}
			behind := docScan{b: t.b, i: end + 1}
			if behind.peek() == ':' {
				return t.b[t.i+1 : end], t.depth, behind.i + 1, true
			}
		case ',', ':', ' ', '\t', '\n', '\r':
		default:
			if classes[c]&classScalar == 0 {
				return nil, 0, 0, false
			}
		}
	}
	return nil, 0, 0, false
}

// opening moves from the closing quote at t.i to the opening one.
func (t *tailScan) opening() bool {
	for at := t.i; ; {
		if at = bytes.LastIndexByte(t.b[:at], '"'); at < 0 {
			return false
		}
		if !escaped(t.b[:at]) {
			t.i = at
			return true
		}
	}
}
