package proxy

import (
	"bytes"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"ramjet/engine"
	"ramjet/route"
	"ramjet/telemetry"
	"ramjet/wire"
)

// sink is a connection that keeps what is written to it.
type sink struct {
	net.Conn
	bytes.Buffer
}

// Write implements net.Conn.
func (s *sink) Write(p []byte) (int, error) { return s.Buffer.Write(p) }

// Read is never called.
func (s *sink) Read([]byte) (int, error) { return 0, errors.New("a sink cannot be read") }

// SetWriteDeadline implements net.Conn.
func (s *sink) SetWriteDeadline(time.Time) error { return nil }

// fed is a relay without sockets: a test pours an engine's bytes in and sees
// what would go out.
type fed struct {
	*flight
	out  []byte
	sink sink
}

var fedServer = &Server{Options: Options{Metrics: telemetry.NewMetrics("t", "t")}, watch: nil, labels: newLabels()}

var fedMember = &route.Member{Engine: engine.New(engine.Options{Name: "a", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}})}

func newFed(t testing.TB, d wire.Dialect, k kind, head string, tweaks ...func(*flight)) *fed {
	t.Helper()
	fedServer.live.CompareAndSwap(nil, &live{})
	c := &conn{srv: fedServer}
	c.head.Minor, c.head.KeepAlive = 1, true
	f := &fed{flight: &c.f}
	c.nc = &f.sink
	c.sock.Init(c.nc, nil)
	f.flight.init(c)
	f.dialect, f.ep = d, &endpoint{kind: k}
	f.decision.Member = fedMember
	for _, tweak := range tweaks {
		tweak(f.flight)
	}
	c.gate.open()
	f.relay.begin()
	n, err := f.resp.Parse([]byte(head))
	if err != nil || n != len(head) {
		t.Fatalf("cannot parse head %q: %v", head, err)
	}
	f.setFraming(&f.resp)
	f.composeHead()
	f.sent.head, f.sent.sse, f.sent.plain = true, f.relay.sse, f.relay.plain
	f.sent.chunked = !f.relay.plain && (f.resp.Chunked || f.relay.reframe)
	return f
}

// pour feeds one read.
func (f *fed) pour(s string) {
	r := &f.relay
	for len(s) > 0 && !r.over() {
		n := copy(r.space(), s)
		s = s[n:]
		r.took(n)
		f.collect()
	}
	if !r.over() {
		r.giveSpace()
	}
}

func (f *fed) collect() {
	p := f.relay.pending()
	f.out = append(f.out, p...)
	f.relay.wrote(len(p))
}

// hangUp ends the engine's side.
func (f *fed) hangUp() {
	if !f.relay.over() {
		f.relay.ended()
		f.collect()
	}
}

func (f *fed) release() { f.relay.giveAll() }

// unchunk decodes a chunked body strictly: whole says that its last chunk is
// there with nothing behind it, tail what follows the last whole chunk.
func unchunk(b []byte) (data string, whole bool, err error) {
	var s wire.ChunkScanner
	var out []byte
	for len(b) > 0 {
		n, isData, err := s.Next(b)
		if err != nil {
			return string(out), false, err
		}
		if n == 0 {
			return string(out), false, errors.New("bytes behind the last chunk")
		}
		if isData {
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	if s.HasTrailers() {
		return string(out), false, errors.New("trailers were passed on")
	}
	return string(out), s.Done(), nil
}

// client decodes what a client received.
func (f *fed) client(t testing.TB) (data string, whole bool) {
	t.Helper()
	if !f.sent.chunked {
		return string(f.out), true
	}
	data, whole, err := unchunk(f.out)
	if err != nil {
		t.Fatalf("the client's body is broken: %v in %q", err, f.out)
	}
	return data, whole
}

// cutsOf returns where to cut a body of n bytes: at every byte, or at some with
// -short and under the race detector, which is ten times slower.
func cutsOf(n int) []int {
	step := 1
	if testing.Short() || raceEnabled {
		step = 13
	}
	var out []int
	for i := 0; i <= n; i += step {
		out = append(out, i)
	}
	return out
}

// feeds gives one body in different pieces to fresh relays and calls check
// with each.
func (c combination) feeds(t *testing.T, check func(t *testing.T, how string, f *fed), tweaks ...func(*flight)) {
	t.Helper()
	run := func(how string, pieces ...string) {
		f := newFed(t, c.dialect, c.kind, c.headFor(c.wire), tweaks...)
		for _, p := range pieces {
			f.pour(p)
		}
		if c.closes {
			f.hangUp()
		}
		check(t, how, f)
		f.release()
	}
	run("whole", c.wire)
	run("a byte a read", strings.Split(c.wire, "")...)
	for _, i := range cutsOf(len(c.wire)) {
		run("cut at "+c.wire[max(i-10, 0):i], c.wire[:i], c.wire[i:])
	}
}

// The tests of whole corpora are not parallel with others: they would starve
// those that wait for a clock.

func TestRelayPassesEveryBody(t *testing.T) {
	for _, c := range corpus() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.feeds(t, func(t *testing.T, how string, f *fed) {
				if !f.relay.done {
					t.Fatalf("%s: the end was not seen (%v)", how, f.relay.broken)
				}
				if c.aligned && !(f.relay.reframe && c.split && how != "whole") && string(f.out) != c.wire {
					t.Fatalf("%s: bytes changed:\n%q\nwant\n%q", how, f.out, c.wire)
				}
				if data, whole := f.client(t); data != c.decoded || !whole {
					t.Fatalf("%s: decoded (whole: %v)\n%q\nwant\n%q", how, whole, data, c.decoded)
				}
				if f.sent.bytes != int64(len(f.out)) {
					t.Fatalf("%s: counted %d bytes, sent %d", how, f.sent.bytes, len(f.out))
				}
				if f.relay.junk {
					t.Fatalf("%s: junk", how)
				}
			})
		})
	}
}

