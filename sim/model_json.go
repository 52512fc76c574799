package sim

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// What json.loads followed by json.dumps(ensure_ascii=False) makes of a value: keys in their order, the last value of
// a repeated key in the place of its first, a blank behind colon and comma, numbers as Python prints them. A template's
// tojson filter does that.

// pyObject is a JSON object in Python's order.
type pyObject struct {
	keys   []string
	values map[string]any
}

// appendPythonJSON appends raw, one JSON value, as Python prints it.
func appendPythonJSON(dst []byte, raw []byte) ([]byte, error) {
	v, err := parsePython(raw)
	if err != nil {
		return nil, err
	}
	return appendPythonValue(dst, v), nil
}

// parsePython reads one JSON value into nil, bool, string, json.Number, []any or *pyObject.
func parsePython(raw []byte) (any, error) {
	// Unmarshal refuses text behind the value, and nesting that would exhaust the stack below; a Decoder does neither.
	var whole json.RawMessage
	if err := json.Unmarshal(raw, &whole); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(whole))
	d.UseNumber()
	return readPython(d)
}

func readPython(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := readPython(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	case json.Delim('{'):
		o := &pyObject{values: map[string]any{}}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := readPython(d)
			if err != nil {
				return nil, err
			}
			if _, again := o.values[key.(string)]; !again {
				o.keys = append(o.keys, key.(string))
			}
			o.values[key.(string)] = v
		}
		_, err = d.Token()
		return o, err
	}
	return t, nil
}

func appendPythonValue(dst []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(dst, v)
	case string:
		return appendPythonString(dst, v)
	case json.Number:
		return appendPythonNumber(dst, string(v))
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendPythonValue(dst, e)
		}
		return append(dst, ']')
	case *pyObject:
		dst = append(dst, '{')
		for i, key := range v.keys {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(appendPythonString(dst, key), ": "...)
			dst = appendPythonValue(dst, v.values[key])
		}
		return append(dst, '}')
	}
	return append(dst, "null"...)
}

// appendPythonString quotes as Python does: only what JSON demands, with the short forms.
func appendPythonString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= ' ':
			dst = append(dst, c)
		default:
			if at := strings.IndexByte("\b\t\n\f\r", c); at >= 0 {
				dst = append(dst, '\\', "btnfr"[at])
			} else {
				dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
		}
	}
	return append(dst, '"')
}

// appendPythonNumber prints integers of any size as they are and others as repr(float) does: exponents outside -4 to
// 15, else at least one digit behind the point.
func appendPythonNumber(dst []byte, s string) []byte {
	if !strings.ContainsAny(s, ".eE") {
		n, ok := new(big.Int).SetString(s, 10)
		if !ok {
			return append(dst, s...)
		}
		return n.Append(dst, 10)
	}
	f, _ := strconv.ParseFloat(s, 64)
	switch {
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	e := strconv.FormatFloat(f, 'e', -1, 64)
	if exp, _ := strconv.Atoi(e[strings.IndexByte(e, 'e')+1:]); exp < -4 || exp > 15 {
		return append(dst, e...)
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	if !bytes.ContainsRune(dst[from:], '.') {
		dst = append(dst, ".0"...)
	}
	return dst
}
