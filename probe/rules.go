package probe

import (
	"fmt"
	"time"

	"ramjet/telemetry"
)

// Rules are the limits that decide a state (CONTRACT section 1, health and
// eject). They have no floor, so that tests can shorten them.
type Rules struct {
	Successes  int           // good checks in a row that end warming
	Stable     time.Duration // and the least time since the first of them
	SlowStart  time.Duration // how long slow-start lasts
	Failures   int           // failed checks in a row that fence an engine
	Stall      time.Duration // silence that makes an engine stalled or frozen; 0 = never
	EjectAfter int           // own failures in a row that eject an engine; 0 = none do
	EjectBase  time.Duration // first ejection; the n-th lasts n times as long
	EjectMax   time.Duration // longest ejection
}

// recoverGood is how many good checks in a row a suspect engine needs beside
// one finished request (CONTRACT section 2).
const recoverGood = 3

// health is all that the rules know about one engine: a value, so that a
// transition is a function and a table can test it.
type health struct {
	state  telemetry.State
	reason string

	late      bool      // it was added while Ramjet ran: it is new
	asked     bool      // a check was answered or refused since Ramjet started
	served    bool      // its process answered well once and is not known to be gone
	good      int       // good checks in a row
	firstGood time.Time // the first of them
	failed    int       // checks in a row that an answer or a broken connection failed
	timedOut  int       // checks in a row without an answer, idle engine
	finished  bool      // a request finished since the engine became suspect
	unheard   bool      // it became suspect because checks timed out
	own       int       // own failures of requests in a row

	until     time.Time // when slow-start or ejected ends; zero if nothing does
	ejections int       // n of the next ejection's length, less one
	lastEject time.Time // when the last ejection ended
}

// kind says what happened. The list is closed.
type kind uint8

const (
	checkGood      kind = iota // /health answered 200
	checkRefused               // nothing listens there
	checkFailed                // /health answered otherwise, or the connection broke
	checkTimedOut              // no answer in time
	requestGood                // a request finished there
	trialRefused               // a trial was answered that only a client's request would finish
	requestRefused             // a request could not connect
	requestFailed              // an own failure of the engine
	requestAborted             // the engine gave a request up: it is stopping
	restarted                  // its process is another one
	stalled                    // its streams stand still
	frozen                     // no sign of life at all
	timePassed                 // a time in until may have come
	removed                    // it is not configured any more
	orderDrain                 // by an operator
	orderReady
	orderEject
)

// event is one thing that happened, with what the rules need beside it.
type event struct {
	kind   kind
	detail string             // for people
	busy   bool               // checkTimedOut: a real request finished there lately
	others bool               // requestFailed: another engine is usable
	cause  telemetry.Ejection // requestFailed: its kind
}

func usable(s telemetry.State) bool {
	return s == telemetry.StateReady || s == telemetry.StateSlowStart
}

// enter changes the state and forgets what only the old state counted. What the
// process served is its own, whatever state it is in.
func (h health) enter(s telemetry.State, reason string) health {
	h.state, h.reason = s, reason
	h.until = time.Time{}
	h.good, h.firstGood = 0, time.Time{}
	h.failed, h.timedOut, h.own = 0, 0, 0
	h.finished, h.unheard = false, false
	return h
}

func (h health) slowStart(r Rules, now time.Time, reason string) health {
	h = h.enter(telemetry.StateSlowStart, reason)
	h.until = now.Add(r.SlowStart)
	return h
}

// next is the table of CONTRACT section 2.
func next(r Rules, h health, ev event, now time.Time) health {
	h = passTime(r, h, now)
	switch ev.kind {
	case checkGood:
		return nextGood(r, h, now)
	case checkFailed, checkTimedOut:
		return nextBad(r, h, ev)
	case checkRefused, requestRefused:
		h.asked, h.served = true, false
		return fence(h, reasonRefused)
	case requestGood:
		h.own, h.finished, h.served = 0, true, true
		return recovered(h)
	case trialRefused:
		// It was answered, which is what checks that timed out put in doubt. Of
		// one that stood still or gave requests up it says nothing.
		h.finished = h.finished || h.unheard
		return recovered(h)
	case requestFailed:
		return nextOwnFailure(r, h, ev, now)
	case requestAborted:
		return suspect(h, "gave a request up: "+ev.detail)
	case restarted:
		h.served = false
		return fence(h, reasonRestarted+ev.detail)
	case stalled:
		return suspect(h, "stalled: "+ev.detail)
	case frozen:
		return fence(h, "frozen: "+ev.detail)
	case timePassed:
		return h
	case removed:
		return h.enter(telemetry.StateDraining, "removed from the configuration")
	case orderDrain:
		return h.enter(telemetry.StateDraining, "drained by an operator")
	case orderReady:
		return h.slowStart(r, now, "made ready by an operator")
	case orderEject:
		// A person's word outlasts the automatic one.
		h = h.enter(telemetry.StateEjected, "ejected by an operator")
		h.until = now.Add(r.EjectMax)
		return h
	}
	panic("BUG: unknown event")
}

