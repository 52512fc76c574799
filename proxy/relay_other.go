//go:build unix && !linux

package proxy

func (r *relay) bindRaw() {}

// clientMoves is not asked without raw access.
func (r *relay) clientMoves() bool { return false }

// runRaw is not possible here; sockets have no raw access.
func (r *relay) runRaw() { panic("BUG: raw relay outside Linux") }
