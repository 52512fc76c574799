package kvevents

import (
	"fmt"
	"time"

	"github.com/zeebo/xxh3"
)

// history is what a feed can prove about the batches of the engine's present process.
type history struct {
	// known says that a position is known: next is the sequence number expected, and all from oldest on was applied.
	known        bool
	oldest, next uint64
	// print is a fingerprint of the batch in front of next, printed if there is one. A batch holds the time when it was
	// made, so that equal prints mean one process.
	print   uint64
	printed bool
	// complete says that nothing in the cache is unknown: all batches since the process began, or since the cache was
	// cleared, were applied.
	complete   bool
	why        string    // why it is complete, or why not
	doubted    bool      // on this connection, somebody told of a restart that the record seemed to know of already
	freshAt    time.Time // when the record began at its beginning; zero if it did not, or on an earlier connection
	unsure     bool      // after a reconnect or half a replay, until it shows whether something was missed
	unanswered error     // why a replay could not settle what is unsure
	truncated  bool      // the beginning is gone for good: the ring does not hold it, so asking again is no use
	turned     int64     // blocks stored since the last sign of a block older than the record
	forgotten  uint64    // blocks forgotten before the record began

	connection uint64 // counts connections; live messages of an older one say nothing about the present process
	asked      uint64 // the connection on which a replay was asked for since nothing is received
	// The newest live batch that was applied, or passed over because a replay had it: its connection, 0 before the first,
	// and its number.
	lastLive, liveSeq uint64
	// Of the present connection: a replay was applied; one of its batches was seen to be the same as a live one (or was
	// asked for, to see that); the replay is another engine's. Endpoints of two engines whose sequences happen to fit
	// would not show otherwise.
	mixed, matched, foreign bool
	suspect                 heldMessage // the live batch that a replay is compared with; its message is not used
	proof                   heldMessage // the last batch before this connection, which proves the process; likewise
	unproven                bool        // no replay has had it yet
	topic                   []byte      // of the first message of this connection
	regressions             int         // without a reconnect, each within regressionWindow of the one before
	regressedAt             time.Time
	// muted says why messages are passed over, until then: they are of more than one publisher, and sequences that
	// interleave would be a restart each.
	muted      string
	mutedUntil time.Time

	held      []heldMessage
	heldBytes int
}

// heldMessage is a live message that waits for a replay.
type heldMessage struct {
	m     *Message
	seq   uint64
	print uint64
}

// onLive handles what the subscriber sends.
func (f *Feed) onLive(it item) {
	h := &f.history
	switch it.kind {
	case itemUp:
		h.connection++
		f.dropHeld() // of a process that may be gone; the replay has them
		h.freshAt, h.doubted = time.Time{}, false
		h.topic, h.muted, h.regressions = h.topic[:0], "", 0
		h.mixed, h.matched, h.foreign = false, false, false
		if !h.unproven {
			h.proof, h.unproven = heldMessage{seq: h.next - 1, print: h.print}, h.known && h.printed
		}
		f.away(time.Since(f.trust.downSince))
		f.trust.up()
		f.trust.anchor = f.o.Now()
		f.begin(causeConnect)
	case itemDown:
		f.trust.down(it.err)
		f.repair.stop()
		if h.freshAt = (time.Time{}); h.doubted {
			f.begun() // the record was that of the process which is gone
		}
	default:
		f.received.Add(1)
		f.onMessage(it.m)
	}
}

// away ends a record whose engine was out of sight for long, if no replay can tell whether it is the same process: one
// that counted up to the very batch that is due would not show. No vLLM starts within Limits.Lost (measured: 20 s).
func (f *Feed) away(d time.Duration) {
	if f.history.known && f.o.Replay.Network == "" && d >= f.limits.Lost {
		f.forget()
		f.history.why = fmt.Sprintf("the connection was away for %.0f s and there is no replay endpoint", d.Seconds())
	}
}

func (f *Feed) onMessage(m *Message) {
	h := &f.history
	seq, payload, err := sequenced(m)
	if err != nil {
		f.live.recycle(m)
		f.unreadable(err)
		return
	}
	if f.mute(m) {
		f.live.recycle(m)
		return
	}
	hm := heldMessage{m: m, seq: seq, print: xxh3.Hash(payload)}
	if f.repair.active() {
		h.held = append(h.held, hm)
		h.heldBytes += m.Bytes()
		return
	}
	f.inOrder(hm)
}

