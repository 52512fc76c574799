package wire

import "bytes"

// MaxDepth is the deepest nesting of arrays and objects that Peek accepts:
// `[[1]]` counts 2. Python's reader raises near 1,000; no request that an
// engine serves comes close to 128, and a lower bound keeps a bomb cheap.
const MaxDepth = 128

// maxIntDigits is CPython's default limit for reading a decimal integer
// (sys.int_info.default_max_str_digits, since 3.11): json.loads raises
// ValueError beyond it. Numbers with a fraction or an exponent have no limit.
const maxIntDigits = 4300

// jsonScanner walks over JSON text and accepts exactly what CPython's
// json.loads accepts: JSON plus NaN, Infinity and -Infinity. It builds
// nothing; every method takes the index where something starts and returns
// the index just behind it, or -1 after fail.
type jsonScanner struct {
	b     []byte
	depth int
	// kinds is a stack of bits, one per open bracket: 1 is an object.
	kinds [MaxDepth / 64]uint64
	// wide collects the words of all strings; a top bit means that the text
	// is not ASCII, so that only such bodies pay for a check of their UTF-8.
	wide uint64
	// commas counts those directly inside the value given to skip, and noted
	// is where the first maxNoted of them are while note is set.
	commas int
	note   bool
	noted  []uint32
	// watch asks for a look at the keys inside, media is what it found.
	watch, media bool
	errAt        int
	errText      string
}

func (s *jsonScanner) fail(at int, text string) int {
	if s.errText == "" {
		s.errAt, s.errText = at, text
	}
	return -1
}

// space returns the index of the first byte from i that is not white space.
func (s *jsonScanner) space(i int) int {
	const blanks = 1<<' ' | 1<<'\t' | 1<<'\n' | 1<<'\r'
	b := s.b
	for i < len(b) && b[i] <= ' ' && blanks>>b[i]&1 != 0 {
		i++
	}
	return i
}

// at reports whether byte c stands at i.
func (s *jsonScanner) at(i int, c byte) bool {
	return i < len(s.b) && s.b[i] == c
}

func (s *jsonScanner) push(i int, object bool) bool {
	if s.depth == MaxDepth {
		s.fail(i, "is nested deeper than 128 levels")
		return false
	}
	word, bit := &s.kinds[s.depth>>6], uint64(1)<<(s.depth&63)
	if object {
		*word |= bit
	} else {
		*word &^= bit
	}
	s.depth++
	return true
}

func (s *jsonScanner) inObject() bool {
	d := s.depth - 1
	return s.kinds[d>>6]>>(d&63)&1 != 0
}

// skip reads one whole value. Nesting costs no stack: the brackets that are
// open live in kinds.
func (s *jsonScanner) skip(i int) int {
	base := s.depth
	s.commas = 0
	for {
		if i >= len(s.b) {
			return s.fail(i, "ends where a value should be")
		}
		opened := false
		switch c := s.b[i]; {
		case c == '"':
			i = s.str(i)
		case c == '{' || c == '[':
			i, opened = s.open(i)
		case c-'1' < 9:
			i = s.number(i)
		default:
			i = s.scalar(i)
		}
		if i < 0 {
			return -1
		}
		if opened {
			continue
		}
		var done bool
		if i, done = s.next(i, base); done || i < 0 {
			return i
		}
	}
}

// open reads an opening bracket and stops where the first value inside
// starts (opened) or, when nothing is inside, behind the closing bracket.
func (s *jsonScanner) open(i int) (end int, opened bool) {
	object := s.b[i] == '{'
	if !s.push(i, object) {
		return -1, false
	}
	closing := s.b[i] + 2 // in ASCII both pairs of brackets lie two apart
	i = s.space(i + 1)
	if s.at(i, closing) {
		s.depth--
		return i + 1, false
	}
	if object {
		_, i = s.key(i)
	}
	return i, true
}

