package sim

import (
	"context"
	"encoding/json"
	"math"
	"time"
)

// State is what GET /sim/state returns: sums over the life of the simulated
// process, except that requests, aborted and bodies survive a restart, for
// they belong to whoever tests with it.
type State struct {
	InFlight      int      `json:"in_flight"` // generation requests being answered
	Requests      int      `json:"requests"`  // generation requests so far
	Aborted       int      `json:"aborted"`   // of those, how many the client left
	PrefillTokens uint64   `json:"prefill_tokens"`
	CachedTokens  uint64   `json:"cached_tokens"`
	OutputTokens  uint64   `json:"output_tokens"`
	KVBlocks      int      `json:"kv_blocks"`
	KVBlocksUsed  int      `json:"kv_blocks_used"`
	EventSeq      uint64   `json:"event_seq"` // batches of events published: the number of the next one
	Bodies        []string `json:"bodies"`    // SHA-256 in hex of the last 1,000 POST bodies, oldest first
	Running       int      `json:"running"`
	Waiting       int      `json:"waiting"`
	KVBlocksHeld  int      `json:"kv_blocks_cached"` // holding content, referenced or not
	Hung          bool     `json:"hung"`
	Faults        []Fault  `json:"faults"` // armed, with what is left of their count
	Handoff       string   `json:"handoff"`
	HandedOver    int64    `json:"handed_over"`  // requests whose prompt was ids that came beside messages
	ToConnector   int64    `json:"to_connector"` // requests whose kv_transfer_params went to the KV connector
}

// State returns the present state.
func (s *Server) State() State {
	st := s.core.Stats()
	flying, requests, aborted, bodies := s.journal.counts()
	seq := uint64(0)
	if s.events != nil {
		seq = s.events.sequence()
	}
	return State{
		EventSeq: seq, Handoff: *s.handoff.Load(), HandedOver: s.handed.Load(), ToConnector: s.toConnector.Load(),
		InFlight: flying, Requests: requests, Aborted: aborted, Bodies: append([]string{}, bodies...),
		PrefillTokens: st.PrefillTokens, CachedTokens: st.CachedTokens, OutputTokens: st.OutputTokens,
		KVBlocks: st.KVBlocks, KVBlocksUsed: st.KVBlocksUsed, KVBlocksHeld: st.KVBlocksCached,
		Running: st.Running, Waiting: st.Waiting, Hung: st.Hung, Faults: s.faults.pending(),
	}
}

// Fault arms a fault, as POST /sim/fault does. refuse strikes at once; so
// does hung unless AfterTokens is positive, and die with Now.
func (s *Server) Fault(f Fault) error {
	if err := f.check(); err != nil {
		return err
	}
	switch {
	case f.Kind == "refuse":
		s.refuse(f.duration())
	case f.Kind == "hung" && f.AfterTokens <= 0:
		s.hang(f.duration())
	case f.Kind == "die" && f.Now:
		s.die(f.duration())
	default:
		s.faults.arm(f)
	}
	return nil
}

// Clear forgets all faults: what they hold up goes on, a hung scheduler steps
// again. It does not bring a dead engine back; Restart does.
func (s *Server) Clear() {
	s.faults.clear()
	s.core.Hang(false)
}

// Evict drops up to blocks unreferenced cached blocks, least recently used
// first, and returns how many went.
func (s *Server) Evict(blocks int) int { return s.core.Evict(blocks) }

func (s *Server) simState(_ context.Context, w *responder) {
	body, err := json.Marshal(s.State())
	if err != nil {
		panic("BUG: cannot encode the state: " + err.Error())
	}
	w.json(200, body)
}

// readControl reads the JSON object of a control request into v.
func (w *responder) readControl(v any) bool {
	if len(w.req.body) == 0 {
		return true
	}
	if err := json.Unmarshal(w.req.body, v); err != nil {
		w.fail(dialectOpenAI, badRequest("", "cannot read the control request: "+err.Error()))
		return false
	}
	return true
}

// simFault arms a fault. What closes the port or the connections at once
// strikes after the answer is out, so that it does not cut its own answer.
func (s *Server) simFault(_ context.Context, w *responder) {
	f := Fault{Count: 1}
	if !w.readControl(&f) {
		return
	}
	if err := f.check(); err != nil {
		w.fail(dialectOpenAI, badRequest("kind", err.Error()))
		return
	}
	closes := f.Kind == "refuse" || f.Kind == "die" && f.Now
	if !closes {
		_ = s.Fault(f) // checked above
	}
	if f.forEvents() && s.events == nil {
		w.json(200, []byte(`{"armed":true,"note":"without effect: no event is published by this server"}`))
	} else {
		w.json(200, []byte(`{"armed":true}`))
	}
	if closes {
		_ = s.Fault(f) // checked above
	}
}

func (s *Server) simClear(_ context.Context, w *responder) {
	s.Clear()
	w.json(200, []byte(`{"cleared":true}`))
}

func (s *Server) simRestart(_ context.Context, w *responder) {
	var q struct {
		Seconds float64 `json:"seconds"`
	}
	if !w.readControl(&q) {
		return
	}
	if q.Seconds < 0 || math.IsNaN(q.Seconds) {
		w.fail(dialectOpenAI, badRequest("seconds", "seconds must be at least 0"))
		return
	}
	w.json(200, []byte(`{"restarting":true}`))
	s.Restart(time.Duration(q.Seconds * float64(time.Second)))
}

func (s *Server) simEvict(_ context.Context, w *responder) {
	var q struct {
		Blocks int `json:"blocks"`
	}
	if !w.readControl(&q) {
		return
	}
	w.json(200, append(appendInt([]byte(`{"evicted":`), s.Evict(q.Blocks)), '}'))
}
