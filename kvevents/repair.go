package kvevents

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
)

// cause is why a replay is asked for.
type cause uint8

const (
	causeNone    cause = iota
	causeConnect       // a connection came: what was missed, and is it the same process?
	causeJoin          // the first message of a process that is not its first
	causeGap           // a hole in the sequence
	causeReset         // the caller knows of a restart
	causeResync        // predictions are off
	causeConfirm       // does the replay know the first live batch?
	causeAgain         // the record is not proven; perhaps the replay answers by now
)

var causeWords = [...]string{"", "connected", "joined late", "a gap", "reset", "predictions are off", "is it the same engine", "trying again"}

// phase is what a repair does.
type phase uint8

const (
	phaseIdle    phase = iota
	phaseWaiting       // for the timer, then asks; live messages are held
	phaseAsking        // an attempt runs; live messages are held
	phaseAgain         // for the timer, then begins anew; live messages are applied meanwhile
)

// repair is the state of asking for replays.
type repair struct {
	ctx    context.Context
	wg     *sync.WaitGroup
	timer  *time.Timer
	due    bool
	cancel func() // of the attempt that runs

	phase   phase
	running bool // as phaseAsking; what onReplayed may be called in
	cause   cause
	tries   int // without progress
	again   time.Duration
	// begun says that the record stands where an answer put it: what is still missing is asked for behind it, and not
	// from the beginning, or a ring that no answer brings whole would be read without end.
	begun bool
	news  uint64 // batches from here on were not applied before the first answer

	// Of the present attempt.
	identity   bool // the answer must begin with a batch that we know:
	known      heldMessage
	got        bool // something came
	progress   bool // something was applied
	overlap    int  // held messages that were compared
	mustReach  bool // a live message was held already, so the answer must reach it:
	heldNewest uint64
}

func (r *repair) start(ctx context.Context, wg *sync.WaitGroup) {
	r.ctx, r.wg = ctx, wg
	r.timer = time.NewTimer(time.Hour)
	r.timer.Stop()
	r.cancel = func() {}
}

// active reports whether live messages are to be held.
func (r *repair) active() bool { return r.phase == phaseWaiting || r.phase == phaseAsking }

// stop ends what runs.
func (r *repair) stop() {
	r.cancelAttempt()
	r.timer.Stop()
	r.phase, r.due = phaseIdle, false
}

func (r *repair) cancelAttempt() {
	r.cancel()
	r.cancel, r.running = func() {}, false
}

func (r *repair) wait(p phase, d time.Duration) {
	r.cancelAttempt()
	r.phase, r.due = p, false
	r.timer.Reset(d)
}

// begin asks for a replay, or settles what can be known without one.
func (f *Feed) begin(c cause) {
	r, h := &f.repair, &f.history
	r.stop()
	if f.o.Replay.Network == "" || h.foreign {
		f.withoutReplay(c)
		return
	}
	r.cause, r.tries, r.begun = c, 0, false
	if c == causeConnect {
		r.wait(phaseWaiting, settle)
		return
	}
	if c != causeAgain {
		f.o.Log.Debug("events: asking for a replay", "engine", f.o.Name, "why", causeWords[c], "from", h.next)
	}
	f.ask()
}

func (f *Feed) withoutReplay(c cause) {
	h := &f.history
	without := " and there is no replay endpoint"
	if h.foreign {
		without = ", and " + foreignReplay
	}
	switch c {
	case causeConnect:
		// The next message tells whether something was missed.
		h.unsure = h.known
		f.drain()
	case causeGap:
		f.lost(fmt.Sprintf("batches from %d on are lost", h.next)+without, false)
	case causeJoin:
		f.lost("joined late"+without, false)
	default:
	}
}

// repairDue is called when the timer rang.
func (f *Feed) repairDue() {
	switch f.repair.phase {
	case phaseWaiting:
		f.ask()
	case phaseAgain:
		switch h := &f.history; {
		case h.unsure:
			f.begin(causeConnect)
		case h.known && h.complete:
			// A clear or a turnover has proven the record meanwhile, and reading it anew would drop it first.
			f.repair.stop()
			f.repair.again = 0
		default:
			f.begin(causeAgain)
		}
	default:
	}
}

