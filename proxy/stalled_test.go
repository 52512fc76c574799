package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
	"ramjet/wire"
)

// narrow is a listener whose connections hold little of what is written to
// them, so that a client that reads nothing is felt at once.
type narrow struct{ net.Listener }

// Accept implements net.Listener.
func (n narrow) Accept() (net.Conn, error) {
	nc, err := n.Listener.Accept()
	if err == nil {
		err = nc.(interface{ SetWriteBuffer(int) error }).SetWriteBuffer(4 << 10)
	}
	return nc, err
}

// startNarrow starts a server whose clients are felt at once when they read
// nothing, and returns how to connect as one.
func startNarrow(t *testing.T, secure bool, scripts []script, tweaks ...func(*setup)) (*fixture, func() net.Conn) {
	t.Helper()
	transport := "tcp"
	if secure {
		transport = "tls"
	}
	ln := narrow{listen(t)}
	f, dial := startOn(t, transport, scripts, append(tweaks, func(s *setup) { s.listener = ln })...)
	return f, func() net.Conn {
		nc := dial()
		if err := socketOf(nc).(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		return nc
	}
}

// stuck waits until the engines' bytes no longer go anywhere, because the
// client takes none.
func stuck(t *testing.T, f *fixture) {
	t.Helper()
	last, since := uint64(0), time.Now()
	eventually(t, "a client that is blocked", func() bool {
		now := uint64(0)
		for _, m := range f.members {
			now += m.BytesIn()
		}
		if now != last || now == 0 {
			last, since = now, time.Now()
		}
		return time.Since(since) > 100*time.Millisecond
	})
}

// TestBlockedClientIsNoStall: a stream that stands still because its client
// takes nothing says nothing of its engine, and counts again once that client
// has caught up.
func TestBlockedClientIsNoStall(t *testing.T) {
	t.Parallel()
	const n = 200
	event := strings.Replace(tokenEvent, " token", strings.Repeat("x", 8<<10), 1)
	for _, transport := range []string{"tcp", "tls"} {
		for _, relay := range []string{"verbatim", "twin"} {
			t.Run(transport+"/"+relay, func(t *testing.T) {
				t.Parallel()
				release := make(chan struct{})
				f, dial := startNarrow(t, transport == "tls", []script{func(x *exchange) {
					x.write(streamHead)
					for range n {
						x.write(chunk(event))
					}
					select {
					case <-release:
					case <-x.e.stopping: // it failed
					}
					x.write(endOfBody)
				}}, func(s *setup) { s.Timeouts.ClientWrite, s.StreamRelay = 0, relay == "twin" })
				c := newClient(t, dial())
				c.send(post(chatPath, chatSBody))
				standing := func(want int) func() bool { // for the engine, not for the client
					return func() bool {
						n, blocked, events := f.members[0].Streams()
						return n == 1 && events > 0 && n-blocked == want
					}
				}
				// Its first token is out by then.
				eventually(t, "a stream that stands for no stalled engine", func() bool {
					return f.members[0].BytesIn() > uint64(len(streamHead)+2*len(event)) && f.members[0].Flights() == 1 && standing(0)()
				})
				_ = socketOf(c.nc).(*net.TCPConn).SetReadBuffer(1 << 20)
				resp := c.head("POST")
				for range n {
					if got := c.event(resp); got != event {
						t.Fatalf("got %.100q", got)
					}
				}
				eventually(t, "a stream that waits for its engine again", standing(1))
				close(release)
				if got := c.rest(resp); got.err != nil || len(got.body) != 0 {
					t.Errorf("got %q, %v", got.body, got.err)
				}
				f.ends(telemetry.EndDone)
			})
		}
	}
}

// TestStallBehindABlockedClient: an engine that is found frozen while its
// client takes nothing ends the request by its own word. The client is not
// blamed: neither client-stalled nor client-gone.
func TestStallBehindABlockedClient(t *testing.T) {
	t.Parallel()
	event := "data: " + strings.Repeat("x", 8<<10) + "\n\n"
	for _, transport := range []string{"tcp", "tls"} {
		for _, relay := range []string{"verbatim", "twin"} {
			t.Run(transport+"/"+relay, func(t *testing.T) {
				t.Parallel()
				f, dial := startNarrow(t, transport == "tls", []script{func(x *exchange) {
					if x.n > 0 {
						streaming(x)
						return
					}
					x.write(streamHead)
					for {
						if _, err := io.WriteString(x.conn, chunk(event)); err != nil {
							return
						}
					}
				}}, func(s *setup) { s.Timeouts.ClientWrite, s.StreamRelay = far, relay == "twin" })
				c := newClient(t, dial())
				c.send(post(chatPath, chatSBody))
				stuck(t, f)
				began := time.Now()
				f.members[0].AbortAll(telemetry.EndEngineStalled)
				r := f.ends(telemetry.EndEngineStalled)[0]
				if d := time.Since(began); d > patience/2 {
					t.Errorf("it took %v", d)
				}
				if r.Status != 200 || r.Attempts != 1 {
					t.Errorf("record %+v", r)
				}
				f.outcomes(verdictOn{"a", engine.OutcomeNeutral})
				// The client, once it reads, sees that the stream was cut, or
				// an error event: never a clean end. (Under TLS the cut may
				// fall into a record.)
				_ = socketOf(c.nc).(*net.TCPConn).SetReadBuffer(1 << 20)
				var got []byte
				var err error
				for err == nil && !bytes.HasSuffix(got, []byte(endOfBody)) {
					var b byte
					b, err = c.br.ReadByte()
					got = append(got, b)
				}
				var late net.Error
				if errors.As(err, &late) && late.Timeout() {
					t.Errorf("neither an end nor a cut behind %d bytes", len(got))
				}
				if bytes.HasSuffix(got, []byte(endOfBody)) && !bytes.Contains(got, []byte(`"engine_stalled"`)) {
					t.Errorf("%d bytes and a clean end", len(got))
				}
				next := newClient(t, dial())
				next.send(post(chatPath, chatSBody))
				next.receive().want(t, 200, wholeStream)
			})
		}
	}
}

// TestHeadCutShort: when a request is ended from outside while its head, or
// the rest of it, finds no room at the client, nothing may follow what is out
// of it: no error event, and no other engine's body.
func TestHeadCutShort(t *testing.T) {
	t.Parallel()
	// One write of an answer without a body, and more than the sockets hold:
	// Linux takes it whole, and then nothing until the client reads.
	full := "HTTP/1.1 204 No Content\r\nX-Pad: " + strings.Repeat("p", 60<<10) + "\r\n\r\n"
	for word, end := range map[telemetry.End]func(f *fixture){
		telemetry.EndEngineStalled: func(f *fixture) {
			for _, m := range f.members {
				m.AbortAll(telemetry.EndEngineStalled)
			}
		},
		telemetry.EndDrained: func(f *fixture) { f.drainWithin(time.Millisecond) },
	} {
		t.Run(word.String(), func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			script := func(x *exchange) {
				switch requests.Add(1) {
				case 1:
					x.write(full)
				case 2:
					x.write(streamHead)
					x.gone()
				default:
					streaming(x)
				}
			}
			f, dial := startNarrow(t, false, []script_{script, script})
			c := newClient(t, dial())
			c.send(post(chatPath, chatSBody), post(chatPath, chatSBody))
			eventually(t, "the second request", func() bool { return requests.Load() == 2 })
			stuck(t, f)
			ended := make(chan struct{})
			go func() { end(f); close(ended) }()
			time.Sleep(20 * time.Millisecond) // it ends before the client makes room
			_ = c.nc.(*net.TCPConn).SetReadBuffer(1 << 20)
			_ = c.nc.SetReadDeadline(time.Now().Add(2 * time.Second)) // it may stay open
			got, _ := io.ReadAll(io.TeeReader(c.nc, io.Discard))
			<-ended
			_, second, whole := bytes.Cut(got, []byte("\r\n\r\n"))
			head, body, _ := bytes.Cut(second, []byte("\r\n\r\n"))
			if !whole || len(second) > 0 && !bytes.HasPrefix(second, []byte("HTTP/1.1 ")) ||
				bytes.Contains(head, []byte("data:")) || len(body) > 0 && !bytes.Contains(head, []byte("X-Request-Id: ")) {
				t.Errorf("behind the first answer the client reads %.300q", second)
			}
			f.checkIdle()
			if r := f.records(2)[1]; r.End != word.String() && r.End != "done" {
				t.Errorf("record %+v", r)
			}
		})
	}
}

