package sim

import "errors"

// routerSocket is a ZeroMQ ROUTER socket: it receives whole messages and answers the peer that sent one.
type routerSocket struct {
	*zmtpSocket
	hwm int // of each peer's answers
	// handle gets every message, less the identity that libzmq would put in front, in the goroutine that reads from the
	// peer: what it asks for next waits in its socket.
	handle func(out *zmtpOutbox, frames [][]byte)
}

func newRouterSocket(hwm int, handle func(*zmtpOutbox, [][]byte)) *routerSocket {
	return &routerSocket{zmtpSocket: newZMTPSocket("ROUTER", "REQ", "DEALER", "ROUTER"), hwm: hwm, handle: handle}
}

// bind listens for requests and returns the endpoint with its port.
func (r *routerSocket) bind(endpoint string) (string, error) {
	return r.listen(endpoint, func(c *zmtpConn) {
		out := newOutbox(r.hwm)
		serveBoth(c, out, func() error { return r.receive(c, out) })
	})
}

// receive hands whole messages on until the connection ends.
func (r *routerSocket) receive(c *zmtpConn, out *zmtpOutbox) error {
	var frames [][]byte
	for {
		flags, body, err := c.read(out.putUrgent)
		switch {
		case err != nil:
			return err
		case flags&zmtpCommand != 0:
			continue
		case len(frames) == zmtpPartLimit:
			return errors.New("message without end")
		}
		frames = append(frames, body)
		if flags&zmtpMore == 0 {
			r.handle(out, frames)
			frames = nil
		}
	}
}
