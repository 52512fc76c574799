package sim

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"
)

// answerRequest is what the generating endpoints have in common once a body
// has been read and found good.
type answerRequest struct {
	dialect   dialect
	id        string // response id without the endpoint's prefix
	model     string // as the answer names it
	created   int64
	prompts   [][]uint32
	textual   bool // the prompts came as text, so the frontend tokenizes
	templated bool // the prompt was rendered by the chat template, on a thread pool that is gone while stopping
	choices   int  // sequences for each prompt
	job       Job  // everything but the prompt
	stops     []string
	keepStop  bool // include_stop_str_in_output
	stream    bool
	streamUse usageMode
	returnIDs bool
	echoes    []string // what stands in front of the answer to each prompt; empty without echo
}

// usageMode says which events of a stream carry usage.
type usageMode uint8

const (
	usageNone  usageMode = iota
	usageLast            // stream_options.include_usage
	usageEvery           // and continuous_usage_stats
)

// sequences is the number of sequences that the request makes.
func (a *answerRequest) sequences() int { return len(a.prompts) * a.choices }

// promptOf returns the prompt of sequence i.
func (a *answerRequest) promptOf(i int) []uint32 { return a.prompts[i/a.choices] }

// newID makes a random response id of vLLM's length.
func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// requestID is the id that the response's own id is built from.
func requestID(r *request) string {
	if id := r.get("x-request-id"); id != "" {
		return id
	}
	return newID()
}

// piece is one step of one sequence.
type piece struct {
	seq      int // index of the sequence
	tokens   []uint32
	finished bool
	reason   string
}

// generation is a set of sequences under way for one request. It belongs to
// the goroutine that serves the connection.
type generation struct {
	s     *Server
	a     *answerRequest
	seqs  []*Sequence
	fault *Fault // strikes once sent reaches its AfterTokens; nil = none
	sent  int    // tokens handed out
	held  []piece
	wake  chan struct{} // several sequences: one of them has news
	turn  int           // and where the search for it begins
	quit  chan struct{} // closed to end those who wait for news
	begun time.Time
	first time.Time
	last  time.Time
	over  []bool // sequences whose end was handed out
	done  func(left bool)
	ended bool
	ctx   context.Context
}

var (
	// errStruck says that a fault has taken over; what next has to do is strike.
	errStruck = errors.New("fault strikes")
	// errLeft says that the client left.
	errLeft = errors.New("client left")
)

// begin takes the request into the engine: the fault that it has drawn, the
// time that tokenizing takes, the head of a stream, then the sequences. It
// returns nil if the answer is already complete. The caller must end it.
func (s *Server) begin(ctx context.Context, w *responder, a *answerRequest) *generation {
	g := &generation{s: s, a: a, ctx: ctx, begun: time.Now(), done: s.journal.begin(), quit: make(chan struct{})}
	if !s.enter(ctx, w, a, g) {
		g.end()
		return nil
	}
	if session := w.req.get("x-session-id"); session != "" {
		a.job.Session = session
	}
	for i := range a.sequences() {
		j := a.job
		j.Prompt = a.promptOf(i)
		g.seqs = append(g.seqs, s.core.Submit(j))
	}
	g.over = make([]bool, len(g.seqs))
	if s.phase.Load() != phaseServing {
		for _, q := range g.seqs {
			q.Abort() // a stopping engine swallows what still comes in
		}
	}
	if len(g.seqs) > 1 {
		g.fan()
	}
	return g
}

// enter does all that comes before the scheduler and reports whether the
// request gets that far.
func (s *Server) enter(ctx context.Context, w *responder, a *answerRequest, g *generation) bool {
	if a.templated && s.phase.Load() != phaseServing {
		w.fail(a.dialect, &apiError{500, "InternalServerError", "cannot schedule new futures after shutdown", ""})
		return false
	}
	g.fault = s.faults.take()
	// An abort is an answer of the engine, so that even the earliest comes from next.
	if f := g.fault; f != nil && (f.AfterTokens < 0 && f.Kind != FinishAbort || f.Kind == "status" || f.Kind == "slow-head") {
		g.fault = nil
		if !s.strike(ctx, w, f, a.dialect) {
			return false
		}
	}
	n := 0
	for _, p := range a.prompts {
		n += len(p)
	}
	work := s.core.FrontendTime(n)
	if a.textual {
		work += s.core.TokenizeTime(n)
	}
	if !s.frontend.spend(ctx, work) {
		return false
	}
	if a.stream {
		w.startStream()
	}
	return true
}

// pause waits for d and reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// fan makes wake tell of news of any sequence.
func (g *generation) fan() {
	g.wake = make(chan struct{}, 1)
	for _, q := range g.seqs {
		g.s.wg.Go(func() {
			for {
				select {
				case <-q.news:
				case <-g.quit:
					return
				}
				select {
				case g.wake <- struct{}{}:
				default:
				}
			}
		})
	}
}

// pull waits for the next piece of any sequence. What one step has produced
// comes in the order of the choices, as vLLM writes it.
func (g *generation) pull() (piece, error) {
	if g.wake == nil {
		out, err := g.seqs[0].Next(g.ctx)
		return pieceOf(0, out), err
	}
	for {
		for range g.seqs {
			i := g.turn % len(g.seqs)
			g.turn++
			if g.over[i] {
				continue
			}
			if out, ok, err := g.seqs[i].poll(); ok {
				return pieceOf(i, out), err
			}
		}
		g.turn = 0
		select {
		case <-g.wake:
		case <-g.ctx.Done():
			return piece{}, errLeft
		}
	}
}

