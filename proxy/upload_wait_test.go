package proxy

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// TestUploadIsNotChargedForOurWaits: timeouts.client_body_rate judges the
// client's pace. Time that an upload spends in the queue, or that its engine
// takes to read, is not the client's.
func TestUploadIsNotChargedForOurWaits(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes longer than the two seconds in which no body is judged")
	}
	body := strings.Repeat("0123456789abcdef", 512<<10) // 8 MiB
	for name, framed := range map[string]string{
		"length":  uploadHead(fmt.Sprintf("Content-Length: %d", len(body))) + body,
		"chunked": uploadHead("Transfer-Encoding: chunked") + inChunks(body, 100<<10) + endOfBody,
	} {
		t.Run("in the queue/"+name, func(t *testing.T) {
			t.Parallel()
			h := newHeld()
			f := start(t, []script{func(x *exchange) {
				if x.n == 0 {
					h.script(x)
					return
				}
				x.write(sized("200 OK", "text/plain", fmt.Sprint(len(x.body))))
			}}, func(s *setup) {
				s.Limits.Queue, s.Limits.QueueWait = 3, far
				s.Timeouts.ClientBodyRate = 1 << 20
				s.engine = func(_ int, o *engine.Options) { o.InFlight = 1 }
			})
			first, upload := f.dial(), f.dial()
			first.send(post(chatPath, chatBody))
			<-h.started
			go func() { _, _ = io.WriteString(upload.nc, framed) }()
			eventually(t, "a place in the queue", f.srv.queue.busy)
			time.Sleep(rateGrace + 200*time.Millisecond)
			h.release <- struct{}{}
			first.receive().want(t, 200, answerBody)
			upload.receive().want(t, 200, fmt.Sprint(len(body)))
			f.endsInAnyOrder(telemetry.EndDone, telemetry.EndDone)
		})
		t.Run("slow engine/"+name, func(t *testing.T) {
			t.Parallel()
			ln := listen(t)
			done := make(chan struct{})
			go func() {
				defer close(done)
				nc, err := ln.Accept()
				if err != nil {
					return
				}
				defer func() { _ = nc.Close() }()
				_ = nc.(interface{ SetReadBuffer(int) error }).SetReadBuffer(64 << 10)
				time.Sleep(rateGrace + 500*time.Millisecond)
				// What the body ends with, in either framing.
				tail := make([]byte, 0, 64<<10)
				buf := make([]byte, 32<<10)
				for total := 0; total < len(body) || strings.HasSuffix(framed, endOfBody) && !strings.HasSuffix(string(tail), endOfBody); {
					n, err := nc.Read(buf)
					if err != nil {
						return
					}
					total += n
					tail = append(tail[:0], buf[:n]...)
				}
				_, _ = io.WriteString(nc, sized("200 OK", "text/plain", "got it"))
				_, _ = nc.Read(buf) // until Ramjet leaves
			}()
			t.Cleanup(func() { _ = ln.Close(); <-done })
			f := start(t, []script{streaming}, func(s *setup) {
				s.Timeouts.ClientBodyRate = 16 << 20 // 8 MiB in half a second, were it all the client's
				s.engine = func(_ int, o *engine.Options) { o.URL.Host = ln.Addr().String() }
			})
			upload := f.dial()
			go func() { _, _ = io.WriteString(upload.nc, framed) }()
			upload.receive().want(t, 200, "got it")
			f.ends(telemetry.EndDone)
		})
	}
	t.Run("a slow client is still judged", func(t *testing.T) {
		t.Parallel()
		f := start(t, []script{streaming}, func(s *setup) { s.Timeouts.ClientBodyRate = 1 << 20 })
		c := f.dial()
		c.send(uploadHead("Content-Length: 2000000"), strings.Repeat("x", 100))
		c.receive().wantError(t, 408, "request_timeout")
		c.close()
		f.ends(telemetry.EndTimedOut)
	})
}
