package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"ramjet/engine"
	"ramjet/telemetry"
)

// busyWindow is how recently a request must have finished for a check that
// timed out to mean nothing (CONTRACT section 2).
const busyWindow = 30 * time.Second

// Limits of what is read from an engine. The metrics page of vLLM 0.32 with
// every histogram is about 100 KB.
const (
	maxHealth  = 4 << 10
	maxMetrics = 4 << 20
	maxModels  = 4 << 20
)

// watch is the monitor's side of one engine.
type watch struct {
	e       *engine.Engine
	metrics *telemetry.EngineMetrics
	wake    chan struct{} // capacity 1: look at until again
	early   atomic.Bool   // and check at once

	blemished atomic.Bool // a good outcome would change something
	accepts   atomic.Bool // the port took the last check's connection
	reported  atomic.Pointer[Reported]
	trying    atomic.Bool // a trial is under way

	h    health             // guarded by Monitor.mu
	stop context.CancelFunc // ends the loop, nil before there is one; guarded by Monitor.mu
	done chan struct{}      // closed when the loop ended; guarded by Monitor.mu

	// What follows belongs to the engine's loop.
	vital      vitals
	modelsRead time.Time
	tried      time.Time
}

// vitals are the signs of life that are compared between checks.
type vitals struct {
	sign      time.Time // last answer or byte from the engine
	bytesIn   uint64
	streams   int
	progress  uint64
	moved     time.Time // when the streams last moved or there were none
	tokens    float64   // the engine's own count of generated tokens, < 0 unknown
	tokensAt  time.Time // when that last moved
	startTime float64   // latest process start time seen, 0 unknown
}

func newWatch(e *engine.Engine, em *telemetry.EngineMetrics) *watch {
	s := e.Status()
	w := &watch{e: e, metrics: em, wake: make(chan struct{}, 1)}
	w.h = health{state: s.State, reason: s.Reason}
	w.vital.tokens = -1
	em.SetState(s.State)
	return w
}

// kick makes the loop check at once.
func (w *watch) kick() {
	w.early.Store(true)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// loop checks one engine until ctx ends.
func (m *Monitor) loop(ctx context.Context, w *watch) {
	var trials sync.WaitGroup
	defer trials.Wait()
	now := time.Now()
	w.vital.sign, w.vital.moved = now, now
	due := now
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-w.wake:
		}
		if w.early.Swap(false) || !time.Now().Before(due) {
			if !m.cycle(ctx, w, &trials) {
				return
			}
			due = time.Now().Add(jitter(m.tuning.Load().Interval))
		} else {
			m.apply(w, event{kind: timePassed})
		}
		timer.Reset(max(0, time.Until(m.sooner(w, due))))
	}
}

// sooner returns due or the end of what lasts for a time, whichever is first.
func (m *Monitor) sooner(w *watch, due time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u := w.h.until; !u.IsZero() && u.Before(due) {
		return u
	}
	return due
}

// jitter spreads an interval by 20 % each way, so that engines that started
// together are not checked together for ever.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// cycle is one check and what hangs on it. It reports false when ctx ended.
func (m *Monitor) cycle(ctx context.Context, w *watch, trials *sync.WaitGroup) bool {
	select {
	case m.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-m.slots }()

	ev, accepts := m.check(ctx, w)
	if ctx.Err() != nil {
		return false
	}
	w.accepts.Store(accepts)
	if ev.kind == checkGood {
		m.readModels(ctx, w)
	}
	m.apply(w, ev)
	if ev.kind == checkGood {
		m.readMetrics(ctx, w)
	}
	m.judgeStreams(w, time.Now())
	m.judgeLife(w, ev.kind != checkTimedOut, time.Now())
	m.forgetProcess(w)
	m.try(ctx, w, trials)
	return ctx.Err() == nil
}