// passTime ends what lasts for a time.
func passTime(r Rules, h health, now time.Time) health {
	if h.until.IsZero() || now.Before(h.until) {
		return h
	}
	switch h.state {
	case telemetry.StateSlowStart:
		return h.enter(telemetry.StateReady, "slow start is over")
	case telemetry.StateEjected:
		h.lastEject = now
		return h.slowStart(r, now, "ejection is over")
	default:
		return h
	}
}

// Why what a process held is lost.
const (
	reasonRefused   = "connection refused"
	reasonRestarted = "process restarted: "
)

// fence puts the engine down, unless an operator drains it.
func fence(h health, reason string) health {
	if h.state == telemetry.StateDraining {
		return h
	}
	if h.state == telemetry.StateDown {
		h.reason = reason
		return h
	}
	return h.enter(telemetry.StateDown, reason)
}

func suspect(h health, reason string) health {
	if !usable(h.state) {
		return h
	}
	return h.enter(telemetry.StateSuspect, reason)
}

// unheard suspects an engine whose checks time out.
func unheard(h health) health {
	was := usable(h.state)
	h = suspect(h, fmt.Sprintf("%d checks timed out", h.timedOut))
	h.unheard = h.unheard || was
	return h
}

func recovered(h health) health {
	if h.state == telemetry.StateSuspect && h.good >= recoverGood && h.finished {
		return h.enter(telemetry.StateReady, "three good checks and a finished request")
	}
	return h
}

func nextGood(r Rules, h health, now time.Time) health {
	first := !h.asked
	h.asked, h.served = true, true
	if first && h.state == telemetry.StateDown && !h.late {
		// An engine that was there before Ramjet is not new.
		return h.enter(telemetry.StateReady, "answered when Ramjet started")
	}
	if h.state == telemetry.StateDown {
		reason := "answers again"
		if first {
			reason = "answers for the first time"
		}
		h = h.enter(telemetry.StateWarming, reason)
	}
	h.failed, h.timedOut = 0, 0
	if h.good == 0 {
		h.firstGood = now
	}
	h.good++
	if h.state == telemetry.StateWarming && h.good >= r.Successes && now.Sub(h.firstGood) >= r.Stable {
		return h.slowStart(r, now, fmt.Sprintf("%d good checks in %s", h.good, now.Sub(h.firstGood).Round(time.Millisecond)))
	}
	return recovered(h)
}

func nextBad(r Rules, h health, ev event) health {
	if ev.kind == checkTimedOut {
		if ev.busy && h.state != telemetry.StateWarming {
			return h // a saturated engine starves its probes
		}
		h.good = 0
		if !h.asked {
			h.reason = "check timed out"
		}
		h.timedOut++
		if h.timedOut >= r.Failures {
			return unheard(h)
		}
		return h
	}
	h.asked = true
	h.good = 0
	h.failed++
	if h.state == telemetry.StateDown {
		h.reason = "check failed: " + ev.detail
	}
	if h.failed >= r.Failures {
		return fence(h, fmt.Sprintf("%d checks failed: %s", h.failed, ev.detail))
	}
	return h
}

func nextOwnFailure(r Rules, h health, ev event, now time.Time) health {
	h.own++
	if !usable(h.state) || r.EjectAfter <= 0 || h.own < r.EjectAfter || !ev.others {
		return h
	}
	if now.Sub(h.lastEject) > r.EjectMax {
		h.ejections = 0 // it behaved for as long as the longest ejection
	}
	n := h.ejections + 1
	d := min(r.EjectBase*time.Duration(n), r.EjectMax)
	reason := fmt.Sprintf("%d failures in a row, the last: %s; for %s", h.own, ev.detail, d)
	h = h.enter(telemetry.StateEjected, reason)
	h.ejections = n
	h.until = now.Add(d)
	return h
}
