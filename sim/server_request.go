package sim

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
)

// The reader below accepts and refuses what httptools under uvicorn does, as
// recorded against vLLM 0.32: bare line feeds, a Content-Length beside a
// Transfer-Encoding and two different Content-Lengths are refused, while a
// missing Host, chunk extensions, trailers and very large heads are fine.
// Strictness beyond that is the proxy's job, so a test engine must not have it.

const (
	// maxHead bounds a request head in bytes. vLLM takes a 1,000 KiB header,
	// so the limit only stops a runaway peer.
	maxHead = 16 << 20
	// maxTarget is where httptools refuses a request target, in bytes.
	maxTarget = 64 << 10
	// maxBody bounds a request body in bytes; uvicorn itself has no limit.
	maxBody = 1 << 30
)

// errBadRequest marks bytes that uvicorn answers with its text/plain 400.
var errBadRequest = errors.New("invalid HTTP request")

// request is one parsed HTTP/1 request with its whole body.
type request struct {
	method  string
	target  string // as sent
	path    string // up to the question mark, percent escapes kept
	query   string
	minor   int // HTTP/1.minor
	fields  []field
	body    []byte
	close   bool // the connection ends after the answer
	upgrade bool // a WebSocket handshake
}

// field is one header line: name in lower case, value without outer blanks.
type field struct{ name, value string }

// get returns the first value of a header by its lower-case name.
func (r *request) get(name string) string {
	for _, f := range r.fields {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

// has reports whether a comma-separated header holds a word, ignoring case.
func (r *request) has(name, word string) bool {
	for _, f := range r.fields {
		if f.name != name {
			continue
		}
		for _, part := range strings.Split(f.value, ",") {
			if strings.EqualFold(strings.TrimSpace(part), word) {
				return true
			}
		}
	}
	return false
}

// headEnd returns the length of the head at the start of buf, its blank line
// included, or 0 while that is not there yet. It refuses a bare line feed at
// once, as httptools does.
func headEnd(buf []byte, from int) (int, error) {
	for i := from; i < len(buf); i++ {
		if buf[i] != '\n' {
			continue
		}
		if i == 0 || buf[i-1] != '\r' {
			return 0, errBadRequest
		}
		if i >= 3 && buf[i-3] == '\r' && buf[i-2] == '\n' {
			return i + 1, nil
		}
	}
	if len(buf) > maxHead {
		return 0, errBadRequest
	}
	return 0, nil
}

// parseHead reads one head, blank line included.
func parseHead(head []byte) (*request, error) {
	lines := strings.Split(string(head[:len(head)-4]), "\r\n")
	r := &request{}
	method, rest, ok := strings.Cut(lines[0], " ")
	target, proto, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || !isToken(method) || target == "" || len(target) > maxTarget {
		return nil, errBadRequest
	}
	switch proto {
	case "HTTP/1.1":
		r.minor = 1
	case "HTTP/1.0":
	default:
		return nil, errBadRequest
	}
	r.method, r.target = method, target
	if i := strings.Index(target, "://"); i > 0 && target[0] != '/' {
		// Absolute form: uvicorn keeps only the path (RFC 9112 section 3.2.2).
		if j := strings.IndexByte(target[i+3:], '/'); j >= 0 {
			target = target[i+3+j:]
		} else {
			target = "/"
		}
	}
	r.path, r.query, _ = strings.Cut(target, "?")
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) || strings.ContainsAny(value, "\r\x00") {
			return nil, errBadRequest
		}
		r.fields = append(r.fields, field{strings.ToLower(name), strings.Trim(value, " \t")})
	}
	r.close = r.has("connection", "close") || r.minor == 0 && !r.has("connection", "keep-alive")
	if r.minor == 0 {
		// uvicorn's httptools protocol never keeps an HTTP/1.0 connection.
		r.close = true
	}
	r.upgrade = r.has("connection", "upgrade") && strings.EqualFold(r.get("upgrade"), "websocket")
	return r, nil
}

func isToken(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return true
}

// framing says how the body of a request is delimited: chunked, or length
// bytes (0 = none).
func (r *request) framing() (chunked bool, length int64, err error) {
	length = -1
	te := false
	for _, f := range r.fields {
		switch f.name {
		case "content-length":
			n, err := parseDigits(f.value)
			if err != nil || n > maxBody || length >= 0 && length != n {
				return false, 0, errBadRequest
			}
			length = n
		case "transfer-encoding":
			if te || !strings.EqualFold(f.value, "chunked") {
				return false, 0, errBadRequest
			}
			te = true
		}
	}
	if te && (length >= 0 || r.minor == 0) {
		return false, 0, errBadRequest
	}
	return te, max(length, 0), nil
}

