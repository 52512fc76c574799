package sim

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

// parse reads every request of raw, which arrives as r cuts it.
func parse(r io.Reader) (out []*request, err error) {
	in := &input{r: r}
	for {
		q, err := in.head()
		if err != nil {
			return out, err
		}
		if err = in.body(q); err != nil {
			return out, err
		}
		out = append(out, q)
	}
}

// goodRequests are taken by httptools; badRequests are refused by it.
var goodRequests = []string{
	"GET / HTTP/1.1\r\n\r\n",
	"\r\nGET /a?b=c%20d HTTP/1.1\r\nHost: x\r\nX: \t padded \r\n\r\n",
	"POST /a HTTP/1.1\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\n\r\n",
	"POST /a HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n5;x=y\r\nhello\r\n01\r\n!\r\n0\r\nTrailer: t\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
	"POST /a HTTP/1.0\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nhi",
	"GET /a HTTP/1.1\r\nConnection: close, x\r\nEmpty:\r\n\r\n",
}

var badRequests = []string{
	"GET / HTTP/1.1\nHost: x\n\n",
	"GET / HTTP/1.1\r\nHost: x\n\r\n",
	"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
	"GET / HTTP/1.1\r\n folded\r\n\r\n",
	"GET / HTTP/1.1\r\nno colon\r\n\r\n",
	"GET / HTTP/1.2\r\n\r\n",
	"GET  HTTP/1.1\r\n\r\n",
	"G@T / HTTP/1.1\r\n\r\n",
	"GET /\r\n\r\n",
	"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
	"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\na",
	"POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\na",
	"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\na",
	"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
	"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n",
	"PRI * HTTP/2.0\r\n\r\n",
	"\x16\x03\x01",
	"GET /" + strings.Repeat("a", maxTarget) + " HTTP/1.1\r\n\r\n",
}

func TestRequestsCutAtEveryByte(t *testing.T) {
	t.Parallel()
	for _, raw := range append(append([]string{}, goodRequests...), badRequests...) {
		if len(raw) > 1000 {
			continue
		}
		whole, wholeErr := parse(strings.NewReader(raw))
		for cut := 1; cut < len(raw); cut++ {
			got, err := parse(io.MultiReader(strings.NewReader(raw[:cut]), strings.NewReader(raw[cut:])))
			if !reflect.DeepEqual(got, whole) || isBadRequest(err) != isBadRequest(wholeErr) {
				t.Errorf("%q cut at %d: %v %v", raw, cut, got, err)
			}
		}
		got, err := parse(iotest.OneByteReader(strings.NewReader(raw)))
		if !reflect.DeepEqual(got, whole) || isBadRequest(err) != isBadRequest(wholeErr) {
			t.Errorf("%q byte by byte: %v %v", raw, got, err)
		}
	}
}

func TestGoodRequestsAgreeWithNetHTTP(t *testing.T) {
	t.Parallel()
	for _, raw := range goodRequests {
		got, err := parse(strings.NewReader(raw))
		if !errors.Is(err, io.EOF) {
			t.Errorf("%q: %v", raw, err)
		}
		r := bufio.NewReader(strings.NewReader(strings.TrimPrefix(raw, "\r\n")))
		for _, q := range got {
			want, err := http.ReadRequest(r)
			if err != nil {
				t.Fatalf("%q: %v", raw, err)
			}
			body, _ := io.ReadAll(want.Body)
			if q.method != want.Method || q.path != want.URL.EscapedPath() || q.query != want.URL.RawQuery || !bytes.Equal(q.body, body) && len(body) > 0 {
				t.Errorf("%q: %+v", raw, q)
			}
		}
		if r.Buffered() != 0 {
			t.Errorf("%q: fewer requests than net/http finds", raw)
		}
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	for _, raw := range badRequests {
		if _, err := parse(strings.NewReader(raw)); !isBadRequest(err) {
			t.Errorf("%.60q: %v", raw, err)
		}
	}
}

func FuzzRequest(f *testing.F) {
	for _, raw := range append(append([]string{}, goodRequests...), badRequests...) {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		whole, err := parse(bytes.NewReader(raw))
		slow, err2 := parse(iotest.OneByteReader(bytes.NewReader(raw)))
		if !reflect.DeepEqual(whole, slow) || isBadRequest(err) != isBadRequest(err2) {
			t.Errorf("whole %v %v, byte by byte %v %v", whole, err, slow, err2)
		}
	})
}

