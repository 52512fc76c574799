package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"ramjet/telemetry"
)

// beside runs small tasks beside the requests: comparisons and questions to
// engines that nobody waits for. Tasks that come while too many wait are
// dropped; each has a time limit.
type beside struct {
	log   *telemetry.Log
	tasks chan func(ctx context.Context)
}

const (
	besideWorkers = 2
	besideQueue   = 32
	besideLimit   = 30 * time.Second
)

func newBeside(log *telemetry.Log) *beside {
	return &beside{log: log, tasks: make(chan func(ctx context.Context), besideQueue)}
}

// do takes a task, or drops it and returns false.
func (b *beside) do(task func(ctx context.Context)) bool {
	select {
	case b.tasks <- task:
		return true
	default:
		return false
	}
}

// room reports whether do would take a task just now.
func (b *beside) room() bool { return len(b.tasks) < cap(b.tasks) }

// run works until ctx ends.
func (b *beside) run(ctx context.Context) {
	var wg sync.WaitGroup
	for range besideWorkers {
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case task := <-b.tasks:
					b.one(ctx, task)
				}
			}
		})
	}
	wg.Wait()
}

// one runs one task. What goes wrong in it, as in a request, costs itself
// alone.
func (b *beside) one(ctx context.Context, task func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, besideLimit)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			b.log.Error("a task beside the requests panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	task(ctx)
}