// next stands behind a value: it closes the brackets that end there and goes
// on to the next value, or is done when the nesting is back at base.
func (s *jsonScanner) next(i, base int) (end int, done bool) {
	for s.depth > base {
		i = s.space(i)
		object := s.inObject()
		switch {
		case s.at(i, ','):
			if s.depth == base+1 {
				s.commas++
				if s.note && s.commas <= maxNoted {
					s.noted = append(s.noted, uint32(i)) //nolint:gosec // i < len(b) <= maxNotedBody
				}
			}
			i = s.space(i + 1)
			if object {
				_, i = s.key(i)
			}
			return i, false
		case object && s.at(i, '}'), !object && s.at(i, ']'):
			s.depth--
			i++
		case i >= len(s.b):
			return s.fail(i, "ends inside an array or object"), false
		default:
			return s.fail(i, "has something other than a comma or a closing bracket behind a value"), false
		}
	}
	return i, true
}

// key reads `"name" :` and the blanks around the colon. It returns the index
// behind the name's closing quote and the index of the value.
func (s *jsonScanner) key(i int) (nameEnd, value int) {
	if !s.at(i, '"') {
		return -1, s.fail(i, "lacks a member name in double quotes")
	}
	nameEnd = s.str(i)
	if nameEnd < 0 {
		return -1, -1
	}
	if s.watch && !s.media {
		s.media = isMediaKey(s.b[i+1:nameEnd-1], s.depth)
	}
	i = s.space(nameEnd)
	if !s.at(i, ':') {
		return -1, s.fail(i, "lacks a colon behind a member name")
	}
	return nameEnd, s.space(i + 1)
}

// scalar reads what does not start with a digit from 1 to 9: another number
// or one of the six words that Python knows.
func (s *jsonScanner) scalar(i int) int {
	switch c := s.b[i]; {
	case c == '-' || c == '0':
		return s.number(i)
	case c == 't':
		return s.word(i, "true")
	case c == 'f':
		return s.word(i, "false")
	case c == 'n':
		return s.word(i, "null")
	case c == 'N':
		return s.word(i, "NaN")
	case c == 'I':
		return s.word(i, "Infinity")
	}
	return s.fail(i, "has no value where one should be")
}

func (s *jsonScanner) word(i int, w string) int {
	if len(s.b)-i < len(w) || string(s.b[i:i+len(w)]) != w {
		return s.fail(i, "has no value where one should be")
	}
	return i + len(w)
}

// number stops where Python's does: `1.` is the number 1 followed by a point,
// which whoever reads on then refuses.
func (s *jsonScanner) number(i int) int {
	start := i
	if s.b[i] == '-' {
		i++
		if s.at(i, 'I') {
			return s.word(i, "Infinity")
		}
	}
	first := i
	i = s.digits(i)
	if i == first {
		return s.fail(start, "has a minus sign without a number")
	}
	if s.b[first] == '0' {
		i = first + 1
	}
	whole := i
	if i < len(s.b) && (s.b[i] == '.' || s.b[i]|0x20 == 'e') {
		i = s.fraction(i)
	}
	if i == whole && whole-first > maxIntDigits {
		return s.fail(start, "has an integer of more than 4,300 digits")
	}
	return i
}

// fraction reads the optional parts of a number behind its whole part, each
// only if it is complete.
func (s *jsonScanner) fraction(i int) int {
	if s.at(i, '.') {
		if end := s.digits(i + 1); end > i+1 {
			i = end
		}
	}
	if s.at(i, 'e') || s.at(i, 'E') {
		from := i + 1
		if s.at(from, '+') || s.at(from, '-') {
			from++
		}
		if end := s.digits(from); end > from {
			i = end
		}
	}
	return i
}

func (s *jsonScanner) digits(i int) int {
	b := s.b
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	return i
}

func isDigit(c byte) bool { return c-'0' < 10 }

// isMediaKey tells the member names that carry images, sound, video or files
// in chat, Responses and Messages requests. The general ones count only where
// content parts are: root object, list of messages, message, list of parts,
// part is depth 5, and a part inside a tool's result is 7; tool arguments are
// objects at depth 6, where "file" and "source" are everyday names. A name
// written with escapes counts: nobody does that for a good reason.
func isMediaKey(name []byte, depth int) bool {
	switch string(name) {
	case "image_url", "video_url", "audio_url", "input_audio", "image_embeds", "audio_embeds", "image_pil":
		return true
	case "image", "audio", "video", "source", "file", "file_id", "file_data", "file_url":
		return depth == 3 || depth == 5 || depth == 7
	}
	return bytes.IndexByte(name, '\\') >= 0
}
