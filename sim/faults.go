package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// FaultKinds is the closed list of kinds that POST /sim/fault accepts.
var FaultKinds = []string{
	"die", "reset", "stall", "status", "refuse", "slow-head", "truncate", "bad-chunk",
	"error-event", "abort", "hung", "event-gap", "event-stop", "event-lie",
	"event-last-copy",
}

// Fault is one scripted failure. It waits for the next Count generation
// requests (chat, completions, responses, messages, embeddings, audio), each
// of which it hits once; Count 0 lasts until it is cleared. An event fault
// waits for batches of events (event-gap), ends of answers (event-lie) or
// removals of a block of which a copy stays (event-last-copy: they are not
// announced, as in vLLM pull request 55092) instead; event-stop lasts until it is cleared or its Seconds are over.
//
// AfterTokens says where in the answer it strikes: -1 before the response
// head, 0 (the default) after the head of a stream and before its first
// token, n after n generated tokens. An abort never comes before the head. An answer that is not streamed is struck
// once so many tokens exist, before its head.
type Fault struct {
	Kind        string  `json:"kind"`
	AfterTokens int     `json:"after_tokens"`
	Count       int     `json:"count"`
	Seconds     float64 `json:"seconds"` // stall, slow-head, refuse, hung, die, event-*: how long; 0 = until cleared (refuse: 1)
	Status      int     `json:"status"`  // status: 500 if 0
	Now         bool    `json:"now"`     // die, hung: at once instead of at the next request
}

// check refuses what POST /sim/fault must not accept.
func (f Fault) check() error {
	switch {
	case !slices.Contains(FaultKinds, f.Kind):
		return fmt.Errorf("unknown fault kind %q; one of: %s", f.Kind, strings.Join(FaultKinds, ", "))
	case f.AfterTokens < -1 || f.Count < 0 || f.Seconds < 0:
		return fmt.Errorf("fault %s: after_tokens must be at least -1, count and seconds at least 0", f.Kind)
	case f.Status != 0 && (f.Status < 200 || f.Status > 599):
		return fmt.Errorf("fault %s: status must be 200 to 599", f.Kind)
	}
	return nil
}

// forEvents reports whether f concerns KV-cache events and not requests.
func (f Fault) forEvents() bool { return strings.HasPrefix(f.Kind, "event-") }

// duration is Seconds as a time.
func (f Fault) duration() time.Duration { return time.Duration(f.Seconds * float64(time.Second)) }

// armed is a fault that waits for requests.
type armed struct {
	Fault
	left  int       // requests (event-gap: batches) still to hit; counts only if Count > 0
	until time.Time // event faults: end by themselves then; zero = never
}

// faultBox holds the armed faults, oldest first.
type faultBox struct {
	mu      sync.Mutex // guards all below
	list    []*armed
	cleared chan struct{} // closed by clear, so that what a fault holds up goes on
}

func newFaultBox() *faultBox { return &faultBox{cleared: make(chan struct{})} }

// arm adds a fault.
func (b *faultBox) arm(f Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := &armed{Fault: f, left: f.Count}
	if f.forEvents() && f.Seconds > 0 {
		a.until = time.Now().Add(f.duration())
	}
	b.list = append(b.list, a)
}

// take returns the oldest request fault and uses up one of its hits; nil if
// none waits. Event faults stay: they belong to the publisher.
func (b *faultBox) take() *Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, a := range b.list {
		if a.forEvents() {
			continue
		}
		if a.left--; a.Count > 0 && a.left == 0 {
			b.list = slices.Delete(b.list, i, i+1)
		}
		f := a.Fault
		return &f
	}
	return nil
}

// event uses up one hit of an armed event fault of a kind and says whether there was one.
func (b *faultBox) event(kind string, use bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = slices.DeleteFunc(b.list, func(a *armed) bool { return !a.until.IsZero() && !time.Now().Before(a.until) })
	for i, a := range b.list {
		if a.Kind != kind {
			continue
		}
		if use {
			if a.left--; a.Count > 0 && a.left == 0 {
				b.list = slices.Delete(b.list, i, i+1)
			}
		}
		return true
	}
	return false
}

// eventFate says what becomes of the next batch of events.
func (b *faultBox) eventFate() kvFate {
	switch {
	case b.eventStop():
		return kvStalled
	case b.event("event-gap", true):
		return kvLose
	}
	return kvSend
}

// eventStop says whether the publisher stands still.
func (b *faultBox) eventStop() bool { return b.event("event-stop", false) }

// eventLie says whether the engine loses what a sequence cached, without an event.
func (b *faultBox) eventLie() bool { return b.event("event-lie", true) }

// eventLastCopy says whether the removal of a copy goes without an event while another copy stays.
func (b *faultBox) eventLastCopy() bool { return b.event("event-last-copy", true) }

// clear forgets every fault and releases what they hold up.
func (b *faultBox) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = nil
	close(b.cleared)
	b.cleared = make(chan struct{})
}

// pending lists the armed faults with Count as what is left of it.
func (b *faultBox) pending() []Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Fault, 0, len(b.list))
	for _, a := range b.list {
		f := a.Fault
		f.Count = max(a.left, 0)
		out = append(out, f)
	}
	return out
}

// hold waits for d (0 = for ever), for clear, or for ctx; it reports false for the last.
func (b *faultBox) hold(ctx context.Context, d time.Duration) bool {
	b.mu.Lock()
	cleared := b.cleared
	b.mu.Unlock()
	var after <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		after = t.C
	}
	select {
	case <-after:
	case <-cleared:
	case <-ctx.Done():
		return false
	}
	return true
}

// strike does what a fault does to the answer under way. It returns true if
// the answer goes on afterwards (a stall that ended), false if it is over.
func (s *Server) strike(ctx context.Context, w *responder, f *Fault, d dialect) bool {
	switch f.Kind {
	case "die":
		s.die(f.duration())
		w.hangUp(false)
	case "reset":
		w.hangUp(true)
	case "stall":
		return s.faults.hold(ctx, f.duration())
	case "slow-head":
		return s.faults.hold(ctx, f.duration())
	case "hung":
		s.hang(f.duration())
		return true
	case "refuse":
		s.refuse(f.duration())
		return true
	case "status":
		status := f.Status
		if status == 0 {
			status = 500
		}
		w.fail(d, injectedError(status))
	case "truncate":
		w.truncate()
	case "bad-chunk":
		w.badChunk()
	case "error-event":
		w.failStream(d, injectedError(500))
	default:
		panic("BUG: no such fault: " + f.Kind)
	}
	return false
}

// truncate ends the answer in the middle of a chunk, or of a body whose
// length the head has announced.
func (w *responder) truncate() {
	const half = `data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":1,"mod`
	if w.chunked {
		w.write([]byte("100\r\n" + half))
	} else {
		w.write(append(w.appendHead(nil, 200, []field{{"content-length", "1000"}, {"content-type", "application/json"}}),
			"\r\n{\"id\":\"cut"...))
	}
	w.hangUp(false)
}

// badChunk sends a chunk size that is none, then ends the connection.
func (w *responder) badChunk() {
	if !w.chunked {
		w.write(append(w.appendHead(nil, 200, []field{{"content-type", "application/json"}}), "transfer-encoding: chunked\r\n\r\n"...))
	}
	w.write([]byte("zz\r\ndata: garbage\n\n\r\n"))
	w.hangUp(false)
}
