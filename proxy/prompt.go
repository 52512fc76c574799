package proxy

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"ramjet/engine"
	"ramjet/route"
	"ramjet/telemetry"
	"ramjet/tokens"
)

// chainTokens is how many tokens one key of a known prompt's chain stands for:
// vLLM's smallest block, so that no hit is finer.
const chainTokens = 16

// chunkTokens is what a fingerprint of 2 KB of text is taken to stand for,
// with the bytes a token that were learnt.
const chunkBytes = 2048

// prompt is what is known of one request's prompt, and the memory for it. It
// is held from the reading of a body until the first token is there and the
// request can no longer move: another engine would need it again.
type prompt struct {
	prep  tokens.Prepared
	sets  []route.KeySet
	keys  []uint64 // of the chain and of all sets
	sizes []int
}

var prompts = sync.Pool{New: func() any { return &prompt{} }}

// endpointOf names what of tokens concerns the path.
func (k kind) endpoint() (e tokens.Endpoint, ok bool) {
	switch k { //nolint:exhaustive // the rest have no prompts
	case kindChat:
		return tokens.EndpointChat, true
	case kindComplete:
		return tokens.EndpointCompletions, true
	case kindMessages:
		return tokens.EndpointMessages, true
	case kindResponses:
		return tokens.EndpointResponses, true
	}
	return 0, false
}

// readPrompt finds out what can be known of the prompt: its ids and the keys
// of its blocks, else the fingerprints of its text.
func (f *flight) readPrompt(body []byte) {
	e, ok := f.ep.kind.endpoint()
	if !ok || !f.peek.Object || f.s.Prompts == nil {
		return
	}
	p := prompts.Get().(*prompt) //nolint:forcetypeassert // nothing else is put there
	f.prompt = p
	f.s.Prompts.Prepare(&p.prep, e, f.query.Model, body, &f.peek)
	f.class, f.predicted, f.promptBytes = p.prep.Class, p.prep.Predicted, p.prep.Bytes
	q := &f.query.Prompt
	q.Tokens, q.Exact, q.Note, q.Fresh = int64(p.prep.Tokens), p.prep.Exact, p.prep.Note, !p.prep.ReadsCache()
	root := p.prep.Root("", f.adapter())
	p.keys, p.sets = p.keys[:0], p.sets[:0]
	if first := len(p.prep.First()); first > 0 {
		p.sizes = f.s.Router.BlockSizes(p.sizes[:0])
		for _, size := range p.sizes {
			p.sets = append(p.sets, route.KeySet{BlockTokens: size, Keys: p.blocks(root, size)})
		}
		q.IDs = p.prep.First()
		if q.Exact {
			q.First = first
			// An engine computes the last token at least, so that the block
			// which holds it is never hit.
			chain := p.blocks(root, chainTokens)
			q.Chain, q.ChainTokens = chain[:min(len(chain), (first-1)/chainTokens)], chainTokens
		}
	}
	q.Sets = p.sets
	if !q.Exact {
		from := len(p.keys)
		p.keys = p.prep.AppendChunks(p.keys, root, body, &f.peek)
		q.Chain, q.ChainTokens = p.keys[from:len(p.keys):len(p.keys)], max(int(chunkBytes/f.s.Prompts.BytesPerToken()), 1)
	}
}

// blocks returns the keys of the full blocks of one size.
func (p *prompt) blocks(root uint64, size int) []uint64 {
	from := len(p.keys)
	p.keys = p.prep.AppendKeys(p.keys, root, size)
	return p.keys[from:len(p.keys):len(p.keys)]
}

// adapter is the name of the LoRA adapter that is asked for, "" for the model
// itself: blocks of adapters are apart from each other.
func (f *flight) adapter() string {
	if len(f.query.Model) == 0 {
		return ""
	}
	set := f.s.Router.Members() // once: a reload may replace it
	for i := range set.Members {
		if list := set.Members[i].Engine.Models(); list.Adapter(f.query.Model) {
			return list.Name(f.query.Model)
		}
	}
	return ""
}

// givePrompt gives back the memory of the prompt. The lease must not be in
// prefill any more: others compare its keys.
func (f *flight) givePrompt() {
	p := f.prompt
	if p == nil {
		return
	}
	f.prompt = nil
	q := &f.query.Prompt
	q.Sets, q.Chain, q.IDs = nil, nil, nil
	p.prep.Release()
	if cap(p.keys) > maxKeys {
		p.keys = nil
	}
	prompts.Put(p)
}

// maxKeys bounds the memory that a prompt keeps for keys: those of a million
// tokens.
const maxKeys = 1 << 17

// learn notes that the engine has computed the prompt. The lease must not be
// in prefill any more.
func (f *flight) learn() {
	if f.prompt == nil {
		return
	}
	f.learnt = true
	if f.s.Residency != nil {
		f.first = f.s.Residency.First(f.decision.Slot)
	}
	f.claim = f.claimed()
	f.s.Router.Learnt(f.decision.Member, &f.query.Prompt)
	if f.settled {
		f.givePrompt()
	}
}

