package wire

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// MaxFields is the most header fields that a head may carry. The size of a
// head is bounded by its reader; this bounds the work per head, as 32 KiB can
// hold ten thousand empty fields.
const MaxFields = 256

// maxConnectionOptions bounds the names listed by Connection, so that
// HopByHop stays cheap for every field of a hostile head.
const maxConnectionOptions = 32

// maxLength is the largest Content-Length and chunk size that is accepted:
// sums of two of them still fit an int64.
const maxLength = 1 << 62

// Field is one header field. Both slices alias the buffer that was parsed;
// Value is without the optional white space around it (RFC 9110 section 5.5).
type Field struct{ Name, Value []byte }

// HeadError says why a head was refused. Status and Code are those of the
// answer that a client gets for it; after it the connection must be closed,
// because nobody knows where the next message starts.
type HeadError struct {
	Status  int    // HTTP status
	Code    string // a word of the closed list of error codes
	Message string // for people; no bytes of the peer
}

func (e *HeadError) Error() string { return e.Message }

// badHead is a refusal of a request head with the default status.
func badHead(message string) *HeadError {
	return &HeadError{Status: 400, Code: "malformed_http", Message: message}
}

// headScan finds the end of a head in a buffer that grows between calls, so
// that a head that arrives byte by byte costs linear work.
type headScan struct {
	line  int // offset of the line that is not whole yet
	next  int // offset from which to look for its end
	start int // offset of the first line that is not empty
	begun bool
}

// find returns the offset behind the blank line that ends the head, or 0 when
// more bytes are needed. leading is the number of empty lines tolerated in
// front (RFC 9112 section 2.2 asks servers to tolerate at least one).
func (s *headScan) find(buf []byte, leading int) (end int, problem string) {
	for {
		i := bytes.IndexByte(buf[s.next:], '\n')
		if i < 0 {
			s.next = len(buf)
			return 0, ""
		}
		at := s.next + i
		if at == s.line || buf[at-1] != '\r' {
			return 0, "a line of the head ends in a bare LF"
		}
		empty := at == s.line+1
		s.line, s.next = at+1, at+1
		switch {
		case empty && s.begun:
			return s.line, ""
		case empty && s.start/2 >= leading:
			return 0, "empty lines in front of the head"
		case empty:
			s.start = s.line
		default:
			s.begun = true
		}
	}
}

// framing is what the fields of a head say about its body and connection.
type framing struct {
	length   int64 // -1: no Content-Length
	chunked  bool
	close    bool
	keep     bool // Connection: keep-alive
	upgrade  bool // Connection: upgrade
	hosts    int
	host     []byte
	codings  int // Transfer-Encoding fields
	coding   []byte
	lengths  int // Content-Length fields
	expect   []byte
	upgradeV []byte
}

// fieldLines parses the lines of buf, all of which end in CRLF, the last being
// empty. It appends to fields and to opts (the Connection options).
func fieldLines(buf []byte, fields *[]Field, opts *[][]byte, f *framing) *HeadError {
	f.length = -1
	for {
		// One pass over a good line: the name ends at the first byte that no
		// name holds, the value at the first that no value holds.
		colon, marks := tokenEnd(buf)
		if colon == 0 && buf[0] == '\r' && buf[1] == '\n' {
			return nil
		}
		if len(*fields) == MaxFields {
			return &HeadError{Status: 431, Code: "header_too_large", Message: "the head has more than 256 fields"}
		}
		if colon == 0 || buf[colon] != ':' {
			return badLine(buf)
		}
		end := valueEnd(buf, colon+1)
		if buf[end] != '\r' || buf[end+1] != '\n' {
			return badLine(buf)
		}
		name, value := buf[:colon], trimOWS(buf[colon+1:end])
		*fields = append(*fields, Field{Name: name, Value: value})
		if err := f.note(name, value, opts); err != nil {
			return err
		}
		if marks&classUnderscore != 0 && aliasesFraming(name) {
			return badHead("a field name is spelt with an underscore where servers behind may read a framing header")
		}
		buf = buf[end+2:]
	}
}

// tokenEnd returns the index of the first byte of b that is not part of a
// token, and what classes the bytes in front of it have. There is one: the
// line end.
func tokenEnd(b []byte) (end int, marks byteClass) {
	for i, c := range b {
		class := classes[c]
		if class&classToken == 0 {
			return i, marks
		}
		marks |= class
	}
	return len(b), marks
}

// valueEnd returns the index from i on of the first byte of b that is not part
// of a field value. There is one: the line end.
func valueEnd(b []byte, i int) int {
	for len(b)-i >= 8 {
		m := controls(binary.LittleEndian.Uint64(b[i:]))
		if m == 0 {
			i += 8
			continue
		}
		if i += bits.TrailingZeros64(m) >> 3; b[i] != '\t' {
			return i
		}
		i++
	}
	for classes[b[i]]&classField != 0 {
		i++
	}
	return i
}

// controls marks, in the top bit of each of the eight bytes of w, control
// characters and DEL.
func controls(w uint64) uint64 {
	low := w &^ highBits
	visible := low + (0x80-' ')*lowBits
	del := (low ^ 0x7f*lowBits) + 0x7f*lowBits
	return ^(visible&del | w) & highBits
}

// badLine says what is wrong with the first line of buf.
func badLine(buf []byte) *HeadError {
	line := buf[:bytes.IndexByte(buf, '\n')-1]
	colon := bytes.IndexByte(line, ':')
	switch {
	case colon <= 0:
		return badHead("a header line has no name or no colon")
	case !isToken(line[:colon]):
		return badHead("a field name holds a byte that names may not hold")
	}
	return badHead("a field value holds a control byte")
}

