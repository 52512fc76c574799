package rig

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Response is what a client has of one answer so far.
type Response struct {
	Status   int
	proto    string
	Head     []byte // as received, with the empty line
	Fields   Fields
	Interim  []int  // 1xx answers that came before
	Framing  string // chunked, length, close, none
	RawBody  []byte // framed as received
	Body     []byte // decoded
	Complete bool   // the body ended as its framing says (never true by close)
	Closed   bool   // the peer closed, or reset, the connection
	sizes    []int  // of the chunks
}

// ParseResponse reads the first whole answer in raw, strictly. It returns nil
// while the head is incomplete, and how many bytes the answer took so far.
func ParseResponse(raw []byte, method string, closed bool) (r *Response, used int, err error) {
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
		r.Head = raw[used : used+m.size]
		used += m.size
		if r.Status >= 200 || r.Status == 101 {
			break
		}
		interim = append(interim, r.Status)
	}
	r.Interim, r.Closed = interim, closed
	n, err := r.readBody(raw[used:], method)
	return r, used + n, err
}

func newResponse(m message) (*Response, error) {
	proto, rest, _ := strings.Cut(m.start, " ")
	code, _, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(code)
	if err != nil || len(code) != 3 || proto != "HTTP/1.1" && proto != "HTTP/1.0" {
		return nil, fmt.Errorf("status line %q", m.start)
	}
	return &Response{Status: status, proto: proto, Fields: m.fields}, nil
}

func (r *Response) readBody(raw []byte, method string) (used int, err error) {
	kind, length, err := r.Fields.framing()
	if err != nil {
		return 0, err
	}
	r.Framing = kind
	switch {
	case method == "HEAD" || r.Status == 204 || r.Status == 304 || r.Status < 200:
		r.Framing, r.Complete = "none", true
	case kind == "chunked":
		d, err := Dechunk(raw)
		r.Body, r.Complete, used, r.sizes = d.Body, d.done, d.read, d.sizes
		r.RawBody = raw[:used]
		return used, err
	case kind == "length":
		used = min(length, len(raw))
		r.Body, r.Complete = raw[:used], used == length
		r.RawBody = r.Body
	default:
		r.Framing = "close"
		r.Body, r.RawBody, used = raw, raw, len(raw)
	}
	return used, nil
}

// Whole says that nothing of the body is missing as far as a client can know:
// it ended by its framing, or by close where there is no other end.
func (r *Response) Whole() bool { return r.Complete || r.Framing == "close" && r.Closed }

// Events returns the complete SSE events of the body (each with its empty
// line) and the bytes after the last of them. Engines of the tests end lines
// with LF.
func (r *Response) Events() (events []string, rest string) {
	rest = string(r.Body)
	for {
		i := strings.Index(rest, "\n\n")
		if i < 0 {
			return events, rest
		}
		events = append(events, rest[:i+2])
		rest = rest[i+2:]
	}
}

// ApiError is an error in any dialect: OpenAI's, Anthropic's or the flat one of
// the Responses stream.
type ApiError struct {
	Type    string `json:"type"`
	Code    any    `json:"code"`
	Message string `json:"message"`
	Param   any    `json:"param"`
}

// ParseAPIError reads an error body or the data of an error event. ok is false
// when it is none.
func ParseAPIError(data string) (outer string, e ApiError, ok bool) {
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

// Code returns the code of an error made by Ramjet, "" when the body is none.
func (r *Response) Code() string {
	_, e, ok := ParseAPIError(string(r.Body))
	if !ok {
		return ""
	}
	return fmt.Sprint(e.Code)
}

// ErrorEvents returns the codes of the error events in a stream.
func (r *Response) ErrorEvents() []string {
	var codes []string
	events, _ := r.Events()
	for _, ev := range events {
		for _, line := range strings.Split(ev, "\n") {
			if _, e, ok := ParseAPIError(strings.TrimPrefix(line, "data: ")); ok && strings.HasPrefix(line, "data:") {
				codes = append(codes, fmt.Sprint(e.Code))
			}
		}
	}
	return codes
}
