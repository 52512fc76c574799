package proxy

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"ramjet/telemetry"
	"ramjet/wire"
)

// composeHead writes the client's head down as soon as the engine's is parsed,
// because the engine's lies in a buffer that the next read may give back.
func (f *flight) composeHead() {
	if !f.sent.head {
		f.headOut = f.appendResponseHead(f.headOut[:0])
	}
}

// appendResponseHead composes the head that the client gets: the engine's own
// fields but those that concern its connection, and ours.
func (f *flight) appendResponseHead(b []byte) []byte {
	h := &f.resp
	r := &f.relay
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(h.Status), 10)
	b = append(b, ' ')
	b = append(b, h.Reason...)
	for i := range h.Fields {
		name := h.Fields[i].Name
		if h.HopByHop(name) || ownField(name) {
			continue
		}
		b = append(b, "\r\n"...)
		b = append(b, name...)
		b = append(b, ": "...)
		b = append(b, h.Fields[i].Value...)
	}
	switch {
	case r.plain || h.Status == 204 || h.Status == 304 && h.ContentLength < 0:
	case h.ContentLength >= 0 && !r.reframe:
		b = append(b, "\r\nContent-Length: "...)
		b = strconv.AppendInt(b, h.ContentLength, 10)
	case h.Chunked || r.reframe:
		b = append(b, "\r\nTransfer-Encoding: chunked"...)
	}
	b = f.appendConnection(b)
	b = append(b, "\r\nX-Request-Id: "...)
	b = append(b, f.id...)
	b = f.appendTrail(b)
	return append(b, "\r\n\r\n"...)
}

// ownField reports whether a field of an engine is replaced by ours.
func ownField(name []byte) bool {
	return sameName(name, "x-request-id") || sameName(name, "content-length") ||
		len(name) > 9 && sameName(name[:9], "x-ramjet-")
}

func (f *flight) appendConnection(b []byte) []byte {
	f.close = f.close || !f.c.head.KeepAlive || f.s.draining.Load() || f.upload && !f.uploaded
	switch {
	case f.close:
		return append(b, "\r\nConnection: close"...)
	case f.c.head.Minor == 0:
		return append(b, "\r\nConnection: keep-alive"...)
	}
	return b
}

// appendTrail appends the fields that tell how a request was routed.
func (f *flight) appendTrail(b []byte) []byte {
	if f.live.XRamjet && f.decision.Member != nil {
		b = append(b, "\r\nX-Ramjet-Engine: "...)
		b = append(b, f.member().Name...)
		b = append(b, "\r\nX-Ramjet-Reason: "...)
		b = append(b, f.decision.Reason.String()...)
		b = append(b, "\r\nX-Ramjet-Match: "...)
		b = strconv.AppendInt(b, f.decision.Match, 10)
		b = append(b, "\r\nX-Ramjet-Attempts: "...)
		b = strconv.AppendInt(b, int64(len(f.tried)+1), 10)
	}
	if f.live.ServerTiming {
		b = append(b, "\r\nServer-Timing: route;dur="...)
		b = appendMillis(b, f.rec.Route)
		b = append(b, ",queue;dur="...)
		b = appendMillis(b, f.rec.Queue)
		b = append(b, ",ttfb;dur="...)
		b = appendMillis(b, f.ttfb)
	}
	return b
}

