//go:build !race

package proxy

import (
	"bytes"
	"context"
	"net"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

// loop is a client and an engine that allocate nothing, with a server between
// them: whatever is allocated while they talk is the server's.
type loop struct {
	t       testing.TB
	nc      net.Conn
	request []byte
	ends    []byte // how the client knows the end of an answer
	buf     []byte
}

// newLoop answers every request with parts, one write each.
func newLoop(t testing.TB, request, ends string, parts []string, tweaks ...func(*setup)) *loop {
	t.Helper()
	pieces := make([][]byte, len(parts))
	for i, p := range parts {
		pieces[i] = []byte(p)
	}
	_, body, _ := strings.Cut(request, "\r\n\r\n")
	f := start(t, []script{func(x *exchange) {
		// From the second request on the exchange would allocate, so this
		// script takes the connection for good.
		last := []byte(body[len(body)-1:]) // what is spliced in stands before it
		buf := make([]byte, 512<<10)
		for {
			for _, p := range pieces {
				if _, err := x.conn.Write(p); err != nil {
					return
				}
			}
			for n := 0; n == 0 || !bytes.HasSuffix(buf[:n], last); {
				k, err := x.conn.Read(buf[n:])
				if err != nil {
					return
				}
				n += k
			}
		}
	}}, tweaks...)
	nc, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &loop{t: t, nc: nc, request: []byte(request), ends: []byte(ends), buf: make([]byte, 1<<20)}
}

// round sends one request and reads its answer.
func (l *loop) round() {
	if _, err := l.nc.Write(l.request); err != nil {
		l.t.Fatal(err)
	}
	for n := 0; n == 0 || !bytes.HasSuffix(l.buf[:n], l.ends); {
		k, err := l.nc.Read(l.buf[n:])
		if err != nil {
			l.t.Fatal(err)
		}
		n += k
	}
}

// mallocs returns the allocations of one round, averaged over many, with the
// collector off: it would empty the pools at moments of its own.
func (l *loop) mallocs(rounds int) float64 {
	l.t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for range 50 {
		l.round()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		l.round()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(rounds)
}

// streamOf is a stream of n tokens, one write an event.
func streamOf(n int) []string {
	parts := []string{streamHead + chunk(roleEvent)}
	for range n {
		parts = append(parts, chunk(tokenEvent))
	}
	return append(parts, chunk(usageEvent)+chunk(doneEvent)+endOfBody)
}

// TestRelayedRequestsAllocateNothing in the steady state, with the log,
// metrics and leases on: at most one allocation a request, and none an event.
func TestRelayedRequestsAllocateNothing(t *testing.T) {
	short := newLoop(t, post(chatPath, chatBody), answerBody, []string{plainAnswer})
	few := newLoop(t, post(chatPath, chatSBody), "\r\n0\r\n\r\n", streamOf(20))
	many := newLoop(t, post(chatPath, chatSBody), "\r\n0\r\n\r\n", streamOf(520))
	answer, stream20, stream520 := short.mallocs(2000), few.mallocs(500), many.mallocs(100)
	perEvent := (stream520 - stream20) / 500
	t.Logf("a short answer %.3f, a stream of 20 events %.3f, of 520 %.3f: %.5f an event", answer, stream20, stream520, perEvent)
	if answer > 1 || stream20 > 1 || stream520 > 1 {
		t.Errorf("more than one allocation a request: %.3f, %.3f, %.3f", answer, stream20, stream520)
	}
	if perEvent > 0.001 {
		t.Errorf("%.5f allocations an event", perEvent)
	}
}

// TestEveryPathAllocatesLittle reports the other paths: at most one allocation
// a request there too.
func TestEveryPathAllocatesLittle(t *testing.T) {
	responses, messages := dialectBodies[2], dialectBodies[3]
	for _, c := range []struct {
		name, request, ends string
		parts               []string
		tweak               func(*setup)
	}{
		{"responses", post(responses.path, `{"model":"m","stream":true,"input":"x"}`), endOfBody, []string{streamHead + framings[0].frame(responses.events)}, nil},
		{"messages", post(messages.path, `{"model":"m","stream":true,"messages":[],"max_tokens":5}`), endOfBody, []string{streamHead + framings[0].frame(messages.events)}, nil},
		{"embeddings", post("/v1/embeddings", `{"model":"m","input":"x"}`), "[1]}", []string{sized("200 OK", "application/json", `{"data":[1]}`)}, nil},
		{"large request", post(chatPath, `{"model":"m","messages":[{"content":"`+strings.Repeat("x", 200<<10)+`"}]}`), answerBody, []string{plainAnswer}, nil},
		{"usage injected", post(chatPath, chatSBody), "\r\n" + endOfBody, streamOf(20), func(s *setup) { s.InjectUsage = true }},
		{"alias", post(chatPath, `{"model":"gpt"}`), answerBody, []string{plainAnswer}, func(s *setup) { s.Aliases = map[string]string{"gpt": "m"} }},
		{"server timing", post(chatPath, chatBody), answerBody, []string{plainAnswer}, func(s *setup) { s.ServerTiming = true }},
		{"chunk across events", post(chatPath, chatSBody), "\r\n" + endOfBody, []string{streamHead + inChunks(wholeStream, 50) + endOfBody}, nil},
	} {
		tweaks := []func(*setup){}
		if c.tweak != nil {
			tweaks = append(tweaks, c.tweak)
		}
		n := newLoop(t, c.request, c.ends, c.parts, tweaks...).mallocs(300)
		t.Logf("%s: %.3f", c.name, n)
		if n > 1 {
			t.Errorf("%s: %.3f allocations a request", c.name, n)
		}
	}
}

// BenchmarkShortAnswer is a whole request on connections that exist.
func BenchmarkShortAnswer(b *testing.B) {
	l := newLoop(b, post(chatPath, chatBody), answerBody, []string{plainAnswer})
	l.round()
	b.ReportAllocs()
	for b.Loop() {
		l.round()
	}
}

// BenchmarkStream500 is a stream of 500 events.
func BenchmarkStream500(b *testing.B) {
	l := newLoop(b, post(chatPath, chatSBody), "\r\n0\r\n\r\n", streamOf(500))
	l.round()
	b.ReportAllocs()
	for b.Loop() {
		l.round()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/event")
}

// BenchmarkRelayEvent is the relay's own work on one event, without sockets.
func BenchmarkRelayEvent(b *testing.B) {
	f := newFed(b, 0, kindChat, chunkedHead)
	event := chunk(tokenEvent)
	f.sent.body, f.settled = true, true
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	for b.Loop() {
		n := copy(f.relay.space(), event)
		f.relay.took(n)
		f.relay.wrote(len(f.relay.pending()))
		f.relay.giveSpace()
	}
}

// TestRequestsThatAreNotDrawnAllocateNothing for comparisons.
func TestRequestsThatAreNotDrawnAllocateNothing(t *testing.T) {
	f := drawn(t, simModel(t), Options{Beside: func(func(context.Context)) bool { return true }})
	f.beside(nil) // the first is
	if n := testing.AllocsPerRun(100, func() { f.beside(nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
