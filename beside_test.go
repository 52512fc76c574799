package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	"ramjet/telemetry"
)

// TestTasksBeside run, and one that panics ends nothing but itself.
func TestTasksBeside(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := telemetry.NewLogWriter(&out)
	b := newBeside(telemetry.NewLog(w, telemetry.LevelInfo, telemetry.FormatJSON))
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	for range 2 * besideWorkers {
		done.Add(1)
		b.do(func(context.Context) { defer done.Done(); panic("a task of the test") })
	}
	done.Add(1)
	b.do(func(ctx context.Context) {
		defer done.Done()
		if _, limited := ctx.Deadline(); !limited {
			t.Error("the task has no time limit")
		}
	})
	ended := make(chan struct{})
	go func() { b.run(ctx); close(ended) }()
	done.Wait()
	cancel()
	<-ended
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "a task of the test"); n < 2*besideWorkers {
		t.Errorf("%d of %d panics are in the log:\n%s", n, 2*besideWorkers, out.String())
	}
}
