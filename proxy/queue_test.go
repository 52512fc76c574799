package proxy

import "testing"

// TestQueueOutlivesItsLimit: a reload that takes the queue away must not strand
// those who wait in it.
func TestQueueOutlivesItsLimit(t *testing.T) {
	t.Parallel()
	var q queue
	q.limit.Store(2)
	a, b := new(gate), new(gate)
	if !q.enter(a) || !q.enter(b) || q.enter(new(gate)) {
		t.Fatal("room for two")
	}
	q.limit.Store(0)
	if !q.busy() {
		t.Error("a newcomer would overtake those who wait")
	}
	q.released()
	select {
	case <-a.wake:
	default:
		t.Error("the head of the queue is not told of room")
	}
	q.leave(a)
	select {
	case <-b.wake:
	default:
		t.Error("the next one is not told")
	}
	q.leave(b)
	if q.busy() || q.enter(new(gate)) {
		t.Error("a queue that was taken away takes somebody")
	}
}
