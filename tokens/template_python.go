package tokens

import (
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// pySpace is Python's str.isspace for one character: Unicode's White_Space and the four separators U+001C to U+001F,
// which Go's unicode.IsSpace lacks.
func pySpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// appendPyFloat is Python's repr of a float: the shortest digits that read back, an exponent below 1e-4 and from 1e16.
func appendPyFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "nan"...)
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	for _, c := range dst[from:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, ".0"...)
}

// jsonStyle is what json.dumps is asked for.
type jsonStyle struct {
	ascii      bool
	sort       bool
	item, key  string
	indent     string
	indented   bool
	unprovable bool // set when something had no JSON form
}

// appendJSON is json.dumps of v.
func (j *jsonStyle) appendJSON(dst []byte, v jinja.Value, level int) []byte {
	switch {
	case v.IsNone():
		return append(dst, "null"...)
	case v.IsBool():
		return strconv.AppendBool(dst, v.AsBool())
	case v.IsInt():
		return strconv.AppendInt(dst, v.AsInt(), 10)
	case v.IsFloat():
		return appendJSONFloat(dst, v.AsFloat())
	case v.IsString():
		return j.appendString(dst, v.AsString())
	case v.IsList():
		return j.appendList(dst, v.AsList(), level)
	case v.IsDict():
		return j.appendDict(dst, v.AsDict(), level)
	}
	j.unprovable = true // undefined and functions: Python raises TypeError
	return dst
}

func appendJSONFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	return appendPyFloat(dst, f)
}

func (j *jsonStyle) newline(dst []byte, level int) []byte {
	if !j.indented {
		return dst
	}
	dst = append(dst, '\n')
	for range level {
		dst = append(dst, j.indent...)
	}
	return dst
}

func (j *jsonStyle) appendList(dst []byte, l *jinja.List, level int) []byte {
	if len(l.Items) == 0 {
		return append(dst, "[]"...)
	}
	dst = append(dst, '[')
	for i, item := range l.Items {
		if i > 0 {
			dst = append(dst, j.item...)
		}
		dst = j.newline(dst, level+1)
		dst = j.appendJSON(dst, item, level+1)
	}
	return append(j.newline(dst, level), ']')
}

func (j *jsonStyle) appendDict(dst []byte, d *jinja.Dict, level int) []byte {
	if len(d.Keys) == 0 {
		return append(dst, "{}"...)
	}
	keys := d.Keys
	if j.sort {
		keys = sortedKeys(d)
	}
	dst = append(dst, '{')
	for i, name := range keys {
		if i > 0 {
			dst = append(dst, j.item...)
		}
		dst = j.newline(dst, level+1)
		dst = j.appendString(dst, name)
		dst = append(dst, j.key...)
		dst = j.appendJSON(dst, d.Data[name], level+1)
	}
	return append(j.newline(dst, level), '}')
}

const hexDigits = "0123456789abcdef"

// appendString escapes as json.dumps does: control characters always, and everything above ASCII if asked.
func (j *jsonStyle) appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && (c < 0x7f || !j.ascii) {
			i++
			continue
		}
		dst = append(dst, s[from:i]...)
		if c < 0x7f {
			dst = appendJSONEscape(dst, c)
			i++
		} else {
			r, n := utf8.DecodeRuneInString(s[i:])
			dst = appendUTF16Escape(dst, r)
			i += n
		}
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}

func appendJSONEscape(dst []byte, c byte) []byte {
	if at := strings.IndexByte("\"\\\n\r\t\f\b", c); at >= 0 {
		return append(dst, '\\', "\"\\nrtfb"[at])
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

func appendUTF16Escape(dst []byte, r rune) []byte {
	if r > 0xffff {
		r -= 0x10000
		dst = appendUTF16Escape(dst, 0xd800+r>>10)
		r = 0xdc00 + r&0x3ff
	}
	return append(dst, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// appendPyText is Python's str(v): what {{ v }} prints.
func appendPyText(dst []byte, v jinja.Value) []byte {
	if v.IsString() {
		return append(dst, v.AsString()...)
	}
	if v.IsUndefined() {
		return dst
	}
	return appendPyRepr(dst, v)
}

// appendPyRepr is Python's repr(v).
func appendPyRepr(dst []byte, v jinja.Value) []byte {
	switch {
	case v.IsUndefined():
		return append(dst, "Undefined"...)
	case v.IsNone():
		return append(dst, "None"...)
	case v.IsBool():
		if v.AsBool() {
			return append(dst, "True"...)
		}
		return append(dst, "False"...)
	case v.IsInt():
		return strconv.AppendInt(dst, v.AsInt(), 10)
	case v.IsFloat():
		return appendPyFloat(dst, v.AsFloat())
	case v.IsString():
		return appendPyQuoted(dst, v.AsString())
	case v.IsList():
		dst = append(dst, '[')
		for i, item := range v.AsList().Items {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendPyRepr(dst, item)
		}
		return append(dst, ']')
	case v.IsDict():
		dst = append(dst, '{')
		d := v.AsDict()
		for i, name := range d.Keys {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendPyQuoted(dst, name)
			dst = append(dst, ": "...)
			dst = appendPyRepr(dst, d.Data[name])
		}
		return append(dst, '}')
	}
	return dst
}

// appendPyQuoted is Python's repr of a string. What counts as printable follows Go's tables, which may be of another
// Unicode version than Python's: callers treat a rendering that depends on it as not provable for rare characters.
func appendPyQuoted(dst []byte, s string) []byte {
	quote := byte('\'')
	if strings.IndexByte(s, '\'') >= 0 && strings.IndexByte(s, '"') < 0 {
		quote = '"'
	}
	dst = append(dst, quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r == '\r':
			dst = append(dst, '\\', 'r')
		case r == '\t':
			dst = append(dst, '\\', 't')
		case r == ' ' || r > ' ' && r < 0x7f || r > 0xa0 && unicode.IsPrint(r):
			dst = utf8.AppendRune(dst, r)
		case r < 0x100:
			dst = append(dst, '\\', 'x', hexDigits[r>>4], hexDigits[r&15])
		case r < 0x10000:
			dst = appendUTF16Escape(dst, r)
		default:
			dst = append(dst, '\\', 'U')
			for shift := 28; shift >= 0; shift -= 4 {
				dst = append(dst, hexDigits[r>>shift&15])
			}
		}
	}
	return append(dst, quote)
}
