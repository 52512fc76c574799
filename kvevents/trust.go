package kvevents

import (
	"fmt"
	"time"

	"ramjet/telemetry"
)

// verdict is one immutable reading of a feed's trust.
type verdict struct {
	trust  telemetry.Trust
	reason string
	since  time.Time // when trust was entered
}

// oddWindow is how long an event that could not be used holds trust down: what it said is missing in the index, and
// answers show by then whether that matters.
const oddWindow = 30 * time.Second

// trustState is what trust is made of beside the history. It belongs to the feed's goroutine.
type trustState struct {
	began     time.Time
	anchor    time.Time // when the connection came
	isUp      bool
	everUp    bool
	downSince time.Time
	downErr   error

	lag        float64 // seconds, of the newest live batch
	lateAt     time.Time
	earliest   float64 // the least difference between the engine's stamps and our clock
	oddAt      time.Time
	silentAt   time.Time // since when an answer shows that an event must have come and none did
	rank       int       // of a batch, when only rank 0 was expected
	otherTopic string    // of a replayed batch that our subscription does not take
}

func (t *trustState) up() {
	t.isUp, t.everUp, t.earliest, t.rank, t.otherTopic = true, true, 0, 0, ""
}

func (t *trustState) down(err error) {
	t.isUp, t.downErr, t.downSince = false, err, time.Now()
}

// lagged takes the difference between our clock and a batch's stamp and returns the lag in seconds. A negative
// difference shows that the engine's clock is ahead, by at least that much; a positive one cannot be told from lag.
func (t *trustState) lagged(seconds float64) float64 {
	t.earliest = min(t.earliest, seconds)
	t.lag = seconds - t.earliest
	return t.lag
}

// wall is our wall clock less its jumps since the connection came (a time's Sub goes by the monotonic clock): one of an
// hour would look like events that come an hour late.
func (f *Feed) wall() time.Time { return f.trust.anchor.Add(f.o.Now().Sub(f.trust.anchor)) }

// evaluate finds the present trust and publishes it if it changed.
func (f *Feed) evaluate() {
	trust, reason := f.judge()
	old := f.verdict.Load()
	if old.trust == trust && old.reason == reason {
		return
	}
	now := f.o.Now()
	v := &verdict{trust: trust, reason: reason, since: now}
	if old.trust == trust {
		v.since = old.since
	} else {
		f.o.Log.Info("events: trust changed", "engine", f.o.Name, "from", old.trust, "to", trust, "reason", reason)
	}
	f.verdict.Store(v)
	if f.o.Trusted != nil {
		f.o.Trusted(trust, reason)
	}
}

// judge looks at what weighs most first.
func (f *Feed) judge() (telemetry.Trust, string) {
	t, h := &f.trust, &f.history
	const blind, degraded = telemetry.TrustBlind, telemetry.TrustDegraded
	if gone := f.gone.Load(); gone != nil && t.isUp {
		// The loss is known before the backlog in front of it is worked off.
		return degraded, "the connection was lost: " + (*gone).Error()
	}
	if !t.isUp {
		return f.judgeDown()
	}
	if trust, reason := f.audit.Silence(f.received.Load()); f.silent(trust != telemetry.TrustExact) {
		f.askWhy(trust)
		if t.otherTopic != "" {
			reason += fmt.Sprintf(": it publishes topic %q, and the subscription is %q", t.otherTopic, f.o.Topic)
		}
		return trust, reason
	}
	switch {
	case f.o.Ranks > 1:
		return degraded, fmt.Sprintf("%d data-parallel ranks: which one serves a request is not known", f.o.Ranks)
	case h.muted != "":
		return blind, h.muted
	case t.rank != 0:
		return degraded, fmt.Sprintf("events of data-parallel rank %d came: the engine has more than one", t.rank)
	case t.otherTopic != "" && h.lastLive != h.connection:
		return blind, fmt.Sprintf("nothing received: the engine publishes topic %q, and the subscription is %q", t.otherTopic, f.o.Topic)
	}
	if trust, reason, settled := f.judgeHistory(); settled {
		return trust, reason
	}
	now := f.o.Now()
	switch {
	case t.lag >= f.limits.Late.Seconds() && now.Sub(t.lateAt) < oddWindow:
		return degraded, fmt.Sprintf("events come %.0f s late", t.lag)
	case !t.oddAt.IsZero() && now.Sub(t.oddAt) < oddWindow:
		return degraded, "an event could not be used"
	}
	if n := f.o.Residency.Forgotten() - h.forgotten; n > 0 {
		// Nothing but a clear or a restart ends it: which blocks are gone is not known.
		return degraded, fmt.Sprintf("%d blocks more were announced than the cache holds: removals were lost", n)
	}
	if trust, reason := f.audit.Verdict(); trust != telemetry.TrustExact {
		if f.o.Wiring != nil {
			if hint := f.o.Wiring.Hint(f.o.Slot); hint != "" {
				reason += ": " + hint
			}
		}
		return trust, reason
	}
	if f.o.Wiring != nil {
		if same := f.o.Wiring.Same(f.o.Slot); same != "" {
			return degraded, same
		}
	}
	return telemetry.TrustExact, h.why
}

