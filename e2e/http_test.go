package e2e

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// field is one header line as it was on the wire.
type field struct{ name, value string }

type fields []field

// all returns the values of a field, compared without case.
func (fs fields) all(name string) []string {
	var out []string
	for _, f := range fs {
		if strings.EqualFold(f.name, name) {
			out = append(out, f.value)
		}
	}
	return out
}

// get returns the first value of a field, "" when there is none.
func (fs fields) get(name string) string {
	if v := fs.all(name); len(v) > 0 {
		return v[0]
	}
	return ""
}

// message is a request or response head read strictly (RFC 9112): its start
// line, its fields and how many bytes they took.
type message struct {
	start  string
	fields fields
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
func parseField(line []byte) (field, error) {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || !isToken(string(name)) {
		return field{}, fmt.Errorf("field name %q", name)
	}
	v := strings.Trim(string(value), " \t")
	for _, c := range []byte(v) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return field{}, fmt.Errorf("control character in the value of %s: %q", name, v)
		}
	}
	return field{string(name), v}, nil
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
func (fs fields) framing() (kind string, length int, err error) {
	te, cl := fs.all("Transfer-Encoding"), fs.all("Content-Length")
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

func TestParseHead(t *testing.T) {
	good := "POST /x HTTP/1.1\r\nHost: a\r\nX-Y:\t b \r\n\r\n"
	m, ok, err := parseHead([]byte(good + "rest"))
	if err != nil || !ok || m.size != len(good) || m.fields.get("x-y") != "b" || m.start != "POST /x HTTP/1.1" {
		t.Errorf("good head: %+v %v %v", m, ok, err)
	}
	for cut := range good {
		if _, ok, err := parseHead([]byte(good[:cut])); ok || err != nil {
			t.Fatalf("cut at %d: ok %v, error %v", cut, ok, err)
		}
	}
	for _, bad := range []string{"A / HTTP/1.1\nHost: a\r\n\r\n", "A / HTTP/1.1\r\nHost : a\r\n\r\n",
		"A / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", "A / HTTP/1.1\r\nX: a\x00\r\n\r\n", "A / HTTP/1.1\r\n: a\r\n\r\n",
		"A / HTTP/1.1\r\nX: a\rb\r\n\r\n"} {
		if _, _, err := parseHead([]byte(bad)); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
	for _, bad := range []fields{{{"Content-Length", "+3"}}, {{"Content-Length", "3"}, {"content-length", "3"}},
		{{"Content-Length", "3"}, {"Transfer-Encoding", "chunked"}}, {{"Transfer-Encoding", "xchunked"}}, {{"Content-Length", ""}}} {
		if kind, n, err := bad.framing(); err == nil {
			t.Errorf("framing of %q accepted as %s %d", bad, kind, n)
		}
	}
}
