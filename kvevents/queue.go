package kvevents

import (
	"context"
	"sync"
)

// itemKind says what an item of a queue is.
type itemKind uint8

const (
	itemMessage itemKind = iota
	itemUp               // connected, subscribed or asked
	itemDown             // the connection ended; err says how
	itemEnd              // a replay ended by its end marker
)

// item is what a connection's goroutine hands to the feed: messages and changes of state in one order, since a sequence
// number means something else after a reconnect.
type item struct {
	kind itemKind
	m    *Message
	err  error
}

// queue is a bounded queue from one goroutine to another. When it is full its writer waits and stops reading its socket,
// so that TCP and in the end the engine's own limits hold the rest back.
type queue struct {
	ready chan struct{} // has an element when there may be items
	room  chan struct{} // has an element when there may be room

	mu    sync.Mutex // guards what follows
	items []item
	head  int
	bytes int
	free  []*Message

	maxItems, maxBytes int
}

func newQueue(maxItems, maxBytes int) *queue {
	return &queue{ready: make(chan struct{}, 1), room: make(chan struct{}, 1), maxItems: maxItems, maxBytes: maxBytes}
}

// push appends an item, waiting for room; changes of state always find room. It reports false when ctx ended first.
func (q *queue) push(ctx context.Context, it item) bool {
	for {
		q.mu.Lock()
		n := len(q.items) - q.head
		if it.kind != itemMessage || n == 0 || n < q.maxItems && q.bytes < q.maxBytes {
			q.compact()
			q.items = append(q.items, it)
			if it.m != nil {
				q.bytes += it.m.Bytes()
			}
			q.mu.Unlock()
			signal(q.ready)
			return true
		}
		q.mu.Unlock()
		select {
		case <-ctx.Done():
			return false
		case <-q.room:
		}
	}
}

// compact moves the items to the front once the empty part is as long as the rest, so that appending stays cheap.
func (q *queue) compact() {
	if q.head > 0 && q.head >= len(q.items)-q.head {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
}

// pop takes the oldest item. When there is none it reports false, and ready will tell of the next.
func (q *queue) pop() (item, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head == len(q.items) {
		return item{}, false
	}
	it := q.items[q.head]
	q.items[q.head] = item{}
	q.head++
	if it.m != nil {
		q.bytes -= it.m.Bytes()
	}
	signal(q.room)
	return it, true
}

// len returns the items that wait.
func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) - q.head
}

// message returns a message to read into.
func (q *queue) message() *Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.free); n > 0 {
		m := q.free[n-1]
		q.free = q.free[:n-1]
		return m
	}
	return new(Message)
}

// maxFree bounds the messages kept for their next use; each keeps at most keepBuffer bytes.
const maxFree = 16

// recycle takes a message back that nobody reads any more.
func (q *queue) recycle(m *Message) {
	if m == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.free) < maxFree {
		m.reset()
		q.free = append(q.free, m)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
