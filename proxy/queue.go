package proxy

import (
	"sync"
	"sync/atomic"
)

// queue holds the requests that wait for an engine below its in_flight limit,
// in order of arrival. Only its head may pick, so nobody overtakes.
type queue struct {
	limit  atomic.Int64
	length atomic.Int64 // of waiting

	mu      sync.Mutex // guards waiting
	waiting []*gate
}

// busy reports whether anyone waits, so that a newcomer must wait behind.
func (q *queue) busy() bool {
	return q.length.Load() > 0
}

// enter joins the queue. It reports false when the queue is full. leave must
// follow a true result.
func (q *queue) enter(g *gate) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if int64(len(q.waiting)) >= q.limit.Load() {
		return false
	}
	g.waker()
	q.waiting = append(q.waiting, g)
	q.length.Add(1)
	return true
}

// first reports whether g is at the head.
func (q *queue) first(g *gate) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) > 0 && q.waiting[0] == g
}

// leave ends a wait and lets the next one try.
func (q *queue) leave(g *gate) {
	q.mu.Lock()
	for i, w := range q.waiting {
		if w == g {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			q.length.Add(-1)
			break
		}
	}
	q.mu.Unlock()
	q.released()
}

// released tells the head of the queue that there may be room.
func (q *queue) released() {
	if q.length.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return
	}
	select {
	case q.waiting[0].wake <- struct{}{}:
	default:
	}
}