// ask starts an attempt.
func (f *Feed) ask() {
	r, h := &f.repair, &f.history
	r.cancelAttempt()
	r.timer.Stop()
	var from uint64
	r.identity = false
	anew := !r.begun && (r.cause == causeResync || r.cause == causeAgain)
	switch {
	case r.cause == causeConfirm:
		r.known = h.suspect
		from, r.identity = r.known.seq, true
	case !h.known || anew:
	case h.unproven:
		r.known = h.proof
		from, r.identity = r.known.seq, true
	case h.printed:
		// One batch more than is missing, to see whether it is the one that we know.
		r.known = heldMessage{seq: h.next - 1, print: h.print}
		from, r.identity = r.known.seq, true
	default:
		from = h.next
	}
	r.got, r.progress, r.overlap, r.mustReach = false, false, 0, false
	if !r.begun {
		if r.news = 0; h.known {
			r.news = h.next
		}
	}
	if n := len(h.held); n > 0 {
		r.mustReach, r.heldNewest = true, h.held[n-1].seq
	}
	r.phase, r.running = phaseAsking, true
	f.replayed = newQueue(1024, 16<<20)
	f.count(func(s *Stats) { s.Replays++ })
	ctx, cancel := context.WithCancel(r.ctx)
	r.cancel = cancel
	p := &replayer{endpoint: f.o.Replay, timing: f.o.Timing, patience: f.limits.ReplayPatience, maxMessage: f.o.MaxMessage, dial: f.o.Dial}
	q := f.replayed
	r.wg.Go(func() { p.attempt(ctx, from, q) })
}

// onReplayed handles what an attempt sends.
func (f *Feed) onReplayed(it item) {
	switch it.kind {
	case itemEnd:
		f.replayEnded()
	case itemDown:
		f.replayFailed(it.err)
	default:
		q := f.replayed
		f.onReplayedBatch(it.m)
		q.recycle(it.m)
	}
}

func (f *Feed) onReplayedBatch(m *Message) {
	r, h := &f.repair, &f.history
	seq, payload, err := sequenced(m)
	if err != nil {
		f.replayFailed(err)
		return
	}
	if topic, ok := replayedTopic(m); ok && !topicMatches(topic, f.o.Topic) {
		// What is live will never come, so what was is no use.
		f.trust.otherTopic = string(topic[:min(len(topic), 64)])
		f.finish()
		return
	}
	print := xxh3.Hash(payload)
	if !r.got {
		r.got = true
		if !f.firstReplayed(seq) {
			return
		}
	}
	switch {
	case r.identity && seq == r.known.seq:
		switch {
		case print != r.known.print:
			f.otherProcess()
		case r.cause == causeConfirm && seq+1 >= h.next:
			f.finish()
		}
		h.unproven = false
		return
	case r.cause == causeConfirm && seq+1 == h.next:
		if h.printed && print != h.print {
			f.anotherProcess()
			return
		}
		f.finish()
		return
	case seq < h.next:
		return
	case seq > h.next:
		// The ROUTER drops what a slow reader does not take (high-water mark 1,000 before vLLM 0.33).
		f.askAgain(fmt.Errorf("the replay has a hole at %d", h.next))
		return
	}
	for r.overlap < len(h.held) && h.held[r.overlap].seq < seq {
		r.overlap++
	}
	h.mixed = true
	if r.overlap < len(h.held) {
		if hm := h.held[r.overlap]; hm.seq == seq {
			if hm.print != print {
				f.foreign()
				return
			}
			h.matched = true
		}
	}
	if seq >= r.news {
		f.received.Add(1) // what is read again ends no silence
	}
	f.applyBatch(m, seq, print, false)
	r.progress = true
}

// firstReplayed decides by the first batch of an answer where the record stands, and reports whether the answer is worth
// going on with.
func (f *Feed) firstReplayed(seq uint64) bool {
	r, h := &f.repair, &f.history
	switch {
	case !r.begun && (r.cause == causeResync || r.cause == causeAgain && h.known):
		// Only the whole history is better than what there is.
		if seq != 0 && (r.cause == causeResync || seq >= h.oldest) {
			f.finish()
			return false
		}
		f.forget()
		f.startAt(seq)
	case !h.known:
		f.startAt(seq)
		h.truncated = seq > 0
	case seq > h.next || h.unproven && seq > r.known.seq:
		next := h.next
		if h.unproven {
			next = h.proof.seq + 1
		}
		f.forget()
		h.why = fmt.Sprintf("batches %d to %d are lost: the engine's ring begins behind them", next, seq-1)
		f.startAt(seq)
		h.truncated = true
	}
	r.begun = true
	return true
}

// otherProcess: the ring does not know the batch that was applied last.
func (f *Feed) otherProcess() {
	r, h := &f.repair, &f.history
	if r.cause == causeConfirm || !h.unproven && h.lastLive == h.connection {
		// The publisher of this very connection sent it, so it is not the publisher that answers.
		f.foreign()
		return
	}
	f.anotherProcess()
}