// claimed keeps what the memory claimed of the prompt, while its keys are there.
func (f *flight) claimed() (c Claim) {
	p := &f.query.Prompt
	if len(p.Chain) == 0 || p.Fresh {
		return c
	}
	c.First, c.KeyTokens = p.Chain[0], p.ChainTokens
	if !p.Exact {
		c.Slack = p.ChainTokens - 1
	}
	for i := range f.explain.Candidates {
		x := &f.explain.Candidates[i]
		switch {
		case x.Slot != f.decision.Slot:
		case !p.Exact && x.MatchExact > 0 && x.MatchExact >= x.MatchApproximate:
			return Claim{} // the index's, from the ids of the prompt's beginning
		default:
			c.Keys = min(int(x.MatchApproximate)/p.ChainTokens, len(p.Chain))
		}
	}
	if c.Keys > 0 {
		c.Last = p.Chain[c.Keys-1]
	}
	return c
}

// beside hands out the comparisons that some requests are drawn for.
func (f *flight) beside(e *engine.Engine) {
	p := f.prompt
	if p == nil || f.s.Beside == nil {
		return
	}
	if f.s.BesideRoom != nil && !f.s.BesideRoom() {
		p.prep.Postpone() // a comparison copies the body, which nobody would take
		return
	}
	body := f.body.bytes()
	s := f.sample(body)
	if s != nil && !f.s.Beside(func(ctx context.Context) { _, _ = s.Run(ctx, e) }) {
		s.Drop()
	}
	if verify := p.prep.Verify(body); verify != nil && !f.s.Beside(func(context.Context) { verify() }) {
		p.prep.Unverified()
	}
}

// sample returns the comparison that the request is drawn for, nil for most.
func (f *flight) sample(body []byte) *tokens.Sample {
	if f.handed {
		return f.live.Handoff.Sample(f.decision.Slot, &f.prompt.prep, f.askedModel(), body, &f.peek)
	}
	return f.live.Handoff.Trial(f.decision.Slot, &f.prompt.prep, f.askedModel(), body, &f.peek)
}

// askedModel is the model's name as the engine reads it.
func (f *flight) askedModel() string {
	if f.alias != "" {
		return f.alias
	}
	return f.model
}

// audit compares what was expected of the prompt with what the engine
// reported, for those who learn from it. It runs when the request is over, where
// no panic of a request is caught, and so catches its own.
func (f *flight) audit() {
	defer func() {
		if p := recover(); p != nil {
			f.s.Log.Error("what an answer told is lost, as its evaluation panicked", "panic", fmt.Sprint(p), "id", string(f.id), "stack", string(debug.Stack()))
		}
	}()
	s := &f.relay.seen
	f.auditMatch()
	if !s.hasUsage || f.rec.End != telemetry.EndDone || f.s.Prompts == nil || f.rec.Status != 200 {
		return
	}
	name, reported := f.member().Name, int(s.usage.Prompt)
	if f.handed {
		f.live.Handoff.ObserveHanded(f.decision.Slot, int(f.query.Prompt.Tokens), reported)
	} else {
		f.s.Prompts.Observe(f.class, name, f.predicted, reported)
	}
	// Media, ids and a stored conversation are tokens that no text of the body
	// makes.
	if f.predicted < 1 && !f.peek.Media && f.class&tokens.ClassIDs == 0 && len(f.peek.PreviousResponseID) == 0 {
		f.s.Prompts.ObserveTokens(f.promptBytes, reported)
	}
	if s.usage.Completion > 0 && f.query.Sequences > 0 {
		if !f.relay.held { // else the time was the client's
			f.lease.Measured(s.usage.Completion, f.s.at(f.now))
		}
		f.s.Router.Answered(f.query.Cap, s.usage.Completion/f.query.Sequences)
	}
}

// auditMatch tells what the engine reported beside what was predicted.
func (f *flight) auditMatch() {
	if f.s.Residency == nil || !f.learnt || f.rec.End != telemetry.EndDone || f.rec.Status != 200 || f.query.Sequences != 1 {
		return
	}
	f.told = Audit{Prompt: int(f.query.Prompt.Tokens), Reported: telemetry.Unknown, Predicted: telemetry.Unknown, Other: telemetry.Unknown, Sent: f.dispatch, First: f.first}
	a := &f.told
	if s := &f.relay.seen; s.hasUsage {
		a.Prompt, a.Output, a.Reported = int(s.usage.Prompt), int(s.usage.Completion), int(s.usage.Cached)
	}
	f.matches = f.matches[:0]
	for i := range f.explain.Candidates {
		c := &f.explain.Candidates[i]
		for len(f.matches) <= c.Slot {
			f.matches = append(f.matches, 0)
		}
		f.matches[c.Slot] = int32(min(c.MatchExact, 1<<30)) //nolint:gosec // bounded
		if c.Slot == f.decision.Slot && f.query.Prompt.Exact {
			a.Predicted, a.Other, a.InFlight = int(c.MatchExact), int(c.MatchOther), c.MatchInFlight > c.MatchExact || f.dispatch.Pending
		}
	}
	a.Matches, a.Claim = f.matches, f.claim
	f.s.Residency.Answered(f.decision.Slot, a)
}