// inOrder handles one live message outside a repair: it is the next one, or it shows what is wrong.
func (f *Feed) inOrder(hm heldMessage) {
	h := &f.history
	switch {
	case h.known && hm.seq == h.next:
		if f.o.Replay.Network == "" {
			h.unsure = false
		}
		f.applyLive(hm)
	case h.known && hm.seq > h.next:
		f.count(func(s *Stats) { s.Gaps++ })
		f.metrics(func(m Metrics) { m.Gap() })
		f.o.Log.Warn("events: a gap in the sequence", "engine", f.o.Name, "expected", h.next, "got", hm.seq)
		f.hold(hm)
		f.begin(causeGap)
	case h.known && h.printed && hm.seq+1 == h.next && hm.print == h.print:
		f.live.recycle(hm.m) // the same batch again, as a forwarder may send it
	case h.known && h.mixed && (h.lastLive != h.connection || hm.seq > h.liveSeq):
		f.overtaken(hm)
	case h.known:
		f.regressed(hm)
	case hm.seq == 0:
		f.startAt(0)
		f.applyLive(hm)
	default:
		f.hold(hm)
		f.begin(causeJoin)
	}
}

// overtaken handles a live batch whose number a replay had already: the same batch, if both are one engine's.
func (f *Feed) overtaken(hm heldMessage) {
	h := &f.history
	if !h.matched {
		f.hold(hm)
		f.confirm(hm)
		return
	}
	h.lastLive, h.liveSeq = h.connection, hm.seq
	f.live.recycle(hm.m)
}

// confirm asks, once a connection, whether the replay knows a live batch, and all that was applied behind it: a process
// that began anew behind a forwarder knows its own first batches, and has not come as far as the one before it.
func (f *Feed) confirm(hm heldMessage) {
	f.history.matched, f.history.suspect = true, hm
	f.begin(causeConfirm)
}

func (f *Feed) hold(hm heldMessage) {
	h := &f.history
	h.held = append(h.held, hm)
	h.heldBytes += hm.m.Bytes()
}

// regressed handles a sequence that went back: another process, or two publishers on one subscription. A process cannot
// restart without its connection ending, unless a forwarder stands in between, so the second time in a row is taken for
// two publishers.
func (f *Feed) regressed(hm heldMessage) {
	h := &f.history
	if now := f.o.Now(); h.connection == h.lastLive {
		if now.Sub(h.regressedAt) > regressionWindow {
			h.regressions = 0
		}
		h.regressions, h.regressedAt = h.regressions+1, now
	}
	if h.regressions >= 2 {
		f.live.recycle(hm.m)
		f.muteFor("two sequences on one subscription: more than one publisher is behind the endpoint")
		return
	}
	f.o.Log.Info("events: the sequence went back", "engine", f.o.Name, "expected", h.next, "got", hm.seq)
	f.restarted()
	f.inOrder(hm)
}

const (
	// regressionWindow is how close two regressions without a reconnect must be to show two publishers.
	regressionWindow = time.Minute
	// muteTime is how long messages of more than one publisher are passed over before another try.
	muteTime = time.Minute
)

// mute reports whether a message is passed over. Two topics on one subscription are two publishers: ZeroMQ's
// subscription is a prefix, and a publisher has one topic.
func (f *Feed) mute(m *Message) bool {
	h := &f.history
	if h.muted != "" {
		if f.o.Now().Before(h.mutedUntil) {
			return true
		}
		h.muted, h.topic, h.regressions = "", h.topic[:0], 0
	}
	if len(h.topic) == 0 {
		h.topic = append(h.topic, m.Frames[0]...)
	} else if string(h.topic) != string(m.Frames[0]) {
		f.muteFor(fmt.Sprintf("two topics on one subscription: %.64q and %.64q begin with %.64q", h.topic, m.Frames[0], f.o.Topic))
		return true
	}
	return false
}

func (f *Feed) muteFor(why string) {
	h := &f.history
	f.o.Log.Warn("events: "+why, "engine", f.o.Name)
	f.repair.stop()
	f.forget()
	f.dropHeld()
	h.muted, h.mutedUntil = why, f.o.Now().Add(muteTime)
}

