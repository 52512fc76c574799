package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// response is what a client has of one answer so far.
type response struct {
	status   int
	proto    string
	head     []byte // as received, with the empty line
	fields   fields
	interim  []int  // 1xx answers that came before
	framing  string // chunked, length, close, none
	rawBody  []byte // framed as received
	body     []byte // decoded
	complete bool   // the body ended as its framing says (never true by close)
	closed   bool   // the peer closed, or reset, the connection
	sizes    []int  // of the chunks
}

// parseResponse reads the first whole answer in raw, strictly. It returns nil
// while the head is incomplete, and how many bytes the answer took so far.
func parseResponse(raw []byte, method string, closed bool) (r *response, used int, err error) {
	var interim []int
	for {
		m, ok, err := parseHead(raw[used:])
		if err != nil || !ok {
			return nil, used, err
		}
		r, err = newResponse(m)
		if err != nil {
			return nil, used, err
		}
		r.head = raw[used : used+m.size]
		used += m.size
		if r.status >= 200 || r.status == 101 {
			break
		}
		interim = append(interim, r.status)
	}
	r.interim, r.closed = interim, closed
	n, err := r.readBody(raw[used:], method)
	return r, used + n, err
}

func newResponse(m message) (*response, error) {
	proto, rest, _ := strings.Cut(m.start, " ")
	code, _, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(code)
	if err != nil || len(code) != 3 || proto != "HTTP/1.1" && proto != "HTTP/1.0" {
		return nil, fmt.Errorf("status line %q", m.start)
	}
	return &response{status: status, proto: proto, fields: m.fields}, nil
}

func (r *response) readBody(raw []byte, method string) (used int, err error) {
	kind, length, err := r.fields.framing()
	if err != nil {
		return 0, err
	}
	r.framing = kind
	switch {
	case method == "HEAD" || r.status == 204 || r.status == 304 || r.status < 200:
		r.framing, r.complete = "none", true
	case kind == "chunked":
		d, err := dechunk(raw)
		r.body, r.complete, used, r.sizes = d.body, d.done, d.read, d.sizes
		r.rawBody = raw[:used]
		return used, err
	case kind == "length":
		used = min(length, len(raw))
		r.body, r.complete = raw[:used], used == length
		r.rawBody = r.body
	default:
		r.framing = "close"
		r.body, r.rawBody, used = raw, raw, len(raw)
	}
	return used, nil
}

// whole says that nothing of the body is missing as far as a client can know:
// it ended by its framing, or by close where there is no other end.
func (r *response) whole() bool { return r.complete || r.framing == "close" && r.closed }

// events returns the complete SSE events of the body (each with its empty
// line) and the bytes after the last of them. Engines of the tests end lines
// with LF.
func (r *response) events() (events []string, rest string) {
	rest = string(r.body)
	for {
		i := strings.Index(rest, "\n\n")
		if i < 0 {
			return events, rest
		}
		events = append(events, rest[:i+2])
		rest = rest[i+2:]
	}
}

// apiError is an error in any dialect: OpenAI's, Anthropic's or the flat one of
// the Responses stream.
type apiError struct {
	Type    string `json:"type"`
	Code    any    `json:"code"`
	Message string `json:"message"`
	Param   any    `json:"param"`
}

// parseAPIError reads an error body or the data of an error event. ok is false
// when it is none.
func parseAPIError(data string) (outer string, e apiError, ok bool) {
	var o struct {
		Type  string          `json:"type"`
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal([]byte(data), &o) != nil {
		return "", e, false
	}
	if len(o.Error) == 0 && o.Type == "error" {
		return "error", e, json.Unmarshal([]byte(data), &e) == nil
	}
	return o.Type, e, len(o.Error) > 0 && json.Unmarshal(o.Error, &e) == nil
}

// code returns the code of an error made by Ramjet, "" when the body is none.
func (r *response) code() string {
	_, e, ok := parseAPIError(string(r.body))
	if !ok {
		return ""
	}
	return fmt.Sprint(e.Code)
}

// errorEvents returns the codes of the error events in a stream.
func (r *response) errorEvents() []string {
	var codes []string
	events, _ := r.events()
	for _, ev := range events {
		for _, line := range strings.Split(ev, "\n") {
			if _, e, ok := parseAPIError(strings.TrimPrefix(line, "data: ")); ok && strings.HasPrefix(line, "data:") {
				codes = append(codes, fmt.Sprint(e.Code))
			}
		}
	}
	return codes
}
