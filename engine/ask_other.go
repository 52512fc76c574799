//go:build unix && !linux

package engine

// Ask writes all of p and then of more, calls sent, and reads the first bytes of
// the answer into a buffer from get: Socket.Write, sent and Socket.Await one
// after the other. wrote is how the writing ended; sent is called once in any
// case, when p and more are no longer needed, and may run inside a callback of
// the poller: it must not wait for what closes the connection. n and err are
// what Await returns. No part of the question may be out before the call.
func (c *Conn) Ask(p, more []byte, sent func(), get func() []byte, put func()) (n int, wrote, err error) {
	if _, wrote = c.Socket.Write(p); wrote == nil && len(more) > 0 {
		_, wrote = c.Socket.Write(more)
	}
	sent()
	n, err = c.Socket.Await(get, put)
	return n, wrote, err
}

func (c *Conn) onAsk(uintptr) bool { panic("BUG: a question in the poller outside Linux") }
