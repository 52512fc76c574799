package tokens

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// maxJSONDepth is how deep values may nest; wire.Peek holds bodies to the same.
const maxJSONDepth = 128

// jsonReader reads JSON text into values as CPython's json.loads does: NaN and Infinity are numbers, of members with
// one name the last counts at the place of the first. Every method returns the index behind what it read, or -1.
type jsonReader struct {
	s string
	// odd is why a value cannot be held exactly, empty if all can.
	odd   string
	depth int
	left  int // values that may still be read
}

func (r *jsonReader) space(i int) int {
	for i < len(r.s) && (r.s[i] == ' ' || r.s[i] == '\n' || r.s[i] == '\t' || r.s[i] == '\r') {
		i++
	}
	return i
}

func (r *jsonReader) value(i int) (jinja.Value, int) {
	if i >= len(r.s) || r.depth > maxJSONDepth {
		if r.depth > maxJSONDepth {
			r.odd = "deep value"
		}
		return jinja.Value{}, -1
	}
	if r.left--; r.left < 0 {
		r.odd = noteTooLong
		return jinja.Value{}, -1
	}
	switch r.s[i] {
	case '"':
		text, end := r.text(i)
		return jinja.NewString(text), end
	case '{':
		return r.object(i)
	case '[':
		return r.list(i)
	}
	for _, w := range jsonWords {
		if strings.HasPrefix(r.s[i:], w.text) {
			return w.value, i + len(w.text)
		}
	}
	return r.number(i)
}

var jsonWords = []struct {
	text  string
	value jinja.Value
}{
	{"null", jinja.None()}, {"true", jinja.NewBool(true)}, {"false", jinja.NewBool(false)},
	{"NaN", jinja.NewFloat(math.NaN())}, {"Infinity", jinja.NewFloat(math.Inf(1))}, {"-Infinity", jinja.NewFloat(math.Inf(-1))},
}

func (r *jsonReader) list(i int) (jinja.Value, int) {
	r.depth++
	defer func() { r.depth-- }()
	var items []jinja.Value
	if i = r.space(i + 1); i < len(r.s) && r.s[i] == ']' {
		return jinja.NewList(nil), i + 1
	}
	for {
		v, end := r.value(i)
		if end < 0 {
			return v, -1
		}
		items = append(items, v)
		if i = r.space(end); i >= len(r.s) {
			return v, -1
		}
		switch r.s[i] {
		case ',':
			i = r.space(i + 1)
		case ']':
			return jinja.NewList(items), i + 1
		default:
			return v, -1
		}
	}
}

func (r *jsonReader) object(i int) (jinja.Value, int) {
	r.depth++
	defer func() { r.depth-- }()
	v := jinja.NewDict()
	d := v.AsDict()
	if i = r.space(i + 1); i < len(r.s) && r.s[i] == '}' {
		return v, i + 1
	}
	for {
		if i >= len(r.s) || r.s[i] != '"' {
			return v, -1
		}
		name, end := r.text(i)
		if end < 0 {
			return v, -1
		}
		if i = r.space(end); i >= len(r.s) || r.s[i] != ':' {
			return v, -1
		}
		member, end := r.value(r.space(i + 1))
		if end < 0 {
			return v, -1
		}
		d.Set(name, member)
		if i = r.space(end); i >= len(r.s) {
			return v, -1
		}
		switch r.s[i] {
		case ',':
			i = r.space(i + 1)
		case '}':
			return v, i + 1
		default:
			return v, -1
		}
	}
}

func (r *jsonReader) number(i int) (jinja.Value, int) {
	start := i
	digits := func() int {
		from := i
		for i < len(r.s) && r.s[i] >= '0' && r.s[i] <= '9' {
			i++
		}
		return i - from
	}
	if i < len(r.s) && r.s[i] == '-' {
		i++
	}
	if i < len(r.s) && r.s[i] == '0' {
		i++
	} else if digits() == 0 {
		return jinja.Value{}, -1
	}
	whole, end := true, i
	if i < len(r.s) && r.s[i] == '.' {
		if i++; digits() > 0 {
			whole, end = false, i
		}
	}
	i = end
	if i < len(r.s) && r.s[i]|0x20 == 'e' {
		if i++; i < len(r.s) && (r.s[i] == '-' || r.s[i] == '+') {
			i++
		}
		if digits() > 0 {
			whole, end = false, i
		}
	}
	word := r.s[start:end]
	if whole {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			r.odd = "big integer"
		}
		return jinja.NewInt(n), end
	}
	f, _ := strconv.ParseFloat(word, 64) // beyond the range it is infinite, as in Python
	return jinja.NewFloat(f), end
}

