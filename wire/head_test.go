package wire

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func mustRequest(t *testing.T, head string) *RequestHead {
	t.Helper()
	var h RequestHead
	if n, err := h.Parse([]byte(head)); n != len(head) || err != nil {
		t.Fatalf("%q: n = %d, %v", head, n, err)
	}
	return &h
}

func mustResponse(t *testing.T, head string) *ResponseHead {
	t.Helper()
	var h ResponseHead
	if n, err := h.Parse([]byte(head)); n != len(head) || err != nil {
		t.Fatalf("%q: n = %d, %v", head, n, err)
	}
	return &h
}

func TestRequestHeadValues(t *testing.T) {
	t.Parallel()
	h := mustRequest(t, sdkRequest)
	if string(h.Method) != "POST" || string(h.Target) != "/v1/chat/completions" || h.Minor != 1 || string(h.Host) != "127.0.0.1:8000" {
		t.Errorf("request line or host: %q %q %d %q", h.Method, h.Target, h.Minor, h.Host)
	}
	if h.ContentLength != 4711 || h.Chunked || !h.KeepAlive || h.ExpectContinue || h.UpgradeTo != nil {
		t.Errorf("framing: %d %v %v %v %q", h.ContentLength, h.Chunked, h.KeepAlive, h.ExpectContinue, h.UpgradeTo)
	}
	if len(h.Fields) != 17 {
		t.Errorf("%d fields", len(h.Fields))
	}
	if got := h.Get("authorization"); string(got) != "Bearer sk-none" {
		t.Errorf("Get: %q", got)
	}
	if got := h.Get("X-STAINLESS-READ-TIMEOUT"); string(got) != "600" {
		t.Errorf("Get: %q", got)
	}
	if h.Get("x-absent") != nil {
		t.Error("Get invents a field")
	}
	h = mustRequest(t, "GET / HTTP/1.1\r\nHost: x\r\nA: 1\r\na: 2\r\nB:\r\n\r\n")
	if string(h.Get("A")) != "1" {
		t.Errorf("Get is not the first: %q", h.Get("A"))
	}
	if b := h.Get("b"); b == nil || len(b) != 0 {
		t.Errorf("an empty value must differ from an absent one: %#v", b)
	}
	if h.ContentLength != -1 {
		t.Errorf("absent length: %d", h.ContentLength)
	}
}

func TestRequestHeadConnection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		minor, fields string
		keep          bool
		upgrade       string
		expect        bool
	}{
		{"1", "", true, "", false},
		{"1", "Connection: close\r\n", false, "", false},
		{"1", "Connection: Keep-Alive, CLOSE\r\n", false, "", false},
		{"1", "Connection: keep-alive\r\nConnection: close\r\n", false, "", false},
		{"1", "Connection: closed\r\n", true, "", false},
		{"0", "", false, "", false},
		{"0", "Connection: keep-alive\r\n", true, "", false},
		{"0", "Connection: keep-alive, close\r\n", false, "", false},
		{"1", "Connection: Upgrade\r\nUpgrade: websocket\r\n", true, "websocket", false},
		{"1", "Upgrade: h2c\r\n", true, "", false},
		{"1", "Connection: upgrade\r\n", true, "", false},
		{"0", "Connection: Upgrade\r\nUpgrade: websocket\r\n", false, "", false},
		{"1", "Expect: 100-Continue\r\n", true, "", true},
		{"1", "Expect: tea\r\n", true, "", false},
		{"0", "Expect: 100-continue\r\n", false, "", false},
	} {
		h := mustRequest(t, "GET / HTTP/1."+c.minor+"\r\nHost: x\r\n"+c.fields+"\r\n")
		if h.KeepAlive != c.keep || string(h.UpgradeTo) != c.upgrade || h.ExpectContinue != c.expect {
			t.Errorf("1.%s %q: keep %v, upgrade %q, expect %v", c.minor, c.fields, h.KeepAlive, h.UpgradeTo, h.ExpectContinue)
		}
	}
}

func TestHopByHop(t *testing.T) {
	t.Parallel()
	h := mustRequest(t, "GET / HTTP/1.1\r\nHost: x\r\nConnection: X-Mine, close, Content-Length\r\nConnection: x-other, host\r\n\r\n")
	for name, want := range map[string]bool{
		"Connection": true, "KEEP-ALIVE": true, "Proxy-Connection": true, "proxy-authenticate": true, "Proxy-Authorization": true,
		"TE": true, "trailer": true, "Transfer-Encoding": true, "Upgrade": true, "HTTP2-Settings": true,
		"x-mine": true, "X-OTHER": true, "x-min": false, "Content-Type": false, "Accept": false, "": false,
		// Dropping these would let the message be read otherwise behind us.
		"Content-Length": false, "Host": false,
	} {
		if got := h.HopByHop([]byte(name)); got != want {
			t.Errorf("HopByHop(%q) = %v", name, got)
		}
	}
	r := mustResponse(t, "HTTP/1.1 200 OK\r\nConnection: X-Mine\r\n\r\n")
	if !r.HopByHop([]byte("x-mine")) || r.HopByHop([]byte("x-other")) {
		t.Error("response options")
	}
}

