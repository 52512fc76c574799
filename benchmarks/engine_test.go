package benchmarks

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func newTestEngine(t *testing.T) *Engine {
	t.Helper()
	e, err := NewEngine("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// The engine keeps its pace: no event is sent before its time, and none is forgotten.
func TestEnginePaces(t *testing.T) {
	t.Parallel()
	e := newTestEngine(t)
	c := newClient(e.clock, e.Addr())
	defer c.close()
	ask := Ask{Seed: 1, Tokens: 20, PaceMicros: 5_000, FirstMicros: 8_000, Stream: true}
	var late []int64
	err := c.do(ask, false, 10*time.Second, func(i int, sent, received int64) {
		due := received + int64(ask.FirstMicros+i*ask.PaceMicros)*1000
		if sent < due {
			t.Errorf("event %d was sent %d us early", i, (due-sent)/1000)
		}
		late = append(late, sent-due)
	})
	if err != nil || len(late) != ask.Tokens {
		t.Fatalf("%v, %d events", err, len(late))
	}
	// Absolute times: lateness must not add up. A busy machine may hold up some events, not the quickest.
	if q := quantilesOf(late); late[0] > int64(20*time.Millisecond) {
		t.Errorf("even the most punctual event was %d us late: %+v", late[0]/1000, q)
	}
	if n := e.Counts(); n.Tokens != 20 || n.Requests != 1 || n.Aborted != 0 {
		t.Errorf("%+v", n)
	}
}

// Head, events and end are writes of their own: what a client reads first is the head alone.
func TestEngineSendsTheHeadAtOnce(t *testing.T) {
	t.Parallel()
	e := newTestEngine(t)
	conn, err := net.Dial("tcp", e.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ask := Ask{Seed: 1, Tokens: 1, FirstMicros: 30_000_000, Stream: true}
	request, _ := ask.appendRequest(nil, nil, e.Addr(), false)
	if _, err := conn.Write(request); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second)) // the first event comes after 30 s
	buf := make([]byte, 4096)
	n, err := io.ReadAtLeast(conn, buf, len(streamHead))
	if err != nil || string(buf[:n]) != streamHead {
		t.Errorf("%q %v", buf[:n], err)
	}
}

func TestEngineAnswersAsARouterAsks(t *testing.T) {
	t.Parallel()
	e := newTestEngine(t)
	for path, want := range map[string]string{
		"/health": "", "/version": `{"version":"0.32.0"}`, "/v1/models": `"id":"bench-model"`, "/metrics": "bench_tokens_total 0\n",
		"/kv_event_sources": "Not Found",
	} {
		resp, err := http.Get("http://" + e.Addr() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		ok := resp.StatusCode == 200 || path == "/kv_event_sources" && resp.StatusCode == 404
		if err != nil || !ok || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d %q %v", path, resp.StatusCode, body, err)
		}
	}
}

func TestEngineNoticesAClientThatLeaves(t *testing.T) {
	t.Parallel()
	e := newTestEngine(t)
	conn, err := net.Dial("tcp", e.Addr())
	if err != nil {
		t.Fatal(err)
	}
	request, _ := Ask{Seed: 1, Tokens: 10_000, PaceMicros: 1_000, Stream: true}.appendRequest(nil, nil, e.Addr(), false)
	if _, err := conn.Write(request); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	for end := time.Now().Add(10 * time.Second); e.Counts().Aborted == 0 || e.Counts().InFlight != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the stream goes on: %+v", e.Counts())
		}
	}
}

