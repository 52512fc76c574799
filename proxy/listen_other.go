//go:build unix && !linux

package proxy

// onTurn is not called; sockets have no raw access.
func (c *conn) onTurn(uintptr) bool { panic("BUG: a wait in the poller outside Linux") }