// check asks for /health and says whether the port accepted a connection.
func (m *Monitor) check(ctx context.Context, w *watch) (ev event, accepts bool) {
	cctx, cancel := context.WithTimeout(ctx, m.tuning.Load().Timeout)
	defer cancel()
	status, _, err := m.o.Get(cctx, w.e, "/health", maxHealth)
	var op *net.OpError
	accepts = !(errors.As(err, &op) && op.Op == "dial")
	switch {
	case err == nil && status == http.StatusOK:
		ev.kind = checkGood
	case err == nil:
		ev = event{kind: checkFailed, detail: fmt.Sprintf("/health answered %d", status)}
	case engine.Refused(err):
		ev.kind, accepts = checkRefused, false
	case timedOut(err):
		last := w.e.LastFinish()
		ev = event{kind: checkTimedOut, busy: !last.IsZero() && time.Since(last) < busyWindow}
	default:
		ev = event{kind: checkFailed, detail: err.Error()}
	}
	return ev, accepts
}

func timedOut(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
}

// readMetrics reads the engine's own figures and looks for another process
// behind the same address.
func (m *Monitor) readMetrics(ctx context.Context, w *watch) {
	cctx, cancel := context.WithTimeout(ctx, m.tuning.Load().Timeout)
	defer cancel()
	status, body, err := m.o.Get(cctx, w.e, "/metrics", maxMetrics)
	if err != nil || status != http.StatusOK {
		w.vital.tokens = -1
		return
	}
	now := time.Now()
	r := parseMetrics(body)
	r.Time = now
	w.reported.Store(&r)
	if m.o.Read != nil {
		m.o.Read(w.e, &r)
	}
	v := &w.vital
	if r.GenerationTokens != v.tokens {
		if v.tokens >= 0 {
			v.tokensAt = now
		}
		v.tokens = r.GenerationTokens
	}
	// Only a later start is a restart: behind an address with several API
	// processes the answers may alternate.
	if r.StartTime > v.startTime {
		if v.startTime > 0 {
			m.apply(w, event{kind: restarted, detail: "its start time changed"})
			w.modelsRead = time.Time{}
		}
		v.startTime = r.StartTime
	}
}

// judgeStreams looks for an engine that holds streams and gives none of them
// a token, while its own counter stands still or cannot be read.
func (m *Monitor) judgeStreams(w *watch, now time.Time) {
	v := &w.vital
	n, progress := w.e.Streams()
	if n == 0 || n != v.streams || progress != v.progress {
		v.streams, v.progress, v.moved = n, progress, now
		return
	}
	stall := m.tuning.Load().Stall
	if stall <= 0 || now.Sub(v.moved) < stall {
		return
	}
	if v.tokens >= 0 && now.Sub(v.tokensAt) < stall {
		return
	}
	m.apply(w, event{kind: stalled, detail: fmt.Sprintf("%d streams without a token for %s", n, now.Sub(v.moved).Round(time.Millisecond))})
}

// judgeLife looks for an engine that neither answers nor sends a byte, and
// ends what waits for it.
func (m *Monitor) judgeLife(w *watch, alive bool, now time.Time) {
	v := &w.vital
	if b := w.e.BytesIn(); alive || b != v.bytesIn {
		v.bytesIn, v.sign = b, now
		return
	}
	if last := w.e.LastFinish(); last.After(v.sign) {
		v.sign = last
	}
	if stall := m.tuning.Load().Stall; stall <= 0 || now.Sub(v.sign) < stall {
		return
	}
	m.apply(w, event{kind: frozen, detail: fmt.Sprintf("no answer and no byte for %s", now.Sub(v.sign).Round(time.Millisecond))})
	w.e.AbortAll(telemetry.EndEngineStalled)
}

// forgetProcess drops what was known of a process that is gone: the next one
// warms up because it was down, and must not be called a restart on top.
func (m *Monitor) forgetProcess(w *watch) {
	if w.e.State() == telemetry.StateDown {
		w.vital.startTime, w.vital.tokens = 0, -1
		w.modelsRead = time.Time{}
	}
}