func parseDigits(s string) (int64, error) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, errBadRequest
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, errBadRequest
	}
	return n, nil
}

// input is the receiving half of a connection: bytes that were read and not
// yet used. It belongs to one goroutine at a time.
type input struct {
	r    io.Reader
	buf  []byte // unused bytes, a part of base
	base []byte
}

// fill reads once more from the peer.
func (in *input) fill() error {
	if len(in.buf) == 0 {
		in.buf = in.base[:0]
	}
	if cap(in.buf)-len(in.buf) < 2048 {
		size := max(4096, 2*len(in.buf))
		if cap(in.buf) > 0 {
			size = max(size, 64<<10) // it proved to be too small once
		}
		in.base = make([]byte, len(in.buf), size)
		copy(in.base, in.buf)
		in.buf = in.base
	}
	n, err := in.r.Read(in.buf[len(in.buf):cap(in.buf)])
	in.buf = in.buf[:len(in.buf)+n]
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// take removes and returns the first n bytes; they stay valid until the next fill.
func (in *input) take(n int) []byte {
	p := in.buf[:n]
	in.buf = in.buf[n:]
	return p
}

// head reads one request head. io.EOF or a network error means that the peer
// left; errBadRequest that it sent something else than HTTP.
func (in *input) head() (*request, error) {
	// A line end in front of a request line is skipped (RFC 9112 section 2.2).
	for seen := 0; ; {
		for seen == 0 && bytes.HasPrefix(in.buf, []byte("\r\n")) {
			in.take(2)
		}
		n, err := headEnd(in.buf, seen)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			return parseHead(in.take(n))
		}
		if len(in.buf) > 0 && !plausibleStart(in.buf) {
			return nil, errBadRequest
		}
		seen = len(in.buf)
		if len(in.buf) == 1 {
			seen = 0 // perhaps half of a leading line end
		}
		if err := in.fill(); err != nil {
			return nil, err
		}
	}
}

// plausibleStart refuses TLS records and the HTTP/2 preface without waiting
// for a blank line that may never come.
func plausibleStart(buf []byte) bool {
	c := buf[0]
	return c == '\r' || isToken(string(c)) && !bytes.HasPrefix(buf, []byte("PRI * HTTP/2"))
}

// body reads the body that r announces into r.body.
func (in *input) body(r *request) error {
	chunked, length, err := r.framing()
	if err != nil {
		return err
	}
	if !chunked {
		r.body, err = in.exactly(nil, length)
		return err
	}
	for {
		line, err := in.line()
		if err != nil {
			return err
		}
		size, _, _ := strings.Cut(line, ";")
		n, err := strconv.ParseUint(strings.TrimRight(size, " \t"), 16, 31)
		if err != nil || len(r.body)+int(n) > maxBody {
			return errBadRequest
		}
		if n == 0 {
			break
		}
		if r.body, err = in.exactly(r.body, int64(n)); err != nil {
			return err
		}
		if line, err = in.line(); err != nil || line != "" {
			return errors.Join(errBadRequest, err)
		}
	}
	for { // trailers are read and dropped
		line, err := in.line()
		if err != nil || line == "" {
			return err
		}
	}
}

// exactly appends the next n bytes to dst. It never allocates for bytes that
// have not arrived, so that a false Content-Length costs nothing.
func (in *input) exactly(dst []byte, n int64) ([]byte, error) {
	for n > 0 {
		if len(in.buf) == 0 {
			if err := in.fill(); err != nil {
				return dst, err
			}
		}
		k := min(n, int64(len(in.buf)))
		dst = append(dst, in.take(int(k))...)
		n -= k
	}
	return dst, nil
}

// line reads one line that ends in CRLF, without it.
func (in *input) line() (string, error) {
	for {
		if i := bytes.IndexByte(in.buf, '\n'); i >= 0 {
			p := in.take(i + 1)
			if i == 0 || p[i-1] != '\r' {
				return "", errBadRequest
			}
			return string(p[:i-1]), nil
		}
		if len(in.buf) > maxTarget {
			return "", errBadRequest
		}
		if err := in.fill(); err != nil {
			return "", err
		}
	}
}
