package proxy

import (
	"errors"
	"io"
	"time"
)

// runPlain relays with the connections' own methods: for TLS on either side,
// and wherever there is no raw access to sockets.
func (r *relay) runPlain() {
	for r.flushPlain() && !r.over() {
		n, err := r.f.up.Socket.Await(r.takes, r.gives)
		if n > 0 {
			r.took(n)
			if r.vain() {
				r.readErr = errMove
				return
			}
		}
		switch {
		case err == nil || r.over():
		case errors.Is(err, io.EOF):
			r.ended()
		default:
			r.readErr = err
		}
		if r.lo == r.hi {
			r.giveSpace()
		}
	}
}

// flushPlain writes what may go out. It reports false when the client cannot
// be written any more.
func (r *relay) flushPlain() bool {
	for {
		p := r.pending()
		if len(p) == 0 || r.sendErr != nil {
			return r.sendErr == nil
		}
		if d := r.f.live.Timeouts.ClientWrite; d > 0 {
			_ = r.f.c.nc.SetWriteDeadline(time.Now().Add(d))
			r.limited = true
			if r.f.c.gate.aborted() != 0 {
				r.f.c.interrupt()
			}
		}
		// Slices keep one slow write from spending a whole limit although
		// the client makes progress.
		r.f.c.gate.blocked.Store(true)
		n, err := r.f.c.nc.Write(p[:min(len(p), sizeHold)])
		r.f.c.gate.blocked.Store(false)
		r.wrote(n)
		r.sendErr = err
	}
}
