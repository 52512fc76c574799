package fuzz

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"

	"ramjet/wire"
)

// scanResponse parses in growing pieces, each in another buffer. It returns the
// length of the head, 0 while it is not whole.
func scanResponse(t *testing.T, raw, plan []byte) (h wire.ResponseHead, n int, refused bool) {
	t.Helper()
	var buf []byte
	h.Reset()
	n, err := h.Parse(nil)
	cuts(raw, plan, func(piece []byte) bool {
		buf = append(bytes.Clone(buf), piece...)
		h.Reset()
		n, err = h.Parse(buf)
		return n == 0 && err == nil
	})
	if err == nil {
		return h, n, false
	}
	var e *wire.HeadError
	if !errors.As(err, &e) || n != 0 || e.Status != 502 || e.Code != "engine_bad_response" || e.Message == "" {
		t.Fatalf("n = %d, %#v", n, err)
	}
	return h, 0, true
}

// FuzzResponseHead: what is accepted of an engine, net/http reads the same way
// or refuses for a reason of its own, and how the bytes were cut changes nothing.
func FuzzResponseHead(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\ndate: x\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}", "HTTP/1.0 200 OK\r\n\r\nx", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
		"HTTP/1.1 200 OK\nContent-Length: 1\n\n", "HTTP/1.1 099 X\r\n\r\n", "HTTP/1.1 600 X\r\n\r\n", "HTTP/2 200\r\n\r\n", "ICY 200 OK\r\n\r\n", "HTTP/1.1 200 O\x00K\r\n\r\n",
		"HTTP/1.1 200 OK\r\nConnection: close, keep-alive\r\nX: \xa0\x85\r\n\r\n", "\x15\x03\x01\x00\x02\x02", "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
	} {
		for _, plan := range []string{"", "\x01", "\x03\x10"} {
			f.Add([]byte(s), []byte(plan))
		}
	}
	f.Fuzz(func(t *testing.T, raw, plan []byte) {
		if len(raw) > 1<<15 {
			return
		}
		h, n, refused := scanResponse(t, raw, plan)
		whole, m, refusedWhole := scanResponse(t, raw, nil)
		// A fault behind the first line may be found before the head is whole or with it, so
		// a cut decides when it is refused, never whether.
		if n != m || refused != refusedWhole {
			t.Fatalf("cut: %d bytes, refused %v; whole: %d, %v", n, refused, m, refusedWhole)
		}
		if n == 0 {
			return
		}
		if h.Status != whole.Status || h.ContentLength != whole.ContentLength || h.Chunked != whole.Chunked || h.KeepAlive != whole.KeepAlive || len(h.Fields) != len(whole.Fields) {
			t.Fatalf("cut %+v\nwhole %+v", h, whole)
		}
		secondReading(t, raw, &h)
	})
}

// secondReading compares with net/http's client side.
func secondReading(t *testing.T, raw []byte, h *wire.ResponseHead) {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), &http.Request{Method: http.MethodPost})
	if err != nil {
		return
	}
	defer func() { _, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 1)) }()
	chunked := len(r.TransferEncoding) == 1 && r.TransferEncoding[0] == "chunked"
	if r.StatusCode != h.Status || r.ProtoMinor != h.Minor {
		t.Fatalf("parser %d 1.%d, net/http %s %s", h.Status, h.Minor, r.Status, r.Proto)
	}
	if h.BodyLess([]byte(http.MethodPost)) {
		return // RFC 9110 section 6.4.1: what the fields say of a body does not count
	}
	if chunked != h.Chunked || !chunked && h.ContentLength >= 0 && r.ContentLength != h.ContentLength {
		t.Fatalf("parser length %d chunked %v, net/http %d %v", h.ContentLength, h.Chunked, r.ContentLength, r.TransferEncoding)
	}
	for _, f := range h.Fields {
		name := http.CanonicalHeaderKey(string(f.Name))
		if len(r.Header[name]) == 0 && !slices.Contains([]string{"Connection", "Transfer-Encoding", "Content-Length", "Trailer"}, name) {
			t.Fatalf("net/http does not see the field %q", f.Name)
		}
	}
}
