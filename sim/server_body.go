package sim

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// members are the members of one JSON object by their exact names; of equal
// names the last one wins, as in Python.
type members map[string]json.RawMessage

// decodeBody reads the JSON object that a route expects, or answers with the
// error that vLLM gives and returns nil.
func (w *responder) decodeBody(d dialect) members {
	media, _, _ := strings.Cut(strings.ToLower(w.req.get("content-type")), ";")
	if strings.TrimSpace(media) != "application/json" {
		w.fail(d, &apiError{400, "Bad Request", "Unsupported Media Type: Only 'application/json' is allowed", ""})
		return nil
	}
	body := w.req.body
	switch {
	case len(body) == 0:
		w.fail(d, invalid("missing", "", "Field required"))
		return nil
	case !utf8.Valid(body):
		// A compressed body ends up here: vLLM decodes no Content-Encoding.
		w.json(400, []byte(`{"detail":"There was an error parsing the body"}`))
		return nil
	}
	var m members
	if err := json.Unmarshal(body, &m); err != nil {
		var syntax *json.SyntaxError
		if !errors.As(err, &syntax) {
			w.fail(d, invalid("model_attributes_type", "", "Input should be a valid dictionary or object to extract fields from"))
			return nil
		}
		at := strconv.FormatInt(max(syntax.Offset-1, 0), 10)
		w.fail(d, &apiError{400, "Bad Request", "1 validation error:\n  {'type': 'json_invalid', 'loc': ('body', " + at +
			"), 'msg': 'JSON decode error', 'input': {}, 'ctx': {'error': '" + syntax.Error() + "'}}", "body." + at})
		return nil
	}
	if m == nil {
		w.fail(d, invalid("missing", "", "Field required"))
	}
	return m
}

// given reports whether a member is there and not null.
func (m members) given(name string) bool {
	v, ok := m[name]
	return ok && string(v) != "null"
}

// text reads an optional string.
func (m members) text(name string) (string, *apiError) {
	var s string
	if m.given(name) && json.Unmarshal(m[name], &s) != nil {
		return "", invalid("string_type", name, "Input should be a valid string")
	}
	return s, nil
}

// flag reads an optional boolean.
func (m members) flag(name string, otherwise bool) (bool, *apiError) {
	if !m.given(name) {
		return otherwise, nil
	}
	var b bool
	if json.Unmarshal(m[name], &b) != nil {
		return false, invalid("bool_parsing", name, "Input should be a valid boolean, unable to interpret input")
	}
	return b, nil
}

// number reads an optional integer the way pydantic does: 5, 5.0 and "5" are
// integers. ok is false if it was not given.
func (m members) number(name string) (n int, ok bool, e *apiError) {
	if !m.given(name) {
		return 0, false, nil
	}
	s := strings.Trim(string(m[name]), `"`)
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false, invalid("int_parsing", name, "Input should be a valid integer, unable to parse string as an integer")
	}
	return int(f), true, nil
}

// float reads an optional number.
func (m members) float(name string) (f float64, ok bool, e *apiError) {
	if !m.given(name) {
		return 0, false, nil
	}
	if json.Unmarshal(m[name], &f) != nil {
		return 0, false, invalid("float_type", name, "Input should be a valid number")
	}
	return f, true, nil
}

// object reads an optional object; nil if absent.
func (m members) object(name string) (members, *apiError) {
	if !m.given(name) {
		return nil, nil
	}
	var o members
	if json.Unmarshal(m[name], &o) != nil {
		return nil, invalid("dict_type", name, "Input should be a valid dictionary")
	}
	return o, nil
}

// ids reads an optional list of token ids; nil if absent.
func (m members) ids(name string) ([]uint32, *apiError) {
	if !m.given(name) {
		return nil, nil
	}
	var ids []uint32
	if json.Unmarshal(m[name], &ids) != nil {
		return nil, invalid("list_type", name, "Input should be a valid list")
	}
	return ids, nil
}

// strings reads an optional string or list of strings.
func (m members) strings(name string) ([]string, *apiError) {
	if !m.given(name) {
		return nil, nil
	}
	var one string
	if json.Unmarshal(m[name], &one) == nil {
		return []string{one}, nil
	}
	var many []string
	if json.Unmarshal(m[name], &many) != nil {
		return nil, invalid("list_type", name, "Input should be a valid list")
	}
	return many, nil
}