// restarted forgets everything: the process is another one.
func (f *Feed) restarted() {
	f.begun()
	if f.o.Restarted != nil {
		f.o.Restarted()
	}
}

// toldOfRestart acts on the word of another that the process is a new one. A record that began at its beginning a short
// while ago is most likely that of the new process; if the connection ends next, it was not.
func (f *Feed) toldOfRestart() {
	h := &f.history
	if f.o.Now().Sub(h.freshAt) <= freshTime {
		h.doubted = true
		return
	}
	f.begun() // whoever told us knows already
	if f.trust.isUp {
		f.begin(causeReset)
	}
}

// begun drops what belongs to a former process.
func (f *Feed) begun() {
	f.count(func(s *Stats) { s.Restarts++ })
	f.forget()
	f.audit.Restarted()
}

func (f *Feed) dropHeld() {
	for _, hm := range f.history.held {
		f.live.recycle(hm.m)
	}
	f.history.held, f.history.heldBytes = nil, 0
}

// forget drops the record and the position in the sequence. Held messages stay.
func (f *Feed) forget() {
	h := &f.history
	f.o.Residency.Drop()
	f.apply.dropped()
	h.known, h.printed, h.complete, h.turned, h.why = false, false, false, 0, ""
	h.unanswered, h.unproven = nil, false
	h.unsure, h.truncated, h.freshAt = false, false, time.Time{}
	h.forgotten = f.o.Residency.Forgotten()
}

// startAt begins a record at a sequence number.
func (f *Feed) startAt(seq uint64) {
	h := &f.history
	h.known, h.oldest, h.next, h.printed, h.turned = true, seq, seq, false, 0
	if h.complete = seq == 0; h.complete {
		h.freshAt = f.o.Now()
		h.why = "every batch since the engine started"
	} else if h.why == "" {
		h.why = fmt.Sprintf("the batches before %d are not known", seq)
	}
}

func (f *Feed) applyLive(hm heldMessage) {
	h := &f.history
	h.lastLive, h.liveSeq = h.connection, hm.seq
	f.applyBatch(hm.m, hm.seq, hm.print, true)
	f.live.recycle(hm.m)
	if h.mixed && !h.matched {
		f.confirm(hm)
	}
}

// applyBatch applies the batch that is next.
func (f *Feed) applyBatch(m *Message, seq, print uint64, live bool) {
	h := &f.history
	h.next, h.print, h.printed = seq+1, print, true
	_, payload, _ := sequenced(m)
	err := f.apply.batch(payload, live)
	f.count(func(s *Stats) {
		s.Next = h.next
		if live {
			s.Batches++
		} else {
			s.Replayed++
		}
	})
	if f.o.Wiring != nil && live {
		f.o.Wiring.Saw(f.o.Slot, print)
	}
	if err != nil {
		f.unreadable(err)
		return
	}
	f.turnover()
}

// unreadable handles a batch that cannot be read: a removal may have been in it, and a replay would send the same bytes.
func (f *Feed) unreadable(err error) {
	h := &f.history
	f.count(func(s *Stats) { s.Odd++ })
	f.metrics(func(m Metrics) { m.Events(EventOdd, 1) })
	f.o.Log.Warn("events: a batch cannot be read", "engine", f.o.Name, "error", err)
	f.o.Residency.Drop()
	f.apply.dropped()
	h.complete, h.turned, h.why = false, 0, "a batch could not be read: "+err.Error()
	h.oldest = h.next
}

// turnover proves a record that began late: once as many blocks as the cache has were stored in a row without a sign of
// an older one (a store behind an unknown block, the removal of an unknown block), the engine must have evicted all that
// is older. vLLM evicts the least recently used block; an older one that was used again would have shown itself.
func (f *Feed) turnover() {
	h, a := &f.history, &f.apply
	if a.older {
		h.turned = 0
	} else {
		h.turned += int64(a.blocks)
	}
	if capacity := f.capacity.Load(); !h.complete && h.known && capacity > 0 && h.turned > capacity {
		h.complete = true
		h.why = fmt.Sprintf("the cache turned over since batch %d", h.oldest)
	}
}

func (f *Feed) metrics(use func(Metrics)) {
	if f.o.Metrics != nil {
		use(f.o.Metrics)
	}
}
