package proxy

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ramjet/telemetry"
)

const audioPath = "/v1/audio/transcriptions"

func uploadHead(framing string) string {
	return "POST " + audioPath + " HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n" + framing + "\r\n\r\n"
}

// TestUploadIsNotHeld: a large multipart body goes through without being held
// whole, and arrives byte for byte in either framing.
func TestUploadIsNotHeld(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("0123456789abcdef", 256<<10) // 4 MiB
	var most atomic.Int64
	f := start(t, []script{func(x *exchange) {
		if string(x.body) != body {
			x.e.t.Errorf("%d bytes arrived changed", len(x.body))
		}
		x.write(sized("200 OK", "application/json", `{"text":"hello"}`))
	}}, func(s *setup) { s.Limits.BodyMemory = 64 << 10 })
	watch := func() { most.Store(max(most.Load(), f.srv.BodyBytes())) }
	for name, c := range map[string]struct{ framing, body string }{
		"length":       {fmt.Sprintf("Content-Length: %d", len(body)), body},
		"chunked":      {"Transfer-Encoding: chunked", inChunks(body, 100<<10) + endOfBody},
		"small chunks": {"Transfer-Encoding: chunked", inChunks(body[:64<<10], 10) + inChunks(body[64<<10:], 1<<20) + "0\r\nX-T: v\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			cl := f.dial()
			go func() { _, _ = io.WriteString(cl.nc, uploadHead(c.framing)+c.body+get("/health")) }()
			watch()
			cl.receive().want(t, 200, `{"text":"hello"}`)
			// What was pipelined behind it is served.
			cl.receive().want(t, 200, `{"status":"ok","engines":{}}`)
		})
	}
	if n := most.Load(); n > 0 {
		t.Errorf("%d bytes of uploads were held", n)
	}
	for _, r := range f.records(6) {
		if r.Path == audioPath && r.BytesIn != int64(len(body)) {
			t.Errorf("%d bytes in, want %d", r.BytesIn, len(body))
		}
	}
}

// TestSmallUploadMoves: it is held like any other body.
func TestSmallUploadMoves(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) { x.close() }, func(x *exchange) {
		x.write(sized("200 OK", "text/plain", string(x.body)))
	}})
	f.ask(uploadHead("Content-Length: 5")+"hello").want(t, 200, "hello")
	f.ends(telemetry.EndDone)
}

// TestUploadThatStartedDoesNotMove: part of it went to the first engine.
func TestUploadThatStartedDoesNotMove(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) { x.close() }, streaming})
	c := f.dial()
	go func() {
		_, _ = io.WriteString(c.nc, uploadHead("Content-Length: 2000000")+strings.Repeat("x", 2000000))
	}()
	c.receive().wantError(t, 502, "engine_unreachable")
	if n := len(f.engines[1].got()); n != 0 {
		t.Error("the upload moved")
	}
}

// TestEarlyAnswerToAnUpload: the answer is delivered, and the rest of the body
// is not taken for a request.
func TestEarlyAnswerToAnUpload(t *testing.T) {
	t.Parallel()
	for _, framing := range []string{"Content-Length: 33554432", "Transfer-Encoding: chunked"} {
		t.Run(framing, func(t *testing.T) {
			t.Parallel()
			e := startEarly(t)
			f := start(t, []script{streaming}, func(s *setup) { s.engine = e.use })
			c := f.dial()
			part := strings.Repeat("x", 1<<20)
			if strings.HasPrefix(framing, "T") {
				part = chunk(part)
			}
			stop := make(chan struct{})
			go func() {
				defer close(stop)
				if _, err := io.WriteString(c.nc, uploadHead(framing)); err != nil {
					return
				}
				for range 32 {
					if _, err := io.WriteString(c.nc, part); err != nil {
						return
					}
				}
			}()
			a := c.receive()
			if a.StatusCode != 413 || string(a.body) != "too large" {
				t.Errorf("got %d %q", a.StatusCode, a.body)
			}
			if !a.Close {
				t.Error("the connection is kept behind half a body")
			}
			c.close()
			<-stop
			f.records(1)
		})
	}
}

// TestUploadClientLeaves: the engine's half of the body ends there.
func TestUploadClientLeaves(t *testing.T) {
	t.Parallel()
	for name, parts := range map[string][2]string{
		"length":  {"Content-Length: 2000000", strings.Repeat("x", 100<<10)},
		"chunked": {"Transfer-Encoding: chunked", inChunks(strings.Repeat("x", 100<<10), 1000) + "ff\r\nabc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, []script{streaming})
			c := f.dial()
			c.send(uploadHead(parts[0]), parts[1])
			eventually(t, "the upload at the engine", func() bool { return f.engines[0].dialled() == 1 })
			time.Sleep(5 * time.Millisecond)
			c.close()
			if r := f.ends(telemetry.EndClientGoneWaiting)[0]; r.Status != 499 {
				t.Errorf("status %d", r.Status)
			}
		})
	}
}

// TestUploadExpectContinue asks for the body when an engine is there for it.
func TestUploadExpectContinue(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) { x.write(sized("200 OK", "text/plain", fmt.Sprint(len(x.body)))) }})
	c := f.dial()
	c.send(uploadHead("Expect: 100-continue\r\nContent-Length: 2000000"))
	var interim bytes.Buffer
	for !bytes.HasSuffix(interim.Bytes(), []byte("\r\n\r\n")) {
		b, err := c.br.ReadByte()
		if err != nil {
			t.Fatal(err)
		}
		interim.WriteByte(b)
	}
	if interim.String() != "HTTP/1.1 100 Continue\r\n\r\n" {
		t.Fatalf("got %q", interim.String())
	}
	go func() { _, _ = io.WriteString(c.nc, strings.Repeat("x", 2000000)) }()
	c.receive().want(t, 200, "2000000")
}
