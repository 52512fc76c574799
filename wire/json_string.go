package wire

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// plain marks, in the top bit of each of the eight bytes of w, the bytes that
// do not end a run of plain text in a JSON string: all but quotes, backslashes
// and control characters. Bytes beyond ASCII are plain.
func plain(w uint64) uint64 {
	low := w &^ highBits
	// Flipping bit 1 maps control characters onto themselves and the quote
	// (0x22) onto the blank, so that one comparison finds both.
	quote := (low ^ 0x02*lowBits) + (0x80-0x21)*lowBits
	slash := (low ^ '\\'*lowBits) + 0x7f*lowBits
	return (quote&slash | w) & highBits
}

// special64 marks the others among 64 bytes: bit n of marks is byte n. wide is
// the OR of the words.
func special64(q []byte) (marks, wide uint64) {
	_ = q[63] // one bounds check for all eight
	w0, w1 := binary.LittleEndian.Uint64(q), binary.LittleEndian.Uint64(q[8:])
	w2, w3 := binary.LittleEndian.Uint64(q[16:]), binary.LittleEndian.Uint64(q[24:])
	w4, w5 := binary.LittleEndian.Uint64(q[32:]), binary.LittleEndian.Uint64(q[40:])
	w6, w7 := binary.LittleEndian.Uint64(q[48:]), binary.LittleEndian.Uint64(q[56:])
	// Row k, column j of an 8 x 8 matrix of bits is byte k of word j.
	m := ^(plain(w0)>>7 | plain(w1)>>6 | plain(w2)>>5 | plain(w3)>>4 |
		plain(w4)>>3 | plain(w5)>>2 | plain(w6)>>1 | plain(w7))
	wide = w0 | w1 | w2 | w3 | w4 | w5 | w6 | w7
	if m == 0 {
		return 0, wide
	}
	// Transposing it (Hacker's Delight, section 7-3) puts the bytes in order.
	t := (m ^ m>>7) & 0x00aa00aa00aa00aa
	m ^= t ^ t<<7
	t = (m ^ m>>14) & 0x0000cccc0000cccc
	m ^= t ^ t<<14
	t = (m ^ m>>28) & 0x00000000f0f0f0f0
	return m ^ t ^ t<<28, wide
}

// escapeLength is the length of the escape that begins with a backslash and
// this byte, 0 when there is none.
var escapeLength = [256]uint8{'"': 2, '\\': 2, '/': 2, 'b': 2, 'f': 2, 'n': 2, 'r': 2, 't': 2, 'u': 6}

// str reads the string whose opening quote is at i. Escapes are checked as
// CPython does: a surrogate may stand alone, DEL and U+2028 may be raw.
func (s *jsonScanner) str(i int) int {
	// Most strings are member names and short words: two steps of eight bytes
	// end them sooner than one of 64.
	b, at := s.b, i+1
	for range 2 {
		if len(b)-at < 8 {
			break
		}
		w := binary.LittleEndian.Uint64(b[at:])
		s.wide |= w
		if m := plain(w) ^ highBits; m != 0 {
			at += bits.TrailingZeros64(m) >> 3
			if b[at] == '"' {
				return at + 1
			}
			break
		}
		at += 8
	}
	return s.longStr(i, at)
}

