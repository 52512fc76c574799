package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/zeebo/xxh3"

	"ramjet/route"
	"ramjet/telemetry"
	"ramjet/wire"
)

// handle is the way of one request.
func (f *flight) handle() {
	if e := f.admit(); e != nil {
		f.reject(e)
		return
	}
	panicPoint(f, "handler")
	if f.preflight() {
		f.forwardPreflight()
		return
	}
	switch f.ep.kind {
	case kindHealth, kindRoot, kindModels, kindModel:
		if !f.skipBody() {
			f.rejectUnread(errBodyCut)
			return
		}
		if f.c.mute {
			f.clientGone()
			return
		}
		f.answerSelf()
		if f.close && !f.bodyRead {
			f.linger()
		}
		return
	case kindRealtime:
		f.upgrade()
		return
	case kindUpload:
		f.upload = f.c.head.Chunked || f.c.head.ContentLength > uploadHeld
		if f.c.head.ContentLength > f.live.Limits.Body {
			f.rejectUnread(errBodyTooLarge)
			return
		}
	case kindPass, kindChat, kindComplete, kindResponses, kindStored, kindMessages, kindJSON:
	}
	if !f.upload {
		if e := f.readBody(); e != nil {
			f.close = true
			f.failBody(e)
			return
		}
		f.bodyRead = true
		if f.c.gate.aborted() == telemetry.EndClientGoneWaiting {
			f.clientGone() // nobody waits for a decision
			return
		}
	}
	f.now = time.Now() // of which the time to a decision counts
	if e := f.understand(f.body.bytes()); e != nil {
		f.fail(e, telemetry.EndRejected)
		return
	}
	f.forward()
	if f.upload && !f.uploaded {
		f.close = true
		f.linger()
	}
}

// failBody answers a body that could not be read, each kind in its own words.
func (f *flight) failBody(e *wire.Error) {
	end := telemetry.EndRejected
	switch e.Code { //nolint:exhaustive // the rest are rejections
	case wire.CodeOverloaded:
		end = telemetry.EndShed
	case wire.CodeRequestTimeout:
		end = telemetry.EndTimedOut
	case wire.CodeDraining:
		end = telemetry.EndDrained
	}
	if e.Code == wire.CodeDraining {
		_ = f.c.nc.SetDeadline(time.Now().Add(time.Second)) // in place of the one that ended the read
	}
	if e == errBodyCut {
		// Most likely nobody is there to read it; if it was a half-close,
		// that counts as leaving.
		f.rec.Status = 499
		f.end(telemetry.EndClientGoneWaiting)
		return
	}
	f.fail(e, end)
	f.linger()
}

// linger lets the client read its answer before the connection ends, once.
func (f *flight) linger() {
	if !f.lingered {
		f.lingered = true
		f.c.linger()
	}
}

// understand reads what routing needs to know from the body.
func (f *flight) understand(body []byte) *wire.Error {
	f.peek.Object = false
	if f.ep.kind.readsJSON() || f.ep.kind == kindPass && jsonBody(body) {
		if err := f.peek.Peek(body); err != nil {
			f.peek.Object = false
			if f.ep.kind.readsJSON() {
				return badBody(err)
			}
		}
	}
	if f.peek.Object {
		if e := f.findModel(); e != nil {
			return e
		}
		f.inject = f.live.InjectUsage && f.peek.Stream && !f.peek.IncludeUsage &&
			(f.ep.kind == kindChat || f.ep.kind == kindComplete)
		if f.ep.kind == kindResponses {
			f.query.Stored = f.s.stored.engine(f.peek.PreviousResponseID)
		}
	}
	if f.ep.kind == kindStored {
		f.query.Stored = f.s.stored.engine(storedID(f.path))
	}
	f.query.Whole = !(f.peek.Object && f.peek.Stream)
	f.query.Session = f.session(body)
	f.weigh(int64(len(body)))
	f.readPrompt(body)
	return nil
}

func badBody(err error) *wire.Error {
	e := &wire.Error{Code: wire.CodeInvalidRequest, Message: err.Error()}
	var bad *wire.BodyError
	if errors.As(err, &bad) {
		e.Param = bad.Param
	}
	return e
}

// jsonBody guesses whether a passed-through body is worth a peek.
func jsonBody(body []byte) bool {
	body = bytes.TrimLeft(body, " \t\r\n")
	return len(body) > 0 && body[0] == '{'
}

// findModel resolves aliases and refuses names that no engine serves. A
// missing name is the engines' own default.
func (f *flight) findModel() *wire.Error {
	name := f.peek.ModelName
	f.rec.Model = name
	if len(name) == 0 {
		return nil
	}
	if target, ok := f.live.Aliases[string(name)]; ok {
		f.alias = target
		name = f.s.labels.bytes(target)
	}
	f.query.Model = name
	unknown := true
	set := f.s.Router.Members() // once: a reload may replace it
	for i := range set.Members {
		list := set.Members[i].Engine.Models()
		if f.model = list.Name(name); f.model != "" {
			f.rec.Model = f.s.labels.bytes(f.model)
			return nil
		}
		unknown = unknown && list != nil
	}
	if !unknown {
		return nil // an engine whose list is not read yet may serve it
	}
	return &wire.Error{Code: wire.CodeModelNotFound, Param: "model",
		Message: "no engine serves this model; GET /v1/models lists those that are served"}
}

// storedID is the response id in /v1/responses/ID and what follows it.
func storedID(path []byte) []byte {
	id := path[len("/v1/responses/"):]
	if i := bytes.IndexByte(id, '/'); i >= 0 {
		id = id[:i]
	}
	return id
}

