package sim

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// placeSlowly is the obvious twin of wirePlace.find on a whole flow: the
// place as an index, -1 if it lies beyond.
func placeSlowly(p []byte, f WireFault) int {
	rest, at := p, 0
	for range f.AtEvent {
		i := bytes.Index(rest, []byte("\n\n"))
		if i < 0 {
			return -1
		}
		at, rest = at+i+2, rest[i+2:]
	}
	if int(f.AtByte) > len(rest) {
		return -1
	}
	return at + int(f.AtByte)
}

func TestPlacesCutAtEveryByte(t *testing.T) {
	t.Parallel()
	flow := []byte("HTTP/1.1 200 OK\r\n\r\n5\r\ndata: a\n\n\r\ndata: b\n\n\n\ndata: c\n\n")
	for event := range 6 {
		for n := range flow {
			f := WireFault{AtEvent: event, AtByte: int64(n)}
			want := placeSlowly(flow, f)
			for cut := range len(flow) + 1 {
				w := newWirePlace(f)
				got := w.find(flow[:cut])
				if !w.reached {
					got += w.find(flow[cut:])
				}
				if !w.reached {
					got = -1
				}
				if got != want {
					t.Fatalf("event %d byte %d cut at %d: %d, want %d", event, n, cut, got, want)
				}
			}
		}
	}
}

// between puts a fault proxy in front of a server.
func between(t *testing.T, s *Server) *FaultProxy {
	t.Helper()
	p, err := NewFaultProxy(FaultProxyOptions{Target: s.Addr(), Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestFaultProxyAtChosenEvents(t *testing.T) {
	t.Parallel()
	o := fast()
	s := start(t, o)
	p := between(t, s)
	raw := post("/v1/completions", `{"prompt":"x","stream":true,"max_tokens":40}`, "Connection: close\r\n", "X-Request-Id: one\r\n")
	through := func(f WireFault) (string, error) {
		p.Next(f)
		c := dial(t, p.Addr())
		defer c.Close()
		if _, err := io.WriteString(c, raw); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(c)
		return string(b), err
	}
	want := ExpectedText(7, Tokenizer().Encode("x"), 40)
	if got, err := through(WireFault{}); err != nil || said(got) != want || !strings.HasSuffix(got, "0\r\n\r\n") {
		t.Errorf("nothing: %v %q", err, got)
	}
	if got, err := through(WireFault{Kind: "slice"}); err != nil || said(got) != want {
		t.Errorf("slice: %v %q", err, got)
	}
	if got, err := through(WireFault{Kind: "cut", AtEvent: 1, AtByte: 9}); err != nil || strings.Count(got, "\n\n") != 1 || !strings.HasPrefix(got[strings.Index(got, "\n\n")+2:], "\r\n") {
		t.Errorf("cut: %v %q", err, got)
	} else if n := len(got) - strings.Index(got, "\n\n") - 2; n != 9 {
		t.Errorf("cut %d bytes after the event", n)
	}
	if got, err := through(WireFault{Kind: "reset", AtEvent: 1}); !errors.Is(err, syscall.ECONNRESET) || strings.Count(got, "\n\n") > 1 {
		t.Errorf("reset: %v %q", err, got)
	}
	begin := time.Now()
	if got, err := through(WireFault{Kind: "stall", AtEvent: 1, Seconds: 0.1}); err != nil || said(got) != want || time.Since(begin) < 100*time.Millisecond {
		t.Errorf("stall: %v after %v %q", err, time.Since(begin), got)
	}
	begin = time.Now()
	if got, err := through(WireFault{Kind: "delay", Seconds: 0.05}); err != nil || said(got) != want || time.Since(begin) < 50*time.Millisecond {
		t.Errorf("delay: %v after %v %q", err, time.Since(begin), got)
	}
	if got, _ := through(WireFault{Kind: "corrupt", AtByte: 4}); strings.HasPrefix(got, "HTTP/1.1 ") || !strings.HasPrefix(got, "HTTP") {
		t.Errorf("corrupt: %q", got)
	}
	if n := p.Connections(); n != 7 {
		t.Errorf("%d connections", n)
	}
}

// TestFaultProxyIsSeeded: the same seed damages the same bit.
func TestFaultProxyIsSeeded(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	var seen []string
	for range 2 {
		p := between(t, s)
		p.Always(WireFault{Kind: "corrupt", AtByte: 9})
		c := dial(t, p.Addr())
		if _, err := io.WriteString(c, get("/version")); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, line)
	}
	if seen[0] != seen[1] || seen[0] == "HTTP/1.1 200 OK\r\n" {
		t.Errorf("%q", seen)
	}
}

func TestFaultProxyOnRequests(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	p := between(t, s)
	p.Always(WireFault{Kind: "cut", AtByte: 20, Request: true})
	c := dial(t, p.Addr())
	_, _ = io.WriteString(c, post("/v1/completions", `{"prompt":"x"}`))
	if b, _ := io.ReadAll(c); len(b) != 0 {
		t.Errorf("answered %q", b)
	}
	if st := s.State(); st.Requests != 0 {
		t.Errorf("%+v", st)
	}
}

func TestFaultProxyStallEndsWithTheClient(t *testing.T) {
	t.Parallel()
	o := fast()
	o.Core.Speed = 1
	s := start(t, o)
	p := between(t, s)
	p.Always(WireFault{Kind: "stall", AtEvent: 1})
	c := dial(t, p.Addr())
	if _, err := io.WriteString(c, post("/v1/completions", `{"prompt":"x","stream":true,"max_tokens":2000}`)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "tokens", func() bool { return s.State().OutputTokens > 3 })
	_ = c.Close()
	eventually(t, "the abort", func() bool { return s.State().Aborted == 1 })
}

func TestFaultProxyWithoutAnEngine(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	p, err := NewFaultProxy(FaultProxyOptions{Target: ln.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c := dial(t, p.Addr())
	if b, err := io.ReadAll(c); len(b) != 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v %q", err, b)
	}
}
