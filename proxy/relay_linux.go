package proxy

import (
	"time"

	"ramjet/engine"
)

func (r *relay) bindRaw() { r.ready, r.room = r.onReady, r.onRoom }

// runRaw relays inside the two sockets' poller callbacks: the client's write
// callback holds its descriptor, the engine's read callback runs within it for
// as long as the client keeps up. One call serves the whole answer, because
// each new call costs a read that finds nothing.
func (r *relay) runRaw() {
	if err := r.f.c.sock.Raw().Write(r.room); err != nil && r.sendErr == nil {
		r.sendErr = err
	}
}

// onRoom runs whenever the client can take bytes. It returns false to wait for
// that, and stops reading from the engine meanwhile.
func (r *relay) onRoom(fd uintptr) bool {
	r.sendFD = fd
	for {
		if r.moving() {
			return true // nothing of this answer may go out
		}
		r.flushRaw()
		r.f.c.gate.blocked.Store(r.blocked)
		if r.blocked {
			r.held = true
			r.limitClient()
			return false
		}
		if r.over() {
			return true
		}
		if err := r.f.up.Socket.Raw().Read(r.ready); err != nil {
			r.readErr = err
			return true
		}
	}
}

// onReady runs whenever the engine sent something. A short read is the last
// one only if the watch tells of a FIN by itself; else it reads on until there
// is nothing left, because data and FIN may come in one wake-up.
func (r *relay) onReady(fd uintptr) bool {
	for {
		p := r.space()
		n, again, err := engine.RawRead(fd, p)
		switch {
		case again:
			r.giveSpace()
			return false
		case err != nil:
			r.readErr = err
			return true
		case n == 0:
			r.ended()
			return true
		}
		r.took(n)
		if r.vain() {
			r.readErr = errMove
			return true
		}
		r.flushRaw()
		if r.blocked || r.over() {
			return true
		}
		if n < len(p) && r.f.up.Watched() {
			r.giveSpace()
			return false // the watch wakes us if this was the end
		}
	}
}

func (r *relay) flushRaw() {
	r.blocked = false
	for r.sendErr == nil {
		p := r.pending()
		if len(p) == 0 {
			return
		}
		n, again, err := engine.RawWrite(r.sendFD, p)
		r.wrote(n)
		r.sendErr = err
		if again {
			r.blocked = true
			return
		}
	}
}

// clientMoves reports whether the client took something since the limit was
// set. The kernel calls a socket writable only when a third of its buffer is
// free, which a slow reader of a large buffer may not achieve in time.
func (r *relay) clientMoves() bool {
	now := r.unsent
	err := r.f.c.sock.Raw().Control(func(fd uintptr) { now = engine.Unsent(fd) })
	return err == nil && now < r.unsent
}

// limitClient bounds the wait for a client that takes nothing.
func (r *relay) limitClient() {
	if d := r.f.live.Timeouts.ClientWrite; d > 0 && r.f.c.gate.aborted() == 0 {
		_ = r.f.c.nc.SetWriteDeadline(time.Now().Add(d))
		r.limited = true
		r.unsent = engine.Unsent(r.sendFD)
		if r.f.c.gate.aborted() != 0 {
			r.f.c.interrupt() // the deadline above may have undone it
		}
	}
}