// TestLargeRequests: vLLM takes a header of 1,000 KiB, 5,000 headers and a
// body of any size.
func TestLargeRequests(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	for _, raw := range []string{
		"GET /version HTTP/1.1\r\nX: " + strings.Repeat("x", 1000<<10) + "\r\n\r\n",
		"GET /version HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", 5000) + "\r\n",
		post("/detokenize", `{"tokens":[1],"x":"`+strings.Repeat("x", 8<<20)+`"}`),
	} {
		if a := call(t, s, raw); a.status != 200 {
			t.Errorf("%.40q: %d %.100s", raw, a.status, a.body)
		}
	}
}

func TestExpectContinue(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	c := dial(t, s.Addr())
	r := bufio.NewReader(c)
	body := `{"tokens":[1]}`
	if _, err := fmt.Fprintf(c, "POST /detokenize HTTP/1.1\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(body)); err != nil {
		t.Fatal(err)
	}
	line, err := r.ReadString('\n')
	if err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%v %q", err, line)
	}
	_, _ = r.ReadString('\n')
	if _, err := io.WriteString(c, body); err != nil {
		t.Fatal(err)
	}
	if a := readAnswer(t, r); a.status != 200 {
		t.Errorf("%d", a.status)
	}
}

func TestHTTP10ConnectionsClose(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	c := dial(t, s.Addr())
	if _, err := io.WriteString(c, "GET /version HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(b), `{"version":"0.32.0"}`) {
		t.Errorf("%v %q", err, b)
	}
}

// TestHalfCloseIsADeparture: a client that shuts its sending side and still
// reads has left, as far as uvicorn is concerned.
func TestHalfCloseIsADeparture(t *testing.T) {
	t.Parallel()
	o := fast()
	o.Core.Speed = 1
	s := start(t, o)
	for _, body := range []string{`{"stream":true,"max_tokens":1000,` + hello + `}`, `{"max_tokens":1000,` + hello + `}`} {
		c := dial(t, s.Addr())
		if _, err := io.WriteString(c, post("/v1/chat/completions", body)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the request runs", func() bool { return s.State().Running == 1 })
		before := s.State().Aborted
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(c)
		if err != nil && !errors.Is(err, syscall.ECONNRESET) || strings.Contains(string(b), "[DONE]") || strings.Contains(string(b), "usage") {
			t.Errorf("after the half-close: %v %q", err, b)
		}
		eventually(t, "the abort", func() bool { st := s.State(); return st.InFlight == 0 && st.Running == 0 && st.Aborted == before+1 })
	}
}

// TestResetDuringAnAnswerAborts: the same for a client that resets.
func TestResetDuringAnAnswerAborts(t *testing.T) {
	t.Parallel()
	o := fast()
	o.Core.Speed = 1
	s := start(t, o)
	c := dial(t, s.Addr())
	if _, err := io.WriteString(c, post("/v1/chat/completions", `{"max_tokens":1000,`+hello+`}`)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the request runs", func() bool { return s.State().Running == 1 })
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
	eventually(t, "the abort", func() bool { st := s.State(); return st.InFlight == 0 && st.Running == 0 && st.Aborted == 1 })
}

// TestEventsComeOneByOne reads a real socket at the engine's pace: most reads
// return one whole chunk, because nothing gathers them. (How many there are
// depends on the machine; TestEventsAreOneWriteOfOneChunk is exact.)
func TestEventsComeOneByOne(t *testing.T) {
	t.Parallel()
	o := fast()
	o.Core.Speed = 1 // 10 ms a token
	s := start(t, o)
	c := dial(t, s.Addr())
	if _, err := io.WriteString(c, post("/v1/completions", `{"prompt":"x","stream":true,"max_tokens":20}`, "Connection: close\r\n")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64<<10)
	single, reads := 0, 0
	for {
		n, err := c.Read(buf)
		if err != nil {
			break
		}
		reads++
		if p := string(buf[:n]); strings.Count(p, "data: ") == 1 && strings.HasSuffix(p, "\n\n\r\n") {
			single++
		}
	}
	if single < 4 || 2*single < reads {
		t.Errorf("%d of %d reads were one event", single, reads)
	}
}

// TestUnreadStreamIsAbortedWhenTheClientLeaves: a client that does not read holds up its own
// stream only, and may still leave.
func TestUnreadStreamIsAbortedWhenTheClientLeaves(t *testing.T) {
	virtual(t, slowOptions(), func(t *testing.T, s *Server, dial func() net.Conn) {
		c := dial()
		if _, err := io.WriteString(c, post("/v1/completions", `{"prompt":"x","stream":true,"max_tokens":2000}`)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // the head is still unread
		if st := s.State(); st.InFlight != 1 {
			t.Errorf("%+v", st)
		}
		_ = c.Close()
		time.Sleep(time.Second)
		if st := s.State(); st.InFlight != 0 || st.Running != 0 {
			t.Errorf("%+v", st)
		}
	})
}