// anotherProcess begins anew with what the engine's present process has published.
func (f *Feed) anotherProcess() {
	f.o.Log.Info("events: the engine's process is another one", "engine", f.o.Name)
	f.restarted()
	f.repair.cause, f.repair.tries, f.repair.begun = causeReset, 0, false
	f.ask()
}

const foreignReplay = "the replay endpoint answers with another engine's events"

// foreign: who answers is not who publishes.
func (f *Feed) foreign() {
	f.o.Log.Error("events: "+foreignReplay+"; check the endpoints", "engine", f.o.Name, "replay", f.o.Replay.String())
	f.history.foreign = true
	f.lost(foreignReplay, false)
}

// replayEnded handles the end marker.
func (f *Feed) replayEnded() {
	r, h := &f.repair, &f.history
	switch {
	case r.identity && !r.got:
		f.otherProcess()
		return
	case r.cause == causeConfirm:
		f.anotherProcess() // it knows the live batch, and not the later ones of the record
		return
	case r.mustReach && (!h.known || h.next <= r.heldNewest):
		// The publisher answers between two sends, after it has put what it sent into its ring; but its ROUTER may have
		// dropped the last of it.
		if r.tries+1 >= f.limits.ReplayTries && !r.progress {
			f.foreign()
			return
		}
		f.askAgain(fmt.Errorf("the replay ended in front of batch %d, which was out already", r.heldNewest))
		return
	case r.begun && (r.cause == causeResync || r.cause == causeAgain) && h.next < r.news:
		// What was applied before is in the ring or older than it: the ROUTER dropped the last of the answer.
		f.askAgain(fmt.Errorf("the replay ended in front of batch %d, which was applied before", r.news-1))
		return
	case !h.known:
		// An empty ring: the process has published nothing yet.
		f.startAt(0)
	}
	h.unsure, h.unanswered = false, nil
	f.finish()
}

// replayFailed tries again after a while, and gives up after some.
func (f *Feed) replayFailed(err error) {
	r, h := &f.repair, &f.history
	if r.progress {
		r.tries = 0
	}
	r.tries++
	f.o.Log.Warn("events: a replay failed", "engine", f.o.Name, "error", err, "try", r.tries)
	if r.tries < f.limits.ReplayTries {
		r.wait(phaseWaiting, 100*time.Millisecond<<r.tries)
		return
	}
	switch {
	case r.cause == causeResync, r.cause == causeAgain, r.cause == causeConfirm:
		if r.begun && r.cause != causeConfirm {
			h.unsure, h.unanswered = true, err // the record ends where the answers did
		}
		f.finish()
	case r.cause == causeConnect && (h.known || len(h.held) == 0):
		// Nothing shows yet that something is missing; the next message will.
		h.unsure, h.unanswered = true, err
		f.finish()
	default:
		f.lost("the replay is unanswered: "+err.Error(), true)
	}
}

// askAgain asks at once if there was progress, since an answer that broke off was good up to there.
func (f *Feed) askAgain(err error) {
	if !f.repair.progress {
		f.replayFailed(err)
		return
	}
	f.repair.tries = 0
	f.ask()
}

// lost gives up what cannot be proven: the record is dropped and begins anew with what is held.
func (f *Feed) lost(why string, again bool) {
	h := &f.history
	f.repair.stop()
	f.forget()
	h.why, h.truncated = why, !again
	if len(h.held) > 0 {
		f.startAt(h.held[0].seq)
	}
	f.finish()
}

// finish ends a repair: what was held is applied, and a record that is not proven is asked for again some time.
func (f *Feed) finish() {
	r, h := &f.repair, &f.history
	r.stop()
	f.drain()
	if r.active() {
		return
	}
	if h.complete && h.known && !h.unsure {
		r.again = 0
	} else if f.o.Replay.Network != "" && !h.truncated && f.trust.isUp {
		r.again = min(max(2*r.again, f.limits.ReplayAgain), 20*f.limits.ReplayAgain)
		r.wait(phaseAgain, r.again)
	}
}

// drain applies what was held, in order, until one of them needs another repair.
func (f *Feed) drain() {
	h := &f.history
	held := h.held
	h.held, h.heldBytes = nil, 0
	for i, hm := range held {
		if f.repair.active() {
			for _, rest := range held[i:] {
				f.hold(rest)
			}
			return
		}
		f.inOrder(hm)
	}
}
