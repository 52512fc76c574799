package proxy

import (
	"strconv"
	"time"

	"ramjet/wire"
)

// uploadHeld is up to which size a multipart body is held like any other, so
// that its request can move. Larger ones are streamed through.
const uploadHeld = 1 << 20

// sendUpload streams the request's body from the client to the engine without
// ever holding more of it than one buffer.
func (f *flight) sendUpload() sendResult {
	f.bodyRead = true
	// The client's pace is judged from here on: what came before was our wait.
	r := bodyReader{c: f.c, start: time.Now()}
	defer r.done()
	if f.c.head.ExpectContinue && f.c.r == f.c.w {
		if _, err := f.c.write([]byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
			return sendResult{clientLeft: errBodyCut}
		}
	}
	if f.c.head.Chunked {
		return f.sendUploadChunked(&r)
	}
	left := f.c.head.ContentLength
	n := min(left, int64(f.c.w-f.c.r))
	if err := f.passOn(&r, f.c.in.b[f.c.r:f.c.r+int(n)]); err != nil {
		return sendResult{err: err}
	}
	f.c.r += int(n)
	f.rec.BytesIn += n
	left -= n
	b := getBuffer(sizeHold)
	defer putBuffer(b)
	for left > 0 {
		got, bad := r.read(b.b[:min(left, int64(len(b.b)))])
		f.rec.BytesIn += int64(got)
		left -= int64(got)
		if bad != nil {
			return sendResult{clientLeft: bad}
		}
		if err := f.passOn(&r, b.b[:got]); err != nil {
			return sendResult{err: err}
		}
	}
	return sendResult{whole: true}
}

// passOn writes part of a body to the engine. The time that takes is not the
// client's.
func (f *flight) passOn(r *bodyReader, b []byte) error {
	before := time.Now()
	_, err := f.up.Socket.Write(b)
	r.start = r.start.Add(time.Since(before))
	return err
}

// sendUploadChunked re-frames the client's chunks: extensions and trailers end
// here.
func (f *flight) sendUploadChunked(r *bodyReader) sendResult {
	f.chunks.Reset()
	in, out := getBuffer(sizeRelay), getBuffer(sizeHold)
	defer func() { putBuffer(in); putBuffer(out) }()
	raw := f.c.in.b[f.c.r:f.c.w]
	own := true
	for {
		b := out.b[:0]
		used := 0
		for used < len(raw) && !f.chunks.Done() {
			n, data, err := f.chunks.Next(raw[used:])
			if err != nil {
				return sendResult{clientLeft: &wire.Error{Code: wire.CodeMalformedHTTP,
					Message: "the request body's chunking is broken: " + err.Error()}}
			}
			if data {
				b = appendChunk(b, raw[used:used+n])
				f.rec.BytesIn += int64(n)
			}
			used += n
			if len(b) > sizeHold-sizeRelay/2 {
				break
			}
		}
		if f.rec.BytesIn > f.live.Limits.Body {
			return sendResult{clientLeft: errBodyTooLarge}
		}
		done := f.chunks.Done()
		if done {
			b = append(b, "0\r\n\r\n"...)
		}
		if err := f.passOn(r, b); err != nil {
			return sendResult{err: err}
		}
		raw = raw[used:]
		if done {
			if own {
				f.c.r = f.c.w - len(raw)
			} else {
				f.c.keep(raw, in)
			}
			return sendResult{whole: true}
		}
		if len(raw) > 0 {
			continue
		}
		if own {
			own = false
			f.c.r = f.c.w
		}
		got, bad := r.read(in.b)
		if bad != nil {
			return sendResult{clientLeft: bad}
		}
		raw = in.b[:got]
	}
}

// appendChunk appends data as one chunk.
func appendChunk(b, data []byte) []byte {
	b = strconv.AppendInt(b, int64(len(data)), 16)
	b = append(b, "\r\n"...)
	b = append(b, data...)
	return append(b, "\r\n"...)
}
