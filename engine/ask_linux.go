package engine

// Ask writes all of p, calls sent, and reads the first bytes of the answer into
// a buffer from get: Socket.Write, sent and Socket.Await one after the other.
// wrote is how the writing ended; sent is called once in any case, when p is no
// longer needed, and may run inside a callback of the poller: it must not wait
// for what closes the connection. n and err are what Await returns.
//
// An answer cannot be there as soon as its question is out. Where the end of the
// engine's sending is told apart, the wait begins before the question is
// written, so that no read has to look for what came in between.
func (c *Conn) Ask(p []byte, sent func(), get func() []byte, put func()) (n int, wrote, err error) {
	s := &c.Socket
	done := 0
	if s.rc != nil {
		s.p, s.n, s.err, s.get, s.put = p, 0, nil, get, put
		c.sent, c.asked = sent, false
		err = s.rc.Read(c.asks)
		done = s.n
		s.p, s.get, s.put, c.sent = nil, nil, nil, nil
		if c.asked {
			n, err = s.result(err)
			return n, nil, err
		}
		wrote = s.err
	}
	if wrote == nil && done < len(p) {
		_, wrote = s.Write(p[done:])
	}
	sent()
	n, err = s.Await(get, put)
	return n, wrote, err
}

// onAsk runs once to write, and then whenever the engine sent something. What
// is not the common way is left to Ask.
func (c *Conn) onAsk(fd uintptr) bool {
	s := &c.Socket
	if c.asked {
		return s.onAwait(fd)
	}
	n, _, err := RawWrite(fd, s.p)
	s.n, s.err = n, err
	// Only a hang-up that was not told yet wakes this wait.
	if err != nil || n < len(s.p) || !c.Watched() {
		return true
	}
	c.asked = true
	s.p, s.n = nil, 0
	c.sent()
	return false
}
