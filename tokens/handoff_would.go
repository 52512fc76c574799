package tokens

import "ramjet/wire"

// Would reports whether Plan would hand the ids over. It counts nothing.
func (h *Handoff) Would(slot int, p *Prepared, peek *wire.Peeked) bool {
	f := h.slot(slot)
	e := p.Class.Endpoint()
	return f != nil && e < handoffEndpoints && f.forms[e] != wire.TokenNone && h.may(p, peek)
}
