package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// deaf is an engine that accepts and never reads a byte.
type deaf struct {
	ln net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex // guards conns
	conns []net.Conn
}

func startDeaf(t *testing.T) *deaf {
	t.Helper()
	// Accepted connections inherit the small window, from their first byte on.
	small := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10)
		}), err)
	}}
	ln, err := small.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &deaf{ln: ln}
	d.wg.Go(func() {
		for {
			nc, err := d.ln.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			d.conns = append(d.conns, nc)
			d.mu.Unlock()
		}
	})
	t.Cleanup(d.stop)
	return d
}

func (d *deaf) stop() {
	_ = d.ln.Close()
	d.wg.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, nc := range d.conns {
		_ = nc.Close()
	}
}

func (d *deaf) use(i int, o *engine.Options) {
	if i == 0 {
		o.URL.Host = d.ln.Addr().String()
	}
}

// longRequests are more than the sockets between Ramjet and a deaf engine hold:
// its own buffer is small, and Linux gives the sender about 20 segments, of
// 64 KiB each on loopback, until the first acknowledgement.
func longRequests() map[string]string {
	text := strings.Repeat("x", 4<<20)
	return map[string]string{
		"held":                  post(chatPath, `{"model":"m","messages":[{"role":"user","content":"`+text+`"}]}`),
		"held, chunked":         chunkedPost("/v1/embeddings", inChunks(`{"model":"m","input":"`+text+`"}`, 1<<20)+endOfBody),
		"streamed":              uploadHead(fmt.Sprintf("Content-Length: %d", len(text))) + text,
		"streamed, in chunks":   uploadHead("Transfer-Encoding: chunked") + inChunks(text, 1<<20) + endOfBody,
		"held, with the splice": post(chatPath, `{"model":"alias","messages":[{"role":"user","content":"`+text+`"}]}`),
	}
}

// TestWritingIsBounded: an engine that does not read its request is a wait for
// the engine like any other. timeouts.total bounds it for every kind of body,
// timeouts.head for those that do not depend on the client's pace.
func TestWritingIsBounded(t *testing.T) {
	t.Parallel()
	for name, request := range longRequests() {
		for _, limit := range []string{"total", "head"} {
			if limit == "head" && strings.HasPrefix(name, "streamed") {
				continue
			}
			t.Run(name+"/"+limit, func(t *testing.T) {
				t.Parallel()
				d := startDeaf(t)
				f := start(t, []script{streaming, streaming}, func(s *setup) {
					s.engine = d.use
					s.Aliases = map[string]string{"alias": "m"}
					if limit == "total" {
						s.Timeouts.Total = 2 * time.Second // from the head on: the body takes its time
					} else {
						s.Timeouts.Head = soon
					}
				})
				c := f.dial()
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					_, _ = io.WriteString(c.nc, request)
				}()
				c.receive().wantError(t, 504, "engine_timeout")
				c.close()
				<-sent
				f.ends(telemetry.EndTimedOut)
				f.outcomes(verdictOn{"a", engine.OutcomeNeutral})
				if n := len(f.engines[1].got()); n != 0 {
					t.Error("the request moved")
				}
			})
		}
	}
}

// TestDepartureWhileWriting: a client that leaves while its request goes to an
// engine that does not read it is seen all the same.
func TestDepartureWhileWriting(t *testing.T) {
	t.Parallel()
	for name, request := range longRequests() {
		if strings.HasPrefix(name, "streamed") {
			continue // its client cannot finish sending
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startDeaf(t)
			f := start(t, []script{streaming}, func(s *setup) {
				s.engine = d.use
				s.Aliases = map[string]string{"alias": "m"}
			})
			c := f.dial()
			c.send(request)
			eventually(t, "the attempt", func() bool { return f.members[0].Flights() == 1 })
			c.close()
			if r := f.ends(telemetry.EndClientGoneWaiting)[0]; r.Status != 499 {
				t.Errorf("status %d", r.Status)
			}
			f.outcomes(verdictOn{"a", engine.OutcomeNeutral})
		})
	}
}
