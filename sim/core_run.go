package sim

import (
	"context"
	"time"
)

// maxLag is how far steps may fall behind the clock before the rest is written off. Up to that they catch up, so that
// late timers do not add up; beyond it (a suspended machine, a speed that the machine cannot keep) catching up would
// show clients an engine of no known speed.
const maxLag = 250 * time.Millisecond

// Run schedules until ctx ends, ends all sequences with ErrStopped and returns ctx's error. It is called once. Without
// sequences it is parked. Steps stand on absolute time: each begins when the one before should have ended.
func (c *Core) Run(ctx context.Context) error {
	c.start()
	defer c.finish()
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	deadline := time.Now()
	for {
		c.drain()
		load, ok := stepLoad{}, false
		if !c.hung {
			load, ok = c.schedule()
		}
		c.publish()
		if !ok {
			select {
			case <-c.wake:
			case <-ctx.Done():
				return ctx.Err()
			}
			deadline = time.Now()
			continue
		}
		if lag := time.Since(deadline); lag > maxLag {
			c.stats.Slipped += lag
			deadline = deadline.Add(lag)
		}
		deadline = deadline.Add(c.stepTime(load))
		if err := c.sleep(ctx, timer, deadline); err != nil {
			return err
		}
		if c.hung {
			if err := c.sleepHung(ctx); err != nil {
				return err
			}
			deadline = time.Now()
		}
		c.complete()
	}
}

func (c *Core) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running.CompareAndSwap(notStarted, started) {
		panic("BUG: a core runs once")
	}
}

// sleep waits for the end of a step. What comes in meanwhile is done at once: new sequences only queue up, and a
// departed one gives its blocks free.
func (c *Core) sleep(ctx context.Context, timer *time.Timer, deadline time.Time) error {
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return nil
		}
		timer.Reset(left)
		select {
		case <-timer.C:
			return nil
		case <-c.wake:
			c.drain()
			c.publish()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sleepHung waits for the end of a hang that began during a step.
func (c *Core) sleepHung(ctx context.Context) error {
	for c.hung {
		select {
		case <-c.wake:
			c.drain()
			c.publish()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// post hands f to the scheduler, which calls it before its next step; without a running scheduler it calls f itself.
// f must not call post.
func (c *Core) post(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running.Load() != started {
		f()
		c.publish()
		return
	}
	c.inbox = append(c.inbox, f)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// call is post, and waits until f has been called.
func (c *Core) call(f func()) {
	done := make(chan struct{})
	c.post(func() {
		f()
		close(done)
	})
	<-done
}

// drain calls what was handed over.
func (c *Core) drain() {
	c.mu.Lock()
	todo := c.inbox
	c.inbox = c.spare[:0]
	c.mu.Unlock()
	for _, f := range todo {
		f()
	}
	clear(todo)
	c.spare = todo
}

// finish is the end of Run: nobody waits in vain.
func (c *Core) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running.Store(ended)
	for _, f := range c.inbox {
		f()
	}
	c.inbox = nil
	for _, s := range c.all() {
		c.drop(s, "", ErrStopped)
	}
	c.publish()
}