// appendMillis appends seconds as milliseconds with three decimals.
func appendMillis(b []byte, seconds float64) []byte {
	micros := int64(math.Round(max(seconds, 0) * 1e6))
	b = strconv.AppendInt(b, micros/1000, 10)
	rest := micros % 1000
	return append(b, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
}

// sendHead sends the head, and what of the body is ready, in one write. It
// reports false when the client cannot be written to.
func (f *flight) sendHead() bool {
	r := &f.relay
	out := getBuffer(sizeRelay)
	defer func() { putBuffer(out) }()
	b := append(out.b[:0], f.headOut...)
	head := len(b)
	body := r.pending()
	b = append(b, body[:min(len(body), max(sizeRelay-head, 0))]...)
	f.sent.head, f.sent.status, f.sent.engine = true, f.resp.Status, f.member().Name
	f.sent.sse, f.sent.plain = r.sse, r.plain
	f.sent.chunked = !r.plain && (f.resp.Chunked || r.reframe)
	f.rec.Status = f.resp.Status
	n, err := f.c.write(b)
	r.wrote(max(n-head, 0))
	r.sendErr = err
	if err != nil && n < head {
		// Another head may follow if nothing of this one is out; behind a part
		// of it nothing may.
		f.sent.head, f.sent.torn = n > 0, n > 0
	}
	return err == nil
}

// write writes all of b to the client within timeouts.client_write of its
// last progress.
func (c *conn) write(b []byte) (int, error) {
	n, err := c.sock.Write(b)
	if c.limited {
		c.limited = false
		if c.gate.aborted() == telemetry.EndNone {
			_ = c.nc.SetWriteDeadline(time.Time{})
		}
	}
	return n, err
}

// limitWrite bounds the wait for a client that takes nothing. The socket calls
// it when a write has to wait.
func (c *conn) limitWrite() {
	d := c.srv.settings().Timeouts.ClientWrite
	switch c.gate.aborted() {
	case telemetry.EndNone:
	case telemetry.EndClientGoneWaiting:
		c.interrupt() // its kernel may answer for ever, and take nothing
		return
	default:
		return
	}
	if d <= 0 {
		return
	}
	c.limited = true
	_ = c.nc.SetWriteDeadline(time.Now().Add(d))
	if c.gate.aborted() != telemetry.EndNone {
		c.interrupt() // the deadline above may have undone it
	}
}

// own describes an answer that Ramjet makes itself.
type own struct {
	status int
	kind   string // content type
	body   []byte
	err    *wire.Error // what the answer reports, nil if it is no error
}

// respond sends an answer of Ramjet's own.
func (f *flight) respond(o own) bool {
	h := &f.c.head
	out := getBuffer(sizeHead + len(o.body))
	defer putBuffer(out)
	b := append(out.b[:0], "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(o.status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(o.status)...)
	b = append(b, "\r\nServer: ramjet\r\nDate: "...)
	b = time.Now().UTC().AppendFormat(b, http.TimeFormat)
	b = append(b, "\r\nContent-Type: "...)
	b = append(b, o.kind...)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(o.body)), 10)
	b = f.appendConnection(b)
	b = append(b, "\r\nX-Request-Id: "...)
	b = append(b, f.id...)
	if o.err != nil {
		b = appendErrorFields(b, o.err)
		if h.Get("origin") != nil {
			b = append(b, "\r\nAccess-Control-Allow-Origin: *"...)
		}
		b = f.appendTrailOfError(b)
	}
	b = append(b, "\r\n\r\n"...)
	head := len(b)
	if string(h.Method) != "HEAD" {
		b = append(b, o.body...)
	}
	f.sent.head, f.sent.body, f.rec.Status = true, true, o.status
	n, err := f.c.write(b)
	f.sent.bytes += int64(max(n-head, 0))
	return err == nil
}

// appendTrailOfError names the attempts that an error answer stands for.
func (f *flight) appendTrailOfError(b []byte) []byte {
	if !f.live.XRamjet || len(f.tried) == 0 {
		return b
	}
	b = append(b, "\r\nX-Ramjet-Attempts: "...)
	return strconv.AppendInt(b, int64(len(f.tried)), 10)
}

func appendErrorFields(b []byte, e *wire.Error) []byte {
	after, never := e.Retry()
	if after > 0 {
		b = append(b, "\r\nRetry-After: "...)
		b = strconv.AppendInt(b, int64(after), 10)
	}
	if never {
		b = append(b, "\r\nx-should-retry: false"...)
	}
	if e.Allow != "" {
		b = append(b, "\r\nAllow: "...)
		b = append(b, e.Allow...)
	}
	return b
}

// fail answers with an error of Ramjet's own and ends the request.
func (f *flight) fail(e *wire.Error, end telemetry.End) {
	if f.fault == "" {
		f.fault = e.Code.String()
	}
	body := wire.AppendErrorBody(nil, f.dialect, e, string(f.id))
	if !f.respond(own{status: e.HTTPStatus(), kind: "application/json", body: body, err: e}) {
		f.part()
	}
	f.end(end)
}

// endStream ends a stream whose head is out with an error event, so that no
// client takes a broken answer for a whole one.
func (f *flight) endStream(code wire.Code, end telemetry.End) {
	r := &f.relay
	f.dropEngine()
	f.end(end)
	cut := f.sent.torn || f.sent.body && (r.torn || r.seen.done || len(r.pending()) > 0 || r.sendErr != nil)
	if cut || !f.sent.sse || !f.sent.chunked && !f.sent.plain {
		// Inside an event, behind the dialect's own end, or in a body whose
		// length is promised, there is no room for an event: closing without
		// the last chunk is the only honest end.
		f.close = true
		return
	}
	event := wire.AppendErrorEvent(nil, f.dialect, &wire.Error{Code: code}, r.seen.events)
	out := make([]byte, 0, len(event)+64)
	if f.sent.plain {
		out = append(out, event...)
	} else {
		if !r.reframe && f.sent.body {
			out = append(out, r.suffix...)
		}
		out = append(appendChunk(out, event), lastChunk...)
	}
	n, err := f.c.write(out)
	f.sent.body = true
	f.sent.bytes += int64(n)
	if err != nil {
		f.close = true
	}
}
