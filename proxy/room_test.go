package proxy

import (
	"sync/atomic"
	"testing"
)

// TestRoomForUpstream: connections to engines count against the process's
// descriptors, whoever knows of them, so that clients leave some for the rest.
func TestRoomForUpstream(t *testing.T) {
	t.Parallel()
	var open atomic.Int64
	f := start(t, []script{func(x *exchange) { x.write(plainAnswer) }}, func(s *setup) {
		s.Upstream = func() int { return int(open.Load()) }
	})
	f.ask(post(chatPath, chatBody)).want(t, 200, answerBody)
	open.Store(int64(descriptorLimit() - descriptorReserve))
	f.dial().closed()
	open.Store(0)
	f.ask(post(chatPath, chatBody)).want(t, 200, answerBody)
}
