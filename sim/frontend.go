package sim

import (
	"context"
	"sync"
	"time"
)

// frontend is the thread of vLLM's API process that renders, tokenizes and parses: one request after another, so that
// long prompts wait for each other long before the engine sees them.
type frontend struct {
	mu   sync.Mutex // guards busy
	busy time.Time  // until when there is work
}

// spend queues work of d and waits until it is done; false if ctx ended first. The work is done all the same.
func (f *frontend) spend(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	now := time.Now()
	f.mu.Lock()
	if f.busy.Before(now) {
		f.busy = now
	}
	f.busy = f.busy.Add(d)
	wait := f.busy.Sub(now)
	f.mu.Unlock()
	return pause(ctx, wait)
}

// reset drops what is queued, as the end of the process does.
func (f *frontend) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy = time.Time{}
}
