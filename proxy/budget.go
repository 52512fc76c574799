package proxy

import (
	"sync"
	"time"

	"ramjet/telemetry"
)

// budget bounds the bytes of request bodies held at once. A reader that finds
// it spent waits, which makes TCP slow its client down, rather than fail.
type budget struct {
	limit int64 // 0 = none

	mu      sync.Mutex // guards what follows
	used    int64
	waiting []chan struct{} // readers in order of arrival
}

// take books n bytes, waiting at most wait for them. It reports false when
// they cannot be had in time, or ever, and when g's request was aborted. give
// must follow a true result.
func (b *budget) take(n int64, wait time.Duration, g *gate) bool {
	if b.limit <= 0 {
		return true
	}
	if n > b.limit {
		return false
	}
	b.mu.Lock()
	if len(b.waiting) == 0 && b.used+n <= b.limit {
		b.used += n
		b.mu.Unlock()
		return true
	}
	ready := make(chan struct{}, 1)
	b.waiting = append(b.waiting, ready)
	b.mu.Unlock()

	timer := time.NewTimer(wait)
	defer timer.Stop()
	gone := g.waker()
	for g.aborted() == telemetry.EndNone {
		select {
		case <-ready:
			if b.takeFirst(ready, n) {
				return true
			}
		case <-timer.C:
			b.leave(ready)
			return false
		case <-gone:
		}
	}
	b.leave(ready)
	return false
}

// takeFirst books n bytes if ready is at the head of the queue and they fit.
func (b *budget) takeFirst(ready chan struct{}, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting[0] != ready || b.used+n > b.limit {
		return false
	}
	b.used += n
	b.waiting = b.waiting[1:]
	b.wakeLocked()
	return true
}

func (b *budget) leave(ready chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, w := range b.waiting {
		if w == ready {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			break
		}
	}
	b.wakeLocked()
}

// give returns n bytes.
func (b *budget) give(n int64) {
	if b.limit <= 0 || n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.used < 0 {
		panic("BUG: more body memory given back than taken")
	}
	b.wakeLocked()
}

func (b *budget) wakeLocked() {
	if len(b.waiting) == 0 {
		return
	}
	select {
	case b.waiting[0] <- struct{}{}:
	default:
	}
}

// held returns the bytes booked.
func (b *budget) held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
