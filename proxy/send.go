package proxy

import (
	"strconv"
	"time"

	"ramjet/engine"
	"ramjet/wire"
)

// sendResult says how much of the request reached the engine's socket.
type sendResult struct {
	whole bool
	err   error
	// clientLeft: the client stopped in the middle of a body that is streamed
	// through.
	clientLeft *wire.Error
	// answer is how the wait for the answer's first bytes ended, which stand in
	// the relay; nil also where nobody waited.
	answer error
}

// inlineBody is the largest body that is copied behind its head to make one
// write of both.
const inlineBody = 12 << 10

// send writes the request to f.up and waits for the first bytes of its answer.
func (f *flight) send(e *engine.Engine) sendResult {
	f.relay.begin()
	body := f.body.bytes()
	edits := f.edits()
	extra := 0
	if edits.Model != "" || edits.Usage || edits.Tokens.Form != wire.TokenNone {
		extra = len(body) + len(edits.Model) + 64 + idBytes*len(edits.Tokens.IDs)
	}
	out := getBuffer(sizeRelay + extra)
	f.out = out
	defer f.giveOut()
	b := out.b[:0:sizeRelay] // a longer head moves away from the splices
	if extra > 0 {
		// The splices go to the end of the buffer, where the body is then
		// taken from.
		edited, done := wire.AppendEdits(out.b[sizeRelay:sizeRelay], body, &f.peek, edits)
		f.inject, f.handed = done.Usage, done.Tokens
		body = edited
	}
	b = f.appendRequestHead(b, e, int64(len(body)))
	if len(b)+len(body) <= sizeRelay && len(body) <= inlineBody {
		b = append(b, body...)
		body = nil
	}
	if !f.upload {
		return f.ask(b, body)
	}
	if _, err := f.up.Socket.Write(b); err != nil {
		f.sentAll()
		return sendResult{err: err}
	}
	sent := f.sendUpload()
	f.sentAll()
	return sent
}

// ask writes the request and waits for the first bytes of its answer.
func (f *flight) ask(head, body []byte) sendResult {
	r := &f.relay
	n, wrote, answer := f.up.Ask(head, body, f.sentall, r.takes, r.gives)
	r.hi += n
	if n > 0 {
		f.member().AddBytesIn(n)
		answer = nil // an end that came with bytes is told by the next read
	}
	return sendResult{whole: wrote == nil, err: wrote, answer: answer}
}

// sentAll is called when the request went out, as far as it did: while the
// engine works, there is time for what is done beside.
func (f *flight) sentAll() {
	f.giveOut()
	f.beside(f.member())
}

// giveOut returns the buffer that the request was composed in.
func (f *flight) giveOut() {
	putBuffer(f.out)
	f.out = nil
}

// idBytes is the room that one token id takes in a body: up to seven digits and
// a comma.
const idBytes = 8

// edits is what the engine gets differently from what the client sent.
func (f *flight) edits() wire.Edits {
	e := wire.Edits{Model: f.alias, Usage: f.inject}
	f.handed = false
	if f.live.Handoff != nil && f.prompt != nil {
		e.Tokens, _ = f.live.Handoff.Plan(f.decision.Slot, &f.prompt.prep, &f.peek)
	}
	return e
}

// appendRequestHead composes the head that the engine gets: the client's own
// fields but those that concern the connection, that Ramjet answers for, or
// that a client could use to steer an engine.
func (f *flight) appendRequestHead(b []byte, e *engine.Engine, length int64) []byte {
	h, key := &f.c.head, e.Settings().APIKey
	b = append(b, h.Method...)
	b = append(b, ' ')
	b = append(b, h.Target...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, e.URL.Host...)
	for i := range h.Fields {
		name := h.Fields[i].Name
		if h.HopByHop(name) || f.withheld(name, key) {
			continue
		}
		b = append(b, "\r\n"...)
		b = append(b, name...)
		b = append(b, ": "...)
		b = append(b, h.Fields[i].Value...)
	}
	b = append(b, "\r\nAccept-Encoding: identity\r\nX-Request-Id: "...)
	b = append(b, f.id...)
	if key != "" {
		b = append(b, "\r\nAuthorization: Bearer "...)
		b = append(b, key...)
	}
	switch {
	case f.upload && h.Chunked:
		b = append(b, "\r\nTransfer-Encoding: chunked"...)
	case f.upload:
		b = append(b, "\r\nContent-Length: "...)
		b = strconv.AppendInt(b, h.ContentLength, 10)
	case length > 0 || h.ContentLength >= 0 || h.Chunked:
		b = append(b, "\r\nContent-Length: "...)
		b = strconv.AppendInt(b, length, 10)
	}
	return append(b, "\r\n\r\n"...)
}

// withheld reports whether a client's field does not reach an engine with that
// key of its own.
func (f *flight) withheld(name []byte, key string) bool {
	if len(name) > 9 && sameName(name[:9], "x-ramjet-") {
		return true
	}
	switch len(name) {
	case 4:
		return sameName(name, "host")
	case 6:
		return sameName(name, "expect")
	case 9:
		return sameName(name, "x-api-key") && (f.live.Keys != nil || key != "")
	case 12:
		return sameName(name, "x-request-id")
	case 13:
		return sameName(name, "authorization") && (f.live.Keys != nil || key != "")
	case 14:
		return sameName(name, "content-length")
	case 15:
		return sameName(name, "accept-encoding")
	case 20:
		// A forged rank pins a request inside the engine (vLLM 0.32).
		return sameName(name, "x-data-parallel-rank")
	}
	return false
}

// forwardPreflight lets an engine answer a CORS preflight: without a key,
// without a body, and without a lease, since nothing is generated for it.
func (f *flight) forwardPreflight() {
	if !f.skipBody() {
		f.rejectUnread(errBodyCut)
		return
	}
	f.bodyRead = true
	f.now = time.Now()
	f.query.Light = true
	f.forward()
}
