package tokens

import "ramjet/wire"

// The words for what is known of an engine.
const (
	handoffUnknown = "unknown" // not probed yet
	handoffNone    = "unsupported"
)

// handoffEndpoints are the endpoints whose requests can carry ids: chat, completions and messages.
const handoffEndpoints = 3

// engineForms is what an engine was found to read, by endpoint. It never changes.
type engineForms struct {
	name  string
	forms [handoffEndpoints]wire.TokenForm
	why   string // why nothing, or less, is handed over
}

// slot returns what is known of an engine, nil for nothing.
func (h *Handoff) slot(slot int) *engineForms {
	if h == nil || slot < 0 || slot >= MaxHandoffEngines {
		return nil
	}
	return h.slots[slot].Load()
}

// Reset forgets what is known of an engine: it restarted, or left. Nothing is handed to it until it is probed again,
// and a probe that is under way comes to nothing.
func (h *Handoff) Reset(slot int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resets[slot]++
	h.slots[slot].Store(nil)
}

// resetsOf numbers an engine's processes.
func (h *Handoff) resetsOf(slot int) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.resets[slot]
}

// learn stores what a probe found, unless the engine was reset since.
func (h *Handoff) learn(slot int, resets uint64, f *engineForms) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.resets[slot] != resets {
		return false
	}
	h.slots[slot].Store(f)
	return true
}

// HandoffStatus is what is known of an engine, for people: by endpoint the member that carries ids (the words of
// wire.TokenForm), "unsupported" or "unknown".
type HandoffStatus struct {
	Chat, Completions, Messages string
	Why                         string // why not, empty if all is well
}

// Status returns what is known of an engine.
func (h *Handoff) Status(slot int) HandoffStatus {
	f := h.slot(slot)
	if f == nil {
		return HandoffStatus{handoffUnknown, handoffUnknown, handoffUnknown, "not probed"}
	}
	word := func(e Endpoint) string {
		if f.forms[e] == wire.TokenNone {
			return handoffNone
		}
		return f.forms[e].String()
	}
	return HandoffStatus{word(EndpointChat), word(EndpointCompletions), word(EndpointMessages), f.why}
}