// silenceGrace is how long an event may be on its way behind the answer that shows that there must be one: it leaves the
// engine before the answer's first token (vLLM 0.32: 0.6 to 2 ms), but comes by another connection.
const silenceGrace = 100 * time.Millisecond

// silent reports whether a silence has lasted longer than an event may be on its way, and has trust judged again then.
func (f *Feed) silent(yes bool) bool {
	t := &f.trust
	switch {
	case !yes:
		t.silentAt = time.Time{}
		return false
	case t.silentAt.IsZero():
		t.silentAt = time.Now()
		time.AfterFunc(silenceGrace, func() { signal(f.wake) })
	}
	return time.Since(t.silentAt) >= silenceGrace
}

// askWhy asks, once a connection, for a replay when nothing is received: a ring that was empty when we came shows by now
// whether the engine publishes under another topic.
func (f *Feed) askWhy(trust telemetry.Trust) {
	h := &f.history
	if trust != telemetry.TrustBlind || h.asked == h.connection || h.lastLive == h.connection || f.o.Replay.Network == "" || f.repair.active() {
		return
	}
	h.asked = h.connection
	f.begin(causeAgain)
}

func (f *Feed) judgeDown() (telemetry.Trust, string) {
	t := &f.trust
	err := t.downErr
	if gone := f.gone.Load(); gone != nil {
		err = *gone
	}
	switch {
	case err == nil:
		return telemetry.TrustBlind, "not connected yet"
	case t.everUp && time.Since(t.downSince) < f.limits.Lost:
		return telemetry.TrustDegraded, "the connection was lost: " + err.Error()
	}
	return telemetry.TrustBlind, "not connected: " + err.Error()
}

// judgeHistory settles trust if the record is not whole.
func (f *Feed) judgeHistory() (trust telemetry.Trust, reason string, settled bool) {
	h, r := &f.history, &f.repair
	const blind, degraded = telemetry.TrustBlind, telemetry.TrustDegraded
	switch {
	case r.active() && h.known && h.complete && r.cause != causeConfirm:
		switch r.cause {
		case causeGap:
			return degraded, fmt.Sprintf("a gap at batch %d is being repaired", h.next), true
		case causeResync:
			return degraded, "predictions are off; the record is read anew", true
		default:
			return degraded, "connected; what was missed is being asked for", true
		}
	case r.active() && !h.known:
		return blind, "the record is being read", true
	case !h.known && h.why != "":
		return blind, h.why, true
	case !h.known && h.unanswered != nil:
		return blind, "the replay is unanswered: " + h.unanswered.Error(), true
	case !h.known:
		return blind, "nothing received yet", true
	case !h.complete:
		return blind, h.why, true
	case h.unsure:
		if f.o.Replay.Network != "" {
			return degraded, fmt.Sprint("batches may be missing, and the replay is unanswered: ", h.unanswered), true
		}
		return degraded, "reconnected; the next event will show whether one was missed", true
	}
	return 0, "", false
}
