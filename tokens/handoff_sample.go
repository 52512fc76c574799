package tokens

import (
	"context"
	"errors"
	"slices"

	"ramjet/wire"
)

// sampledOf is of how many requests of a class that were handed over one is compared: the 1st, the 101st (CONTRACT
// 10.18).
const sampledOf = 100

// Sample is a request whose ids were handed over, or might be soon, to be compared with the engine's own. It holds
// copies.
type Sample struct {
	h      *Handoff
	slot   int
	engine *engineForms
	class  Class
	ids    []uint32
	body   []byte // for /tokenize
	trial  bool   // the ids were not handed over
}

// Sample is to be called once for each request that Plan gave ids for. It returns nil for most, and for the 1st, the
// 101st .. of its class a comparison that is to run beside the request, or to be dropped (Drop). body and peek are what
// p was prepared for.
func (h *Handoff) Sample(slot int, p *Prepared, model string, body []byte, peek *wire.Peeked) *Sample {
	return h.sample(slot, p, model, body, peek)
}

// Trial is to be called once for each request that Plan gave no ids for. Of a class that lacks nothing for being handed
// over but that its ids were compared, since only counts were yet, it is what Sample is; nil for most requests, and for
// a nil Handoff.
func (h *Handoff) Trial(slot int, p *Prepared, model string, body []byte, peek *wire.Peeked) *Sample {
	if !h.slot(slot).reads(p.Class.Endpoint()) || !h.could(p, peek) || !h.o.Model.parity.mayTry(p.Class) {
		return nil
	}
	s := h.sample(slot, p, model, body, peek)
	if s != nil {
		s.trial = true
	}
	return s
}

func (h *Handoff) sample(slot int, p *Prepared, model string, body []byte, peek *wire.Peeked) *Sample {
	state := h.o.Model.parity.state(p.Class)
	if state == nil || state.handed.sent.Add(1)%sampledOf != 1 {
		return nil
	}
	var c Conversation
	if c.Parse(p.Class.Endpoint(), body, peek) != "" {
		return nil
	}
	question, ok := c.appendTokenize(nil, model, p.source.template, false)
	if !ok {
		return nil
	}
	return &Sample{h: h, slot: slot, engine: h.slot(slot), class: p.Class, ids: slices.Clone(p.IDs), body: question}
}

// Run asks the engine for the ids and compares them one by one. A single difference ends handing over for the class
// on all engines until Ramjet starts anew, and makes the class approximate. The error says that nothing could be
// compared: the next request of the class is a sample then, and an engine that does not tokenize at all is handed
// nothing more, since nobody could watch over it.
func (s *Sample) Run(ctx context.Context, a Asker) (equal bool, err error) {
	m := s.h.o.Model
	theirs, err := askIDs(ctx, a, s.body)
	if err != nil {
		if !s.trial || !errors.Is(err, errCannotAsk) { // a class that the engine refuses may be tried later
			s.Drop()
		}
		if errors.Is(err, errNoTokenize) && s.engine != nil {
			s.h.replace(s.slot, s.engine, &engineForms{name: s.engine.name, why: "handed-over ids cannot be compared: " + err.Error()})
			s.h.o.Log.Warn("token ids are not handed over any more, because they cannot be compared", "engine", s.engine.name, "error", err.Error())
		}
		return false, err
	}
	name := ""
	if s.engine != nil {
		name = s.engine.name
	}
	equal = slices.Equal(s.ids, theirs)
	m.parity.observe(s.class, comparison{engine: name, equal: equal, ids: true, predicted: len(s.ids), reported: len(theirs)})
	if equal {
		if s.trial {
			s.Drop() // the first that is handed over is a sample
		}
		return true, nil
	}
	s.h.o.Counts.Handoff(name, handoffMismatch)
	if state := m.parity.state(s.class); !state.handed.stopped.Swap(true) {
		s.h.o.Counts.Handoff(name, handoffStopped)
		s.h.o.Log.Warn("handed-over token ids differ from the engine's: no more are handed over for requests of this class", "class", s.class.String(),
			"engine", name, "first_difference", firstDifference(s.ids, theirs), "ours", len(s.ids), "theirs", len(theirs))
	}
	return false, nil
}

// Drop says that nothing was compared: the next request of the class is a sample then.
func (s *Sample) Drop() {
	if state := s.h.o.Model.parity.state(s.class); state != nil {
		state.handed.sent.Store(0)
	}
}

// firstDifference is the index of the first id that differs.
func firstDifference(a, b []uint32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// ObserveHanded compares the engine's count of prompt tokens with the number of ids that were handed to it: another
// number says that the engine did not use them, so that it must be probed again before it is handed more.
func (h *Handoff) ObserveHanded(slot, handed, reported int) {
	if handed < 1 || reported < 1 || handed == reported {
		return
	}
	if f := h.slot(slot); f != nil && h.replace(slot, f, nil) {
		h.o.Log.Warn("the engine did not use the token ids that it was given: it must be probed again", "engine", f.name, "handed_tokens", handed, "reported_tokens", reported)
		if h.o.Unproven != nil {
			h.o.Unproven(slot)
		}
	}
}

// replace stores what is known of an engine from now on, unless it changed meanwhile.
func (h *Handoff) replace(slot int, from, to *engineForms) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.slots[slot].CompareAndSwap(from, to)
}
