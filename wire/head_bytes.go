package wire

import "bytes"

var comma = []byte{','}

// byteClass marks what a byte may be part of.
type byteClass uint8

const (
	classToken  byteClass = 1 << iota // RFC 9110 section 5.6.2 tchar
	classField                        // a field value: HTAB, SP, VCHAR, obs-text
	classTarget                       // a request target
	classHost                         // a host name: RFC 3986 unreserved
	classHex                          // HEXDIG
	classScalar                       // a JSON number or literal, loosely
	classUnderscore
)

var classes = makeClasses()

func makeClasses() (t [256]byteClass) {
	for c := range 256 {
		b := byte(c)
		letter := b|0x20 >= 'a' && b|0x20 <= 'z'
		digit := b >= '0' && b <= '9'
		if letter || digit || bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), b) >= 0 {
			t[c] |= classToken
		}
		if b == '\t' || b >= 0x20 && b != 0x7f {
			t[c] |= classField
		}
		// A fragment never belongs in a request, and '\' is read as '/'
		// by some servers.
		if b > 0x20 && b < 0x7f && b != '#' && b != '\\' {
			t[c] |= classTarget
		}
		if letter || digit || bytes.IndexByte([]byte("-._~"), b) >= 0 {
			t[c] |= classHost
		}
		if letter || digit || b == '+' || b == '-' || b == '.' {
			t[c] |= classScalar
		}
		if digit || b|0x20 >= 'a' && b|0x20 <= 'f' {
			t[c] |= classHex
		}
		if b == '_' {
			t[c] |= classUnderscore
		}
	}
	return t
}

// all reports whether every byte of b has the class.
func all(b []byte, class byteClass) bool {
	for _, c := range b {
		if classes[c]&class == 0 {
			return false
		}
	}
	return true
}

func isToken(b []byte) bool      { return len(b) > 0 && all(b, classToken) }
func isFieldValue(b []byte) bool { return all(b, classField) }

// trimOWS drops spaces and tabs at both ends; nothing else is optional white
// space (some servers also drop 0x85 or 0xa0, which is a smuggling vector).
func trimOWS(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// foldEqual compares b with a lower-case ASCII string, ignoring b's case.
func foldEqual(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// foldEqualAlias is foldEqual with '_' taken as '-'.
func foldEqualAlias(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		switch {
		case c >= 'A' && c <= 'Z':
			c |= 0x20
		case c == '_':
			c = '-'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// foldEqualString compares two names of equal length, ignoring ASCII case.
func foldEqualString(b []byte, s string) bool {
	for i, c := range b {
		d := s[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if d >= 'A' && d <= 'Z' {
			d |= 0x20
		}
		if c != d {
			return false
		}
	}
	return true
}

// decimal reads 1*DIGIT up to maxLength.
func decimal(b []byte) (n int64, ok bool) {
	if len(b) == 0 || len(b) > 19 {
		return 0, false
	}
	var v uint64 // 19 digits fit
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + uint64(c-'0')
	}
	return int64(v), v <= maxLength
}

// isHost checks a Host value: a name or IPv4 address, or an IPv6 address in
// brackets, with an optional port. Narrower than RFC 3986: sub-delims and
// percent escapes are refused, since no such name resolves and "a,b" is what
// two merged Host fields look like.
func isHost(b []byte) bool {
	var rest []byte
	if len(b) > 0 && b[0] == '[' {
		end := bytes.IndexByte(b, ']')
		if end < 3 {
			return false
		}
		for _, c := range b[1:end] {
			if classes[c]&classHex == 0 && c != ':' && c != '.' {
				return false
			}
		}
		rest = b[end+1:]
	} else {
		colon := bytes.IndexByte(b, ':')
		if colon < 0 {
			return len(b) > 0 && all(b, classHost)
		}
		if colon == 0 || !all(b[:colon], classHost) {
			return false
		}
		rest = b[colon:]
	}
	if len(rest) == 0 {
		return true
	}
	if rest[0] != ':' || len(rest) > 6 {
		return false
	}
	for _, c := range rest[1:] {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
