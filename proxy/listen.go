package proxy

// listen waits for the client and serves its requests inside one callback of
// the socket's poller, as long as each of them comes whole in one read, as
// short ones do. Each new wait for a socket costs a read that finds nothing;
// inside the callback there is one wait for all of them. listen returns true
// when bytes of a request have come that is not of that kind, or when the
// poller cannot be had, and false when the connection is over.
func (c *conn) listen() bool {
	raw := c.sock.Raw()
	if raw == nil || c.w > c.r {
		return true
	}
	err := raw.Read(c.turns)
	if c.owed {
		c.linger()
	}
	return err == nil && !c.over
}

// whole takes the head of a request, and reports whether the request can be
// served without reading more of the client. One that cannot is left to next,
// with its head if that is there.
func (c *conn) whole() bool {
	h := &c.head
	h.Reset()
	n, err := h.Parse(c.in.b[c.r:c.w])
	if n == 0 || err != nil || n > c.srv.Limits.Header {
		return false
	}
	c.r += n
	if h.Chunked || h.ExpectContinue || h.UpgradeTo != nil || h.ContentLength > int64(c.w-c.r) {
		c.headed = true
		return false
	}
	return true
}