// maxChoices is how many answers to one prompt vLLM generates at most
// (VLLM_MAX_N_SEQUENCES); more is refused there and must not weigh here.
const maxChoices = 16384

// maxSequences is how many answers one request weighs at most: a body of 64 MB
// has room for millions of prompts.
const maxSequences = 1 << 20

// weigh takes a request by its size until its tokens are known: four bytes a
// token (CONTRACT 10.18).
func (f *flight) weigh(bytes int64) {
	q := &f.query
	q.Prompt.Tokens = bytes / 4
	if f.upload {
		q.Prompt.Tokens = max(f.c.head.ContentLength, 0) / 4
	}
	if !f.peek.Object || !f.ep.kind.generates() {
		return
	}
	choices := min(max(f.peek.N, f.peek.BestOf, 1), maxChoices)
	q.Sequences = min(int64(max(f.peek.Prompts, 1))*int64(choices), maxSequences)
	q.Cap = f.peek.Cap
}

// sessionHeaders in the order of CONTRACT section 4.
var sessionHeaders = [...]string{"x-session-id", "x-claude-code-session-id", "session-id", "thread-id"}

// session returns the hash of what identifies the client's session.
func (f *flight) session(body []byte) uint64 {
	for _, name := range sessionHeaders {
		if v := f.c.head.Get(name); len(v) > 0 {
			return xxh3.Hash(v)
		}
	}
	if !f.peek.Object {
		return 0
	}
	if len(f.peek.Session) > 0 {
		return xxh3.Hash(f.peek.Session)
	}
	for _, span := range []wire.Span{f.peek.Messages, f.peek.Input, f.peek.Prompt} {
		if span.End > span.Start {
			return xxh3.Hash(wire.FirstElements(body[span.Start:span.End], 2))
		}
	}
	return 0
}

// appendSession shows a session without telling what it is.
func appendSession(dst []byte, session uint64) []byte {
	if session == 0 {
		return dst
	}
	return appendHex(dst, session)
}

// appendID makes a request id: 128 random bits as hex.
func appendID(dst []byte) []byte {
	return appendHex(appendHex(dst, rand.Uint64()), rand.Uint64()) //nolint:gosec // an id, not a secret
}

func appendHex(dst []byte, v uint64) []byte {
	const digits = "0123456789abcdef"
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	for _, c := range b {
		dst = append(dst, digits[c>>4], digits[c&15])
	}
	return dst
}

// quickly is how long a body may be, in bytes, for its reading to take no time
// worth a look at the clock: some ten microseconds where it is new.
const quickly = 4 << 10

// pick chooses an engine and books the request on it, waiting in the queue
// when all are at their limit.
func (f *flight) pick() *wire.Error {
	start := f.now
	if f.body.n > quickly {
		f.now = time.Now() // to read a long prompt can take what leases are counted in
	}
	var d route.Decision
	err := route.ErrFull
	if f.query.Light || !f.s.queue.busy() {
		d, err = f.choose()
	}
	f.now = time.Now()
	f.rec.Route = max(f.rec.Route, 0) + f.now.Sub(start).Seconds()
	if errors.Is(err, route.ErrFull) {
		d, err = f.wait()
	}
	if err != nil {
		return f.noEngine(err)
	}
	f.decision = d
	f.countDecision()
	if f.s.Tick != nil {
		f.s.Tick(f.now) // a body can take long to come, and what samples sleeps by then
	}
	return nil
}

// choose picks at the time last read.
func (f *flight) choose() (route.Decision, error) {
	f.query.Now = f.s.at(f.now)
	return f.s.Router.Pick(&f.query, &f.lease, &f.explain)
}

// wait stands in the queue until there is room, the client leaves, or the
// wait has lasted too long.
func (f *flight) wait() (route.Decision, error) {
	if !f.s.queue.enter(&f.c.gate) {
		return route.Decision{}, errShed
	}
	defer f.s.queue.leave(&f.c.gate)
	start := time.Now()
	defer func() {
		f.rec.Queue = max(f.rec.Queue, 0) + since(start)
		f.s.Metrics.QueueDuration.Update(since(start))
	}()
	late := errShed
	wait := f.live.Limits.QueueWait
	if total := f.live.Timeouts.Total; total > 0 && time.Until(f.began.Add(total)) < wait {
		late, wait = errLate, time.Until(f.began.Add(total))
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		if f.c.gate.aborted() != telemetry.EndNone {
			return route.Decision{}, errGone
		}
		if f.s.queue.first(&f.c.gate) {
			f.now = time.Now()
			d, err := f.choose()
			if !errors.Is(err, route.ErrFull) {
				return d, err
			}
		}
		select {
		case <-f.c.gate.wake:
		case <-timer.C:
			return route.Decision{}, late
		}
	}
}

var (
	errShed = errors.New("the queue is full")
	errGone = errors.New("the client left")
	errLate = errors.New("the request took too long")
)

func (f *flight) noEngine(err error) *wire.Error {
	switch {
	case errors.Is(err, errShed):
		return &wire.Error{Code: wire.CodeQueueFull}
	case errors.Is(err, errGone):
		return nil
	case errors.Is(err, errLate):
		return &wire.Error{Code: wire.CodeEngineTimeout, Message: "the request waited for an engine until timeouts.total"}
	case errors.Is(err, route.ErrModel):
		return &wire.Error{Code: wire.CodeModelNotFound, Param: "model"}
	}
	return &wire.Error{Code: wire.CodeNoEngine, RetryAfter: 5}
}
