package main

import (
	"bytes"
	"context"
	"regexp"
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
	b.do(func(context.Context) { defer done.Done(); wrongOnPurpose() })
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
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "said where") && !(strings.Contains(line, "wrongOnPurpose") && regexp.MustCompile(`beside_test\.go:\d+`).MatchString(line)) {
			t.Errorf("the line does not say where: %s", line)
		}
	}
	if !strings.Contains(out.String(), "said where") {
		t.Error("the panic of a function is not in the log")
	}
}

//go:noinline
func wrongOnPurpose() { panic("it must be said where") }

// TestTooManyTasksBeside are dropped, and whoever gives them is told.
func TestTooManyTasksBeside(t *testing.T) {
	t.Parallel()
	b := newBeside(nil)
	for i := range besideQueue + 2 {
		room := b.room()
		if taken := b.do(func(context.Context) {}); taken != (i < besideQueue) || room != taken {
			t.Errorf("task %d is taken: %v, and there was room: %v", i+1, taken, room)
		}
	}
}