// note takes the fields that steer framing and the connection.
func (f *framing) note(name, value []byte, opts *[][]byte) *HeadError {
	switch len(name) {
	case len("host"):
		if foldEqual(name, "host") {
			f.hosts++
			f.host = value
		}
	case len("expect"):
		if foldEqual(name, "expect") {
			f.expect = value
		}
	case len("upgrade"):
		if foldEqual(name, "upgrade") && f.upgradeV == nil {
			f.upgradeV = value
		}
	case len("connection"):
		if foldEqual(name, "connection") {
			return f.noteConnection(value, opts)
		}
	case len("content-length"):
		if foldEqual(name, "content-length") {
			return f.noteLength(value)
		}
	case len("transfer-encoding"):
		if foldEqual(name, "transfer-encoding") {
			f.codings++
			f.coding = value
		}
	}
	return nil
}

// noteConnection reads one Connection field: a list of names (RFC 9110
// section 7.6.1).
func (f *framing) noteConnection(value []byte, opts *[][]byte) *HeadError {
	for len(value) > 0 {
		var item []byte
		item, value, _ = bytes.Cut(value, comma)
		item = trimOWS(item)
		if len(item) == 0 {
			continue
		}
		if !isToken(item) {
			return badHead("the Connection field holds something other than names")
		}
		if len(*opts) == maxConnectionOptions {
			return badHead("the Connection field lists too many names")
		}
		*opts = append(*opts, item)
		switch {
		case foldEqual(item, "close"):
			f.close = true
		case foldEqual(item, "keep-alive"):
			f.keep = true
		case foldEqual(item, "upgrade"):
			f.upgrade = true
		}
	}
	return nil
}

// noteLength reads one Content-Length. Equal values may stand twice
// (RFC 9112 section 6.3 point 5); a list in one field may not, because
// servers disagree about it.
func (f *framing) noteLength(value []byte) *HeadError {
	n, ok := decimal(value)
	if !ok {
		return badHead("the Content-Length is not one plain decimal number")
	}
	if f.lengths > 0 && n != f.length {
		return badHead("two Content-Length fields differ")
	}
	f.lengths++
	f.length = n
	return nil
}

// settle judges the framing fields together (RFC 9112 section 6).
func (f *framing) settle(minor int) *HeadError {
	if f.codings == 0 {
		return nil
	}
	switch {
	case f.lengths > 0:
		return badHead("both Content-Length and Transfer-Encoding are present")
	case minor == 0:
		return badHead("HTTP/1.0 has no Transfer-Encoding")
	case f.codings > 1:
		return badHead("there is more than one Transfer-Encoding field")
	case foldEqual(f.coding, "chunked"):
		f.chunked = true
		return nil
	case isCodingList(f.coding):
		return &HeadError{Status: 501, Code: "not_implemented", Message: "a transfer coding other than chunked is not supported"}
	}
	return badHead("the Transfer-Encoding is not chunked")
}

// keepAlive is the persistence rule of RFC 9112 section 9.3.
func (f *framing) keepAlive(minor int) bool {
	if minor == 0 {
		return f.keep && !f.close
	}
	return !f.close
}

// isCodingList reports whether v is a well-formed list of registered transfer
// codings that ends in chunked (RFC 9112 section 7): refused as unsupported
// rather than as malformed.
func isCodingList(v []byte) bool {
	for {
		item, rest, more := bytes.Cut(v, comma)
		item = trimOWS(item)
		if !more {
			return foldEqual(item, "chunked")
		}
		switch {
		case foldEqual(item, "gzip"), foldEqual(item, "x-gzip"), foldEqual(item, "deflate"),
			foldEqual(item, "compress"), foldEqual(item, "x-compress"):
		default:
			return false
		}
		v = rest
	}
}

// hopNames are the fields that concern one connection only: RFC 9110 section
// 7.6.1 and, because old clients send them, Proxy-Connection and
// HTTP2-Settings.
var hopNames = [...]string{
	"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization",
	"te", "trailer", "transfer-encoding", "upgrade", "http2-settings",
}

// isHopByHop reports whether a field must not be forwarded. Host and
// Content-Length are never dropped by a peer's Connection field: without
// them a message would be read differently behind us than here.
func isHopByHop(name []byte, opts [][]byte) bool {
	for _, s := range hopNames {
		if foldEqual(name, s) {
			return true
		}
	}
	for _, o := range opts {
		if len(o) == len(name) && bytes.EqualFold(o, name) {
			return !foldEqual(name, "host") && !foldEqual(name, "content-length")
		}
	}
	return false
}

// aliasesFraming reports whether name turns into a header that steers framing
// or the connection when a server maps underscores to hyphens, as CGI and
// WSGI environments do.
func aliasesFraming(name []byte) bool {
	if bytes.IndexByte(name, '_') < 0 {
		return false
	}
	for _, s := range [...]string{"content-length", "keep-alive", "proxy-connection", "transfer-encoding", "http2-settings"} {
		if foldEqualAlias(name, s) {
			return true
		}
	}
	return false
}

func getField(fields []Field, name string) []byte {
	for i := range fields {
		if len(fields[i].Name) == len(name) && foldEqualString(fields[i].Name, name) {
			return fields[i].Value
		}
	}
	return nil
}