func TestRelayFramesAnewForHTTP10(t *testing.T) {
	for _, c := range corpus() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.feeds(t, func(t *testing.T, how string, f *fed) {
				if string(f.out) != c.decoded || !f.relay.done {
					t.Fatalf("%s: got %q (done: %v)", how, f.out, f.relay.done)
				}
				if f.sent.chunked {
					t.Fatalf("%s: the head promises chunks to HTTP/1.0", how)
				}
			}, func(f *flight) { f.c.head.Minor = 0 })
		})
	}
}

func TestRelayTakesOutTheInjectedUsage(t *testing.T) {
	for _, c := range corpus() {
		if c.dialectBody.name != "chat" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			blocks, rest := slowBlocks(c.decoded)
			want, dropped := "", 0
			for _, b := range blocks {
				if strings.Contains(b, "prompt_tokens") {
					dropped++
					continue
				}
				want += b
			}
			if dropped != 1 || rest != "" {
				t.Fatalf("the body has %d usage events", dropped)
			}
			c.feeds(t, func(t *testing.T, how string, f *fed) {
				// The LF of a CRLF at which a read was cut is a block of its own
				// and may stay: a blank line between events says nothing.
				if data, whole := f.client(t); strings.ReplaceAll(data, "\r\n\r\n\n", "\r\n\r\n") != want || !whole {
					t.Fatalf("%s: decoded (whole: %v)\n%q\nwant\n%q", how, whole, data, want)
				}
				if s := f.relay.seen; !s.hasUsage || s.usage.Prompt != 9 || s.usage.Cached != 4 {
					t.Fatalf("%s: usage %+v", how, s)
				}
			}, func(f *flight) { f.inject = true })
		})
	}
}

// TestNothingUnfinishedLeaves pours byte by byte and looks at the client's
// decoded bytes after each: they must end where an event ends.
func TestNothingUnfinishedLeaves(t *testing.T) {
	for _, c := range corpus() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFed(t, c.dialect, c.kind, c.headFor(c.wire))
			defer f.release()
			late := 0
			for i := range len(c.wire) {
				f.pour(c.wire[i : i+1])
				data, _ := f.client(t)
				if _, rest := slowBlocks(data); rest != "" {
					t.Fatalf("byte %d: half an event left: %q", i, rest)
				}
				if !strings.HasPrefix(c.decoded, data) {
					t.Fatalf("byte %d: %q is no prefix", i, data)
				}
				// Whole events leave at once, or at the end of the chunk
				// that ends with them.
				if blocks, _ := slowBlocks(decodedPrefix(c, i+1)); len(strings.Join(blocks, ""))-len(data) > late {
					late = len(strings.Join(blocks, "")) - len(data)
				}
			}
			if late > 1 {
				t.Errorf("a whole event was held back: %d bytes", late)
			}
		})
	}
}

// decodedPrefix is what the first n bytes of the body hold of its data.
func decodedPrefix(c combination, n int) string {
	if !strings.Contains(c.head, "chunked") {
		return c.wire[:n]
	}
	data, _, _ := unchunk([]byte(c.wire[:n]))
	return data
}

// TestEngineDiesAtEveryByte: whatever the client got, what Ramjet appends
// makes it a proper body that ends in exactly one error event, or the
// connection closes without the last chunk.
func TestEngineDiesAtEveryByte(t *testing.T) {
	for _, c := range corpus() {
		if c.closes {
			continue // a cut cannot be told from the end
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ended := 0
			for _, i := range cutsOf(len(c.wire) - 1) {
				f := newFed(t, c.dialect, c.kind, c.headFor(c.wire))
				f.pour(c.wire[:i/2])
				f.pour(c.wire[i/2 : i])
				f.hangUp()
				if f.relay.done {
					t.Fatalf("%d bytes: taken for whole", i)
				}
				if f.sent.body {
					ended += c.checkDeath(t, f, i)
				}
				f.release()
			}
			if ended == 0 && strings.Contains(c.head, "chunked") {
				t.Error("no cut ended in an error event")
			}
		})
	}
}

func (c combination) checkDeath(t *testing.T, f *fed, at int) (ended int) {
	t.Helper()
	f.endStream(wire.CodeEngineDied, telemetry.EndEngineDied)
	f.out = append(f.out, f.sink.Bytes()...)
	data, whole := f.client(t)
	if f.close {
		if f.sink.Len() > 0 || f.sent.chunked && whole {
			t.Fatalf("%d bytes: closed, and yet %q was sent (whole: %v)", at, f.sink.Bytes(), whole)
		}
		if f.sent.chunked && !f.relay.seen.done {
			t.Fatalf("%d bytes: closed without need behind %q", at, data)
		}
		return 0
	}
	if !whole {
		t.Fatalf("%d bytes: the body has no end: %q", at, f.out)
	}
	event := string(wire.AppendErrorEvent(nil, c.dialect, &wire.Error{Code: wire.CodeEngineDied}, f.relay.seen.events))
	before, ok := strings.CutSuffix(data, event)
	if !ok || strings.Contains(before, "engine_died") {
		t.Fatalf("%d bytes: not exactly one error event at the end: %q", at, data)
	}
	if _, rest := slowBlocks(before); rest != "" || !strings.HasPrefix(c.decoded, before) {
		t.Fatalf("%d bytes: before the error event: %q", at, before)
	}
	return 1
}
