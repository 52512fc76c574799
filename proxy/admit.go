package proxy

import (
	"bytes"
	"time"

	"ramjet/telemetry"
	"ramjet/wire"
)

// admit judges the head. It returns nil when the request may go on.
func (f *flight) admit() *wire.Error {
	h := &f.c.head
	f.identify()
	path := h.Target
	if i := bytes.IndexByte(path, '?'); i >= 0 {
		path = path[:i]
	}
	f.path = path
	f.rec.Path = path
	if fault := pathFault(path); fault != "" {
		return &wire.Error{Code: wire.CodeInvalidRequest, Message: "the path holds " + fault + "; write it plainly"}
	}
	f.ep = f.live.paths.find(path)
	if f.ep != nil {
		f.dialect = f.ep.dialect
	}
	if f.ep == nil {
		// An unknown path answers the same with and without a key, and a
		// preflight for it too.
		return &wire.Error{Code: wire.CodePathNotFound}
	}
	if f.preflight() {
		return nil
	}
	if f.live.Keys != nil && f.ep.kind != kindHealth && !f.live.Keys.admits(h) {
		return &wire.Error{Code: wire.CodeInvalidAPIKey}
	}
	if h.UpgradeTo != nil && sameName(h.UpgradeTo, "websocket") && f.ep.kind != kindRealtime {
		return &wire.Error{Code: wire.CodeWebsocketUnsupported}
	}
	return f.admitMethod(h)
}

func (f *flight) admitMethod(h *wire.RequestHead) *wire.Error {
	if !knownMethod(h.Method) {
		return &wire.Error{Code: wire.CodeNotImplemented, Message: "the method is not known here"}
	}
	if !permits(f.ep.methods, h.Method) {
		return &wire.Error{Code: wire.CodeMethodNotAllowed, Allow: f.ep.methods}
	}
	if !permits(passMethods, h.Method) {
		return &wire.Error{Code: wire.CodeMethodNotAllowed, Allow: passMethods}
	}
	if coding := h.Get("content-encoding"); len(coding) > 0 && !sameName(coding, "identity") {
		// vLLM does not decode bodies (vLLM 0.32 answers 400 in a third
		// error shape).
		return &wire.Error{Code: wire.CodeUnsupportedEncoding}
	}
	if f.ep.kind.readsJSON() && !jsonType(h.Get("content-type")) {
		return &wire.Error{Code: wire.CodeUnsupportedMediaType}
	}
	if f.ep.kind == kindRealtime && !sameName(h.UpgradeTo, "websocket") {
		return &wire.Error{Code: wire.CodeInvalidRequest, Message: "this path serves WebSockets; send an upgrade"}
	}
	return nil
}

// passMethods are what an engine may be asked: TRACE would show it the
// headers that Ramjet adds, OPTIONS is for preflights, CONNECT for proxies.
const passMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"

// preflight reports whether this is a browser's CORS preflight. By design it
// carries no key (CONTRACT section 3).
func (f *flight) preflight() bool {
	h := &f.c.head
	return string(h.Method) == "OPTIONS" && h.Get("origin") != nil && h.Get("access-control-request-method") != nil
}

func knownMethod(m []byte) bool {
	switch string(m) {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE":
		return true
	}
	return false
}

// jsonType accepts JSON and a missing type, for which the verdict is the
// engine's.
func jsonType(value []byte) bool {
	if i := bytes.IndexByte(value, ';'); i >= 0 {
		value = value[:i]
	}
	value = bytes.TrimRight(value, " \t")
	return len(value) == 0 || sameName(value, "application/json") ||
		len(value) > 5 && sameName(value[len(value)-5:], "+json")
}

// identify takes the client's request id if it is harmless, else makes one.
func (f *flight) identify() {
	f.id = f.id[:0]
	if id := f.c.head.Get("x-request-id"); harmlessID(id) {
		f.id = append(f.id, id...)
	} else {
		f.id = appendID(f.id)
	}
	f.rec.ID = f.id
}

// harmlessID is the rule of CONTRACT 10.5.
func harmlessID(id []byte) bool {
	if len(id) == 0 || len(id) > 128 {
		return false
	}
	for _, c := range id {
		if !unreserved(c) && c != ':' {
			return false
		}
	}
	return true
}

// refuse answers a head that could not be read.
func (f *flight) refuse(bad *wire.HeadError) {
	f.begin()
	defer f.finish()
	f.rec.Method, f.rec.Path = nil, nil
	f.id = appendID(f.id[:0])
	f.rec.ID = f.id
	f.fault = bad.Message
	e := &wire.Error{Code: codeOf(bad), Status: bad.Status, Message: bad.Message}
	f.rejectUnread(e)
}

func codeOf(bad *wire.HeadError) wire.Code {
	for c := range wire.Codes {
		if c.String() == bad.Code {
			return c
		}
	}
	return wire.CodeMalformedHTTP
}

// drainLimit is how much of a refused request's body is read, so that its
// connection can serve another request.
const drainLimit = 64 << 10

// reject answers a request that was refused before its body was read.
func (f *flight) reject(e *wire.Error) {
	h := &f.c.head
	if h.Chunked || h.ContentLength > drainLimit || h.ExpectContinue || !f.skipBody() {
		f.rejectUnread(e)
		return
	}
	f.fail(e, telemetry.EndRejected)
}

func (f *flight) rejectUnread(e *wire.Error) {
	f.close = true
	f.fail(e, telemetry.EndRejected)
	f.linger()
}

// skipBody reads past the body of a request that needs none. It reports whether
// all of it came. A body that is not short is left unread, and the connection
// ends after the answer.
func (f *flight) skipBody() bool {
	if f.c.head.Chunked || f.c.head.ContentLength > drainLimit {
		f.close = true
		return true
	}
	left := max(f.c.head.ContentLength, 0)
	n := min(left, int64(f.c.w-f.c.r))
	f.c.r += int(n)
	left -= n
	if left == 0 {
		f.bodyRead = true
		return true
	}
	b := getBuffer(int(left))
	defer putBuffer(b)
	r := bodyReader{c: f.c, start: f.began}
	defer r.done()
	for left > 0 {
		got, err := r.read(b.b[:left])
		if err != nil {
			return false
		}
		left -= int64(got)
	}
	f.bodyRead = true
	return true
}

// since returns seconds, as records carry them.
func since(t time.Time) float64 { return time.Since(t).Seconds() }
