package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ramjet/config"
	"ramjet/engine"
	"ramjet/kvevents"
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

// TestReplayOfConfiguredEvents: auto is asked for, whatever events say, and
// nothing else is taken from the answer.
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
	for name, c := range map[string]struct {
		replay string
		answer http.HandlerFunc
		want   string
		wait   time.Duration
	}{
		"told":      {"auto", answer(200, oneSource), "tcp://127.0.0.1:5558", 0},
		"not told":  {"auto", answer(404, "{}"), "", 0},
		"no events": {"auto", answer(200, "{}"), "", 0},
		"no answer": {"auto", hangUp, "", askSoon},
		"not now":   {"auto", answer(503, "{}"), "", askSoon},
		"failing":   {"auto", answer(500, oneSource), "", askSoon},
		"off":       {"off", answer(200, oneSource), "", 0},
		"given":     {"tcp://127.0.0.1:9", answer(200, oneSource), "tcp://127.0.0.1:9", 0},
	} {
		f := asked(t, &config.Engine{Name: "a", Events: "tcp://127.0.0.1:7", Replay: c.replay}, c.answer)
		o, why, wait := f.source(t.Context())
		if o.Events.String() != "tcp://127.0.0.1:7" || o.Replay.String() != c.want || o.Topic != "" || o.Ranks != 0 || why != "" || wait != c.wait {
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