func TestLoadCountsAndMeasures(t *testing.T) {
	t.Parallel()
	a, b := newTestEngine(t), newTestEngine(t)
	for _, fresh := range []bool{false, true} {
		before := a.Counts().Requests
		res, err := Load(LoadSpec{
			Mode: ModeStream, Targets: []string{a.Addr(), b.Addr()}, Streams: 4, Requests: 3, Warm: 1, Tokens: 5, PaceMicros: 1000, FirstMicros: 1000,
			NewConnections: fresh, Seed: 3,
		})
		if err != nil || res.Errors != 0 || res.Requests != 16 || res.Tokens != 80 || res.TTFT.N != 12 || res.OneWay.N != 48 || res.Whole.N != 12 {
			t.Errorf("fresh %v: %+v %v", fresh, res, err)
		}
		// The engine's own wait of 1 ms is no part of the TTFT; its streams last 5 ms at least.
		if res.TTFT.P50 <= 0 || res.OneWay.P50 <= 0 || res.Whole.P50 < int64(5*time.Millisecond) {
			t.Errorf("fresh %v: %+v", fresh, res)
		}
		if n := a.Counts().Requests - before; n != 8 {
			t.Errorf("fresh %v: %d of 16 requests went to the first of two engines", fresh, n)
		}
	}
	res, err := Load(LoadSpec{Mode: ModeShort, Targets: []string{a.Addr()}, Streams: 2, Tokens: 2, Seconds: 0.2})
	if err != nil || res.Errors != 0 || res.Requests < 2 || res.Tokens != 2*res.Requests {
		t.Errorf("short: %+v %v", res, err)
	}
	if _, err := Load(LoadSpec{Mode: "other", Targets: []string{a.Addr()}, Streams: 1}); err == nil {
		t.Error("an unknown mode was taken")
	}
}

// corruptor passes bytes on and changes one of the answer.
func corruptor(t *testing.T, engine string, change func(answer []byte, offset int)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", engine)
			if err != nil {
				_ = c.Close()
				continue
			}
			wg.Go(func() { _, _ = io.Copy(up, c); _ = up.Close() })
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				buf, offset := make([]byte, 32<<10), 0
				for {
					n, err := up.Read(buf)
					change(buf[:n], offset)
					offset += n
					if _, werr := c.Write(buf[:n]); werr != nil || err != nil {
						return
					}
				}
			})
		}
	})
	return l.Addr().String()
}

// One changed byte in the middle of a stream makes the load generator report an error, which makes the figure fail.
func TestLoadNoticesACorruptedEvent(t *testing.T) {
	t.Parallel()
	e := newTestEngine(t)
	spec := LoadSpec{Mode: ModeStream, Streams: 1, Requests: 1, Tokens: 10, PaceMicros: 1000, Seed: 1}
	at := len(streamHead) + 1000
	flip := func(p []byte, offset int) {
		if i := at - offset; i >= 0 && i < len(p) {
			p[i] ^= 4
		}
	}
	spec.Targets = []string{corruptor(t, e.Addr(), func([]byte, int) {})}
	if res, err := Load(spec); err != nil || res.Errors != 0 {
		t.Fatalf("the honest relay failed: %+v %v", res, err)
	}
	spec.Targets = []string{corruptor(t, e.Addr(), flip)}
	res, err := Load(spec)
	if err != nil || res.Errors != 1 || res.FirstError == "" {
		t.Errorf("the corrupted event was not noticed: %+v %v", res, err)
	}
}

func TestHoldReportsEachStep(t *testing.T) {
	t.Parallel()
	e := newTestEngine(t)
	var got []HoldReport
	err := Hold(HoldSpec{Targets: []string{e.Addr()}, Steps: []int{5, 20}, PerSecond: 1000, PaceMicros: 100_000, Seed: 1}, func(r HoldReport) {
		got = append(got, r)
		if n := e.Counts().InFlight; n != int64(r.Want) {
			t.Errorf("the engine has %d streams, want %d", n, r.Want)
		}
	})
	if err != nil || len(got) != 2 || got[0] != (HoldReport{Want: 5, Live: 5}) || got[1] != (HoldReport{Want: 20, Live: 20}) {
		t.Errorf("%+v %v", got, err)
	}
	for end := time.Now().Add(10 * time.Second); e.Counts().InFlight != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("streams were not hung up: %+v", e.Counts())
		}
	}
}

func TestHoldCountsStreamsThatFail(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	var got HoldReport
	err = Hold(HoldSpec{Targets: []string{address}, Steps: []int{3}, PerSecond: 1000, PaceMicros: 1000}, func(r HoldReport) { got = r })
	if err != nil || got.Live != 0 || got.Errors != 3 || got.First == "" {
		t.Errorf("%+v %v", got, err)
	}
}
