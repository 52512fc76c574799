package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ramjet/config"
	"ramjet/engine"
	"ramjet/kvevents"
	"ramjet/proxy"
	"ramjet/radix"
	"ramjet/telemetry"
)

// TestTrustOverAChangeOfFeed: what the feed before was believed says nothing of
// the one that follows, which tells only what changes.
func TestTrustOverAChangeOfFeed(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never speaks
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	var out bytes.Buffer
	w := telemetry.NewLogWriter(&out)
	defer func() { _ = w.Close() }()
	metrics, index := telemetry.NewMetrics("", ""), radix.NewIndex()
	a := newFeeds(telemetry.NewLog(w, telemetry.LevelInfo, telemetry.FormatJSON), metrics, index, radix.NewMemory(), func(*engine.Engine, string) {})
	e := engine.New(engine.Options{Name: "a", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Metrics: metrics.Engine("a")})
	defer e.Close()
	cfg := &config.Engine{Name: "a", Events: "tcp://" + ln.Addr().String(), Replay: "off"}
	a.add(&member{cfg: cfg, engine: e, slot: 0})
	f := a.of(0)
	e.SetTrust(telemetry.TrustExact, "of the feed before")
	events, err := kvevents.ParseEndpoint(cfg.Events)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.follow(ctx, kvevents.Options{Name: "a", Events: events, Residency: f.held, Wiring: a.wiring, Metrics: f, Log: a.log, Trusted: e.SetTrust}, 0)
	}()
	soon(t, "the new feed follows", func() bool { return f.now.Load() != nil })
	if trust, why := e.Trust(); trust != telemetry.TrustBlind || strings.Contains(why, "before") {
		t.Errorf("the engine is %v: %s", trust, why)
	}
	cancel()
	<-done
}

// asked is a feed of an engine that answers for its event sources as h does.
func asked(t *testing.T, cfg *config.Engine, h http.HandlerFunc) *feedOf {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	m := serving(t, s.URL, 0)
	m.cfg = cfg
	metrics := telemetry.NewMetrics("", "")
	a := newFeeds(nil, metrics, radix.NewIndex(), radix.NewMemory(), func(*engine.Engine, string) {})
	a.add(m)
	return a.of(0)
}

const oneSource = `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558","topic":"its own"}}`

// twoSources is the same of an engine with two ranks, where the second's ports
// are one higher.
const twoSources = `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558"},
	"1":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5567","replay_endpoint":"tcp://*:5568"}}`

// TestReplayOfConfiguredEvents: auto is asked for, whatever events say, and
// nothing else is taken from the answer but how many ranks there are.
func TestReplayOfConfiguredEvents(t *testing.T) {
	t.Parallel()
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	hangUp := func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_ = c.Close()
		}
	}
	const elsewhere = "tcp://127.0.0.1:7" // as through a forwarder
	for name, c := range map[string]struct {
		events, replay string
		answer         http.HandlerFunc
		want           string
		ranks          int
		wait           time.Duration
	}{
		"told":           {elsewhere, "auto", answer(200, oneSource), "tcp://127.0.0.1:5558", 0, 0},
		"not told":       {elsewhere, "auto", answer(404, "{}"), "", 0, 0},
		"no events":      {elsewhere, "auto", answer(200, "{}"), "", 0, 0},
		"no answer":      {elsewhere, "auto", hangUp, "", 0, askSoon},
		"not now":        {elsewhere, "auto", answer(503, "{}"), "", 0, askSoon},
		"failing":        {elsewhere, "auto", answer(500, oneSource), "", 0, askSoon},
		"off":            {elsewhere, "off", answer(200, oneSource), "", 0, 0},
		"given":          {elsewhere, "tcp://127.0.0.1:9", answer(200, oneSource), "tcp://127.0.0.1:9", 0, 0},
		"first of two":   {"tcp://127.0.0.1:5557", "auto", answer(200, twoSources), "tcp://127.0.0.1:5558", 2, 0},
		"second of two":  {"tcp://localhost:5567", "auto", answer(200, twoSources), "tcp://127.0.0.1:5568", 2, 0},
		"neither of two": {elsewhere, "auto", answer(200, twoSources), "tcp://127.0.0.1:5558", 2, 0},
	} {
		f := asked(t, &config.Engine{Name: "a", Events: c.events, Replay: c.replay}, c.answer)
		o, why, wait := f.source(t.Context())
		if o.Events.String() != c.events || o.Replay.String() != c.want || o.Topic != "" || o.Ranks != c.ranks || why != "" || wait != c.wait {
			t.Errorf("%s: events %s, replay %q, topic %q, %d ranks, %q, ask after %s", name, o.Events, o.Replay, o.Topic, o.Ranks, why, wait)
		}
	}
}

