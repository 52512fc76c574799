package web

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"time"

	"ramjet/route"
)

const (
	// decisionsPerTick keeps `event: decision` at 20 a second.
	decisionsPerTick = 10
	// maxStreams bounds the pages that look on at once.
	maxStreams = 64
	// queuedFrames is how far a reader may fall behind before it misses frames.
	queuedFrames = 16
)

// Run samples at 2 Hz while something moves, and feeds the streams, until ctx
// ends. Without it rates and quantiles stay unknown.
func (s *Server) Run(ctx context.Context) {
	defer s.hub.close()
	for n := 0; ; n++ {
		now := time.Now()
		if quiet := s.step(now, n%2 == 0); s.rest.tired(quiet) {
			s.recent.Rest(now)
			s.flows.idle()
			s.rest.sleep(ctx.Done())
			now, n = time.Now(), 0
			s.recent.Rest(now)
		}
		if !s.rest.wait(ctx.Done(), now.Add(sampleEvery), s.hub.watched()) {
			return
		}
	}
}

// feed is what was told to those who look on.
type feed struct {
	mu       sync.Mutex           // guards the following
	stale    bool                 // nobody looked on since it was kept
	at       time.Time            // of the newest tokens
	gpus     map[string]time.Time // of the newest sample by series, by its own clock
	decision decisionMark
}

// step samples once, and tells whoever looks on. It reports whether there was
// nothing to see and nobody to see it.
func (s *Server) step(now time.Time, whole bool) bool {
	s.recent.Mark(now)
	quiet := s.flows.sample(now, s.engines(), s.reading)
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	if !s.hub.watched() {
		s.feed.stale = true
		return quiet
	}
	s.beginLocked(now)
	if whole {
		s.hub.publish(event("topology", s.view(now)))
	}
	s.hub.publish(event("gpu", s.news(now)))
	var b []byte
	for _, x := range slices.Backward(s.newest()) {
		b = append(b, event("decision", x)...)
	}
	if b != nil {
		s.hub.publish(b)
	}
	return false
}

// begin makes the feed of a page that joined begin now: what was before, the
// page asks for.
func (s *Server) begin(now time.Time) {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	s.beginLocked(now)
}

func (s *Server) beginLocked(now time.Time) {
	if s.feed.stale {
		s.news(now)
		s.newest()
		s.feed.stale = false
	}
}

// news returns the samples that were not told yet. Each series is followed by
// its own clock: that of an exporter elsewhere may be late. The caller holds the
// feed.
func (s *Server) news(now time.Time) historyView {
	v := s.history(now.Add(-newsSpan), "")
	v.Tokens = s.flows.since(s.feed.at, "")
	if n := len(v.Tokens.Time); n > 0 {
		s.feed.at = time.Time(v.Tokens.Time[n-1])
	}
	told := make(map[string]time.Time, len(v.Series))
	for i := range v.Series {
		one := &v.Series[i]
		key := one.Engine + "\x00" + strconv.Itoa(one.Index) + one.Source
		last := s.feed.gpus[key]
		from := 0
		for from < len(one.Time) && !time.Time(one.Time[from]).After(last) {
			from++
		}
		if n := len(one.Time); n > 0 {
			told[key] = time.Time(one.Time[n-1])
		}
		one.cut(from)
	}
	s.feed.gpus = told
	return v
}

// newsSpan is how late a sample may come and still be told.
const newsSpan = 2 * time.Minute

// newest returns the decisions that were not told yet, the newest first, as
// many as a tick may bear. The caller holds the feed.
func (s *Server) newest() []*route.Explanation {
	if s.o.Decisions == nil {
		return nil
	}
	list := s.o.Decisions.List(route.Filter{}, decisionsPerTick)
	var out []*route.Explanation
	for i := range list {
		x := &list[i]
		if markOf(x) == s.feed.decision {
			break
		}
		out = append(out, brief(x))
	}
	if len(list) > 0 {
		s.feed.decision = markOf(&list[0])
	}
	return out
}

// decisionMark tells two records apart whose clients gave them one id.
type decisionMark struct {
	id       string
	at       int64
	duration float64
}

func markOf(x *route.Explanation) decisionMark {
	return decisionMark{string(x.RequestID), int64(x.Time), x.Result.DurationSecond}
}

// mostCandidates is how many engines a record of the stream and of a list
// carries whole: two hundred of them, twenty times a second, are more than any
// page reads.
const mostCandidates = 8

// brief leaves out the engines that neither won nor came second, where there
// are many. The whole record is at /api/v1/explain/ID.
func brief(x *route.Explanation) *route.Explanation {
	if len(x.Candidates) > mostCandidates {
		x.Candidates = slices.DeleteFunc(x.Candidates, func(c route.Candidate) bool {
			return c.Engine != string(x.Engine) && c.Engine != string(x.RunnerUp)
		})
	}
	return x
}

// event writes one event of a stream. What cannot be written is a fault of the
// program, and told as such.
func event(name string, v any) []byte {
	var b bytes.Buffer
	b.WriteString("event: " + name + "\ndata: ")
	enc := json.NewEncoder(&b) // ends the line
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return []byte(": cannot write " + name + "\n\n")
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// hub hands frames to those who look on. A frame is written by nobody once it
// was published.
type hub struct {
	mu     sync.Mutex // guards the following
	subs   map[*subscriber]struct{}
	closed bool
}

// subscriber is one stream. gone is closed when the hub is.
type subscriber struct {
	frames chan []byte
	gone   chan struct{}
}

// join adds a reader, nil if there is no room. leave must follow.
func (h *hub) join() *subscriber {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.subs) >= maxStreams {
		return nil
	}
	if h.subs == nil {
		h.subs = map[*subscriber]struct{}{}
	}
	s := &subscriber{frames: make(chan []byte, queuedFrames), gone: make(chan struct{})}
	h.subs[s] = struct{}{}
	return s
}

func (h *hub) leave(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, s)
}

func (h *hub) watched() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.subs) > 0
}

// publish gives a frame to every reader that can take it. One that reads too
// slowly misses it: the next one says more.
func (h *hub) publish(frame []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		select {
		case s.frames <- frame:
		default:
		}
	}
}

// close ends every stream, and refuses more.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for s := range h.subs {
		close(s.gone)
	}
	clear(h.subs)
}