// text decodes the string at i.
func (r *jsonReader) text(i int) (string, int) {
	start := i + 1
	for i = start; i < len(r.s); i++ {
		switch c := r.s[i]; {
		case c == '"':
			return r.s[start:i], i + 1
		case c == '\\':
			return r.escaped(start, i)
		case c < 0x20:
			return "", -1
		}
	}
	return "", -1
}

func (r *jsonReader) escaped(start, i int) (string, int) {
	end := i
	for end < len(r.s) && r.s[end] != '"' {
		if r.s[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(r.s) {
		return "", -1
	}
	out := make([]byte, 0, end-start)
	out = append(out, r.s[start:i]...)
	for i < end {
		c := r.s[i]
		if c < 0x20 {
			return "", -1
		}
		if c != '\\' {
			from := i
			for i < end && r.s[i] != '\\' && r.s[i] >= 0x20 {
				i++
			}
			out = append(out, r.s[from:i]...)
			continue
		}
		if at := strings.IndexByte(`"\/bfnrt`, r.s[i+1]); at >= 0 {
			out = append(out, "\"\\/\b\f\n\r\t"[at])
			i += 2
			continue
		}
		u, ok := r.unit(i)
		if !ok {
			return "", -1
		}
		i += 6
		if low, paired := r.unit(i); paired && u>>10 == 0xd800>>10 && low>>10 == 0xdc00>>10 {
			u = 0x10000 + (u-0xd800)<<10 + (low - 0xdc00)
			i += 6
		} else if u>>11 == 0xd800>>11 {
			r.odd = "surrogate"
			u = utf8.RuneError
		}
		out = utf8.AppendRune(out, u)
	}
	return string(out), end + 1
}

// unit reads \uXXXX at i.
func (r *jsonReader) unit(i int) (rune, bool) {
	if i+6 > len(r.s) || r.s[i] != '\\' || r.s[i+1] != 'u' {
		return 0, false
	}
	var u rune
	for _, c := range []byte(r.s[i+2 : i+6]) {
		at := strings.IndexByte("0123456789abcdefABCDEF", c)
		if at >= 16 {
			at -= 6
		}
		if at < 0 {
			return 0, false
		}
		u = u<<4 | rune(at)
	}
	return u, true
}

// loads is json.loads of a string of the operator's, and says why its value cannot be held exactly.
func loads(s string) (v jinja.Value, odd string, ok bool) {
	r := jsonReader{s: s, left: math.MaxInt}
	v, ok = r.whole()
	return v, r.odd, ok
}

// whole reads one value and nothing behind it.
func (r *jsonReader) whole() (v jinja.Value, ok bool) {
	v, end := r.value(r.space(0))
	return v, end >= 0 && r.space(end) == len(r.s)
}

// skipJSON steps over the value at i of text that is known to be valid, fast.
func skipJSON(s string, i int) int {
	depth := 0
	for i < len(s) && s[i] > ',' && s[i]|0x20 != '{' && s[i]|0x20 != '}' { // a number or a word
		i++
	}
	for i < len(s) {
		switch c := s[i]; c {
		case '"':
			i = skipText(s, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth <= 0 {
				if depth < 0 {
					return i
				}
				return i + 1
			}
		case ',':
			if depth == 0 {
				return i
			}
		case ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// skipText steps over the string at i.
func skipText(s string, i int) int {
	for i++; i < len(s); i++ {
		at := strings.IndexByte(s[i:], '"')
		if at < 0 {
			return len(s)
		}
		i += at
		slashes := 0
		for s[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes&1 == 0 {
			return i + 1
		}
	}
	return len(s)
}
