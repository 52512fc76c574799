package tokens

import "ramjet/wire"

// Would reports whether Plan would hand the ids over. It counts nothing.
func (h *Handoff) Would(slot int, p *Prepared, peek *wire.Peeked) bool {
	return h.slot(slot).reads(p.Class.Endpoint()) && h.may(p, peek)
}
