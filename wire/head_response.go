package wire

import "bytes"

// ResponseHead is the head of one response of an engine. All slices alias the
// buffer given to Parse. A head belongs to one goroutine; reuse one per
// connection and nothing is allocated.
type ResponseHead struct {
	Minor         int // HTTP/1.Minor: 0 or 1
	Status        int // 100..599
	Reason        []byte
	Fields        []Field
	ContentLength int64 // -1 if absent; equal duplicates are collapsed here but stand in Fields
	Chunked       bool
	KeepAlive     bool // the engine keeps the connection; moot when the body runs until close
	EventStream   bool // Content-Type: text/event-stream

	opts [][]byte
	scan headScan
}

// Reset makes h ready for another head and keeps its storage.
func (h *ResponseHead) Reset() {
	clear(h.Fields)
	clear(h.opts)
	*h = ResponseHead{ContentLength: -1, Fields: h.Fields[:0], opts: h.opts[:0]}
}

// Parse reads one head from the front of buf, as RequestHead.Parse does and as
// strictly; an error is a *HeadError with status 502 and engine_bad_response.
// Interim (1xx) heads are returned like any other: Reset and parse on.
func (h *ResponseHead) Parse(buf []byte) (n int, err error) {
	end, problem := h.scan.find(buf, 0)
	if problem != "" {
		return 0, badResponse(problem)
	}
	if end == 0 {
		const proto = "HTTP/1."
		if k := min(len(buf), len(proto)); string(buf[:k]) != proto[:k] {
			return 0, badResponse("the answer does not start with HTTP/1.")
		}
		return 0, nil
	}
	if e := h.parse(buf[:end]); e != nil {
		return 0, badResponse(e.Message)
	}
	return end, nil
}

func badResponse(message string) *HeadError {
	return &HeadError{Status: 502, Code: "engine_bad_response", Message: message}
}

func (h *ResponseHead) parse(head []byte) *HeadError {
	i := bytes.IndexByte(head, '\n')
	if e := h.statusLine(head[:i-1]); e != nil {
		return e
	}
	var f framing
	h.Fields, h.opts = h.Fields[:0], h.opts[:0]
	if e := fieldLines(head[i+1:], &h.Fields, &h.opts, &f); e != nil {
		return e
	}
	if e := f.settle(h.Minor); e != nil {
		return e
	}
	// RFC 9110 section 8.6, RFC 9112 section 6.1: these have no body, so an
	// engine that announces one would leave it for the next answer.
	if (h.Status < 200 || h.Status == 204) && (f.chunked || f.length > 0) {
		return badHead("a status without a body announces one")
	}
	h.ContentLength, h.Chunked, h.KeepAlive = f.length, f.chunked, f.keepAlive(h.Minor)
	media, _, _ := bytes.Cut(h.Get("content-type"), []byte{';'})
	h.EventStream = foldEqual(trimOWS(media), "text/event-stream")
	return nil
}

// statusLine is HTTP-version SP status-code SP [reason-phrase] (RFC 9112
// section 4). The second space may be missing when there is no reason: common
// among small servers, and nothing depends on it.
func (h *ResponseHead) statusLine(line []byte) *HeadError {
	const prefix = len("HTTP/1.1 ")
	if len(line) < prefix+3 || len(line) > prefix+3 && line[prefix+3] != ' ' {
		return badHead("the status line is not HTTP/1.1 STATUS REASON")
	}
	switch string(line[:prefix]) {
	case "HTTP/1.1 ":
		h.Minor = 1
	case "HTTP/1.0 ":
		h.Minor = 0
	default:
		return badHead("the version is neither HTTP/1.1 nor HTTP/1.0")
	}
	n, ok := decimal(line[prefix : prefix+3])
	if !ok || n < 100 || n > 599 {
		return badHead("the status is not a number from 100 to 599")
	}
	h.Status = int(n)
	h.Reason = nil
	if len(line) > prefix+4 {
		h.Reason = line[prefix+4:]
	}
	if !isFieldValue(h.Reason) {
		return badHead("the reason holds a control byte")
	}
	return nil
}

// Get returns the value of the first field of that name, whatever the case,
// or nil if there is none.
func (h *ResponseHead) Get(name string) []byte { return getField(h.Fields, name) }

// HopByHop reports whether a field of this name concerns only this connection
// and must not be forwarded: the standard ones and those named by Connection.
func (h *ResponseHead) HopByHop(name []byte) bool { return isHopByHop(name, h.opts) }

// BodyLess reports whether no body follows, whatever the fields say: an answer
// to HEAD, and statuses 1xx, 204 and 304 (RFC 9112 section 6.3).
func (h *ResponseHead) BodyLess(method []byte) bool {
	return h.Status < 200 || h.Status == 204 || h.Status == 304 || string(method) == "HEAD"
}

// UntilClose reports whether the body has no framing and ends when the engine
// closes, so that a cut cannot be told from the end.
func (h *ResponseHead) UntilClose(method []byte) bool {
	return !h.BodyLess(method) && !h.Chunked && h.ContentLength < 0
}