// longStr goes on at `at` with the string that starts at start. It looks only
// at the special bytes of each block, and the address of the next block does
// not depend on what they are: that keeps any text fast. Most texts suit one of
// two faster passes, which go on where they seem to, and seldom are tried again
// where they did not get far.
func (s *jsonScanner) longStr(start, at int) int {
	b, wide := s.b, s.wide
	carry := uint64(0) // 1 when the first byte of the block is escaped
	walked, pause := 0, 1
	for len(b)-at > 64 {
		q := (*[65]byte)(b[at:]) // with the byte behind a backslash at the end
		marks, words := special64(q[:64])
		wide |= words
		marks &^= carry
		carry = 0
		found := marks
		for marks != 0 {
			k := bits.TrailingZeros64(marks) & 63
			if q[k] != '\\' {
				s.wide = wide
				return s.endStr(at + k)
			}
			if n := escapeLength[q[k+1]]; n != 2 && !s.longEscape(at+k, n) {
				return -1
			}
			marks &^= 3 << k
			carry = uint64(k+1) >> 6
		}
		at += 64
		if walked++; walked < pause {
			continue
		}
		from := at
		if found == 0 {
			at, wide = plainText(b, at, wide)
		} else if words&highBits == 0 && (carry != 0 || b[at-1] != '\\') {
			at, carry = commonText(b, at), 0
		}
		if walked = 0; at-from >= 64 {
			pause = 1
		} else {
			pause = min(4*pause, 16)
		}
	}
	for at += int(carry); at < len(b); at++ {
		switch c := b[at]; {
		case c == '\\':
			if !s.escape(start, at) {
				return -1
			}
			at++
		case c == '"' || c < ' ':
			s.wide = wide
			return s.endStr(at)
		default:
			wide |= uint64(c)
		}
	}
	return s.fail(start, "has a string that does not end")
}

// plainText steps over 32 bytes of a string at a time, as long as none of them
// is special, and adds them to wide.
func plainText(b []byte, at int, wide uint64) (end int, words uint64) {
	rest := b[at:]
	for len(rest) >= 32 {
		q := (*[32]byte)(rest)
		w0, w1 := binary.LittleEndian.Uint64(q[0:]), binary.LittleEndian.Uint64(q[8:])
		w2, w3 := binary.LittleEndian.Uint64(q[16:]), binary.LittleEndian.Uint64(q[24:])
		if plain(w0)&plain(w1)&plain(w2)&plain(w3) != highBits {
			break
		}
		wide |= w0 | w1 | w2 | w3
		rest = rest[32:]
	}
	return len(b) - len(rest), wide
}

// commonText steps over 32 bytes of a string at a time, as long as they are
// ASCII and every escape is a newline, a tab or a quote, as in most code: that
// needs no branch for each of them. The byte in front of `at` is ASCII and no
// escaped backslash. It returns the index of what it cannot step over, or of
// the backslash in front of that.
func commonText(b []byte, at int) int {
	rest := b[at-1:]
	for len(rest) > 32 {
		q := (*[33]byte)(rest)
		var w, wide uint64
		open, rare := ^uint64(0), uint64(0)
		w = binary.LittleEndian.Uint64(q[1:])
		wide |= w
		open, rare = common(open, rare, binary.LittleEndian.Uint64(q[0:]), w)
		w = binary.LittleEndian.Uint64(q[9:])
		wide |= w
		open, rare = common(open, rare, binary.LittleEndian.Uint64(q[8:]), w)
		w = binary.LittleEndian.Uint64(q[17:])
		wide |= w
		open, rare = common(open, rare, binary.LittleEndian.Uint64(q[16:]), w)
		w = binary.LittleEndian.Uint64(q[25:])
		wide |= w
		open, rare = common(open, rare, binary.LittleEndian.Uint64(q[24:]), w)
		if (^open|rare|wide)&highBits != 0 {
			break
		}
		rest = rest[32:]
	}
	at = len(b) - len(rest)
	if rest[0] != '\\' {
		at++
	}
	return at
}

// common clears in open the top bits of the bytes of w that end a string, and
// sets in rare those of escaped bytes that commonText leaves alone; p is the
// eight bytes from one in front of w on. An escaped backslash is rare, and so
// whatever is behind a backslash is escaped.
func common(open, rare, p, w uint64) (stillOpen, anyRare uint64) {
	escaped := ^((p ^ '\\'*lowBits) + 0x7f*lowBits)
	quote := (w ^ '"'*lowBits) + 0x7f*lowBits // clear for a quote, and so on
	control := w + (0x80-' ')*lowBits
	n := (w ^ 'n'*lowBits) + 0x7f*lowBits
	t := (w ^ 't'*lowBits) + 0x7f*lowBits
	return open & (quote&control | escaped), rare | quote&n&t&escaped
}

