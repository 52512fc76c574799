package proxy

// rechunk leaves verbatim relaying for good, because this engine's chunks do
// not end where its events do: a proxy in between cuts them as it likes. An
// event that is whole must go out although its chunk goes on, and chunks of our
// own are the only way to end one there. A body with trailers ends so too: they
// are dropped, and what was held in front of them is not.
func (r *relay) rechunk() {
	held := r.in.b[r.mid:r.hi]
	for len(held) > 0 {
		n, data, err := r.atSafe.Next(held)
		if err != nil || n == 0 {
			panic("BUG: bytes that were scanned before cannot be scanned again")
		}
		if data {
			r.decoded(held[:n])
		}
		held = held[n:]
	}
	// What may go out as it came goes first, with its framing completed.
	r.outBuf = getBuffer(max(sizeRelay, r.mid-r.lo+len(r.suffix)))
	out := append(r.outBuf.b[:0], r.in.b[r.lo:r.mid]...)
	out = append(out, r.suffix...)
	r.olo, r.ohi = 0, len(out)
	r.lo, r.mid, r.hi = 0, 0, 0
	r.reframe, r.trapped = true, false
	r.safe = len(r.dec) - r.events.Pending()
	r.event0 = r.safe
	r.emit()
}