func TestHeadLimits(t *testing.T) {
	t.Parallel()
	head := func(fields int) []byte {
		return []byte("GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A:\r\n", fields-1) + "\r\n")
	}
	var h RequestHead
	if _, err := h.Parse(head(MaxFields)); err != nil {
		t.Error(err)
	}
	h.Reset()
	_, err := h.Parse(head(MaxFields + 1))
	var e *HeadError
	if !errors.As(err, &e) || e.Status != 431 || !knownCode(e) {
		t.Errorf("too many fields: %v", err)
	}
	h.Reset()
	_, err = h.Parse([]byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: " + strings.Repeat("a,", maxConnectionOptions+1) + "\r\n\r\n"))
	if !errors.As(err, &e) || e.Status != 400 {
		t.Errorf("too many options: %v", err)
	}
	var r ResponseHead
	_, err = r.Parse(append([]byte("HTTP/1.1 200 OK\r\n"), head(MaxFields + 5)[16:]...))
	if !errors.As(err, &e) || e.Status != 502 || e.Code != "engine_bad_response" {
		t.Errorf("too many fields of an engine: %v", err)
	}
}

func TestHeadsBackToBack(t *testing.T) {
	t.Parallel()
	buf := []byte("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: x-first\r\n\r\n\r\nGET /b HTTP/1.0\r\n\r\nrest")
	var h RequestHead
	n, err := h.Parse(buf)
	if err != nil || string(h.Target) != "/a" {
		t.Fatal(n, err)
	}
	buf = buf[n:]
	h.Reset()
	if len(h.Fields) != 0 || h.Host != nil || h.ContentLength != -1 {
		t.Errorf("Reset leaves %+v", h)
	}
	n, err = h.Parse(buf)
	if err != nil || string(h.Target) != "/b" || h.Minor != 0 || h.Host != nil || len(h.Fields) != 0 || h.HopByHop([]byte("x-first")) {
		t.Fatalf("%d %v %+v", n, err, h)
	}
	if string(buf[n:]) != "rest" {
		t.Errorf("rest %q", buf[n:])
	}
}

// TestHeadCuts parses a good head cut in two at every byte and compares all
// values with those of one piece.
func TestHeadCuts(t *testing.T) {
	t.Parallel()
	want := mustRequest(t, sdkRequest)
	raw := []byte("\r\n" + sdkRequest + "{}")
	for cut := range len(raw) - 1 {
		var h RequestHead
		n, err := h.Parse(bytes.Clone(raw[:cut]))
		if err != nil {
			t.Fatalf("cut %d: %v", cut, err)
		}
		if n == 0 {
			n, err = h.Parse(raw)
		}
		if err != nil || n != len(raw)-2 || string(h.Target) != string(want.Target) || h.ContentLength != want.ContentLength || len(h.Fields) != len(want.Fields) {
			t.Fatalf("cut %d: n = %d, %v, %+v", cut, n, err, h)
		}
		for i, f := range h.Fields {
			if string(f.Name) != string(want.Fields[i].Name) || string(f.Value) != string(want.Fields[i].Value) {
				t.Fatalf("cut %d: field %d is %q: %q", cut, i, f.Name, f.Value)
			}
		}
	}
}

func TestResponseHeadValues(t *testing.T) {
	t.Parallel()
	h := mustResponse(t, streamResponse)
	if h.Status != 200 || string(h.Reason) != "OK" || !h.Chunked || h.ContentLength != -1 || !h.KeepAlive || !h.EventStream {
		t.Errorf("%+v", h)
	}
	for typ, want := range map[string]bool{
		"text/event-stream": true, "Text/Event-Stream ; charset=utf-8": true, "text/event-streams": false,
		"application/json": false, "text/event-stream,a/b": false, "": false,
	} {
		if h := mustResponse(t, "HTTP/1.1 200 OK\r\nContent-Type: "+typ+"\r\n\r\n"); h.EventStream != want {
			t.Errorf("%q: EventStream %v", typ, h.EventStream)
		}
	}
}

func TestResponseBody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		head, method         string
		less, untilClose, ka bool
	}{
		{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "GET", false, false, true},
		{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "HEAD", true, false, true},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "POST", false, false, true},
		{"HTTP/1.1 200 OK\r\n\r\n", "POST", false, true, true},
		{"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", "POST", false, true, false},
		{"HTTP/1.1 200 OK\r\n\r\n", "HEAD", true, false, true},
		{"HTTP/1.1 100 Continue\r\n\r\n", "POST", true, false, true},
		{"HTTP/1.1 204 No Content\r\n\r\n", "POST", true, false, true},
		{"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "GET", true, false, true},
		{"HTTP/1.0 200 OK\r\n\r\n", "GET", false, true, false},
		{"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n", "GET", false, false, true},
		{"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n", "GET", false, false, false},
	} {
		h := mustResponse(t, c.head)
		if h.BodyLess([]byte(c.method)) != c.less || h.UntilClose([]byte(c.method)) != c.untilClose || h.KeepAlive != c.ka {
			t.Errorf("%s %q: bodyless %v, until close %v, keep alive %v", c.method, c.head,
				h.BodyLess([]byte(c.method)), h.UntilClose([]byte(c.method)), h.KeepAlive)
		}
	}
}

// TestHeadSlowSender: a head that comes in single bytes is searched once, not
// once per byte. The bound is on work, counted by the offset that find keeps.
func TestHeadSlowSender(t *testing.T) {
	t.Parallel()
	raw := []byte("GET / HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("b", 30<<10))
	var h RequestHead
	for i := range raw {
		if n, err := h.Parse(raw[:i+1]); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		if h.scan.next != i+1 {
			t.Fatalf("after %d bytes the search resumes at %d", i+1, h.scan.next)
		}
	}
}