// endStr ends a string at a special byte that is not a backslash.
func (s *jsonScanner) endStr(i int) int {
	if s.b[i] != '"' {
		return s.fail(i, "has a raw control character in a string")
	}
	return i + 1
}

// escape checks the escape at i; none of its hex digits is special, so the
// caller need not know its length.
func (s *jsonScanner) escape(start, i int) bool {
	if i+1 >= len(s.b) {
		s.fail(start, "has a string that does not end")
		return false
	}
	n := escapeLength[s.b[i+1]]
	return n == 2 || s.longEscape(i, n)
}

func (s *jsonScanner) longEscape(i int, n uint8) bool {
	if n == 0 {
		s.fail(i, "has an unknown escape in a string")
		return false
	}
	if _, ok := hex4(s.b, i+2); !ok {
		s.fail(i, `has a \u without four hex digits`)
		return false
	}
	return true
}

// hex4 reads four hex digits at i.
func hex4(b []byte, i int) (r rune, ok bool) {
	if len(b)-i < 4 {
		return 0, false
	}
	for _, c := range b[i : i+4] {
		switch {
		case isDigit(c):
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// appendUnescaped appends what the inside of a valid JSON string stands for.
// A surrogate without its partner becomes the three bytes that Python's
// 'surrogatepass' would write: no valid name can be equal to them, and two
// strings that differ for the engine differ here.
func appendUnescaped(dst, in []byte) []byte {
	for i := 0; i < len(in); {
		c := in[i]
		if c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		switch c = in[i+1]; c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r, _ := hex4(in, i+2)
			i += 6
			if low, ok := lowSurrogate(in, i); ok && r>>10 == 0xd800>>10 {
				r = 0x10000 + (r-0xd800)<<10 + (low - 0xdc00)
				i += 6
			}
			dst = appendRune(dst, r)
			continue
		}
		dst = append(dst, c)
		i += 2
	}
	return dst
}

func lowSurrogate(in []byte, i int) (r rune, ok bool) {
	if len(in)-i < 6 || in[i] != '\\' || in[i+1] != 'u' {
		return 0, false
	}
	r, ok = hex4(in, i+2)
	return r, ok && r>>10 == 0xdc00>>10
}

func appendRune(dst []byte, r rune) []byte {
	if r>>11 == 0xd800>>11 {
		return append(dst, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0xbf, 0x80|byte(r)&0xbf)
	}
	return utf8.AppendRune(dst, r)
}

// invalidUTF8 returns the index of the first byte that Python's decoder
// refuses, or -1. json.loads decodes with 'surrogatepass', so the three-byte
// forms of surrogates are good.
func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			if !rawSurrogate(b[i:]) {
				return i
			}
			n = 3
		}
		i += n
	}
	return -1
}

func rawSurrogate(b []byte) bool {
	return len(b) >= 3 && b[0] == 0xed && b[1]>>5 == 0xa0>>5 && b[2]>>6 == 0x80>>6
}

// AppendQuoted appends s as a JSON string that is safe wherever Ramjet puts
// one: in bodies, in log lines and inside HTML. Control characters, `<`, `>`,
// `&`, DEL, U+2028 and U+2029 are escaped; bytes that are not UTF-8 become
// U+FFFD, one for each.
func AppendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r >= ' ' && r < 0x7f && !quotedSpecially(byte(r)) || r > 0x7f && r != 0x2028 && r != 0x2029 && r != utf8.RuneError {
			i += n
			continue
		}
		dst = append(dst, s[from:i]...)
		dst = appendEscape(dst, r)
		i += n
		from = i
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

func quotedSpecially(c byte) bool {
	return c == '"' || c == '\\' || c == '<' || c == '>' || c == '&'
}

func appendEscape(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}
