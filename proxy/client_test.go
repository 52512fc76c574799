package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// client is a client of which every byte is the test's.
type client struct {
	t   testing.TB
	nc  net.Conn
	raw bytes.Buffer // all that came in
	br  *bufio.Reader
}

// patient bounds each read, not all of them together.
type patient struct{ nc net.Conn }

// Read implements io.Reader.
func (p patient) Read(b []byte) (int, error) {
	_ = p.nc.SetReadDeadline(time.Now().Add(patience))
	return p.nc.Read(b)
}

// answer is one response as a client sees it.
type answer struct {
	*http.Response
	body []byte
	err  error // how the body ended, nil if properly
}

func (f *fixture) dial() *client {
	f.t.Helper()
	nc, err := net.Dial("tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	return newClient(f.t, nc)
}

func newClient(t testing.TB, nc net.Conn) *client {
	c := &client{t: t, nc: nc}
	c.br = bufio.NewReader(io.TeeReader(patient{nc}, &c.raw))
	t.Cleanup(func() { _ = nc.Close() })
	return c
}

func (c *client) send(s ...string) {
	c.t.Helper()
	if _, err := io.WriteString(c.nc, strings.Join(s, "")); err != nil {
		c.t.Fatalf("cannot send: %v", err)
	}
}

// head reads a response up to its body.
func (c *client) head(method string) *http.Response {
	c.t.Helper()
	resp, err := http.ReadResponse(c.br, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("cannot read the response: %v; received %q", err, c.raw.String())
	}
	return resp
}

// rest reads the body of a response whose head was read.
func (c *client) rest(resp *http.Response) answer {
	body, err := io.ReadAll(resp.Body)
	return answer{resp, body, err}
}

// receive reads one response.
func (c *client) receive() answer {
	c.t.Helper()
	return c.rest(c.head("POST"))
}

// event reads one event of the decoded stream.
func (c *client) event(resp *http.Response) string {
	c.t.Helper()
	var out []byte
	for !bytes.HasSuffix(out, []byte("\n\n")) {
		var b [1]byte
		if _, err := io.ReadFull(resp.Body, b[:]); err != nil {
			c.t.Fatalf("the stream ended: %v after %q", err, out)
		}
		out = append(out, b[0])
	}
	return string(out)
}

// closed fails unless the server closes the connection without another byte.
func (c *client) closed() {
	c.t.Helper()
	b, err := io.ReadAll(c.br)
	if ne, ok := err.(net.Error); len(b) > 0 || ok && ne.Timeout() {
		c.t.Fatalf("the connection did not end: %q, %v", b, err)
	}
}

func (c *client) close() { _ = c.nc.Close() }

const (
	chatPath  = "/v1/chat/completions"
	chatBody  = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	chatSBody = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`
)

// post is a request with a JSON body.
func post(path, body string, fields ...string) string {
	extra := ""
	for _, f := range fields {
		extra += f + "\r\n"
	}
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", path, extra, len(body), body)
}

// get is a request without a body.
func get(path string, fields ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n"
}

// ask sends one request on a connection of its own and reads the answer.
func (f *fixture) ask(request string) answer {
	f.t.Helper()
	c := f.dial()
	defer c.close()
	c.send(request)
	method, _, _ := strings.Cut(request, " ")
	return c.rest(c.head(method))
}

// want fails unless the answer is what is said.
func (a answer) want(t testing.TB, status int, body string) {
	t.Helper()
	if a.StatusCode != status || string(a.body) != body || a.err != nil {
		t.Fatalf("got %d %q (%v), want %d %q", a.StatusCode, a.body, a.err, status, body)
	}
}

// wantError fails unless the answer is one of Ramjet's own with that code.
func (a answer) wantError(t testing.TB, status int, code string) {
	t.Helper()
	if a.StatusCode != status || !strings.Contains(string(a.body), fmt.Sprintf(`"code":%q`, code)) {
		t.Fatalf("got %d %q, want %d with code %s", a.StatusCode, a.body, status, code)
	}
}
