package proxy

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"ramjet/telemetry"
)

func TestHTTP10(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) {
		if x.req.Header.Get("X-Stream") != "" {
			streaming(x)
			return
		}
		x.write(plainAnswer)
	}})
	old := func(body string, fields ...string) string {
		return strings.Replace(post(chatPath, body, fields...), "HTTP/1.1", "HTTP/1.0", 1)
	}
	t.Run("closes", func(t *testing.T) {
		c := f.dial()
		c.send(old(chatBody))
		a := c.receive()
		a.want(t, 200, answerBody)
		c.closed()
	})
	t.Run("stream", func(t *testing.T) {
		c := f.dial()
		c.send(old(chatSBody, "X-Stream: 1", "Connection: keep-alive"))
		a := c.receive()
		a.want(t, 200, wholeStream)
		if len(a.TransferEncoding) > 0 || a.ContentLength >= 0 {
			t.Errorf("framing %v %d for HTTP/1.0", a.TransferEncoding, a.ContentLength)
		}
		c.closed()
	})
	t.Run("keep-alive", func(t *testing.T) {
		c := f.dial()
		for range 3 {
			c.send(old(chatBody, "Connection: keep-alive"))
			a := c.receive()
			a.want(t, 200, answerBody)
			if a.Header.Get("Connection") != "keep-alive" {
				t.Errorf("Connection: %q", a.Header.Get("Connection"))
			}
		}
	})
}

// TestConnectionClose: a client that asks for the end gets it, whichever the
// answer.
func TestConnectionClose(t *testing.T) {
	t.Parallel()
	f := start(t, []script{streaming})
	for _, request := range []string{
		post(chatPath, chatSBody, "Connection: close"), get("/health", "Connection: close"),
		get("/nothing", "Connection: close"), get("/v1/models", "Connection: close"),
	} {
		c := f.dial()
		c.send(request)
		a := c.receive()
		if !a.Close {
			t.Errorf("%.20q: no Connection: close", request)
		}
		c.closed()
	}
}

func TestBodyLessAnswers(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) {
		switch x.req.Header.Get("X-Case") {
		case "head":
			x.write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
		case "head chunked":
			x.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		case "204":
			x.write("HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n")
		case "304":
			x.write("HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\n\r\n")
		case "empty":
			x.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		default:
			x.write(plainAnswer)
		}
	}})
	c := f.dial()
	for _, e := range []struct {
		method, path, what string
		status             int
	}{
		{"HEAD", "/v1/thing", "head", 200}, {"HEAD", "/v1/thing", "head chunked", 200}, {"GET", "/v1/thing", "204", 204},
		{"GET", "/v1/thing", "304", 304}, {"GET", "/v1/thing", "empty", 200}, {"HEAD", "/", "", 200}, {"HEAD", "/health", "", 200},
	} {
		c.send(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nX-Case: %s\r\n\r\n", e.method, e.path, e.what))
		resp := c.head(e.method)
		a := c.rest(resp)
		a.want(t, e.status, "")
		// The next request on the same connection finds its own answer.
		c.send(post(chatPath, chatBody))
		c.receive().want(t, 200, answerBody)
	}
	if n := f.engines[0].dialled(); n != 1 {
		t.Errorf("%d connections to the engine, want 1", n)
	}
}

func TestInterimAnswers(t *testing.T) {
	t.Parallel()
	early := "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
	for name, c := range map[string]struct {
		before string
		status int
	}{
		"100 and 103": {"HTTP/1.1 100 Continue\r\n\r\n" + early, 200},
		"16":          {strings.Repeat(early, 16), 200},
		"17":          {strings.Repeat(early, 17), 502},
		"101":         {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", 502},
		"with a body": {"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nhello", 502},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, []script{func(x *exchange) {
				x.write(c.before)
				time.Sleep(5 * time.Millisecond)
				x.write(plainAnswer)
			}})
			a := f.ask(post(chatPath, chatBody))
			if c.status == 200 {
				a.want(t, 200, answerBody)
				return
			}
			a.wantError(t, 502, "engine_bad_response")
			f.ends(telemetry.EndEngineBadResponse)
		})
	}
}