func pieceOf(i int, out Output) piece {
	return piece{seq: i, tokens: out.Tokens, finished: out.Finished, reason: out.FinishReason}
}

// next returns the next piece. errStruck means that the fault's moment has
// come; any other error is the client's departure or the engine's end.
func (g *generation) next() (piece, error) {
	if g.fault != nil && g.sent >= g.fault.AfterTokens {
		if g.fault.Kind == FinishAbort {
			return g.abort(), nil
		}
		return piece{}, errStruck
	}
	var p piece
	if len(g.held) > 0 {
		p, g.held = g.held[0], g.held[1:]
	} else {
		var err error
		if p, err = g.pull(); err != nil {
			return p, err
		}
	}
	if f := g.fault; f != nil && g.sent+len(p.tokens) > f.AfterTokens {
		// The fault falls inside this piece: hand out what comes before it.
		rest := p
		cut := f.AfterTokens - g.sent
		rest.tokens = append([]uint32(nil), p.tokens[cut:]...)
		p.tokens, p.finished, p.reason = p.tokens[:cut], false, ""
		g.held = append([]piece{rest}, g.held...)
	}
	g.note(p)
	return p, nil
}

// note counts a piece that is handed out.
func (g *generation) note(p piece) {
	g.over[p.seq] = g.over[p.seq] || p.finished
	if len(p.tokens) == 0 {
		return
	}
	now := time.Now()
	if g.first.IsZero() {
		g.first = now
		g.s.meters.ttft.observe(now.Sub(g.begun).Seconds())
	} else {
		g.s.meters.gap.observe(now.Sub(g.last).Seconds())
	}
	g.last = now
	g.sent += len(p.tokens)
}

// abort ends the sequences as a stopping engine does: one after another with
// the reason "abort" and nothing more generated.
func (g *generation) abort() piece {
	g.fault = nil
	g.stopFeeders()
	g.held = nil
	for i, q := range g.seqs {
		if !g.over[i] {
			q.Abort()
			g.held = append(g.held, piece{seq: i, finished: true, reason: FinishAbort})
		}
	}
	p := g.held[0]
	g.held = g.held[1:]
	g.note(p)
	return p
}

func (g *generation) stopFeeders() {
	select {
	case <-g.quit:
	default:
		close(g.quit)
	}
}

// struck runs the fault and reports whether the answer goes on.
func (g *generation) struck(w *responder) bool {
	f := g.fault
	g.fault = nil
	switch f.Kind {
	case "stall", "hung", "refuse":
	default:
		g.end()
	}
	return g.s.strike(g.ctx, w, f, g.a.dialect)
}

// each hands every piece to use, in order, until all sequences have finished.
// It runs faults on the way, and reports false if the answer ended otherwise;
// then nothing is left to be written.
func (g *generation) each(w *responder, use func(piece) bool) bool {
	for open := len(g.seqs); open > 0; {
		p, err := g.next()
		switch {
		case errors.Is(err, errStruck):
			if !g.struck(w) {
				return false
			}
			continue
		case g.ctx.Err() != nil || w.dead:
			return false
		case err != nil:
			g.end()
			w.failStream(g.a.dialect, injectedError(500))
			return false
		}
		if p.finished {
			open--
			g.s.meters.finish(p.reason)
		}
		if !use(p) {
			return false
		}
	}
	g.end()
	return true
}

// end releases the engine's side of the request, once. It runs before the
// last bytes of the answer are written, so that a client that has them finds
// the counters done.
func (g *generation) end() {
	if g.ended {
		return
	}
	g.ended = true
	g.stopFeeders()
	for _, q := range g.seqs {
		q.Abort() // nothing happens to one that has finished
	}
	g.done(errors.Is(context.Cause(g.ctx), errLeft))
	m := g.s.meters
	m.latency.observe(time.Since(g.begun).Seconds())
	if g.first.IsZero() {
		return
	}
	m.prefill.observe(g.first.Sub(g.begun).Seconds())
	m.decode.observe(g.last.Sub(g.first).Seconds())
	m.output.observe(float64(g.sent))
	for _, p := range g.a.prompts {
		m.prompt.observe(float64(len(p)))
	}
}

// usageOf sums the usage of all sequences, given the tokens they produced.
func (g *generation) usageOf(output int) usage {
	u := usage{output: output, created: -1}
	for i, q := range g.seqs {
		if i%g.a.choices == 0 {
			u.prompt += len(g.a.promptOf(i))
			u.cached += q.Cached()
		}
	}
	if u.hidden = g.s.o.HideCached; u.hidden {
		u.cached = 0
	}
	return u
}

// createdTokens is how many prompt tokens became newly cached: the full
// blocks of the prompt without those that were hit. For hybrid models vLLM does not say.
func (g *generation) createdTokens(u usage) int {
	if g.s.core.hybrid() {
		return -1
	}
	b := g.s.core.Options().BlockTokens
	return max(u.prompt/b*b-u.cached, 0)
}