// cramped is a client's connection that takes so many bytes and then no more
// within its time.
type cramped struct {
	sink
	room int
}

// Write implements net.Conn.
func (c *cramped) Write(p []byte) (int, error) {
	n := min(len(p), c.room)
	c.room -= n
	c.Buffer.Write(p[:n])
	if n < len(p) {
		return n, os.ErrDeadlineExceeded
	}
	return n, nil
}

// SetDeadline implements net.Conn. What comes after the deadline finds room
// again: that is what must not be used.
func (c *cramped) SetDeadline(at time.Time) error {
	if at.After(time.Now()) {
		c.room = 1 << 20
	}
	return nil
}

// TestHeadCutAtEveryByte is TestHeadCutShort for each length that may be out.
func TestHeadCutAtEveryByte(t *testing.T) {
	t.Parallel()
	for _, cause := range []telemetry.End{telemetry.EndEngineStalled, telemetry.EndDrained} {
		whole := newFed(t, wire.DialectOpenAI, kindChat, streamHead)
		head := string(whole.headOut)
		whole.release()
		for room := 1; room < len(head); room++ {
			f := newFed(t, wire.DialectOpenAI, kindChat, streamHead)
			f.sent = sentState{}
			c := &cramped{room: room}
			f.c.nc = c
			f.c.sock.Init(c, nil)
			f.c.gate.stop = nil // it would end the client's deadline, which is this test's
			if f.sendHead() {
				t.Fatalf("a head of %d bytes found room for %d", len(head), room)
			}
			f.c.gate.abort(cause)
			v := f.unsendable()
			if !v.done || v.end != cause || !f.close {
				t.Errorf("%v at %d: verdict %+v, closes: %v", cause, room, v, f.close)
			}
			if got := c.String(); got != head[:room] {
				t.Fatalf("%v at %d: the client got %q", cause, room, got)
			}
			f.release()
		}
	}
}
