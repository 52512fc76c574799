package proxy

import (
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"ramjet/telemetry"
)

// TestLargePlainAnswers arrive whole in every framing; beyond 48 KiB they go
// out as they come.
func TestLargePlainAnswers(t *testing.T) {
	t.Parallel()
	for _, size := range []int{40 << 10, 48 << 10, 49 << 10, 64 << 10, 70 << 10, 2 << 20} {
		body := `{"choices":[{"message":{"content":"` + strings.Repeat("x", size) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3}}`
		for name, c := range map[string]script{
			"length":  answering(sized("200 OK", "application/json", body)),
			"chunked": answering("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", inChunks(body, 20000), endOfBody),
			"trailer": answering("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", inChunks(body, 20000), "0\r\nA: b\r\n\r\n"),
			"until close": func(x *exchange) {
				x.write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n", body)
				x.close()
			},
		} {
			for _, version := range []string{"1.1", "1.0"} {
				t.Run(fmt.Sprintf("%d/%s/%s", size, name, version), func(t *testing.T) {
					t.Parallel()
					f := start(t, []script{c})
					a := f.ask(strings.Replace(post(chatPath, chatBody), "HTTP/1.1", "HTTP/"+version, 1))
					if a.StatusCode != 200 || string(a.body) != body || a.err != nil {
						t.Errorf("got %d, %d bytes of %d, %v", a.StatusCode, len(a.body), len(body), a.err)
					}
					if r := f.ends(telemetry.EndDone)[0]; r.PromptTokens == nil || *r.PromptTokens != 9 {
						t.Errorf("usage was not read: %+v", r)
					}
				})
			}
		}
	}
}

// TestSlowClients get every byte, whatever the framing: the engine is read no
// faster than the client takes, so nothing piles up.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	event := "data: " + strings.Repeat("x", 3000) + "\n\n"
	const n = 1000
	decoded := strings.Repeat(event, n)
	for _, transport := range []string{"tcp", "tls"} {
		for name, c := range map[string]struct {
			version string
			frame   func() string
			tweak   func(*setup)
		}{
			"verbatim": {"1.1", func() string { return strings.Repeat(chunk(event), n) + endOfBody }, nil},
			"1.0":      {"1.0", func() string { return strings.Repeat(chunk(event), n) + endOfBody }, nil},
			"rechunk":  {"1.1", func() string { return inChunks(decoded, 5000) + endOfBody }, nil},
			"inject":   {"1.1", func() string { return strings.Repeat(chunk(event), n) + endOfBody }, func(s *setup) { s.InjectUsage = true }},
			"twin":     {"1.1", func() string { return inChunks(decoded, 5000) + endOfBody }, func(s *setup) { s.StreamRelay = true }},
		} {
			t.Run(transport+"/"+name, func(t *testing.T) {
				t.Parallel()
				f, dial := startOn(t, transport, []script{answering(chunkedHead + c.frame())}, func(s *setup) {
					if c.tweak != nil {
						c.tweak(s)
					}
				})
				cl := newClient(t, dial())
				cl.send(strings.Replace(post(chatPath, chatSBody), "HTTP/1.1", "HTTP/"+c.version, 1))
				resp := cl.head("POST")
				var got strings.Builder
				for {
					if _, err := io.CopyN(&got, resp.Body, 1<<20); err != nil {
						break
					}
					time.Sleep(2 * time.Millisecond)
				}
				if got.String() != decoded {
					t.Errorf("%d bytes arrived of %d", got.Len(), len(decoded))
				}
				f.ends(telemetry.EndDone)
			})
		}
	}
}

// TestResponseHeads of unusual size.
func TestResponseHeads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ size, status int }{{10 << 10, 200}, {20 << 10, 200}, {60 << 10, 200}, {200 << 10, 502}, {1 << 20, 502}} {
		t.Run(fmt.Sprint(c.size), func(t *testing.T) {
			t.Parallel()
			pad := strings.Repeat("x", c.size)
			f := start(t, []script{func(x *exchange) {
				x.write("HTTP/1.1 200 OK\r\nX-Pad: ", pad, "\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
			}})
			cl := f.dial()
			for range 2 {
				cl.send(post(chatPath, chatBody))
				a := cl.receive()
				if a.StatusCode != c.status {
					t.Fatalf("got %d, want %d", a.StatusCode, c.status)
				}
				if c.status == 200 && (a.Header.Get("X-Pad") != pad || string(a.body) != "{}") {
					t.Error("the answer changed")
				}
			}
		})
	}
}

// TestUsageIsInjectedAndTakenOut end to end.
func TestUsageIsInjectedAndTakenOut(t *testing.T) {
	t.Parallel()
	f := start(t, []script{func(x *exchange) {
		if !strings.Contains(string(x.body), `"stream_options":{"include_usage":true}`) {
			x.e.t.Errorf("usage was not asked for: %s", x.body)
		}
		x.write(streamHead, chunk(roleEvent), chunk(tokenEvent), chunk(stopEvent), chunk(usageEvent), chunk(doneEvent), endOfBody)
	}}, func(s *setup) { s.InjectUsage = true })
	c := f.dial()
	for range 2 {
		c.send(post(chatPath, chatSBody))
		c.receive().want(t, 200, wholeStream)
	}
	// A client that asked itself keeps its event.
	c.send(post(chatPath, `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`))
	c.receive().want(t, 200, roleEvent+tokenEvent+stopEvent+usageEvent+doneEvent)
	for _, r := range f.ends(telemetry.EndDone, telemetry.EndDone, telemetry.EndDone) {
		if r.PromptTokens == nil || *r.PromptTokens != 9 || *r.CachedTokens != 4 || *r.OutputTokens != 3 {
			t.Errorf("record %+v", r)
		}
	}
}

// TestManyConnections come and go without a trace.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	f := start(t, []script{streaming})
	for range 10 {
		var open []*client
		for range 100 {
			open = append(open, f.dial())
		}
		for i, c := range open {
			if i%10 == 0 {
				c.send(get("/health"))
				c.receive()
			}
			if i%2 == 0 {
				departures[1].leave(c.nc)
			} else {
				c.close()
			}
		}
	}
	eventually(t, "connections to end", func() bool { return f.srv.connections() == 0 && f.srv.watch.Len() == 0 })
}

// TestIdleServerUsesNoCPU: connections that stand idle, hold unread bytes or
// ended must not keep any loop turning. Not parallel: it measures the process.
func TestIdleServerUsesNoCPU(t *testing.T) {
	h := newHeld()
	f := start(t, []script{h.script})
	for i := range 20 {
		c := f.dial()
		if i%2 == 0 {
			c.send(get("/health"))
			c.receive()
		}
	}
	waiting := f.dial()
	waiting.send(post(chatPath, chatBody), get("/health")) // with a pipelined request behind it
	<-h.started
	used := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			t.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	// The least of several, since a collection may fall into one.
	least := time.Hour
	for range 5 {
		before := used()
		time.Sleep(60 * time.Millisecond)
		least = min(least, used()-before)
	}
	if least > 15*time.Millisecond {
		t.Errorf("%v of CPU in 60 ms of doing nothing", least)
	}
	h.release <- struct{}{}
	waiting.receive().want(t, 200, answerBody)
	waiting.receive().want(t, 200, `{"status":"ok","engines":{}}`)
}
