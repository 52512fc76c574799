package main

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"strings"
	"testing"

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
		f.follow(ctx, kvevents.Options{Name: "a", Events: events, Residency: f.held, Wiring: a.wiring, Metrics: f, Log: a.log, Trusted: e.SetTrust})
	}()
	soon(t, "the new feed follows", func() bool { return f.now.Load() != nil })
	if trust, why := e.Trust(); trust != telemetry.TrustBlind || strings.Contains(why, "before") {
		t.Errorf("the engine is %v: %s", trust, why)
	}
	cancel()
	<-done
}
