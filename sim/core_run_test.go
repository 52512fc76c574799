package sim

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestTiming: a prefill takes its time, then each token a step; a step of two takes longer than a step of one.
func TestTiming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCore(t, CoreOptions{Speed: 2})
		begin := time.Now()
		s := c.Submit(Job{Prompt: promptOf(1, 8192), MaxTokens: 11})
		next(t, s)
		first := time.Since(begin)
		// Two chunks of 4,096 tokens at 10,000 a second, two steps of 9.5 ms, all at twice the speed.
		if want := 419_100 * time.Microsecond; first != want {
			t.Errorf("first token after %v, wanted %v", first, want)
		}
		for range 10 {
			next(t, s)
		}
		// 9.74 ms and 20 ns for each of some 8,200 tokens of context.
		if gap := (time.Since(begin) - first) / 10; gap < 4950*time.Microsecond || gap > 4953*time.Microsecond {
			t.Errorf("%v a token, wanted 4.952 ms", gap)
		}
	})
}

func next(t *testing.T, s *Sequence) Output {
	t.Helper()
	out, err := s.Next(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// lateObserver makes every step end late by its own work.
type lateObserver struct {
	recorder
	late time.Duration
}

func (o *lateObserver) StepEnd() { time.Sleep(o.late) }

// TestAbsoluteTime: what one step loses, the next one gains, so lateness does not add up.
func TestAbsoluteTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &lateObserver{*newRecorder(), 5 * time.Millisecond}
		c := startCore(t, CoreOptions{Observer: o})
		begin := time.Now()
		if _, err := readAll(c.Submit(Job{Prompt: promptOf(1, 10), MaxTokens: 1001})); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < 9740*time.Millisecond || took > 9780*time.Millisecond {
			t.Errorf("1,001 steps of 9.74 ms took %v", took)
		}
		if got := c.Stats().Slipped; got != 0 {
			t.Errorf("slipped by %v", got)
		}
	})
}

// TestTooSlow: where steps cannot keep their times at all, the lateness is written off and reported.
func TestTooSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &lateObserver{*newRecorder(), 30 * time.Millisecond}
		c := startCore(t, CoreOptions{Observer: o})
		if _, err := readAll(c.Submit(Job{Prompt: promptOf(1, 10), MaxTokens: 100})); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := c.Stats().Slipped; got < time.Second || got > 3*time.Second {
			t.Errorf("slipped by %v, wanted about 2 s", got)
		}
	})
}

func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCore(t, CoreOptions{MaxSeqs: 1})
		s := c.Submit(Job{Prompt: promptOf(1, 1000), MaxTokens: 100_000})
		queued := c.Submit(Job{Prompt: promptOf(2, 100), MaxTokens: 5})
		next(t, s)
		for _, gone := range []*Sequence{queued, s} {
			gone.Abort()
			gone.Abort()
		}
		time.Sleep(10 * time.Millisecond) // a step is 9.74 ms
		if got := c.Stats(); got.Running != 0 || got.Waiting != 0 || got.KVBlocksUsed != 0 || got.Aborted != 2 || got.KVBlocksCached != 62 {
			t.Errorf("after the abort: %+v", got)
		}
		for _, gone := range []*Sequence{queued, s} {
			if out, err := readAll(gone); err != nil || out.FinishReason != FinishAbort {
				t.Errorf("the reader got %q, error %v", out.FinishReason, err)
			}
			gone.Abort() // after the end: nothing
		}
		again := c.Submit(Job{Prompt: promptOf(1, 1000), MaxTokens: 1})
		next(t, again)
		if again.Cached() != 992 {
			t.Errorf("%d cached: an aborted sequence's blocks stay", again.Cached())
		}
		if got := c.Stats().Aborted; got != 2 {
			t.Errorf("%d aborted", got)
		}
	})
}

// TestAbortDuringPrefill: the step of a long chunk does not hold the abort up.
func TestAbortDuringPrefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCore(t, CoreOptions{})
		s := c.Submit(Job{Prompt: promptOf(1, 50_000), MaxTokens: 5})
		time.Sleep(100 * time.Millisecond)
		s.Abort()
		synctest.Wait()
		if got := c.Stats(); got.Running != 0 || got.KVBlocksUsed != 0 || got.KVBlocksCached != 256 {
			t.Errorf("%+v", got)
		}
	})
}

func TestAbortAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCore(t, CoreOptions{MaxSeqs: 2})
		var all []*Sequence
		for i := range 4 {
			all = append(all, c.Submit(Job{Prompt: promptOf(i, 50), MaxTokens: 500}))
		}
		next(t, all[0])
		c.AbortAll("")
		for _, s := range all {
			if out, err := readAll(s); err != nil || out.FinishReason != FinishAbort || !out.Finished {
				t.Errorf("%+v, error %v", out, err)
			}
		}
		late := c.Submit(Job{Prompt: promptOf(9, 50), MaxTokens: 3})
		c.AbortAll("shutdown")
		if out, err := readAll(late); err != nil || out.FinishReason != "shutdown" {
			t.Errorf("%+v, error %v", out, err)
		}
	})
}

