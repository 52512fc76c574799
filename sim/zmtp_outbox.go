package sim

import (
	"net"
	"sync"
)

// zmtpMessage is a message as it goes out: head holds every frame but the last and the last one's head, payload the
// last one's body. Both are immutable, so all receivers and the replay ring share one payload.
type zmtpMessage struct {
	head    []byte
	payload []byte
}

// zmtpOutbox is the outgoing side of one peer: a queue between those who send and the goroutine that writes. A full
// queue refuses the new message and keeps the old ones, whole messages only, as libzmq's pipes do at their high-water
// mark. Any goroutine may put; one writes.
type zmtpOutbox struct {
	hwm  int           // messages; 0 = no limit, as in libzmq
	wake chan struct{} // holds a token while there is something to write
	room chan struct{} // holds a token after something was taken out

	mu      sync.Mutex // guards what follows
	urgent  []byte     // whole frames that overtake the queue: answers to heartbeats
	queue   []zmtpMessage
	first   int // queue[:first] was taken
	dropped uint64
}

func newOutbox(hwm int) *zmtpOutbox {
	return &zmtpOutbox{hwm: hwm, wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// put queues m and reports whether there was room. It never blocks.
func (o *zmtpOutbox) put(m zmtpMessage) bool {
	o.mu.Lock()
	full := o.full()
	if full {
		o.dropped++
	} else {
		o.queue = append(o.queue, m)
	}
	o.mu.Unlock()
	notify(o.wake)
	return !full
}

// full reports whether the next message would be refused. The caller holds mu.
func (o *zmtpOutbox) full() bool { return o.hwm > 0 && len(o.queue)-o.first >= o.hwm }

// isFull is full for callers without mu.
func (o *zmtpOutbox) isFull() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.full()
}

// drops is how many messages were refused so far.
func (o *zmtpOutbox) drops() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dropped
}

// putUrgent queues whole frames ahead of everything. More of them than a peer can have asked for in good faith is
// dropped: who sends PINGs and never reads gets no answers.
func (o *zmtpOutbox) putUrgent(frames []byte) {
	o.mu.Lock()
	if len(o.urgent) < zmtpFrameLimit {
		o.urgent = append(o.urgent, frames...)
	}
	o.mu.Unlock()
	notify(o.wake)
}

// Limits of one write: what is taken out no longer counts towards the high-water mark.
const (
	outboxBatchMessages = 64
	outboxBatchBytes    = 64 << 10
)

// take moves what one write should carry into dst.
func (o *zmtpOutbox) take(dst net.Buffers) net.Buffers {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.urgent) > 0 {
		dst = append(dst, o.urgent)
		o.urgent = nil
	}
	bytes := 0
	for n := 0; n < outboxBatchMessages && bytes < outboxBatchBytes && o.first < len(o.queue); n++ {
		m := &o.queue[o.first]
		dst = append(dst, m.head, m.payload)
		bytes += len(m.head) + len(m.payload)
		*m = zmtpMessage{}
		o.first++
	}
	switch {
	case o.first == len(o.queue):
		o.queue, o.first = o.queue[:0], 0
		if cap(o.queue) > 1024 {
			o.queue = nil // the memory of a backlog goes with it
		}
	case o.first >= 1024 && o.first*2 >= len(o.queue):
		n := copy(o.queue, o.queue[o.first:])
		clear(o.queue[n:])
		o.queue, o.first = o.queue[:n], 0
	}
	return dst
}

// writeTo writes to nc until it fails or done is closed. What was taken out for a write that fails is lost, as it is
// in libzmq's encoder.
func (o *zmtpOutbox) writeTo(nc net.Conn, done <-chan struct{}) {
	var scratch net.Buffers
	for {
		scratch = o.take(scratch[:0])
		if len(scratch) == 0 {
			select {
			case <-o.wake:
				continue
			case <-done:
				return
			}
		}
		batch := scratch // WriteTo advances its receiver
		_, err := batch.WriteTo(nc)
		clear(scratch)
		notify(o.room)
		if err != nil {
			_ = nc.Close() // so that the reader ends too
			return
		}
	}
}

// notify leaves a token in a channel of capacity one.
func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