// TestSourcesNotToldNow: an engine that fails is asked again soon, one that
// tells nothing is left alone for a while.
func TestSourcesNotToldNow(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]time.Duration{404: askAgain, 401: askAgain, 500: askSoon, 503: askSoon} {
		f := asked(t, &config.Engine{Name: "a", Events: "auto", Replay: "auto"}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		f.e.SetModels(engine.NewModels([]string{"m"}, [][]byte{[]byte("{}")}, nil))
		_, why, wait := f.source(t.Context())
		if wait != want || !strings.Contains(why, strconv.Itoa(status)) || strings.Contains(why, "set engines.events") != (want == askAgain) {
			t.Errorf("%d: %q, ask after %s", status, why, wait)
		}
	}
}

// TestReplayToldLater: an engine that could not be asked at first is asked
// again, and one that does not answer for a while is followed on.
func TestReplayToldLater(t *testing.T) {
	t.Parallel()
	var asks atomic.Int32
	f := asked(t, &config.Engine{Name: "a", Events: "tcp://127.0.0.1:7", Replay: "auto"}, func(w http.ResponseWriter, _ *http.Request) {
		if asks.Add(1) == 1 {
			if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
				_ = c.Close()
			}
			return
		}
		_, _ = w.Write([]byte(oneSource))
	})
	follow := func(o kvevents.Options, wait time.Duration) <-chan struct{} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); f.untilMoved(ctx, &o, wait) }()
		t.Cleanup(func() { cancel(); <-done })
		return done
	}
	known, _, _ := f.source(t.Context())
	unknown := known
	var err error
	if known.Replay, err = kvevents.ParseEndpoint("tcp://127.0.0.1:5558"); err != nil {
		t.Fatal(err)
	}
	asks.Store(0)
	on := follow(known, time.Millisecond)
	soon(t, "it is asked again", func() bool { return asks.Load() > 1 })
	select {
	case <-on:
		t.Error("an engine that does not answer is not followed on")
	default:
	}
	moved := follow(unknown, time.Millisecond)
	soon(t, "the replay socket is taken", func() bool {
		select {
		case <-moved:
			return true
		default:
			return false
		}
	})
}

// publishing listens as a publisher that greets and publishes nothing.
func publishing(t *testing.T) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hello := append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0}, "NULL"...) // without heartbeats
	hello = append(append(hello, make([]byte, 64-len(hello))...), "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"...)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = conn.Close() }()
				_, _ = conn.Write(hello)
				_, _ = io.Copy(io.Discard, conn)
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return "tcp://" + ln.Addr().String()
}

// TestAnswersOverAChangeOfFeed: an answer that began under the feed before says
// nothing of this one, and what that one learnt of hits neither.
func TestAnswersOverAChangeOfFeed(t *testing.T) {
	t.Parallel()
	f := asked(t, &config.Engine{Name: "a", Events: publishing(t), Replay: "off"}, http.NotFound)
	a := f.all
	follow := func() (end func()) {
		o, why, _ := f.source(t.Context())
		if why != "" {
			t.Fatal(why)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); f.follow(ctx, o, 0) }()
		end = func() { cancel(); <-done }
		t.Cleanup(end)
		soon(t, "the feed is connected", func() bool { feed := a.feed(0); return feed != nil && feed.Stats().Connected })
		return end
	}
	says := func() string { _, why, _ := a.feed(0).Trust(); return why }
	answer := func(sent, first proxy.Mark) { // that must have stored something
		a.Answered(0, &proxy.Audit{Prompt: 1000, Predicted: telemetry.Unknown, Other: telemetry.Unknown, Sent: sent, First: first})
	}
	none := a.Mark(0)
	end := follow()
	sent, first := a.Mark(0), a.First(0)
	f.held.SetDrop(1)
	end()
	follow()
	ids := []uint32{1, 2, 3, 4, 5}
	f.held.Store(&radix.Store{BlockTokens: 2, Root: radix.Root("", "", ""), Hashes: []uint64{1, 2}, IDs: ids[:4]})
	var hit [radix.MaxEngines]int32
	a.index.MatchPrompt(&radix.Prompt{Keys: radix.AppendKeys(nil, radix.Root("", "", ""), ids, 2), BlockTokens: 2, Tokens: len(ids), IDs: ids}, &hit)
	if hit[0] != 4 {
		t.Errorf("a prompt of two blocks hits %d tokens", hit[0])
	}
	answer(sent, first)
	answer(sent, a.First(0))
	answer(none, a.First(0))
	answer(a.Mark(0), a.First(0))
	soon(t, "one answer alone is held against the feed", func() bool { return says() == "a request filled blocks and no event came" })
	answer(a.Mark(0), a.First(0))
	soon(t, "and then another one", func() bool { return says() == "nothing received" })
}
