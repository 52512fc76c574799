//go:build unix && !linux

package proxy

func (r *relay) bindRaw() {}

// runRaw is not possible here; sockets have no raw access.
func (r *relay) runRaw() { panic("BUG: raw relay outside Linux") }