// TestHang stops the output in the middle of a step and between steps, and nothing is lost when it ends.
func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCore(t, CoreOptions{Seed: 4})
		s := c.Submit(Job{Prompt: promptOf(1, 50), MaxTokens: 20})
		next(t, s)
		c.Hang(true)
		quiet, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		if out, err := s.Next(quiet); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v, error %v while hung", out, err)
		}
		if got := c.Stats(); !got.Hung || got.Running != 1 {
			t.Errorf("%+v", got)
		}
		other := c.Submit(Job{Prompt: promptOf(2, 50), MaxTokens: 20})
		begin := time.Now()
		c.Hang(false)
		for i, s := range []*Sequence{s, other} {
			out, err := readAll(s)
			if want := ExpectedTokens(4, promptOf(i+1, 50), 20)[1-i:]; err != nil || !slices.Equal(out.Tokens, want) {
				t.Errorf("sequence %d: %d tokens, error %v", i, len(out.Tokens), err)
			}
		}
		if took := time.Since(begin); took < 150*time.Millisecond || took > 250*time.Millisecond {
			t.Errorf("the rest took %v: a hang is not caught up", took)
		}
	})
}

func TestHangWhileIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCore(t, CoreOptions{})
		c.Hang(true)
		s := c.Submit(Job{Prompt: promptOf(1, 50), MaxTokens: 2})
		time.Sleep(time.Hour)
		if got := c.Stats(); got.Steps != 0 || got.Waiting != 1 {
			t.Errorf("%+v", got)
		}
		s.Abort()
		if out, err := readAll(s); err != nil || out.FinishReason != FinishAbort {
			t.Errorf("%+v, error %v", out, err)
		}
	})
}

func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		c := startCore(t, CoreOptions{Observer: r})
		done := c.Submit(Job{Prompt: promptOf(1, 50), MaxTokens: 2})
		if _, err := readAll(done); err != nil {
			t.Fatal(err)
		}
		before := len(r.stored)
		s := c.Submit(Job{Prompt: promptOf(2, 50), MaxTokens: 200})
		next(t, s)
		c.Restart()
		if _, err := readAll(s); !errors.Is(err, ErrStopped) {
			t.Errorf("error %v", err)
		}
		if got := c.Stats(); got != (Stats{KVBlocks: 8192}) {
			t.Errorf("%+v", got)
		}
		if slices.Contains(r.events, "cleared") {
			t.Error("a dead process published something")
		}
		again := c.Submit(Job{Prompt: promptOf(1, 50), MaxTokens: 2})
		if _, err := readAll(again); err != nil || again.Cached() != 0 {
			t.Errorf("%d cached, error %v", again.Cached(), err)
		}
		if len(r.stored) != 2*before+3 {
			t.Errorf("%d hashes: the same prompt has other ones after a restart", len(r.stored))
		}
	})
}

// TestResetCache: refused while a sequence runs; done, it is published with the next step.
func TestResetCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		c := startCore(t, CoreOptions{Observer: r})
		s := c.Submit(Job{Prompt: promptOf(1, 50), MaxTokens: 3})
		next(t, s)
		if c.ResetCache() {
			t.Error("reset while a sequence runs")
		}
		if _, err := readAll(s); err != nil {
			t.Fatal(err)
		}
		if n := c.Evict(1); n != 1 {
			t.Errorf("%d evicted", n)
		}
		if !c.ResetCache() {
			t.Error("no reset of an idle engine")
		}
		if n := c.Evict(10); n != 0 {
			t.Errorf("%d evicted from an empty cache", n)
		}
		r.events = nil
		again := c.Submit(Job{Prompt: promptOf(1, 50), MaxTokens: 1})
		if _, err := readAll(again); err != nil || again.Cached() != 0 {
			t.Errorf("%d cached, error %v", again.Cached(), err)
		}
	})
}

// TestEnd: when Run ends nobody waits in vain, now or later, and no goroutine is left (the bubble would not end).
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCore(CoreOptions{})
		early := c.Submit(Job{Prompt: promptOf(1, 50), MaxTokens: 1})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		if out, err := readAll(early); err != nil || len(out.Tokens) != 1 {
			t.Errorf("submitted before Run: %+v, error %v", out, err)
		}
		s := c.Submit(Job{Prompt: promptOf(2, 50), MaxTokens: 500})
		next(t, s)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		late := c.Submit(Job{Prompt: promptOf(3, 50), MaxTokens: 500})
		for _, s := range []*Sequence{s, late} {
			if _, err := readAll(s); !errors.Is(err, ErrStopped) {
				t.Errorf("error %v", err)
			}
			s.Abort()
		}
		c.Hang(true)
		c.AbortAll("")
		c.Restart()
		c.Evict(1)
		if got := c.Stats(); got.Running != 0 || got.Waiting != 0 || got.KVBlocksUsed != 0 {
			t.Errorf("%+v", got)
		}
		defer func() {
			if recover() == nil {
				t.Error("a core ran twice")
			}
		}()
		_ = c.Run(ctx)
	})
}

// TestIdleIsParked measures the whole process, so it is not parallel: fifty idle cores use no CPU.
func TestIdleIsParked(t *testing.T) {
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for range 50 {
		c := startCore(t, CoreOptions{Speed: 1000, KVBlocks: 64})
		if _, err := readAll(c.Submit(Job{Prompt: promptOf(1, 5), MaxTokens: 5})); err != nil {
			t.Fatal(err)
		}
	}
	before := cpu()
	time.Sleep(200 * time.Millisecond)
	if used := cpu() - before; used > 60*time.Millisecond {
		t.Errorf("idle cores used %v of CPU in 200 ms", used)
	}
}
