package rig

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Field is one header line as it was on the wire.
type Field struct{ Name, Value string }

// Fields are the header lines of a message, in order.
type Fields []Field

// All returns the values of a field, compared without case.
func (fs Fields) All(name string) []string {
	var out []string
	for _, f := range fs {
		if strings.EqualFold(f.Name, name) {
			out = append(out, f.Value)
		}
	}
	return out
}

// Get returns the first value of a field, "" when there is none.
func (fs Fields) Get(name string) string {
	if v := fs.All(name); len(v) > 0 {
		return v[0]
	}
	return ""
}

// message is a request or response head read strictly (RFC 9112): its start
// line, its fields and how many bytes they took.
type message struct {
	start  string
	fields Fields
	size   int
}

// parseHead reads a whole head; ok is false while it is incomplete.
func parseHead(raw []byte) (m message, ok bool, err error) {
	for first := true; ; first = false {
		line, ok, err := crlfLine(raw[m.size:])
		if err != nil || !ok {
			return m, false, err
		}
		m.size += len(line) + 2
		switch {
		case first:
			m.start = string(line)
		case len(line) == 0:
			return m, true, nil
		default:
			f, err := parseField(line)
			if err != nil {
				return m, false, err
			}
			m.fields = append(m.fields, f)
		}
	}
}

// parseField refuses everything that two readers could take differently: a name
// that is no token, folded lines, control characters in the value.
func parseField(line []byte) (Field, error) {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || !isToken(string(name)) {
		return Field{}, fmt.Errorf("field name %q", name)
	}
	v := strings.Trim(string(value), " \t")
	for _, c := range []byte(v) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return Field{}, fmt.Errorf("control character in the value of %s: %q", name, v)
		}
	}
	return Field{string(name), v}, nil
}

func isToken(s string) bool {
	for _, c := range []byte(s) {
		alnum := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// framing says how the fields delimit a body: "chunked", "length" with its
// number, or "none". Both at once, doubled or odd framing fields are an error.
func (fs Fields) framing() (kind string, length int, err error) {
	te, cl := fs.All("Transfer-Encoding"), fs.All("Content-Length")
	switch {
	case len(te) > 0 && len(cl) > 0:
		return "", 0, fmt.Errorf("both Transfer-Encoding %q and Content-Length %q", te, cl)
	case len(te) > 1 || len(cl) > 1:
		return "", 0, fmt.Errorf("framing field given twice: %q %q", te, cl)
	case len(te) == 1 && !strings.EqualFold(te[0], "chunked"):
		return "", 0, fmt.Errorf("transfer coding %q", te[0])
	case len(te) == 1:
		return "chunked", 0, nil
	case len(cl) == 1:
		n, err := strconv.ParseUint(cl[0], 10, 40)
		if err != nil || cl[0][0] == '+' {
			return "", 0, fmt.Errorf("Content-Length %q", cl[0])
		}
		return "length", int(n), nil
	}
	return "none", 0, nil
}