func TestExpectContinue(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) {
		if x.req.Header.Get("Expect") != "" {
			t.Error("the engine got Expect")
		}
		x.write(sized("200 OK", "application/json", string(x.body)))
	}})
	head := func(path string, length int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", path, length)
	}
	t.Run("asked for the body", func(t *testing.T) {
		c := f.dial()
		for range 2 {
			c.send(head(chatPath, len(chatBody)))
			line, err := c.br.ReadString('\n')
			if err != nil || line != "HTTP/1.1 100 Continue\r\n" {
				t.Fatalf("got %q, %v", line, err)
			}
			_, _ = c.br.ReadString('\n')
			c.send(chatBody)
			c.receive().want(t, 200, chatBody)
		}
	})
	t.Run("body sent at once", func(t *testing.T) {
		c := f.dial()
		c.send(head(chatPath, len(chatBody)) + chatBody)
		c.receive().want(t, 200, chatBody)
	})
	t.Run("refused", func(t *testing.T) {
		c := f.dial()
		c.send(head("/nothing", 100))
		c.receive().wantError(t, 404, "path_not_found")
		c.closed()
	})
}

func TestChunkedRequests(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) {
		x.write(sized("200 OK", "application/json", fmt.Sprintf("%d %v %s", x.req.ContentLength, x.req.Trailer, x.body)))
	}})
	head := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n"
	want := fmt.Sprintf("%d map[] %s", len(chatBody), chatBody)
	for name, body := range map[string]string{
		"one": chunk(chatBody) + endOfBody, "small": inChunks(chatBody, 3) + endOfBody,
		"extension and trailer": "00" + strings.Replace(chunk(chatBody), "\r\n", ";a=b\r\n", 1) + "0\r\nX-T: v\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := f.dial()
			// Twice at once, so that the second stands behind the first.
			c.send(head + body + head + body)
			c.receive().want(t, 200, want)
			c.receive().want(t, 200, want)
			for _, b := range head + body {
				c.send(string(b))
			}
			c.receive().want(t, 200, want)
		})
	}
	for name, body := range map[string]string{
		"broken size": "zz\r\n", "broken end": "3\r\nabcX", "a minus": "-1\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := f.dial()
			c.send(head + body)
			c.receive().wantError(t, 400, "malformed_http")
			c.closed()
		})
	}
}

// TestBodiesOfRequestsThatNeedNone: what an answer from Ramjet itself leaves
// unread must neither be held in memory nor be taken for a request.
func TestBodiesOfRequestsThatNeedNone(t *testing.T) {
	t.Parallel()
	f := start(t, []script{streaming})
	for _, path := range []string{"/health", "/", "/v1/models", "/v1/models/m"} {
		for name, c := range map[string]struct {
			fields, body string
			closes       bool
		}{
			"short":      {"Content-Length: 5\r\n", "hello", false},
			"enormous":   {"Content-Length: 4611686018427387904\r\n", "hello", true},
			"chunked":    {"Transfer-Encoding: chunked\r\n", chunk("GET / HTTP/1.1\r\nHost: x\r\n\r\n") + endOfBody, true},
			"1 MiB":      {"Content-Length: 1048576\r\n", strings.Repeat("x", 1<<20), true},
			"late":       {"Content-Length: 5\r\n", "", false},
			"no content": {"Content-Length: 0\r\n", "", false},
		} {
			cl := f.dial()
			cl.send("GET ", path, " HTTP/1.1\r\nHost: x\r\n", c.fields, "\r\n", c.body)
			if name == "late" {
				time.Sleep(5 * time.Millisecond)
				cl.send("hello")
			}
			if a := cl.receive(); a.StatusCode != 200 || a.Close != c.closes {
				t.Errorf("GET %s, %s: %d, closes: %v", path, name, a.StatusCode, a.Close)
			}
			if c.closes {
				cl.close()
				continue
			}
			cl.send(get("/health"))
			if a := cl.receive(); a.StatusCode != 200 {
				t.Errorf("GET %s, %s: then %d", path, name, a.StatusCode)
			}
		}
	}
}

// TestUnreadBodyDoesNotDestroyTheAnswer: a client that sends its whole body
// before it looks gets the refusal although it was sent early.
func TestUnreadBodyDoesNotDestroyTheAnswer(t *testing.T) {
	t.Parallel()
	f := start(t, []script{streaming}, func(s *setup) { s.Limits.Body = 1 << 20 })
	for range 5 {
		c := f.dial()
		_, _ = io.WriteString(c.nc, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", chatPath, 1<<20+1))
		go func() { _, _ = io.WriteString(c.nc, strings.Repeat("x", 1<<20)) }()
		c.receive().wantError(t, 413, "body_too_large")
	}
}
