package probe

import (
	"context"
	"errors"
	"fmt"
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
	due     atomic.Int64  // when traffic may take the check, in nanoseconds from Monitor.born; 0 is never

	blemished atomic.Bool // a good outcome would change something
	reported  atomic.Pointer[Reported]
	trying    atomic.Bool // a trial is under way

	h     health             // guarded by Monitor.mu
	meets *moment            // when the next check is due, nil before the first; guarded by Monitor.mu
	stop  context.CancelFunc // ends the loop, nil before there is one; guarded by Monitor.mu
	done  chan struct{}      // closed when the loop ended; guarded by Monitor.mu

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
	w.blemished.Store(true) // it has served nothing yet
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
	defer m.leave(w)
	now := time.Now()
	w.vital.sign, w.vital.moved = now, now
	due, late := now, now
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
			due, late = m.meet(w, m.tuning.Load().Interval)
		} else {
			m.apply(w, event{kind: timePassed})
		}
		m.expect(w, due)
		timer.Reset(max(0, time.Until(m.sooner(w, late))))
	}
}

// sooner returns late or the end of what lasts for a time, whichever is first.
func (m *Monitor) sooner(w *watch, late time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u := w.h.until; !u.IsZero() && u.Before(late) {
		return u
	}
	return late
}

// cycle is one check and what hangs on it. It reports false when ctx ended.
func (m *Monitor) cycle(ctx context.Context, w *watch, trials *sync.WaitGroup) bool {
	select {
	case m.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-m.slots }()

	m.forgetProcess(w)
	ev, answered := m.check(ctx, w)
	if ctx.Err() != nil {
		return false
	}
	if ev.kind == checkGood {
		m.readModels(ctx, w)
	}
	m.apply(w, ev)
	if ev.kind == checkGood {
		m.readMetrics(ctx, w)
	}
	m.judgeStreams(w, time.Now())
	m.judgeLife(w, answered, time.Now())
	m.try(ctx, w, trials)
	return ctx.Err() == nil
}

// check asks for /health, notes whether the port accepted a connection, and
// says whether anything there answered, be it that nothing listens.
func (m *Monitor) check(ctx context.Context, w *watch) (ev event, answered bool) {
	cctx, cancel := context.WithTimeout(ctx, m.tuning.Load().Timeout)
	defer cancel()
	page := takePage()
	defer page.give()
	status, body, err := m.o.Get(cctx, w.e, "/health", page.b, maxHealth)
	page.keep(body)
	if ctx.Err() != nil {
		return event{}, false // the answer is to Ramjet's stop
	}
	if engine.Starved(err) {
		return event{kind: timePassed}, true // nothing was asked, and nobody is to blame for that
	}
	var op *net.OpError
	accepts := !(errors.As(err, &op) && op.Op == "dial")
	// A name that does not resolve and a host that cannot be reached are no
	// sign of life: what waits there would else wait for ever.
	answered = accepts
	switch {
	case err == nil && status == http.StatusOK:
		ev.kind = checkGood
	case err == nil:
		ev = event{kind: checkFailed, detail: fmt.Sprintf("/health answered %d", status)}
	case engine.Refused(err):
		ev.kind, accepts, answered = checkRefused, false, true
	case timedOut(err):
		answered = false
		last := w.e.LastFinish()
		ev = event{kind: checkTimedOut, busy: !last.IsZero() && time.Since(last) < busyWindow}
	default:
		ev = event{kind: checkFailed, detail: err.Error()}
	}
	w.e.SetAccepts(accepts)
	return ev, answered
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
	page := takePage()
	defer page.give()
	status, body, err := m.o.Get(cctx, w.e, "/metrics", page.b, maxMetrics)
	page.keep(body)
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
	n, blocked, progress := w.e.Streams()
	n -= blocked // those wait for their clients, which says nothing of the engine
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
func (m *Monitor) judgeLife(w *watch, answered bool, now time.Time) {
	v := &w.vital
	if b := w.e.BytesIn(); answered || b != v.bytesIn {
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

// forgetProcess drops what was known of a process that is gone: its loss was
// told, and the next one must not be called a restart on top. One that is down
// and lives may still be followed by another without a refusal in between.
func (m *Monitor) forgetProcess(w *watch) {
	m.mu.Lock()
	state, served := w.h.state, w.h.served
	m.mu.Unlock()
	if state == telemetry.StateDown {
		w.vital.tokens = -1
		w.modelsRead = time.Time{}
	}
	if !served {
		w.vital.startTime = 0
	}
}
