package engine

// Ask writes all of p and then of more, calls sent, and reads the first bytes of
// the answer into a buffer from get: Socket.Write, sent and Socket.Await one
// after the other. wrote is how the writing ended; sent is called once in any
// case, when p and more are no longer needed, and may run inside a callback of
// the poller: it must not wait for what closes the connection. n and err are
// what Await returns.
//
// No answer can be there before its question is. Where the end of the engine's
// sending is told apart, the wait begins before the first byte is written, so
// that no read has to look for what came in between: no part of the question
// may be out before the call.
func (c *Conn) Ask(p, more []byte, sent func(), get func() []byte, put func()) (n int, wrote, err error) {
	s := &c.Socket
	if s.rc != nil {
		s.p, s.n, s.err, s.get, s.put = p, 0, nil, get, put
		c.more, c.sent, c.asked = more, sent, false
		err = s.rc.Read(c.asks)
		p, more, wrote = s.p, c.more, s.err // what is left
		s.p, s.get, s.put, c.more, c.sent = nil, nil, nil, nil, nil
		if c.asked {
			n, err = s.result(err)
			return n, nil, err
		}
	}
	for _, rest := range [...][]byte{p, more} {
		if wrote == nil && len(rest) > 0 {
			_, wrote = s.Write(rest)
		}
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
	for _, rest := range [...]*[]byte{&s.p, &c.more} {
		if len(*rest) == 0 {
			continue
		}
		n, _, err := RawWrite(fd, *rest)
		if *rest = (*rest)[n:]; err != nil || len(*rest) > 0 {
			s.err = err
			return true
		}
	}
	if !c.Watched() {
		return true // only a hang-up that was not told yet wakes this wait
	}
	c.asked = true
	s.p, s.n, c.more = nil, 0, nil
	c.sent()
	return false
}
