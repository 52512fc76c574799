package wire

import "bytes"

// maxLeadingLines is how many empty lines may stand in front of a request:
// some old clients send one behind a POST body (RFC 9112 section 2.2).
const maxLeadingLines = 2

// RequestHead is the head of one request. All slices alias the buffer given to
// Parse and are valid as long as its bytes are. A head belongs to one
// goroutine; reuse one per connection and nothing is allocated.
type RequestHead struct {
	Method, Target []byte
	Minor          int // HTTP/1.Minor: 0 or 1
	Fields         []Field
	Host           []byte // nil if absent, which only HTTP/1.0 may do
	ContentLength  int64  // -1 if absent; equal duplicates are collapsed here but stand in Fields
	Chunked        bool   // Transfer-Encoding: chunked
	KeepAlive      bool   // the client wants the connection kept, by version and Connection
	ExpectContinue bool   // HTTP/1.1 with Expect: 100-continue
	UpgradeTo      []byte // value of Upgrade when Connection lists it (HTTP/1.1), else nil

	opts [][]byte // the names listed by Connection
	scan headScan
	// judged is set once the request line was found good while the rest of
	// the head was still to come.
	judged bool
}

// Reset makes h ready for another head and keeps its storage.
func (h *RequestHead) Reset() {
	clear(h.Fields) // drop the references into the old buffer
	clear(h.opts)
	*h = RequestHead{ContentLength: -1, Fields: h.Fields[:0], opts: h.opts[:0]}
}

// Parse reads one head from the front of buf. n is the length of the head
// with its blank line and with empty lines in front; (0, nil) asks for more
// bytes: call again with the same bytes and more behind them (the buffer may
// have moved), which resumes where the search stopped. The caller bounds the
// size of buf. The error is a *HeadError. After a head, call Reset before the
// next one.
//
// What RFC 9112 leaves to the recipient is refused: bare LF, folded lines,
// white space before the colon, CL with TE, any other coding than chunked,
// other versions than 1.0 and 1.1, and the absolute form (a reverse proxy is
// not asked in that form, and its authority could contradict Host). A head
// that can only be wrong (TLS bytes, an HTTP/0.9 line) is refused before it is
// whole, since its sender waits for us.
func (h *RequestHead) Parse(buf []byte) (n int, err error) {
	end, problem := h.scan.find(buf, maxLeadingLines)
	if problem != "" {
		return 0, badHead(problem)
	}
	if end == 0 {
		return 0, asError(h.early(buf))
	}
	if e := h.parse(buf[h.scan.start:end]); e != nil {
		return 0, e
	}
	return end, nil
}

// Moved tells that the bytes of an unfinished head lie elsewhere from here on:
// what is known of its first line pointed to where they were. The search goes on
// where it stopped.
func (h *RequestHead) Moved() { h.Method, h.Target = nil, nil }

// early judges what has arrived of an unfinished head.
func (h *RequestHead) early(buf []byte) *HeadError {
	if h.judged || len(buf) == h.scan.start {
		return nil
	}
	first := buf[h.scan.start]
	if classes[first]&classToken == 0 && (first != '\r' || len(buf) > h.scan.start+1) {
		return badHead("the connection does not speak HTTP/1")
	}
	if !h.scan.begun {
		return nil
	}
	h.judged = true
	line := buf[h.scan.start:]
	return h.requestLine(line[:bytes.IndexByte(line, '\n')-1])
}

func (h *RequestHead) parse(head []byte) *HeadError {
	i := bytes.IndexByte(head, '\n')
	if e := h.requestLine(head[:i-1]); e != nil {
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
	switch {
	case f.hosts > 1:
		return badHead("there is more than one Host field")
	case f.hosts == 0 && h.Minor == 1:
		return badHead("HTTP/1.1 without a Host field")
	case f.hosts == 1 && !isHost(f.host):
		return badHead("the Host field is not a host name with an optional port")
	}
	h.Host, h.ContentLength, h.Chunked = f.host, f.length, f.chunked
	h.KeepAlive = f.keepAlive(h.Minor)
	h.ExpectContinue = h.Minor == 1 && foldEqual(f.expect, "100-continue")
	h.UpgradeTo = nil
	if f.upgrade && h.Minor == 1 {
		h.UpgradeTo = f.upgradeV // RFC 9110 section 7.8: not in HTTP/1.0
	}
	return nil
}

// requestLine is method SP request-target SP HTTP-version, with exactly one
// space each (RFC 9112 section 3).
func (h *RequestHead) requestLine(line []byte) *HeadError {
	sp := bytes.IndexByte(line, ' ')
	last := bytes.LastIndexByte(line, ' ')
	if sp <= 0 || last <= sp+1 || !isToken(line[:sp]) {
		return badHead("the request line is not METHOD TARGET HTTP/1.1")
	}
	switch string(line[last+1:]) {
	case "HTTP/1.1":
		h.Minor = 1
	case "HTTP/1.0":
		h.Minor = 0
	default:
		return badHead("the version is neither HTTP/1.1 nor HTTP/1.0")
	}
	h.Method, h.Target = line[:sp], line[sp+1:last]
	if !all(h.Target, classTarget) {
		return badHead("the request target holds a byte that targets may not hold")
	}
	switch {
	case h.Target[0] == '/':
		return nil
	case string(h.Target) == "*" && string(h.Method) == "OPTIONS":
		return nil
	case string(h.Method) == "CONNECT":
		return &HeadError{Status: 501, Code: "not_implemented", Message: "CONNECT is not supported: this is a reverse proxy"}
	}
	return badHead("the request target does not start with a slash")
}

// Get returns the value of the first field of that name, whatever the case,
// or nil if there is none (a field without a value gives an empty slice).
func (h *RequestHead) Get(name string) []byte { return getField(h.Fields, name) }

// HopByHop reports whether a field of this name concerns only this connection
// and must not be forwarded: the standard ones and those named by Connection.
func (h *RequestHead) HopByHop(name []byte) bool { return isHopByHop(name, h.opts) }

// asError keeps a nil *HeadError from becoming an error that is not nil.
func asError(e *HeadError) error {
	if e == nil {
		return nil
	}
	return e
}
